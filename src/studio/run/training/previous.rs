//! The curves of the previous run, kept while the next one is being prepared: they are shown again if that fails.

use crate::model::Preset;
use crate::studio::commands::choices::DeviceChoice;
use crate::studio::run::rates::Rates;
use crate::studio::view_models::curves::{History, TwoWays};
use std::sync::Arc;

/// The results of a run that is over.
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
