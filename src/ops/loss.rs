//! Losses, their gradients, and the accuracy.

use super::geometry::Scalar;
use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// Row-wise softmax and cross entropy: `row_loss [rows]` and `probs [rows, classes]` (may be in place on the logits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxCe {
    pub rows: usize,
    pub classes: usize,
    pub smoothing: Scalar,
}

/// `dlogits = (probs - target) / rows`, in place on `probs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxCeGrad {
    pub rows: usize,
    pub classes: usize,
    pub smoothing: Scalar,
}

/// `loss [1] = mean of row_loss [rows]`; where bound, `accuracy [1] = mean of row_right [rows]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LossMean {
    pub rows: usize,
}

/// `accuracy [1]`: share of rows whose largest score (the first of equals) stands at the label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accuracy {
    pub rows: usize,
    pub classes: usize,
}

/// The four operations above in one pass: `loss [1]`, `accuracy [1]` (where bound) and `dlogits` in place on the logits (where bound).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxCeFused {
    pub rows: usize,
    pub classes: usize,
    pub smoothing: Scalar,
}

/// A last dense layer of few classes with its loss, up to the gradient of its input, a row at a time. The scores are the product of `a [rows, features]`
/// and `b [features, classes]`, with `bias` where bound; `row_loss [rows]` and `row_right [rows]` (1 where the largest score stands at the label);
/// `dlogits`, as `SoftmaxCeGrad` has it, and `dx [rows, features]`, its product with `b` transposed, times the derivative of `act_grad` at `saved`,
/// which is `a` itself where `saved_is_input`, over `1 - dropout`: `a` may have gone through ReLU and then dropout at that rate, and is zero where either
/// made it so.
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

/// `loss [1] = mean over len of (y - target)^2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mse {
    pub len: usize,
}

/// `dy = 2 (y - target) / len`, in place on `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MseGrad {
    pub len: usize,
}

/// `Mse` and `MseGrad` in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MseFused {
    pub len: usize,
}
