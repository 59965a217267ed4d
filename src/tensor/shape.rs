//! Dimensions of a tensor.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Dimensions, outermost first; prints as `[64, 1, 8, 8]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    /// Number of elements; 1 for a scalar.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().product()
    }

    /// True if one dimension is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of elements, or `None` on overflow.
    #[must_use]
    pub fn checked_len(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |acc, &d| acc.checked_mul(d))
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// This shape with a batch dimension of `batch` at the front.
    #[must_use]
    pub fn batched(&self, batch: usize) -> Self {
        let mut dims = Vec::with_capacity(self.0.len() + 1);
        dims.push(batch);
        dims.extend_from_slice(&self.0);
        Self(dims)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&format!("[{}]", dims.join(", ")))
    }
}
