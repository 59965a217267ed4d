//! Softmax with cross entropy, and a whole classifier with it.

use super::Operation;
use super::geometry::Scalar;
use super::slots::{slots, table};
use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// Bytes of a label.
const LABEL_BYTES: usize = size_of::<i32>();

/// Row-wise softmax and cross entropy: `row_loss [rows]` and `probs [rows, classes]` (may be in place on the logits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxCe {
    pub rows: usize,
    pub classes: usize,
    pub smoothing: Scalar,
}

slots! {
    pub mod softmax_ce(op: SoftmaxCe) {
        LOGITS: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        ROW_LOSS: out [op.rows],
        PROBS: out activation [op.rows * op.classes],
    }
}

impl Operation for SoftmaxCe {
    table!(softmax_ce);

    fn name(&self) -> &'static str {
        "softmax_ce"
    }

    fn dims(&self) -> String {
        format!("rows={} classes={}", self.rows, self.classes)
    }

    fn flops(&self) -> u64 {
        (5 * self.rows * self.classes) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.rows * self.classes + self.rows) * elem + self.rows * LABEL_BYTES) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(softmax_ce::LOGITS, softmax_ce::PROBS)]
    }

    fn work_ps(&self) -> usize {
        softmax_ps(self.rows, self.classes)
    }
}

/// `dlogits = (probs - target) / rows`, in place on `probs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxCeGrad {
    pub rows: usize,
    pub classes: usize,
    pub smoothing: Scalar,
}

slots! {
    pub mod softmax_ce_grad(op: SoftmaxCeGrad) {
        PROBS: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        DLOGITS: out activation [op.rows * op.classes],
        SCALE: in [1] if OPTIONAL,
    }
}

impl Operation for SoftmaxCeGrad {
    table!(softmax_ce_grad);

    fn name(&self) -> &'static str {
        "softmax_ce_grad"
    }

    fn dims(&self) -> String {
        format!("rows={} classes={}", self.rows, self.classes)
    }

    fn flops(&self) -> u64 {
        (2 * self.rows * self.classes) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.rows * self.classes * elem + self.rows * LABEL_BYTES) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(softmax_ce_grad::PROBS, softmax_ce_grad::DLOGITS)]
    }
}

/// The four operations above in one pass: `loss [1]`, `accuracy [1]` (where bound) and `dlogits` in place on the
/// logits (where bound).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxCeFused {
    pub rows: usize,
    pub classes: usize,
    pub smoothing: Scalar,
}

slots! {
    pub mod softmax_ce_fused(op: SoftmaxCeFused) {
        LOGITS: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        DLOGITS: out activation [op.rows * op.classes],
        LOSS: out [1],
        ACCURACY: out [1] if OPTIONAL,
        WORK: scratch,
        SCALE: in [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
}

impl Operation for SoftmaxCeFused {
    table!(softmax_ce_fused);

    fn name(&self) -> &'static str {
        "softmax_ce_fused"
    }

    fn dims(&self) -> String {
        format!("rows={} classes={}", self.rows, self.classes)
    }

    fn flops(&self) -> u64 {
        (7 * self.rows * self.classes) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.rows * self.classes + 2) * elem + self.rows * LABEL_BYTES) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(softmax_ce_fused::LOGITS, softmax_ce_fused::DLOGITS)]
    }

    fn scratch_floats(&self) -> usize {
        2 * self.rows
    }

    fn work_ps(&self) -> usize {
        softmax_ps(self.rows, self.classes)
    }
}

/// A last dense layer of few classes with its loss, up to the gradient of its input, a row at a time. The scores are
/// the product of `a [rows, features]` and `b [features, classes]`, with `bias` where bound; `row_loss [rows]` and
/// `row_right [rows]` (1 where the largest score is at the label); `dlogits`, as `SoftmaxCeGrad` has it, and `dx
/// [rows, features]`, its product with `b` transposed, times the derivative of `act_grad` at `saved`, which is `a`
/// itself where `saved_is_input`, over `1 - dropout`: `a` may have gone through ReLU and then dropout at that rate,
/// and is zero where either made it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DenseCe {
    pub rows: usize,
    pub features: usize,
    pub classes: usize,
    pub smoothing: Scalar,
    pub bias: bool,
    pub act_grad: Option<Activation>,
    pub saved_is_input: bool,
    pub dropout: Scalar,
}

slots! {
    pub mod dense_ce(op: DenseCe) {
        A: in activation [op.rows * op.features],
        B: in activation [op.features * op.classes],
        BIAS: in [op.classes] if op.bias,
        LABELS: in [op.rows],
        SAVED: in activation [op.rows * op.features] if op.act_grad.is_some(),
        SCALE: in [1] if OPTIONAL,
        DLOGITS: out activation [op.rows * op.classes],
        ROW_LOSS: out [op.rows],
        ROW_RIGHT: out [op.rows],
        DX: out activation [op.rows * op.features],
    }
}

impl Operation for DenseCe {
    table!(dense_ce);

    fn name(&self) -> &'static str {
        "dense_ce"
    }

    fn dims(&self) -> String {
        format!("rows={} features={} classes={}", self.rows, self.features, self.classes)
    }

    fn flops(&self) -> u64 {
        self.least_flops() + (7 * self.rows * self.classes) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let reals = 2 * self.rows * self.features + self.features * self.classes + self.rows * self.classes;
        (reals * elem + 2 * self.rows * size_of::<f32>() + self.rows * LABEL_BYTES) as u64
    }

    fn least_flops(&self) -> u64 {
        (4 * self.rows * self.features * self.classes) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }
}

/// Picoseconds of the softmax of rows.
pub(super) const fn softmax_ps(rows: usize, classes: usize) -> usize {
    rows * (classes * 500 + 12_000)
}
