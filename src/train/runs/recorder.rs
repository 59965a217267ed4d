//! Writing a run while it lasts, from a thread of its own.
//!
//! Whoever hands over steps never waits: what finds the channel full stays with them and goes with the next call. The thread writes what it was given
//! several times a second, so a program that is killed loses that much of the curve and no more.

use super::curve::{EvaluationPoint, MAGIC, put_evaluation, put_steps};
use super::{Curves, PlanDigest, RunEnd, RunRecord, RunStore, RunsError, now_ms};
use crate::compile::Compiled;
use crate::tensor::write_atomic;
use crate::train::{Evaluation, StepReport};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Messages that may wait for the thread.
const BOUND: usize = 64;
/// Time between writes of the curve.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Time between writes of the record.
const RECORD_EVERY: Duration = Duration::from_secs(3);

/// Time until the first checkpoint of a run that goes on, and the bounds of that between the next ones.
pub const FIRST_SAVE: Duration = Duration::from_secs(3);
pub const SAVE_EVERY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// Writing checkpoints takes at most this share of a run's time: one part of so many.
pub const SAVE_SHARE: u32 = 30;

fn failed(path: &Path, cause: io::Error) -> RunsError {
    RunsError::File { path: path.to_owned(), what: "written", cause }
}

enum Message {
    Steps(Vec<StepReport>, f64),
    Evaluated(EvaluationPoint),
    /// The run was made longer, or goes on after its end.
    Total(u64),
    /// The run has come to an end, after which it may still go on.
    State(RunEnd, Option<String>),
    /// All that came before is to be written; the sender is dropped when it is.
    Written(Sender<()>),
}

/// Where a kept run goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumePoint {
    pub id: String,
    /// The step of its checkpoint, and the running time until then in milliseconds.
    pub step: u64,
    pub ms: f64,
}

/// A run that is being written. Dropping it writes what is left, without waiting for that.
pub struct Recorder {
    /// Known once the run's folder is there.
    id: Arc<OnceLock<String>>,
    store: RunStore,
    outbox: Option<Sender<Message>>,
    backlog: Vec<Message>,
    thread: Option<JoinHandle<Result<(), String>>>,
    /// Running time until the last pause, and since when the run goes on.
    ran_ms: f64,
    since: Option<Instant>,
}

impl Recorder {
    /// Makes the run's folder and starts the thread. The record's state and closing figures are the recorder's own.
    ///
    /// # Errors
    /// Where nothing can be written there, or the system refuses a thread.
    pub fn begin(store: &RunStore, record: RunRecord, plan: &PlanDigest) -> Result<Self, RunsError> {
        let (id, desk) = Desk::open(store, record, plan)?;
        Self::start(store, OnceLock::from(id), move |_, inbox| desk.serve(inbox))
    }

    /// As [`Self::begin`], for those who must not wait: the thread makes the folder too, and what fails is told by [`Self::finish`].
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn begin_unseen(store: &RunStore, record: RunRecord, compiled: Arc<Compiled>) -> Result<Self, RunsError> {
        let place = store.clone();
        Self::start(store, OnceLock::new(), move |known, inbox| {
            let (id, desk) = Desk::open(&place, record, &PlanDigest::of(&compiled)).map_err(|e| e.to_string())?;
            drop(compiled);
            let _ = known.set(id);
            desk.serve(inbox)
        })
    }

