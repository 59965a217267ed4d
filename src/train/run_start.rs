//! What a run writes before its first step, and what its first batch runs with.

use super::preparation::{FIRST_LOSS_SCALE, start_loss_scale};
use super::training_step::TrainingStep;
use super::watched::Watched;
use super::{DataFeed, TrainError};
use crate::exec::Step;
use crate::model::Model;

impl Watched {
    /// Writes the initial values of a run of `total` steps other than its parameters.
    pub(super) fn write_start(&self, train: &mut Step, model: &Model, seed: u64, total: u64) -> Result<(), TrainError> {
        let rates: Vec<f32> = model.optimizer.live_fields().iter().map(|(_, value)| *value as f32).collect();
        train.write(self.hyper, &rates)?;
        let counter = train.find("counter")?;
        train.write(counter, &[seed as i64, 0])?;
        if let Ok(batches) = train.find("batches") {
            train.write(batches, &[seed as i64, 0])?;
        }
        start_loss_scale(train, FIRST_LOSS_SCALE)?;
        self.write_steps(train, total)?;
        Ok(train.watch(&self.read_back())?)
    }

    /// Writes the number of steps of the run, if the rate depends on it.
    pub(super) fn write_steps(&self, train: &mut Step, total: u64) -> Result<(), TrainError> {
        match self.steps {
            Some(steps) => Ok(train.write(steps, &[i64::try_from(total).unwrap_or(i64::MAX)])?),
            None => Ok(()),
        }
    }

    /// Chooses what the first batch runs with, if steps differ, so that its recording is asked for. Nothing runs: a
    /// person who changes a network should see its first step soon.
    pub(super) fn choose_first(train: &mut TrainingStep, feed: &mut DataFeed) -> Result<(), TrainError> {
        train.choose(1, 0, feed)?;
        if let Some(dispatch) = train.dispatch_mut() {
            dispatch.forget_uses();
        }
        Ok(())
    }

    /// Stores the data set on the device, so that steps fetch their batches themselves; returns false if they do not.
    pub(super) fn hold(&self, train: &mut Step, feed: &DataFeed) -> Result<bool, TrainError> {
        Ok(match feed.whole() {
            Some((samples, targets)) => train.hold(samples, targets, feed.shuffled_rows(), &self.read_back())?,
            None => false,
        })
    }
}
