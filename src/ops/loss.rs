//! Means over a batch: of the rows' losses, of correct answers, and of squared errors with their gradient.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::operation::{dims, operation};

operation! {
    /// `loss [1] = mean of row_loss [rows]`; if bound, `accuracy [1] = mean of row_right [rows]`.
    pub struct LossMean { pub rows: usize }
    slots loss_mean(op) {
        ROW_LOSS: in [op.rows],
        LOSS: out [1],
        ROW_RIGHT: in [op.rows] if OPTIONAL,
        ACCURACY: out [1] if OPTIONAL,
    }
    "loss_mean" => {
        dims: dims!(op: rows),
        flops: op.rows as u64,
    }
}

operation! {
    /// `accuracy [1]`: share of rows whose largest score (the first of equals) is at the label.
    pub struct Accuracy { pub rows: usize, pub classes: usize }
    slots accuracy(op) { SCORES: in activation [op.rows * op.classes], LABELS: in [op.rows], ACCURACY: out [1] }
    "accuracy" => {
        dims: dims!(op: rows classes),
        flops: (op.rows * op.classes) as u64,
        bytes_moved(elem): ((op.rows * op.classes + 1) * elem + op.rows * size_of::<i32>()) as u64,
    }
}

operation! {
    /// `loss [1] = mean over len of (y - target)^2`.
    pub struct Mse { pub len: usize }
    slots mse(op) { Y: in activation [op.len], TARGET: in activation [op.len], LOSS: out [1], WORK: scratch }
    "mse" => {
        dims: dims!(op: len),
        flops: 3 * op.len as u64,
        scratch_floats: op.len.div_ceil(FLAT_CHUNK),
    }
}

operation! {
    /// `dy = 2 (y - target) / len`, in place on `y`.
    pub struct MseGrad { pub len: usize }
    slots mse_grad(op) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        SCALE: in [1] if OPTIONAL,
    }
    "mse_grad" => {
        dims: dims!(op: len),
        flops: 2 * op.len as u64,
        in_place: &[(mse_grad::Y, mse_grad::DY)],
    }
}

operation! {
    /// `Mse` and `MseGrad` in one pass.
    pub struct MseFused { pub len: usize }
    slots mse_fused(op) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        LOSS: out [1],
        WORK: scratch,
        SCALE: in [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
    "mse_fused" => {
        dims: dims!(op: len),
        flops: 4 * op.len as u64,
        in_place: &[(mse_fused::Y, mse_fused::DY)],
        scratch_floats: op.len.div_ceil(FLAT_CHUNK),
    }
}
