//! The counter of steps and values computed from it, and dynamic loss scaling.

use super::Operation;
use super::geometry::{Scalar, Segment};
use super::operation::operation;
use super::slots::slots;
use serde::{Deserialize, Serialize};

/// The number of values that dynamic loss scaling keeps from step to step.
pub const SCALER: usize = 5;

/// `counter [2] (i64)`: seed, step; adds one to the step. If `scaler` is bound, it is that of `ScaleUpdate`, and the
/// counter counts updates: it is not changed in a step that overflowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepInc {}

slots! {
    pub mod step_inc(op: StepInc) {
        COUNTER_PREV: in live [2],
        COUNTER: out [2],
        SCALER: in [crate::ops::SCALER] if OPTIONAL,
    }
}

operation! {
    StepInc: step_inc, "step_inc", |op| {
        dims: String::new(),
        flops: 0,
        bytes_moved(elem): {
            let _ = elem;
            4 * size_of::<i64>() as u64
        },
    }
}

operation! {
    /// `corr [2] = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)` with `t` the step of the counter, after `StepInc`, minus
    /// the number of steps `skipped` because of an overflow.
    pub struct BiasCorr { pub beta1: Scalar, pub beta2: Scalar }
    slots bias_corr(op) { COUNTER: in live [2], CORR: out [2], SKIPPED: in [1] if OPTIONAL }
    "bias_corr" => {
        dims: String::new(),
        flops: 6,
        bytes_moved(elem): (2 * size_of::<i64>() + 2 * elem) as u64,
    }
}

/// Dynamic loss scaling over the segments of the flat gradient. `scaler [5]` contains the scale of the next step's
/// loss, the steps since the last overflow, one divided by the scale of this step's gradients, 1 if this step
/// overflowed, and the number of steps that overflowed so far. An overflow halves the scale (not below 1), 2000 steps
/// without one double it. Padding between segments is ignored: it has the bits of whatever was in its memory before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScaleUpdate {
    pub len: usize,
    pub segments: Vec<Segment>,
}

slots! {
    pub mod scale_update(op: ScaleUpdate) {
        GRAD: in [op.len],
        SCALER_PREV: in [crate::ops::SCALER],
        SCALER: out [crate::ops::SCALER] if OPTIONAL,
        WORK: scratch,
        TICKET: in_out [1] if OPTIONAL,
    }
}

operation! {
    ScaleUpdate: scale_update, "scale_update", |op| {
        dims: format!("len={} segments={}", op.len, op.segments.len()),
        flops: op.len as u64,
        bytes_moved(elem): {
            let _ = elem;
            ((op.len + 8) * size_of::<f32>()) as u64
        },
        is_for_gpus: true,
    }
}
