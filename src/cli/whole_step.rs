//! Values for a whole step that consists of several batches.

use super::ceilings::Limits;
use crate::train::TrainingStep;

/// Values for a whole step that consists of several batches.
#[derive(Default)]
pub(super) struct WholeStep {
    pub(super) launches: usize,
    pub(super) flops: u64,
    pub(super) times: StepTimes,
}

/// Times of a step in microseconds: the estimate for its kernels, and the lower limit.
#[derive(Default)]
pub(super) struct StepTimes {
    pub(super) kernels_us: f64,
    pub(super) estimate_us: f64,
    pub(super) floor_us: f64,
}

impl WholeStep {
    /// The sums over the recordings of a step; for each recording, the times of its kernels and how often a step uses
    /// it.
    pub(super) fn of(step: &TrainingStep, timed: &[(f64, f64)], ceilings: &Limits) -> Self {
        let mut whole = Self::default();
        for ((step, count), (kernels_us, times)) in step.recordings().zip(timed) {
            let selection = &step.compiled().selection;
            whole.launches += step.recording().calls * count;
            whole.flops += selection.flops() * count as u64;
            whole.times.kernels_us += kernels_us * times;
            whole.times.estimate_us += selection.cost_us() * times;
            whole.times.floor_us += selection.floor_us(|flops, bytes| ceilings.floor(flops, bytes).us) * times;
        }
        whole
    }
}

/// Whether the value is 1; then it is omitted from JSON.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(super) const fn is_one(count: &usize) -> bool {
    *count == 1
}
