//! Means over a batch: of the rows' losses, of right answers, and of squared errors with their gradient.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// `loss [1] = mean of row_loss [rows]`; where bound, `accuracy [1] = mean of row_right [rows]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LossMean {
    pub rows: usize,
}

slots! {
    pub mod loss_mean(op: LossMean) {
        ROW_LOSS: in [op.rows],
        LOSS: out [1],
        ROW_RIGHT: in [op.rows] if OPTIONAL,
        ACCURACY: out [1] if OPTIONAL,
    }
}

impl Operation for LossMean {
    table!(loss_mean);

    fn name(&self) -> &'static str {
        "loss_mean"
    }

    fn dims(&self) -> String {
        format!("rows={}", self.rows)
    }

    fn flops(&self) -> u64 {
        self.rows as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((self.rows + 1) * elem) as u64
    }
}

/// `accuracy [1]`: share of rows whose largest score (the first of equals) is at the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accuracy {
    pub rows: usize,
    pub classes: usize,
}

slots! {
    pub mod accuracy(op: Accuracy) {
        SCORES: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        ACCURACY: out [1],
    }
}

impl Operation for Accuracy {
    table!(accuracy);

    fn name(&self) -> &'static str {
        "accuracy"
    }

    fn dims(&self) -> String {
        format!("rows={} classes={}", self.rows, self.classes)
    }

    fn flops(&self) -> u64 {
        (self.rows * self.classes) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((self.rows * self.classes + 1) * elem + self.rows * size_of::<i32>()) as u64
    }
}

/// `loss [1] = mean over len of (y - target)^2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mse {
    pub len: usize,
}

slots! {
    pub mod mse(op: Mse) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        LOSS: out [1],
        WORK: scratch,
    }
}

impl Operation for Mse {
    table!(mse);

    fn name(&self) -> &'static str {
        "mse"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        3 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.len + 1) * elem) as u64
    }

    fn scratch_floats(&self) -> usize {
        self.len.div_ceil(FLAT_CHUNK)
    }
}

/// `dy = 2 (y - target) / len`, in place on `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MseGrad {
    pub len: usize,
}

slots! {
    pub mod mse_grad(op: MseGrad) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        SCALE: in [1] if OPTIONAL,
    }
}

impl Operation for MseGrad {
    table!(mse_grad);

    fn name(&self) -> &'static str {
        "mse_grad"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        2 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (3 * self.len * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(mse_grad::Y, mse_grad::DY)]
    }
}

/// `Mse` and `MseGrad` in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MseFused {
    pub len: usize,
}

slots! {
    pub mod mse_fused(op: MseFused) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        LOSS: out [1],
        WORK: scratch,
        SCALE: in [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
}

impl Operation for MseFused {
    table!(mse_fused);

    fn name(&self) -> &'static str {
        "mse_fused"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        4 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((3 * self.len + 1) * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(mse_fused::Y, mse_fused::DY)]
    }

    fn scratch_floats(&self) -> usize {
        self.len.div_ceil(FLAT_CHUNK)
    }
}
