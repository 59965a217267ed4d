//! The state of a run, and the commands that are possible.

use crate::studio::run::training::Training;
use crate::studio::view_models::status::RunProgress;
use crate::studio::view_models::transport::{Next, Transport};
use crate::train::{Command, RunState};

impl Training {
    /// The effect of pressing Train; `stale` says that the document is no longer the one that was trained, `steps` is
    /// its number of steps.
    #[must_use]
    pub fn next(&self, stale: bool, steps: u64) -> Next {
        match self.state {
            // If the document's steps were raised above those of the run, they are the new end; otherwise the same
            // number is added.
            Some(RunState::Finished) if self.worker.is_some() && !stale => {
                Next::TrainOn(steps.checked_sub(self.total).filter(|more| *more > 0).unwrap_or(steps))
            }
            Some(RunState::Finished | RunState::Stopped | RunState::Failed(_)) => Next::TrainAnew,
            _ => Next::Train,
        }
    }

    /// Makes a finished run longer, and continues it.
    pub fn extend(&mut self, steps: u64, order: Command) {
        self.total += steps;
        self.writer.set_total(self.total);
        self.send(Command::SetTotal(self.total));
        self.send(order);
    }

    /// True if the run accepts commands: while it can continue, and after its last step, because it may be made longer.
    #[must_use]
    pub fn obeys(&self) -> bool {
        self.is_alive() || self.is_stopped() || (self.worker.is_some() && self.state == Some(RunState::Finished))
    }

    /// True if the user stopped the run, and it can continue from there.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.worker.is_some() && self.state == Some(RunState::Stopped)
    }

    /// True while there is a run that is prepared, or can make further steps.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.state, Some(RunState::Preparing | RunState::Ready | RunState::Running | RunState::Paused))
    }

    /// True while there is a run that is prepared and can make further steps.
    #[must_use]
    pub const fn goes_on(&self) -> bool {
        matches!(self.state, Some(RunState::Ready | RunState::Running | RunState::Paused))
    }

    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.state, Some(RunState::Running))
    }

    /// The number of steps that were made.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.history.curves.loss.raw.len() as u64
    }

    /// The progress of the run; `None` if there is none.
    #[must_use]
    pub fn progress(&self) -> Option<RunProgress> {
        let batch = self.preset.as_ref()?.samples_a_step();
        let steps_per_s = self.rates.statistics.steps_per_s;
        Some(RunProgress { is_running: self.is_running(), done: self.done(), total: self.total, steps_per_s, batch })
    }

    /// The possible commands; `ready` says whether the document could be trained.
    #[must_use]
    pub fn transport(&self, ready: bool) -> Transport {
        let idle = matches!(self.state, Some(RunState::Ready | RunState::Paused));
        let fresh = !self.is_alive() && ready;
        Transport {
            train: idle || fresh,
            pause: self.is_running(),
            step: idle || fresh,
            stop: self.is_running() || idle,
            reset: self.state.is_some(),
        }
    }
}
