//! Losses that are the mean of a function of each output and its target, with their gradients, and the accuracy of
//! answers that are yes or no.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::geometry::Scalar;
use super::slots::{slots, table};
use crate::model::losses::PointFn;
use serde::{Deserialize, Serialize};

/// Picoseconds that one element takes: its value, and its derivative.
const fn point_ps(func: PointFn) -> [usize; 2] {
    match func {
        PointFn::BinaryCrossEntropy => [400, 310],
        PointFn::L1 | PointFn::Huber => [0, 0],
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

impl Operation for PointLoss {
    table!(point_loss);

    fn name(&self) -> &'static str {
        match self.func {
            PointFn::BinaryCrossEntropy => "binary_ce",
            PointFn::L1 => "l1_loss",
            PointFn::Huber => "huber_loss",
        }
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        4 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.len + 1) * elem) as u64
    }

    fn scratch_floats(&self) -> usize {
        self.len.div_ceil(FLAT_CHUNK)
    }

    fn work_ps(&self) -> usize {
        self.len * point_ps(self.func)[0]
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

impl Operation for PointLossGrad {
    table!(point_loss_grad);

    fn name(&self) -> &'static str {
        match self.func {
            PointFn::BinaryCrossEntropy => "binary_ce_grad",
            PointFn::L1 => "l1_loss_grad",
            PointFn::Huber => "huber_loss_grad",
        }
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        3 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (3 * self.len * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(point_loss_grad::Y, point_loss_grad::DY)]
    }

    fn work_ps(&self) -> usize {
        self.len * point_ps(self.func)[1]
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

impl Operation for PointLossFused {
    table!(point_loss_fused);

    fn name(&self) -> &'static str {
        match self.func {
            PointFn::BinaryCrossEntropy => "binary_ce_fused",
            PointFn::L1 => "l1_loss_fused",
            PointFn::Huber => "huber_loss_fused",
        }
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        7 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((3 * self.len + 2) * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(point_loss_fused::Y, point_loss_fused::DY)]
    }

    /// A sum of losses and a count of right answers for each chunk.
    fn scratch_floats(&self) -> usize {
        2 * self.len.div_ceil(FLAT_CHUNK)
    }

    fn work_ps(&self) -> usize {
        self.len * point_ps(self.func).iter().sum::<usize>()
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

impl Operation for BinaryAccuracy {
    table!(binary_accuracy);

    fn name(&self) -> &'static str {
        "binary_accuracy"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.len + 1) * elem) as u64
    }
}
