//! The curves of the run before, for as long as the next one is only being prepared: they come back where it cannot be.

use crate::model::Preset;
use crate::studio::commands::choices::DeviceChoice;
use crate::studio::run::rates::Rates;
use crate::studio::view_models::curves::{History, TwoWays};
use std::sync::Arc;

/// What a run that is over has to show.
pub struct PreviousRun {
    pub preset: Option<Arc<Preset>>,
    pub device: Option<DeviceChoice>,
    pub history: History,
    pub rates: Rates,
    pub both_ways: Option<TwoWays>,
    pub total: u64,
    pub evaluated_every: Option<u64>,
    pub maybe_trained: bool,
    pub lr: f32,
}
