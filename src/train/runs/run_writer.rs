//! The thread that writes a run: its folder, its curve file, its record.

use super::curve::{EvaluationPoint, MAGIC, put_evaluation, put_steps};
use super::layers::Joined;
use super::{Curves, LayerCurves, PlanDigest, ResumePoint, RunEnd, RunRecord, RunSpan, RunStore, RunsError, now_ms};
use crate::tensor::{sync_folder, write_advice, write_atomic};
use crate::train::{Spans, StepReport, checkpoint_step};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between writes of the curve.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Time between writes of the record.
const RECORD_EVERY: Duration = Duration::from_secs(3);

pub(super) fn failed(path: &Path, cause: io::Error) -> RunsError {
    RunsError::File { path: path.to_owned(), what: "written", cause }
}

/// Why the data of a run cannot be written, and what to do.
fn with_advice(error: &io::Error) -> String {
    format!("{error}; {}", write_advice(error))
}

/// Messages to the thread.
pub(super) enum Message {
    Steps(Vec<StepReport>, f64),
    /// How far parameters moved.
    Moved(Vec<Spans>),
    Evaluated(EvaluationPoint),
    /// The run was made longer, or continues after its end.
    Total(u64),
    /// The run has ended, but may still continue.
    State(RunEnd, Option<String>),
    /// The next checkpoint is written: it replaces the last one when all earlier data are on the disk, and its step is
    /// then stored here.
    Checkpoint(Arc<AtomicU64>),
}

/// The temporary name of a checkpoint until the curve reaches its step: no run resumes from a checkpoint that is ahead
/// of its curve.
pub(super) fn next_checkpoint(checkpoint: &Path) -> PathBuf {
    checkpoint.with_extension("next")
}

