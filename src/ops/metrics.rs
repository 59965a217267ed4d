//! The metrics of a step.

use super::Operation;
use super::geometry::Segment;
use super::operation::{dims, operation};
use super::slots::slots;
use serde::{Deserialize, Serialize};

operation! {
    /// `update_max [1]` = largest of the segments', `grad_norm [1]` = square root of the sum of the squares of the
    /// segments' `grad_norm_seg`.
    pub struct UpdateMetrics { pub segments: usize }
    slots update_metrics(op) {
        UPDATE_MAX_SEG: in [op.segments],
        GRAD_NORM_SEG: in [op.segments],
        UPDATE_MAX: out [1],
        GRAD_NORM: out [1],
    }
    "update_metrics" => {
        dims: dims!(op: segments),
        flops: 2 * op.segments as u64,
    }
}

/// The metrics of a step from the `parts` of its updates, where `segments[i]` is the range of parameter `i`, in pairs:
/// `update_max_seg`, `grad_norm_seg`, and, over all of them, `update_max` and `grad_norm`, each if bound.
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

operation! {
    StepMetrics: step_metrics, "step_metrics", |op| {
        dims: format!("segments={}", op.segments.len()),
        flops: 2 * op.pairs() as u64,
        bytes_moved(elem): {
            let _ = elem;
            ((2 * op.pairs() + 2 * op.segments.len() + 2) * size_of::<f32>()) as u64
        },
        is_for_gpus: true,
    }
}

impl StepMetrics {
    /// Pairs of all parameters.
    fn pairs(&self) -> usize {
        self.segments.iter().map(|s| s.len).sum()
    }
}
