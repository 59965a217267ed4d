//! Windows over images, and the mean of whole images.

use super::geometry::PoolGeometry;
use serde::{Deserialize, Serialize};

/// Maximum over windows (padding counts as minus infinity); `index` holds the position inside the window, row by row: the first
/// of equals, NaN wins. `u8` for windows up to 256, `u16` above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPool {
    pub geometry: PoolGeometry,
}

/// Gradient of the maximum pooling's input: each window's gradient goes to its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MaxPoolBwd {
    pub geometry: PoolGeometry,
}

/// Mean over windows; padding counts as zeros and in the divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AvgPool {
    pub geometry: PoolGeometry,
}

/// Gradient of the mean pooling's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AvgPoolBwd {
    pub geometry: PoolGeometry,
}

/// `y [n, c] = mean over hw of x [n, hw, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GlobalAvgPool {
    pub n: usize,
    pub hw: usize,
    pub c: usize,
}

/// Gradient of the global mean's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GlobalAvgPoolBwd {
    pub n: usize,
    pub hw: usize,
    pub c: usize,
}