/// Takes over the lock of a run's folder from its last writer, which may still be ending.
fn lock_again(folder: &Path, id: &str) -> Result<File, RunsError> {
    /// The time that the last writer of the run may take to end.
    const PATIENCE: Duration = Duration::from_secs(10);
    let lock = File::options().write(true).open(folder.join("lock")).map_err(|e| failed(folder, e))?;
    let asked = Instant::now();
    while matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
        if asked.elapsed() > PATIENCE {
            return Err(RunsError::Busy(id.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(lock)
}

/// The state of writing a run.
pub(super) struct RunWriter {
    record: RunRecord,
    path: PathBuf,
    checkpoint: PathBuf,
    curve: File,
    /// The end of the run as a reader will see it, for the closing metrics.
    curves: Curves,
    /// The layers of the network, and rows of them that are in no chunk yet.
    layers: LayerCurves,
    moved: Joined,
    /// Whether the file contains the names of these layers.
    is_named: bool,
    /// Bytes that are not written yet.
    pending: Vec<u8>,
    /// Steps that are in no chunk yet, and when they were made.
    reports: Vec<StepReport>,
    reports_ms: (f64, f64),
    written: Instant,
    recorded: Instant,
    failure: Option<String>,
    _lock: File,
}

impl RunWriter {
    /// Makes the folder of a run with everything in it except the curve's first chunk.
    pub(super) fn open(
        store: &RunStore,
        mut record: RunRecord,
        plan: &PlanDigest,
        layers: LayerCurves,
    ) -> Result<(String, Self), RunsError> {
        record.version = 1;
        record.span.started_ms = now_ms();
        record.plan_hash = plan.sum();
        record.state = RunEnd::Running;
        let id = store.create(&record)?;
        let writer = Self::furnish(&store.path(&id), store.checkpoint(&id), record, plan, layers);
        if writer.is_err() {
            // An incomplete folder would be listed as a damaged run.
            let _ = std::fs::remove_dir_all(store.path(&id));
        }
        Ok((id, writer?))
    }

    fn furnish(
        folder: &Path,
        checkpoint: PathBuf,
        record: RunRecord,
        plan: &PlanDigest,
        layers: LayerCurves,
    ) -> Result<Self, RunsError> {
        let lock = File::create(folder.join("lock")).map_err(|e| failed(folder, e))?;
        // Without file locks, a run that is being written is listed as interrupted; nothing is lost.
        let _ = lock.try_lock();
        let curve_path = folder.join("curve.bin");
        let mut curve = File::create(&curve_path).map_err(|e| failed(&curve_path, e))?;
        curve.write_all(MAGIC).map_err(|e| failed(&curve_path, e))?;
        let text = serde_json::to_string(plan).unwrap_or_default();
        write_atomic(&folder.join("plan.json"), text.as_bytes()).map_err(|e| failed(folder, e))?;
        let mut writer = Self {
            record,
            path: folder.join("run.json"),
            checkpoint,
            curve,
            curves: Curves::default(),
            layers,
            moved: Joined::default(),
            is_named: false,
            pending: Vec::new(),
            reports: Vec::new(),
            reports_ms: (0.0, 0.0),
            written: Instant::now(),
            recorded: Instant::now(),
            failure: None,
            _lock: lock,
        };
        writer.write_record().map_err(|e| failed(&writer.path, e))?;
        Ok(writer)
    }

    /// Takes over the folder of a run that was released, or is about to be released.
    pub(super) fn reopen(
        store: &RunStore,
        from: &ResumePoint,
        now: RunRecord,
        plan: &PlanDigest,
        layers: LayerCurves,
    ) -> Result<Self, RunsError> {
        let folder = store.path(&from.id);
        let lock = lock_again(&folder, &from.id)?;
        let before = store.record(&from.id)?;
        // A checkpoint that a killed program had not renamed.
        let _ = std::fs::remove_file(next_checkpoint(&store.checkpoint(&from.id)));
        let curve_path = folder.join("curve.bin");
        let (curves, sound) = store.sound_curves(&from.id)?;
        let curve = File::options().append(true).open(&curve_path).map_err(|e| failed(&curve_path, e))?;
        // Data after an incomplete chunk would never be read.
        curve.set_len(sound).map_err(|e| failed(&curve_path, e))?;
        let record = RunRecord {
            span: RunSpan { started_ms: before.span.started_ms, ended_ms: None },
            plan_hash: plan.sum(),
            state: RunEnd::Running,
            error: None,
            version: 1,
            ..now
        };
        if record.plan_hash != before.plan_hash {
            let text = serde_json::to_string(plan).unwrap_or_default();
            write_atomic(&folder.join("plan.json"), text.as_bytes()).map_err(|e| failed(&folder, e))?;
        }
        let mut writer = Self {
            record,
            path: folder.join("run.json"),
            checkpoint: store.checkpoint(&from.id),
            curve,
            is_named: layers.is_about(&curves.layers),
            curves,
            layers,
            moved: Joined::default(),
            pending: Vec::new(),
            reports: Vec::new(),
            reports_ms: (from.ms, from.ms),
            written: Instant::now(),
            recorded: Instant::now(),
            failure: None,
            _lock: lock,
        };
        // Closing metrics need no layers.
        writer.curves.layers = LayerCurves::default();
        writer.curves.go_back(from.step);
        writer.write_record().map_err(|e| failed(&writer.path, e))?;
        Ok(writer)
    }

    pub(super) fn serve(mut self, inbox: &Receiver<Message>) -> Result<(), String> {
        loop {
            let message = inbox.recv_timeout(WRITE_EVERY);
            let outcome = match message {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let outcome = outcome.and_then(|()| self.write_in_time());
            if let Err(error) = outcome {
                self.failure = Some(with_advice(&error));
                break;
            }
        }
        if self.record.state == RunEnd::Running {
            // The process that trained it has released it, because the user ended it.
            self.record.state = RunEnd::Stopped;
        }
        self.record.span.ended_ms = Some(now_ms());
        let closed = self.write_all().and_then(|()| self.curve.sync_all()).and_then(|()| self.write_record());
        let failure = self.failure.take().or_else(|| closed.err().map(|e| with_advice(&e)));
        if failure.is_none() && self.record.steps == 0 && self.record.state == RunEnd::Stopped {
            // A run that never made a step is not kept; one whose last data could not be written is.
            if let Some(folder) = self.path.parent() {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
        failure.map_or(Ok(()), |why| Err(format!("the run {} is not kept whole: {why}", self.path.display())))
    }

    fn take(&mut self, message: Message) -> io::Result<()> {
        match message {
            Message::Steps(reports, ms) => {
                let follows = self.reports.last().zip(reports.first()).is_none_or(|(a, b)| b.step == a.step + 1);
                if !follows {
                    self.pack();
                }
                if self.reports.is_empty() {
                    self.reports_ms.0 = self.reports_ms.1;
                }
                self.reports_ms.1 = ms;
                self.reports.extend(reports);
            }
            Message::Moved(spans) => {
                spans.iter().filter_map(|s| self.layers.row(s)).for_each(|row| self.moved.push(row));
            }
            Message::Evaluated(point) => {
                self.pack();
                put_evaluation(&mut self.pending, &point);
                self.curves.evaluations.push(point);
            }
            Message::Total(total) => self.record.total = total,
            Message::Checkpoint(taken) => self.take_checkpoint(&taken)?,
            Message::State(state, error) => {
                let changed = self.record.state != state;
                self.record.state = state;
                self.record.error = error;
                self.record.span.ended_ms = (state != RunEnd::Running).then(now_ms);
                if changed {
                    self.write_all()?;
                    self.write_record()?;
                }
            }
        }
        Ok(())
    }

    /// Renames the next checkpoint to its final name, after everything before it is on the disk.
    fn take_checkpoint(&mut self, taken: &AtomicU64) -> io::Result<()> {
        self.write_all()?;
        self.curve.sync_data()?;
        self.write_record()?;
        let next = next_checkpoint(&self.checkpoint);
        // A checkpoint that was written since then waits for its own message; without a step it cannot be ahead of
        // anything.
        let is_reached = |step: &u64| self.curves.is_empty() || *step <= self.curves.last_step();
        if let Some(step) = checkpoint_step(&next).ok().filter(is_reached) {
            std::fs::rename(&next, &self.checkpoint)?;
            self.checkpoint.parent().into_iter().for_each(sync_folder);
            taken.store(step, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts the collected steps into a chunk.
    fn pack(&mut self) {
        let (from, to) = self.reports_ms;
        if !self.reports.is_empty() {
            put_steps(&mut self.pending, &self.reports, from, to);
            self.curves.append(&self.reports, from, to);
            self.curves.keep_tail();
            self.reports.clear();
        }
    }

    fn write_in_time(&mut self) -> io::Result<()> {
        if self.written.elapsed() >= WRITE_EVERY {
            self.write_curve()?;
        }
        if self.recorded.elapsed() >= RECORD_EVERY && self.record.state == RunEnd::Running {
            self.write_record()?;
        }
        Ok(())
    }

    fn write_curve(&mut self) -> io::Result<()> {
        self.written = Instant::now();
        self.pack();
        // Rows come after their steps, because repeated steps remove the rows that contained them.
        let rows = self.moved.take_until(self.curves.last_step());
        if !(rows.is_empty() || self.is_named) {
            self.layers.put_names(&mut self.pending);
            self.is_named = true;
        }
        self.layers.put_rows(&mut self.pending, &rows);
        if !self.pending.is_empty() {
            self.curve.write_all(&self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Also writes rows that are still being merged.
    fn write_all(&mut self) -> io::Result<()> {
        self.moved.close();
        self.write_curve()
    }

    fn write_record(&mut self) -> io::Result<()> {
        self.recorded = Instant::now();
        self.record.sum_up(&self.curves);
        self.record.curve_bytes = self.curve.metadata()?.len();
        let text = serde_json::to_string_pretty(&self.record)?;
        write_atomic(&self.path, text.as_bytes())
    }
}
