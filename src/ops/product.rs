//! Convolutions; matrix products are [`Gemm`](super::Gemm).

use super::geometry::{ConvGeometry, Epilogue};
use serde::{Deserialize, Serialize};

/// A convolution of `x [n, h, w, c]` with a weight `[kh, kw, c / groups, f]`, and its epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2d {
    pub geometry: ConvGeometry,
    pub epilogue: Epilogue,
}

/// Gradient of a convolution's input, from `dy` and the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2dBwdX {
    pub geometry: ConvGeometry,
    pub epilogue: Epilogue,
}

/// Gradient of a convolution's weight, from `x` and `dy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv2dBwdW {
    pub geometry: ConvGeometry,
    pub accumulate: bool,
}
