//! A request to cuDNN: what is computed, and the tensors that have addresses.

use crate::ops::{AttentionGeometry, ConvGeometry};
use crate::select::cuda::{Real, attention_offers, dnn_offers};

/// Which of a convolution's three products is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvKind {
    /// `y` from `x` and `w`.
    Forward,
    /// The gradient of `x`, from that of `y` and `w`.
    BwdX,
    /// The gradient of `w`, from `x` and the gradient of `y`.
    BwdW,
}

/// What is applied to each element of the result before it is stored, in float and in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fused {
    /// Forward only: adds `bias [f]`, float.
    pub bias: bool,
    /// Forward only: `max(y, 0)`; NaN stays NaN.
    pub relu: bool,
    /// Gradient of the input only: multiplies by relu's derivative at `saved [n, h, w, c]`, relu's output.
    pub relu_grad: bool,
}

/// A convolution with what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTask {
    pub kind: ConvKind,
    pub geometry: ConvGeometry,
    pub fused: Fused,
}

/// What cuDNN computes in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    Conv(ConvTask),
    Attention(AttentionGeometry),
    AttentionBwd(AttentionGeometry),
}

impl Task {
    /// The largest number of plans that are offered for it.
    pub const fn offers(&self) -> u8 {
        match self {
            Self::Conv(conv) => dnn_offers(matches!(conv.kind, ConvKind::BwdW), conv.fused.relu_grad),
            Self::Attention(_) => attention_offers(false),
            Self::AttentionBwd(_) => attention_offers(true),
        }
    }

    /// Whether it is the gradient of a convolution's weight.
    pub const fn is_weight_gradient(&self) -> bool {
        matches!(self, Self::Conv(ConvTask { kind: ConvKind::BwdW, .. }))
    }
}

/// A tensor of a task in device memory. `X`, `W` and `Y` are the same three tensors for every [`ConvKind`]: for
/// [`ConvKind::BwdX`] the gradient of the input is written to `X` and that of the output is read from `Y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// `[n, h, w, c]`.
    X,
    /// `[f, kh, kw, c / groups]`.
    W,
    /// `[n, ho, wo, f]`.
    Y,
    /// `[f]`, float.
    Bias,
    /// `[n, h, w, c]`.
    Saved,
    /// The packed queries, keys and values of attention, `[batch, positions, packed]`.
    Packed,
    /// The concatenated results of attention's heads, `[batch, positions, width]`.
    Heads,
    /// `[batch, heads, positions]`, float.
    Lse,
    /// The gradient of `Packed`.
    PackedGrad,
    /// The gradient of `Heads`.
    HeadsGrad,
    /// Scratch memory of attention's gradient, `[batch, heads, positions]`, float.
    Sums,
}

/// What plans are requested for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanRequest {
    pub task: Task,
    pub real: Real,
    /// The largest scratch memory of a plan.
    pub workspace_limit_bytes: u64,
    /// The largest number of plans.
    pub max: usize,
}
