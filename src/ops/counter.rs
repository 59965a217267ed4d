//! The counter of steps and what follows from it, and dynamic loss scaling.

use super::Operation;
use super::geometry::Scalar;
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// The numbers that dynamic loss scaling keeps from step to step.
pub const SCALER: usize = 5;

/// `counter [2] (i64)`: seed, step; adds one to the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepInc {}

slots! {
    pub mod step_inc(op: StepInc) {
        COUNTER_PREV: in [2],
        COUNTER: out [2],
    }
}

impl Operation for StepInc {
    table!(step_inc);

    fn name(&self) -> &'static str {
        "step_inc"
    }

    fn dims(&self) -> String {
        String::new()
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let _ = elem;
        4 * size_of::<i64>() as u64
    }
}

/// `corr [2] = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)` with `t` the step of the counter, after `StepInc`, less the
/// steps `skipped` for their overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasCorr {
    pub beta1: Scalar,
    pub beta2: Scalar,
}

slots! {
    pub mod bias_corr(op: BiasCorr) {
        COUNTER: in [2],
        CORR: out [2],
        SKIPPED: in [1] if OPTIONAL,
    }
}

impl Operation for BiasCorr {
    table!(bias_corr);

    fn name(&self) -> &'static str {
        "bias_corr"
    }

    fn dims(&self) -> String {
        String::new()
    }

    fn flops(&self) -> u64 {
        6
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * size_of::<i64>() + 2 * elem) as u64
    }
}

/// Dynamic loss scaling over the flat gradient. `scaler [5]` holds the scale of the next step's loss, the steps since
/// the last overflow, one over the scale of this step's gradients, 1 where this step overflowed, and the steps that
/// did so far. An overflow halves the scale (not below 1), 2000 steps without one double it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScaleUpdate {
    pub len: usize,
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

impl Operation for ScaleUpdate {
    table!(scale_update);

    fn name(&self) -> &'static str {
        "scale_update"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let _ = elem;
        ((self.len + 8) * size_of::<f32>()) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }
}
