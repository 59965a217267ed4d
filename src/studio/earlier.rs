//! The curves of the run before, for as long as the next one is only being prepared: they come back where it cannot be.

use super::curves::{History, TwoWays};
use super::devices::DeviceChoice;
use super::rates::Rates;
use super::training::Training;
use crate::model::Preset;
use std::sync::Arc;

/// What a run that is over has to show.
pub struct Earlier {
    preset: Option<Arc<Preset>>,
    device: Option<DeviceChoice>,
    history: History,
    rates: Rates,
    both_ways: Option<TwoWays>,
    total: u64,
    evaluated_every: Option<u64>,
    maybe_trained: bool,
    lr: f32,
}

impl Earlier {
    /// Takes out what the run has to show; `None` where it made no step.
    pub fn of(run: &mut Training) -> Option<Box<Self>> {
        (run.done() > 0).then(|| {
            Box::new(Self {
                preset: run.preset.take(),
                device: run.device.take(),
                history: std::mem::take(&mut run.history),
                rates: std::mem::take(&mut run.rates),
                both_ways: run.both_ways.take(),
                total: run.total,
                evaluated_every: run.evaluated_every,
                maybe_trained: run.maybe_trained,
                lr: run.lr,
            })
        })
    }

    /// Shows it again, in place of a run that could not be prepared.
    pub fn put_back(self, run: &mut Training) {
        (run.preset, run.device, run.history) = (self.preset, self.device, self.history);
        (run.rates, run.both_ways) = (self.rates, self.both_ways);
        (run.total, run.evaluated_every, run.lr) = (self.total, self.evaluated_every, self.lr);
        run.maybe_trained = self.maybe_trained;
        run.set_smoothing(run.smoothing());
    }
}
