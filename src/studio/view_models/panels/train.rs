//! What the Train tab shows.

use crate::ir::Metrics;
use crate::model::Preset;
use crate::studio::view_models::curves::{Histogram, History, TwoWays};
use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::recordings::KeyNames;
use crate::studio::view_models::step_kinds::StepKinds;
use crate::train::{RecordingSeen, RunState};
use std::collections::{BTreeMap, BTreeSet};

/// What the Train tab shows.
#[derive(Clone, Debug)]
pub struct TrainView<'a> {
    pub readiness: Readiness,
    /// The document, which is trained next.
    pub preset: &'a Preset,
    /// Why the run failed, if that is still relevant.
    pub failure: Option<&'a str>,
    /// An error of a run that continues.
    pub problem: Option<&'a str>,
    /// True if there is a run whose numbers and curves can be shown.
    pub has_run: bool,
    /// True if the run trains another network than the one on screen.
    pub is_stale: bool,
    pub run: RunView<'a>,
    pub plots: PlotsView<'a>,
    pub metrics: MetricsView<'a>,
}

/// The run.
#[derive(Clone, Debug)]
pub struct RunView<'a> {
    pub state: Option<&'a RunState>,
    /// The name of what is trained.
    pub preset: Option<&'a Preset>,
    pub history: &'a History,
    /// True if the curves are those of the previous run.
    pub shows_previous: bool,
    /// Steps made, and those of the whole run.
    pub done: u64,
    pub total: u64,
    pub lr: f32,
    pub smoothing: f32,
    /// True if it accepts commands.
    pub obeys: bool,
    /// Steps between evaluations, once the run has chosen the interval.
    pub evaluated_every: Option<u64>,
    /// Whether the held-out samples may have been trained on before.
    pub maybe_trained: bool,
    /// Whether its loss is one of tokens, whose exponential is the perplexity.
    pub predicts_tokens: bool,
    pub steps_per_s: f64,
    pub median_us: f32,
    pub p99_us: f32,
}

/// How the curves are drawn.
#[derive(Clone, Debug)]
pub struct PlotsView<'a> {
    pub log_axis: bool,
    /// Plots whose axis the user has chosen, by name: logarithmic or linear.
    pub plot_log: &'a BTreeMap<String, bool>,
    pub hidden: &'a BTreeSet<String>,
    /// The layer whose curve is highlighted, by its index among the curves of layers.
    pub marked: Option<usize>,
    /// The curves behind those of the run, with their name.
    pub baseline: Option<(&'a str, &'a LoadedRun)>,
    /// True if steps are timed by the device's clock.
    pub is_timed_on_device: bool,
    /// The number of the recording that each step used, and the names of the recordings.
    pub kinds: &'a StepKinds,
    pub recordings: &'a [RecordingSeen],
    /// Their names.
    pub names: &'a KeyNames,
    /// Step times of the recent past.
    pub times: &'a Histogram,
    /// Steps timed eagerly and replayed.
    pub both_ways: Option<&'a TwoWays>,
    pub is_timing: bool,
    pub can_time: bool,
}

/// The metrics that the next run computes inside its step, and their cost.
#[derive(Clone, Debug)]
pub struct MetricsView<'a> {
    pub metrics: Metrics,
    pub has_classes: bool,
    /// The cost of the document's metrics, if it was measured.
    pub prices: Option<MetricPrices>,
    pub is_measuring: bool,
    pub can_measure: bool,
    pub problem: Option<&'a str>,
}

/// The cost of the groups of metrics.
#[derive(Clone, Copy, Debug)]
pub struct MetricPrices {
    /// The step with all of them, in microseconds.
    pub step_us: f32,
    /// The time that accuracy and updates add to it, in microseconds.
    pub added_us: [f32; 2],
}
