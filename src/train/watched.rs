//! The values of a step that its host writes before a run and reads after every step.

use super::nan_guard::Guard;
use super::preparation::{FIRST_LOSS_SCALE, start_loss_scale};
use super::training_step::TrainingStep;
use super::{DataFeed, TrainError};
use crate::exec::cpu::Pool;
use crate::exec::{RecordedAs, Step};
use crate::lower::LValueId;
use crate::model::Model;

/// The values that the host reads after a step.
pub(super) struct Watched {
    pub(super) loss: LValueId,
    pub(super) accuracy: Option<LValueId>,
    pub(super) update_max: Option<LValueId>,
    pub(super) grad_norm: Option<LValueId>,
    pub(super) update_max_seg: Option<LValueId>,
    pub(super) hyper: LValueId,
    /// What the update of a step is scaled by, where a schedule or a limit of the gradient works it out.
    pub(super) rates: Option<LValueId>,
    /// The number of steps of the run, where the rate depends on it.
    pub(super) steps: Option<LValueId>,
    pub(super) loss_scale: Option<LValueId>,
}

impl Watched {
    /// Writes what a run of `total` steps begins with besides its parameters.
    pub(super) fn write_start(&self, train: &mut Step, model: &Model, seed: u64, total: u64) -> Result<(), TrainError> {
        train.write(self.hyper, &[model.optimizer.lr() as f32, model.optimizer.weight_decay() as f32])?;
        let counter = train.find("counter")?;
        train.write(counter, &[seed as i64, 0])?;
        if let Ok(batches) = train.find("batches") {
            train.write(batches, &[seed as i64, 0])?;
        }
        start_loss_scale(train, FIRST_LOSS_SCALE)?;
        self.write_steps(train, total)?;
        Ok(train.watch(&self.read_back())?)
    }

    /// Writes the number of steps of the run, where the rate depends on it.
    pub(super) fn write_steps(&self, train: &mut Step, total: u64) -> Result<(), TrainError> {
        match self.steps {
            Some(steps) => Ok(train.write(steps, &[i64::try_from(total).unwrap_or(i64::MAX)])?),
            None => Ok(()),
        }
    }

    pub(super) fn new(step: &Step) -> Result<Self, TrainError> {
        let program = &step.compiled().plan.program;
        let find = |name: &str| program.find(name);
        Ok(Self {
            loss: step.find("loss")?,
            accuracy: find("accuracy"),
            update_max: find("update_max"),
            grad_norm: find("grad_norm"),
            update_max_seg: find("update_max_seg"),
            hyper: step.find("hyper")?,
            rates: find("rates"),
            steps: find("steps"),
            loss_scale: find("loss_scale"),
        })
    }

    /// Makes the first step on its batch, and puts everything back.
    pub(super) fn warm_up(
        &self,
        guard: &Guard,
        train: &mut TrainingStep,
        feed: &mut DataFeed,
        pool: &mut Pool,
    ) -> Result<(), TrainError> {
        let start = feed.position();
        feed.next(train)?;
        // A device has run every launch once, on its fresh memory.
        if train.capabilities().record == RecordedAs::Calls {
            guard.warm_up(train, pool)?;
        }
        feed.resume(start)
    }

    /// Keeps the data set on the device, so that steps fetch their batches themselves; false where they do not.
    pub(super) fn hold(&self, train: &mut Step, feed: &DataFeed) -> Result<bool, TrainError> {
        Ok(match feed.whole() {
            Some((samples, targets)) => train.hold(samples, targets, feed.shuffled_rows(), &self.read_back())?,
            None => false,
        })
    }

    /// The values that are read after every step.
    fn read_back(&self) -> Vec<LValueId> {
        let optional = [self.accuracy, self.update_max, self.grad_norm, self.loss_scale];
        [self.loss, self.rates.unwrap_or(self.hyper)].into_iter().chain(optional.into_iter().flatten()).collect()
    }
}
