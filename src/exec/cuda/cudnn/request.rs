//! A request to cuDNN: a convolution with what follows it, and the addresses of one call.

use crate::ops::ConvGeometry;
use crate::select::cuda::Real;

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

/// Device addresses for one call. `x`, `w` and `y` are the same three tensors for every kind: for [`ConvKind::BwdX`]
/// the gradient of the input is written to `x` and that of the output is read from `y`. Addresses that a plan does not
/// use may be 0; the others are multiples of 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DnnArgs {
    /// `[n, h, w, c]`.
    pub x: u64,
    /// `[f, kh, kw, c / groups]`.
    pub w: u64,
    /// `[n, ho, wo, f]`.
    pub y: u64,
    /// `[f]`, float.
    pub bias: u64,
    /// `[n, h, w, c]`.
    pub saved: u64,
    /// The scratch memory that was reserved when the plan was made.
    pub workspace: u64,
}

/// What plans are requested for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanRequest {
    pub kind: ConvKind,
    pub geometry: ConvGeometry,
    pub real: Real,
    pub fused: Fused,
    /// The largest scratch memory of a plan.
    pub workspace_limit_bytes: u64,
    /// The largest number of plans.
    pub max: usize,
}
