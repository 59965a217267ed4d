//! Keeping the run that the window trains: every event goes to a recorder on its way to the curves.

use crate::train::runs::{Recorder, RunEnd, RunRecord, RunStore};
use crate::train::{Event, RunState, SessionSpec};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time between writings of the weights of a run that goes on.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// What is kept of the run that is trained now.
#[derive(Default)]
pub struct Keeping {
    /// Where runs are kept; `None` keeps none.
    pub store: Option<RunStore>,
    record: Option<RunRecord>,
    recorder: Option<Recorder>,
    /// Steps made when weights were last asked for, and last kept.
    asked_at: Option<u64>,
    kept_at: Option<u64>,
    asked: Option<Instant>,
    /// Rises when a run begins, ends, or has other weights: lists are stale then.
    pub changes: u64,
    problem: Option<String>,
}

impl Keeping {
    /// A run is prepared; it is kept from its first step on.
    pub fn prepare(&mut self, spec: &SessionSpec) {
        self.record = Some(RunRecord::of(spec));
    }

    /// Takes an event of the run. True where it is about weights that are kept here, which nobody else waits for.
    pub fn hear(&mut self, event: &Event) -> bool {
        match event {
            Event::Prepared { compiled, total, .. } => {
                if let (Some(store), Some(record)) = (&self.store, self.record.take()) {
                    let record = RunRecord { total: *total, ..record };
                    match Recorder::begin_unseen(store, record, std::sync::Arc::clone(compiled)) {
                        Ok(recorder) => self.recorder = Some(recorder),
                        Err(error) => self.problem = Some(format!("This run is not kept: {error}")),
                    }
                }
            }
            Event::Steps(reports) => self.recorder.iter_mut().for_each(|r| r.steps(reports)),
            Event::Evaluated { step, result } => self.recorder.iter_mut().for_each(|r| r.evaluated(*step, result)),
            Event::State(state) => self.enter(state),
            Event::Saved(path) if self.is_own(path) => {
                self.kept_at = self.asked_at;
                self.changes += 1;
                return true;
            }
            Event::NotSaved(path, why) if self.is_own(path) => {
                self.problem = Some(format!("The weights of this run are not kept: {why}"));
                return true;
            }
            _ => {}
        }
        false
    }

    fn is_own(&self, path: &std::path::Path) -> bool {
        self.weights().is_some_and(|own| own == path)
    }

    fn weights(&self) -> Option<PathBuf> {
        self.recorder.as_ref()?.weights()
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

    /// Where weights should be written now, if they should: at every rest after new steps, and once a minute while steps are made.
    pub fn wants_weights(&mut self, state: Option<&RunState>, done: u64) -> Option<PathBuf> {
        let rests = matches!(state, Some(RunState::Paused | RunState::Finished | RunState::Stopped));
        let due = self.asked.is_none_or(|t| t.elapsed() >= SAVE_EVERY);
        if self.asked.is_none() && !rests {
            // The first minute begins with the first step.
            self.asked = (done > 0).then(Instant::now);
            return None;
        }
        let fresh = done > 0 && self.asked_at != Some(done);
        if !(fresh && (rests || due)) {
            return None;
        }
        let path = self.weights()?;
        (self.asked_at, self.asked) = (Some(done), Some(Instant::now()));
        Some(path)
    }

    /// Where weights of the last steps should still be written before the run is let go; `None` where they are kept.
    #[must_use]
    pub fn last_weights(&self, done: u64) -> Option<PathBuf> {
        (done > 0 && self.asked_at != Some(done)).then(|| self.weights()).flatten()
    }

    /// True where the weights after this step are on disk.
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

    /// Waits until the run has its folder, as long as a slow disk takes: only for the program's end.
    pub fn settle(&self) {
        const PATIENCE: Duration = Duration::from_secs(3);
        let started = Instant::now();
        let opening = |r: &Recorder| r.id().is_none() && !r.has_failed();
        while self.recorder.as_ref().is_some_and(opening) && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Hands over what waits; what could not be kept, once.
    pub fn tend(&mut self) -> Option<String> {
        self.recorder.iter_mut().for_each(Recorder::push_out);
        if self.recorder.as_ref().is_some_and(Recorder::has_failed)
            && let Some(recorder) = self.recorder.take()
            && let Err(why) = recorder.finish()
        {
            self.problem = Some(format!("{why}. Free some space or make the folder writable, and train again."));
        }
        self.problem.take()
    }

    /// Lets the run go: what was handed over is written, without waiting for it.
    pub fn end(&mut self) {
        let store = self.store.take();
        let changes = self.changes + 1;
        *self = Self { store, changes, ..Self::default() };
    }

    /// As [`Self::end`], and waits until everything is on disk: the program is about to end.
    pub fn finish(&mut self) {
        if let Some(recorder) = self.recorder.take()
            && let Err(why) = recorder.finish()
        {
            log::warn!("{why}");
        }
    }
}
