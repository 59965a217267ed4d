//! Losses that are the mean of a function of each output and its target, with their gradients, and the accuracy of
//! answers that are yes or no.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::geometry::Scalar;
use super::operation::operation;
use super::slots::slots;
use crate::model::losses::PointFn;
use serde::{Deserialize, Serialize};

/// Picoseconds that one element takes: its value, and its derivative.
const fn point_ps(func: PointFn) -> [usize; 2] {
    match func {
        PointFn::BinaryCrossEntropy => [400, 310],
        PointFn::L1 | PointFn::Huber => [0, 0],
    }
}

/// The name of an operation by its function, of binary cross entropy, of the absolute and of Huber's error.
const fn named(func: PointFn, [cross_entropy, l1, huber]: [&'static str; 3]) -> &'static str {
    match func {
        PointFn::BinaryCrossEntropy => cross_entropy,
        PointFn::L1 => l1,
        PointFn::Huber => huber,
    }
}

/// Whether JSON leaves a number out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(value: &Scalar) -> bool {
    value.get() == 0.0
}

/// `loss [1] = mean over len of f(y, target)`. `delta` is that of the function, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PointLoss {
    pub func: PointFn,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delta: Scalar,
    pub len: usize,
}

slots! {
    pub mod point_loss(op: PointLoss) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        LOSS: out [1],
        WORK: scratch,
    }
}

operation! {
    PointLoss: point_loss, named(op.func, ["binary_ce", "l1_loss", "huber_loss"]), |op| {
        dims: format!("len={}", op.len),
        flops: 4 * op.len as u64,
        bytes_moved(elem): ((2 * op.len + 1) * elem) as u64,
        scratch_floats: op.len.div_ceil(FLAT_CHUNK),
        work_ps: op.len * point_ps(op.func)[0],
    }
}

/// `dy = f'(y, target) / len`, in place on `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PointLossGrad {
    pub func: PointFn,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delta: Scalar,
    pub len: usize,
}

slots! {
    pub mod point_loss_grad(op: PointLossGrad) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        SCALE: in [1] if OPTIONAL,
    }
}

operation! {
    PointLossGrad: point_loss_grad, named(op.func, ["binary_ce_grad", "l1_loss_grad", "huber_loss_grad"]), |op| {
        dims: format!("len={}", op.len),
        flops: 3 * op.len as u64,
        bytes_moved(elem): (3 * op.len * elem) as u64,
        in_place: &[(point_loss_grad::Y, point_loss_grad::DY)],
        work_ps: op.len * point_ps(op.func)[1],
    }
}

/// `PointLoss`, `PointLossGrad` and, where bound, `BinaryAccuracy` in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PointLossFused {
    pub func: PointFn,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delta: Scalar,
    pub len: usize,
}

slots! {
    pub mod point_loss_fused(op: PointLossFused) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        LOSS: out [1],
        ACCURACY: out [1] if OPTIONAL,
        WORK: scratch,
        SCALE: in [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
}

operation! {
    PointLossFused: point_loss_fused, named(op.func, ["binary_ce_fused", "l1_loss_fused", "huber_loss_fused"]), |op| {
        dims: format!("len={}", op.len),
        flops: 7 * op.len as u64,
        bytes_moved(elem): ((3 * op.len + 2) * elem) as u64,
        in_place: &[(point_loss_fused::Y, point_loss_fused::DY)],
        // A sum of losses and a count of right answers for each chunk.
        scratch_floats: 2 * op.len.div_ceil(FLAT_CHUNK),
        work_ps: op.len * point_ps(op.func).iter().sum::<usize>(),
    }
}

/// `accuracy [1]`: share of elements of `y` that are above 0 where `target` is above one half, and not above it where
/// it is not. A NaN is never right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BinaryAccuracy {
    pub len: usize,
}

slots! {
    pub mod binary_accuracy(op: BinaryAccuracy) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        ACCURACY: out [1],
    }
}

operation! {
    BinaryAccuracy: binary_accuracy, "binary_accuracy", |op| {
        dims: format!("len={}", op.len),
        flops: op.len as u64,
        bytes_moved(elem): ((2 * op.len + 1) * elem) as u64,
    }
}
