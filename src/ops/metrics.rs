//! The metrics of a step.

use super::Operation;
use super::geometry::Segment;
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// `update_max [1]` = largest of the segments', `grad_norm [1]` = square root of the sum of the squares of the
/// segments' `grad_norm_seg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpdateMetrics {
    pub segments: usize,
}

slots! {
    pub mod update_metrics(op: UpdateMetrics) {
        UPDATE_MAX_SEG: in [op.segments],
        GRAD_NORM_SEG: in [op.segments],
        UPDATE_MAX: out [1],
        GRAD_NORM: out [1],
    }
}

impl Operation for UpdateMetrics {
    table!(update_metrics);

    fn name(&self) -> &'static str {
        "update_metrics"
    }

    fn dims(&self) -> String {
        format!("segments={}", self.segments)
    }

    fn flops(&self) -> u64 {
        2 * self.segments as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.segments + 2) * elem) as u64
    }
}

/// The metrics of a step from the `parts` of its updates, of which `segments[i]` is the stretch of parameter `i`, in
/// pairs: `update_max_seg`, `grad_norm_seg`, and, over all of them, `update_max` and `grad_norm`, each where bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepMetrics {
    pub segments: Vec<Segment>,
}

slots! {
    pub mod step_metrics(op: StepMetrics) {
        PARTS: in [2 * op.pairs()],
        UPDATE_MAX_SEG: out [op.segments.len()] if OPTIONAL,
        GRAD_NORM_SEG: out [op.segments.len()] if OPTIONAL,
        UPDATE_MAX: out [1] if OPTIONAL,
        GRAD_NORM: out [1] if OPTIONAL,
    }
}

impl Operation for StepMetrics {
    table!(step_metrics);

    fn name(&self) -> &'static str {
        "step_metrics"
    }

    fn dims(&self) -> String {
        format!("segments={}", self.segments.len())
    }

    fn flops(&self) -> u64 {
        2 * self.pairs() as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let _ = elem;
        ((2 * self.pairs() + 2 * self.segments.len() + 2) * size_of::<f32>()) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }
}

impl StepMetrics {
    /// Pairs of all parameters.
    fn pairs(&self) -> usize {
        self.segments.iter().map(|s| s.len).sum()
    }
}
