//! The values of a step that its host reads after every step.

use super::TrainError;
use crate::exec::Step;
use crate::lower::LValueId;
use crate::plan::StateKind;

/// The values that the host reads after a step.
pub(super) struct Watched {
    pub(super) loss: LValueId,
    pub(super) accuracy: Option<LValueId>,
    pub(super) update_max: Option<LValueId>,
    pub(super) grad_norm: Option<LValueId>,
    pub(super) hyper: LValueId,
    /// The factors of a step's update, if a schedule or gradient clipping computes them.
    pub(super) rates: Option<LValueId>,
    /// The number of steps of the run, if the rate depends on it.
    pub(super) steps: Option<LValueId>,
    pub(super) loss_scale: Option<LValueId>,
}

impl Watched {
    pub(super) fn new(step: &Step) -> Result<Self, TrainError> {
        let program = &step.compiled().plan.program;
        let find = |name: &str| program.find(name);
        Ok(Self {
            loss: step.find("loss")?,
            accuracy: find("accuracy"),
            update_max: find("update_max"),
            grad_norm: find("grad_norm"),
            hyper: step.state(StateKind::Hyper)?,
            rates: find("rates"),
            steps: find("steps"),
            loss_scale: find("loss_scale"),
        })
    }

    /// The values that are read after every step.
    pub(super) fn read_back(&self) -> Vec<LValueId> {
        let optional = [self.accuracy, self.update_max, self.grad_norm, self.loss_scale];
        [self.loss, self.rates.unwrap_or(self.hyper)].into_iter().chain(optional.into_iter().flatten()).collect()
    }
}

/// The values that the host reads after a recording whose steps may differ; all are optional, because a recording that
/// does not update the parameters lacks some of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Reported {
    pub(super) loss: Option<LValueId>,
    pub(super) accuracy: Option<LValueId>,
    pub(super) update_max: Option<LValueId>,
    pub(super) grad_norm: Option<LValueId>,
    pub(super) update_max_seg: Option<LValueId>,
    /// The rate of the step.
    pub(super) rate: Option<LValueId>,
    pub(super) loss_scale: Option<LValueId>,
}

impl Reported {
    pub(super) fn of(step: &Step) -> Self {
        let program = &step.compiled().plan.program;
        let find = |name: &str| program.find(name);
        Self {
            loss: find("loss"),
            accuracy: find("accuracy"),
            update_max: find("update_max"),
            grad_norm: find("grad_norm"),
            update_max_seg: find("update_max_seg"),
            rate: find("rates").or_else(|| step.state(StateKind::Hyper).ok()),
            loss_scale: find("loss_scale"),
        }
    }

    /// The values that are read after every step.
    pub(super) fn read_back(&self) -> Vec<LValueId> {
        let all = [self.loss, self.rate, self.accuracy, self.update_max, self.grad_norm, self.loss_scale];
        all.into_iter().flatten().collect()
    }
}
