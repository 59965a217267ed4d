//! Means over a batch: of the rows' losses, of right answers, and of squared errors with their gradient.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::operation::operation;
use super::slots::slots;
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

operation! {
    LossMean: loss_mean, "loss_mean", |op| {
        dims: format!("rows={}", op.rows),
        flops: op.rows as u64,
        bytes_moved(elem): ((op.rows + 1) * elem) as u64,
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

operation! {
    Accuracy: accuracy, "accuracy", |op| {
        dims: format!("rows={} classes={}", op.rows, op.classes),
        flops: (op.rows * op.classes) as u64,
        bytes_moved(elem): ((op.rows * op.classes + 1) * elem + op.rows * size_of::<i32>()) as u64,
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

operation! {
    Mse: mse, "mse", |op| {
        dims: format!("len={}", op.len),
        flops: 3 * op.len as u64,
        bytes_moved(elem): ((2 * op.len + 1) * elem) as u64,
        scratch_floats: op.len.div_ceil(FLAT_CHUNK),
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

operation! {
    MseGrad: mse_grad, "mse_grad", |op| {
        dims: format!("len={}", op.len),
        flops: 2 * op.len as u64,
        bytes_moved(elem): (3 * op.len * elem) as u64,
        in_place: &[(mse_grad::Y, mse_grad::DY)],
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

operation! {
    MseFused: mse_fused, "mse_fused", |op| {
        dims: format!("len={}", op.len),
        flops: 4 * op.len as u64,
        bytes_moved(elem): ((3 * op.len + 1) * elem) as u64,
        in_place: &[(mse_fused::Y, mse_fused::DY)],
        scratch_floats: op.len.div_ceil(FLAT_CHUNK),
    }
}
