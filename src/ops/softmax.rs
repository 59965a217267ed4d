//! Softmax with cross entropy, and a whole classifier with it.

use super::Operation;
use super::geometry::Scalar;
use super::operation::{dims, operation};
use super::rates::{is_one, one};
use crate::model::Activation;

/// Bytes of a label.
const LABEL_BYTES: usize = size_of::<i32>();

operation! {
    /// Row-wise softmax and cross entropy: `row_loss [rows]` and `probs [rows, classes]` (may share the memory of the
    /// logits).
    pub struct SoftmaxCe { pub rows: usize, pub classes: usize, pub smoothing: Scalar }
    slots softmax_ce(op) {
        LOGITS: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        ROW_LOSS: out [op.rows],
        PROBS: out activation [op.rows * op.classes],
    }
    "softmax_ce" => {
        dims: dims!(op: rows classes),
        flops: (5 * op.rows * op.classes) as u64,
        bytes_moved(elem): ((2 * op.rows * op.classes + op.rows) * elem + op.rows * LABEL_BYTES) as u64,
        in_place: &[(softmax_ce::LOGITS, softmax_ce::PROBS)],
        work_ps: softmax_ps(op.rows, op.classes),
    }
}

operation! {
    /// `dlogits = (probs - target) / rows`, in place on `probs`.
    pub struct SoftmaxCeGrad { pub rows: usize, pub classes: usize, pub smoothing: Scalar }
    slots softmax_ce_grad(op) {
        PROBS: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        DLOGITS: out activation [op.rows * op.classes],
        SCALE: in [1] if OPTIONAL,
    }
    "softmax_ce_grad" => {
        dims: dims!(op: rows classes),
        flops: (2 * op.rows * op.classes) as u64,
        bytes_moved(elem): (2 * op.rows * op.classes * elem + op.rows * LABEL_BYTES) as u64,
        in_place: &[(softmax_ce_grad::PROBS, softmax_ce_grad::DLOGITS)],
    }
}

operation! {
    /// Softmax, the mean of the rows' losses, the accuracy and the gradient in one pass: `loss [1]`, `accuracy [1]` (if
    /// bound) and `dlogits` in place on the logits (if bound).
    pub struct SoftmaxCeFused {
        pub rows: usize,
        pub classes: usize,
        pub smoothing: Scalar,
        /// The number of parts with equal numbers of rows that a batch is divided into: `dlogits` is divided by the
        /// rows of all parts.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        pub parts: usize,
    }
    slots softmax_ce_fused(op) {
        LOGITS: in activation [op.rows * op.classes],
        LABELS: in [op.rows],
        DLOGITS: out activation [op.rows * op.classes],
        LOSS: out [1],
        ACCURACY: out [1] if OPTIONAL,
        WORK: scratch,
        SCALE: in [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
    "softmax_ce_fused" => {
        dims: match op.parts {
            1 => dims!(op: rows classes),
            _ => dims!(op: rows classes parts),
        },
        flops: (7 * op.rows * op.classes) as u64,
        bytes_moved(elem): ((2 * op.rows * op.classes + 2) * elem + op.rows * LABEL_BYTES) as u64,
        in_place: &[(softmax_ce_fused::LOGITS, softmax_ce_fused::DLOGITS)],
        scratch_floats: 2 * op.rows,
        work_ps: softmax_ps(op.rows, op.classes),
    }
}

operation! {
    /// A last dense layer of few classes with its loss, up to the gradient of its input, row by row. The scores are the
    /// product of `a [rows, features]` and `b [features, classes]`, with `bias` if bound; `row_loss [rows]` and
    /// `row_right [rows]` (1 if the largest score is at the label); `dlogits` as in `SoftmaxCeGrad`, and `dx [rows,
    /// features]`, its product with `b` transposed, times the derivative of `act_grad` at `saved`, which is `a` itself
    /// if `saved_is_input`, divided by `1 - dropout`: `a` may be the output of ReLU followed by dropout at that rate,
    /// and is zero if either set it to zero.
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
    slots dense_ce(op) {
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
    "dense_ce" => {
        dims: dims!(op: rows features classes),
        flops: op.least_flops() + (7 * op.rows * op.classes) as u64,
        bytes_moved(elem): {
            let reals = 2 * op.rows * op.features + op.features * op.classes + op.rows * op.classes;
            (reals * elem + 2 * op.rows * size_of::<f32>() + op.rows * LABEL_BYTES) as u64
        },
        least_flops: (4 * op.rows * op.features * op.classes) as u64,
        is_for_gpus: true,
    }
}

/// Picoseconds of the softmax of rows.
pub(super) const fn softmax_ps(rows: usize, classes: usize) -> usize {
    rows * (classes * 500 + 12_000)
}
