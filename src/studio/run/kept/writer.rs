//! Keeps the run that the window trains: every event is passed to a recorder as well as to the curves.

use crate::compile::Compiled;
use crate::train::runs::{FIRST_SAVE, Recorder, ResumePoint, RunEnd, RunRecord, RunStore, SAVE_EVERY, SAVE_SHARE};
use crate::train::{Event, RunState, SessionSpec};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of keeping the current run.
#[derive(Default)]
pub struct RunWriter {
    /// The store of runs; `None` if runs are not kept.
    pub store: Option<RunStore>,
    record: Option<RunRecord>,
    /// The run that the prepared run continues, and where.
    from: Option<ResumePoint>,
    recorder: Option<Recorder>,
    /// The number of steps when a checkpoint was last requested, and when one was last written.
    asked_at: Option<u64>,
    kept_at: Option<u64>,
    asked: Option<Instant>,
    /// Time until the next checkpoint.
    pause: Option<Duration>,
    /// Increases when a run begins, ends, or has a new checkpoint: lists are outdated then.
    pub changes: u64,
    problem: Option<String>,
}

impl RunWriter {
    /// A run is prepared; it is kept from its first step on, or continues the run `from`.
    pub fn prepare(&mut self, spec: &SessionSpec, from: Option<ResumePoint>) {
        self.record = Some(RunRecord::of(spec));
        // The history of the run that it continues.
        self.kept_at = from.as_ref().map(|f| f.step);
        self.asked_at = self.kept_at;
        self.from = from;
    }

    /// The run is ready for its first step.
    pub fn begin(&mut self, compiled: &Arc<Compiled>, total: u64, maybe_trained: bool) {
        if let (Some(store), Some(record)) = (&self.store, self.record.take()) {
            let record = RunRecord { total, maybe_trained, ..record };
            let compiled = Arc::clone(compiled);
            let recorder = match self.from.take() {
                Some(from) => Recorder::resume_unseen(store, &from, record, compiled),
                None => Recorder::begin_unseen(store, record, compiled),
            };
            match recorder {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(error) => self.problem = Some(format!("This run is not kept: {error}")),
            }
        }
    }

    /// Processes an event of the run. Returns true if it is about a checkpoint for the kept run, which no other code
    /// waits for.
    pub fn hear(&mut self, event: &Event) -> bool {
        match event {
            Event::Steps(reports) => self.recorder.iter_mut().for_each(|r| r.steps(reports)),
            Event::LayerUpdates { spans, .. } => self.recorder.iter_mut().for_each(|r| r.moved(spans)),
            Event::Evaluated { step, result } => self.recorder.iter_mut().for_each(|r| r.evaluated(*step, result)),
            Event::State(state) => self.enter(state),
            Event::Saved(path) if self.is_own(path) => {
                self.recorder.iter_mut().for_each(Recorder::take_checkpoint);
                let took = self.asked.map_or(Duration::ZERO, |t| t.elapsed());
                self.pause = Some((took * SAVE_SHARE).clamp(SAVE_EVERY.0, SAVE_EVERY.1));
                self.changes += 1;
                return true;
            }
            Event::NotSaved(path, why) if self.is_own(path) => {
                self.problem = Some(format!("The checkpoint of this run is not kept: {why}"));
                return true;
            }
            _ => {}
        }
        false
    }

    fn is_own(&self, path: &std::path::Path) -> bool {
        self.checkpoint().is_some_and(|own| own == path)
    }

    /// The path of the next checkpoint; `None` until the run has a folder.
    #[must_use]
    pub fn checkpoint(&self) -> Option<PathBuf> {
        self.recorder.as_ref()?.next_checkpoint()
    }

    fn enter(&mut self, state: &RunState) {
        let Some(recorder) = &mut self.recorder else { return };
        recorder.set_running(*state == RunState::Running);
        let (end, error) = match state {
            RunState::Finished => (RunEnd::Finished, None),
            RunState::Stopped => (RunEnd::Stopped, None),
            RunState::Failed(why) => (RunEnd::Failed, Some(why.clone())),
            _ => (RunEnd::Running, None),
        };
        recorder.set_state(end, error);
        self.changes += 1;
    }

    /// The run was made longer.
    pub fn set_total(&mut self, total: u64) {
        self.recorder.iter_mut().for_each(|r| r.set_total(total));
    }

    /// The path of a checkpoint that should be written now, if any: whenever the run rests after new steps, and from
    /// time to time while it runs.
    pub fn wants_checkpoint(&mut self, state: Option<&RunState>, done: u64) -> Option<PathBuf> {
        let is_idle = matches!(state, Some(RunState::Paused | RunState::Finished | RunState::Stopped));
        let due = self.asked.is_none_or(|t| t.elapsed() >= self.pause.unwrap_or(FIRST_SAVE));
        if self.asked.is_none() && !is_idle {
            // The first interval begins with the first step.
            self.asked = (done > 0).then(Instant::now);
            return None;
        }
        let fresh = done > 0 && self.asked_at != Some(done);
        if !(fresh && (is_idle || due)) {
            return None;
        }
        let path = self.checkpoint()?;
        (self.asked_at, self.asked) = (Some(done), Some(Instant::now()));
        Some(path)
    }

    /// True if a checkpoint of the last steps should still be written before the run is dropped.
    #[must_use]
    pub fn lacks_checkpoint(&self, done: u64) -> bool {
        done > 0 && self.asked_at != Some(done)
    }

    /// True if the checkpoint after this step is on disk.
    #[must_use]
    pub fn has_kept(&self, done: u64) -> bool {
        self.kept_at == Some(done)
    }

    /// The id of the run that is being kept.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.recorder.as_ref()?.id()
    }

    /// True while there is a run that is being kept.
    #[must_use]
    pub const fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Waits until the run has a folder, for as long as a slow disk may take; used only when the program ends.
    pub fn settle(&self) {
        const PATIENCE: Duration = Duration::from_secs(3);
        let started = Instant::now();
        let opening = |r: &Recorder| r.id().is_none() && !r.has_failed();
        while self.recorder.as_ref().is_some_and(opening) && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Passes on waiting data; returns once what could not be kept.
    pub fn tend(&mut self) -> Option<String> {
        self.recorder.iter_mut().for_each(Recorder::push_out);
        let taken = self.recorder.as_ref().and_then(Recorder::taken);
        if taken.is_some() && taken != self.kept_at {
            self.kept_at = taken;
            self.changes += 1;
        }
        if self.recorder.as_ref().is_some_and(Recorder::has_failed)
            && let Some(recorder) = self.recorder.take()
            && let Err(why) = recorder.finish()
        {
            self.problem = Some(format!("{why}. Free some space or make the folder writable, and train again."));
        }
        self.problem.take()
    }

    /// Passes the run to the code that ends it; the next one is kept in the same store.
    #[must_use]
    pub fn take(&mut self) -> Self {
        let next = Self { store: self.store.clone(), changes: self.changes + 1, ..Self::default() };
        std::mem::replace(self, next)
    }

    /// Ends the run and waits until everything is on disk.
    pub fn finish(&mut self) {
        if let Some(recorder) = self.recorder.take()
            && let Err(why) = recorder.finish()
        {
            log::warn!("{why}");
        }
    }
}
