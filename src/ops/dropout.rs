//! Dropout and its derivative.

use super::geometry::Scalar;
use serde::{Deserialize, Serialize};

/// `y = x * keep / (1 - rate)`; the bits of `keep` are drawn from (seed, stream, step counter) and kept in `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dropout {
    pub len: usize,
    pub rate: Scalar,
    pub stream: u32,
}

/// `dx = dy * mask / (1 - rate)`, in place on `dy`. At rate 0 also the derivative of ReLU by [`Self::SignBits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DropoutBwd {
    pub len: usize,
    pub rate: Scalar,
}