    /// Goes on with a kept run from `from`, as [`Self::begin_unseen`]: `record` says on what it is trained now.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn resume_unseen(
        store: &RunStore,
        from: &ResumePoint,
        record: RunRecord,
        compiled: Arc<Compiled>,
    ) -> Result<Self, RunsError> {
        let (place, point) = (store.clone(), from.clone());
        let mut recorder = Self::start(store, OnceLock::from(from.id.clone()), move |_, inbox| {
            let desk = Desk::reopen(&place, &point, record, &PlanDigest::of(&compiled)).map_err(|e| e.to_string())?;
            drop(compiled);
            desk.serve(inbox)
        })?;
        recorder.ran_ms = from.ms;
        Ok(recorder)
    }

    fn start(
        store: &RunStore,
        id: OnceLock<String>,
        work: impl FnOnce(&OnceLock<String>, &Receiver<Message>) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, RunsError> {
        let (outbox, inbox) = bounded(BOUND);
        let id = Arc::new(id);
        let known = Arc::clone(&id);
        let thread = Builder::new().name("stepgraph-record".into()).spawn(move || work(&known, &inbox));
        let thread = thread.map_err(|e| failed(store.folder(), e))?;
        Ok(Self {
            id,
            store: store.clone(),
            outbox: Some(outbox),
            backlog: Vec::new(),
            thread: Some(thread),
            ran_ms: 0.0,
            since: None,
        })
    }

    /// The run's id; `None` until its folder is there.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.get().map(String::as_str)
    }

    /// Where the run's checkpoint belongs; `None` until its folder is there.
    #[must_use]
    pub fn checkpoint(&self) -> Option<PathBuf> {
        self.id().map(|id| self.store.checkpoint(id))
    }

    /// Lets running time pass, or stand still while the run is paused.
    pub fn set_running(&mut self, running: bool) {
        self.ran_ms = self.now();
        self.since = running.then(Instant::now);
    }

    fn now(&self) -> f64 {
        self.ran_ms + self.since.map_or(0.0, |s| s.elapsed().as_secs_f64() * 1e3)
    }

    /// Hands over steps that were just made.
    pub fn steps(&mut self, reports: &[StepReport]) {
        if self.since.is_none() {
            // Single steps have no running clock: their own times are what passes.
            self.ran_ms += reports.iter().map(|r| f64::from(r.step_us + r.feed_us)).sum::<f64>() * 1e-3;
        }
        let now = self.now();
        self.push(Message::Steps(reports.to_vec(), now));
    }

    /// Hands over an evaluation.
    pub fn evaluated(&mut self, step: u64, found: &Evaluation) {
        let accuracy = found.accuracy.unwrap_or(f64::NAN);
        let ms = self.now();
        self.push(Message::Evaluated(EvaluationPoint { step, ms, loss: found.loss, accuracy }));
    }

    /// The run has another length.
    pub fn set_total(&mut self, total: u64) {
        self.push(Message::Total(total));
    }

    /// The run has come to an end, or goes on after one.
    pub fn set_state(&mut self, state: RunEnd, error: Option<String>) {
        self.push(Message::State(state, error));
    }

    /// Waits until all that was handed over is in the run's files, so that a checkpoint is never ahead of the curve; not longer than a slow disk takes.
    pub fn sync(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let (written, wait) = bounded(1);
        self.push(Message::Written(written));
        let started = Instant::now();
        while wait.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout)
            && started.elapsed() < PATIENCE
        {
            self.push_out();
        }
    }

    /// What the thread did not take yet is offered again.
    pub fn push_out(&mut self) {
        let Some(outbox) = &self.outbox else { return };
        let mut waiting = std::mem::take(&mut self.backlog).into_iter();
        for message in waiting.by_ref() {
            // A thread that ended has told why; there is nobody to write for.
            if let Err(TrySendError::Full(message)) = outbox.try_send(message) {
                self.backlog.push(message);
                break;
            }
        }
        self.backlog.extend(waiting);
    }

    fn push(&mut self, message: Message) {
        if let (Message::Steps(more, now), Some(Message::Steps(waiting, until))) = (&message, self.backlog.last_mut()) {
            waiting.extend_from_slice(more);
            *until = *now;
        } else {
            self.backlog.push(message);
        }
        self.push_out();
    }

    /// Ends the recording and waits until everything is on disk.
    ///
    /// # Errors
    /// What could not be written, in words.
    pub fn finish(mut self) -> Result<(), String> {
        self.close();
        let outcome = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err("the recorder failed".to_owned()),
            None => Ok(()),
        };
        // What could be written of it may be nothing: neither a step nor weights.
        if outcome.is_err()
            && let Some(id) = self.id()
            && self.store.curves(id).is_ok_and(|curves| curves.is_empty())
            && !self.store.weights(id).exists()
        {
            let _ = std::fs::remove_dir_all(self.store.path(id));
        }
        outcome
    }

    /// True where the thread gave up because something could not be written.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Hands everything over and closes the channel.
    fn close(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            for message in self.backlog.drain(..) {
                // The thread takes messages as fast as a disk writes them; one that ended takes none.
                if outbox.send(message).is_err() {
                    break;
                }
            }
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread's own side.
struct Desk {
    record: RunRecord,
    path: PathBuf,
    curve: File,
    /// The end of the run as a reader will see it, for the closing figures.
    curves: Curves,
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

impl Desk {
    /// Makes the folder of a run and everything in it but the curve's first chunk.
    fn open(store: &RunStore, mut record: RunRecord, plan: &PlanDigest) -> Result<(String, Self), RunsError> {
        record.version = 1;
        record.started_ms = now_ms();
        record.plan_hash = plan.sum();
        record.state = RunEnd::Running;
        let id = store.create(&record)?;
        let desk = Self::furnish(&store.path(&id), record, plan);
        if desk.is_err() {
            // Half a folder would be listed as a damaged run.
            let _ = std::fs::remove_dir_all(store.path(&id));
        }
        Ok((id, desk?))
    }

    fn furnish(folder: &Path, record: RunRecord, plan: &PlanDigest) -> Result<Self, RunsError> {
        let lock = File::create(folder.join("lock")).map_err(|e| failed(folder, e))?;
        // A system without locks shows a run that is written as one that was cut off; nothing is lost by it.
        let _ = lock.try_lock();
        let curve_path = folder.join("curve.bin");
        let mut curve = File::create(&curve_path).map_err(|e| failed(&curve_path, e))?;
        curve.write_all(MAGIC).map_err(|e| failed(&curve_path, e))?;
        let text = serde_json::to_string(plan).unwrap_or_default();
        write_atomic(&folder.join("plan.json"), text.as_bytes()).map_err(|e| failed(folder, e))?;
        let mut desk = Self {
            record,
            path: folder.join("run.json"),
            curve,
            curves: Curves::default(),
            pending: Vec::new(),
            reports: Vec::new(),
            reports_ms: (0.0, 0.0),
            written: Instant::now(),
            recorded: Instant::now(),
            failure: None,
            _lock: lock,
        };
        desk.write_record().map_err(|e| failed(&desk.path, e))?;
        Ok(desk)
    }

    /// Takes up the folder of a run that was let go, or is let go in a moment.
    fn reopen(store: &RunStore, from: &ResumePoint, now: RunRecord, plan: &PlanDigest) -> Result<Self, RunsError> {
        /// The time that the last writer of the run may take to end.
        const PATIENCE: Duration = Duration::from_secs(10);
        let folder = store.path(&from.id);
        let lock = File::options().write(true).open(folder.join("lock")).map_err(|e| failed(&folder, e))?;
        let asked = Instant::now();
        while matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            if asked.elapsed() > PATIENCE {
                return Err(RunsError::Busy(from.id.clone()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let before = store.record(&from.id)?;
        let curve_path = folder.join("curve.bin");
        let (curves, sound) = store.sound_curves(&from.id)?;
        let curve = File::options().append(true).open(&curve_path).map_err(|e| failed(&curve_path, e))?;
        // What is behind a torn chunk would never be read.
        curve.set_len(sound).map_err(|e| failed(&curve_path, e))?;
        let record = RunRecord {
            started_ms: before.started_ms,
            plan_hash: plan.sum(),
            state: RunEnd::Running,
            error: None,
            ended_ms: None,
            version: 1,
            ..now
        };
        if record.plan_hash != before.plan_hash {
            let text = serde_json::to_string(plan).unwrap_or_default();
            write_atomic(&folder.join("plan.json"), text.as_bytes()).map_err(|e| failed(&folder, e))?;
        }
        let mut desk = Self {
            record,
            path: folder.join("run.json"),
            curve,
            curves,
            pending: Vec::new(),
            reports: Vec::new(),
            reports_ms: (from.ms, from.ms),
            written: Instant::now(),
            recorded: Instant::now(),
            failure: None,
            _lock: lock,
        };
        desk.curves.go_back(from.step);
        desk.write_record().map_err(|e| failed(&desk.path, e))?;
        Ok(desk)
    }

    fn serve(mut self, inbox: &Receiver<Message>) -> Result<(), String> {
        loop {
            let message = inbox.recv_timeout(WRITE_EVERY);
            let outcome = match message {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let outcome = outcome.and_then(|()| self.write_in_time());
            if let Err(error) = outcome {
                self.failure = Some(error.to_string());
                break;
            }
        }
        if self.record.state == RunEnd::Running {
            // Whoever trained it let it go: a person ended it.
            self.record.state = RunEnd::Stopped;
        }
        self.record.ended_ms = Some(now_ms());
        let closed = self.write_curve().and_then(|()| self.curve.sync_all()).and_then(|()| self.write_record());
        let told = self.failure.take().or_else(|| closed.err().map(|e| e.to_string()));
        if told.is_none() && self.record.steps == 0 && self.record.state == RunEnd::Stopped {
            // A run that never made a step is nothing to keep; one whose last words could not be written is.
            if let Some(folder) = self.path.parent() {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
        told.map_or(Ok(()), |why| Err(format!("the run {} is not kept whole: {why}", self.path.display())))
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
            Message::Evaluated(point) => {
                self.pack();
                put_evaluation(&mut self.pending, &point);
                self.curves.evaluations.push(point);
            }
            Message::Total(total) => self.record.total = total,
            Message::Written(written) => {
                self.write_curve()?;
                drop(written);
            }
            Message::State(state, error) => {
                let changed = self.record.state != state;
                self.record.state = state;
                self.record.error = error;
                self.record.ended_ms = (state != RunEnd::Running).then(now_ms);
                if changed {
                    self.write_curve()?;
                    self.write_record()?;
                }
            }
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
        if !self.pending.is_empty() {
            self.curve.write_all(&self.pending)?;
            self.pending.clear();
        }
        Ok(())
    }

    fn write_record(&mut self) -> io::Result<()> {
        self.recorded = Instant::now();
        self.record.sum_up(&self.curves);
        self.record.curve_bytes = self.curve.metadata()?.len();
        let text = serde_json::to_string_pretty(&self.record)?;
        write_atomic(&self.path, text.as_bytes())
    }
}
