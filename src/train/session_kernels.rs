//! The kernels of a session's steps, and when they change.

use super::change_over::{Job, KernelChange, KernelsOfRun, Maker, Planned, Stage};
use super::{Session, TrainError};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The remaining time of a run, at its current rate, from which on compiling for its sizes is worthwhile, in seconds.
const WORTHWHILE_SECONDS: f64 = 5.0;
/// The number of recordings of one run that are made again.
const MOST_RECORDINGS: usize = 64;
/// Steps between two searches for recordings that were not made again.
const LOOK_EVERY: u64 = 64;

impl Session {
    /// The kernels of its steps; `None` on a CPU, whose kernels work for all sizes.
    #[must_use]
    pub fn kernels(&self) -> Option<KernelsOfRun> {
        let is_gpu = self.compiled().selection.target.as_cuda().is_some();
        is_gpu.then_some(self.change_over.kernels)
    }

    /// How far it is with the change to kernels for its sizes.
    #[must_use]
    pub fn kernel_change(&self) -> KernelChange {
        self.change_over.progress()
    }

    /// Takes over recordings with kernels for its sizes, or has them made, if the rest of the run is long enough.
    /// Called between two steps, when no launch is in flight.
    pub(super) fn change_over(&mut self) {
        if matches!(&self.change_over.stage, Stage::Makes(maker) if maker.is_ended()) {
            // The run was extended.
            self.change_over.stage = Stage::Waits;
        }
        match self.change_over.stage {
            Stage::Keeps => return,
            Stage::Waits => {
                let seconds = (self.total - self.done) as f64 * f64::from(self.change_over.step_us) / 1e6;
                if self.made == 0 || seconds < WORTHWHILE_SECONDS {
                    return;
                }
            }
            Stage::Makes(_) => {}
        }
        if let Err(error) = self.ask_for_kernels() {
            log::warn!("the run keeps its general kernels: {error}");
            self.change_over.stage = Stage::Keeps;
        }
        self.take_kernels();
    }

    /// Compiles kernels for its sizes and takes them over now, if it started with general ones; returns whether it did.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn specialise(&mut self) -> Result<bool, TrainError> {
        if matches!(self.change_over.stage, Stage::Keeps) {
            return Ok(false);
        }
        self.ask_for_kernels()?;
        while let Stage::Makes(maker) = &self.change_over.stage
            && !maker.is_idle()
        {
            thread::sleep(Duration::from_millis(1));
        }
        let failure = match &self.change_over.stage {
            Stage::Makes(maker) => maker.failure(),
            _ => None,
        };
        self.take_kernels();
        match failure {
            Some(why) => Err(TrainError::NoKernels(why)),
            None => Ok(self.change_over.is_new),
        }
    }

    /// Requests the recordings that were not requested yet.
    fn ask_for_kernels(&mut self) -> Result<(), TrainError> {
        let Self { train, change_over, watched, streams, made, .. } = self;
        if matches!(change_over.stage, Stage::Waits) {
            let Some(pool) = train.last().pool() else { return Ok(()) };
            change_over.stage = Stage::Makes(Maker::start(Arc::clone(pool))?);
        }
        let Stage::Makes(maker) = &mut change_over.stage else { return Ok(()) };
        let is_first = maker.asked.is_empty();
        if is_first {
            let held = train.held().filter(|_| *streams);
            for (number, step) in train.owned().enumerate() {
                let Some(id) = step.id().filter(|_| step.compiled().selection.target.kernels.are_general()) else {
                    continue;
                };
                // Only the recording that updates the parameters has values that are read together.
                let of_last = (number == 0).then(|| (watched.read_back(), held.clone()));
                let (watched, held) = of_last.unwrap_or_default();
                maker.ask(Job { id, planned: Planned::Whole(Arc::clone(step.compiled())), watched, held });
            }
        }
        let is_due = is_first || maker.is_idle() && made.is_multiple_of(LOOK_EVERY);
        if let (Some(dispatch), true) = (train.dispatch(), is_due) {
            for (id, case, step) in dispatch.lent_cases() {
                if maker.asked.len() < MOST_RECORDINGS && !maker.asked.contains(&id) {
                    let planned = Planned::Case(Arc::clone(dispatch.planner()), case, step);
                    maker.ask(Job { id, planned, watched: Vec::new(), held: None });
                }
            }
        }
        Ok(())
    }

    /// Takes over what is ready.
    fn take_kernels(&mut self) {
        let Stage::Makes(maker) = &self.change_over.stage else { return };
        // Determined first: what becomes ready after this is taken over before the next step.
        let is_last = maker.is_idle() && self.train.dispatch().is_none();
        self.change_over.is_new |= self.train.take_renewals() > 0;
        if is_last {
            self.change_over.stage = Stage::Keeps;
        }
    }
}
