//! Standardisation: every feature with mean 0 and deviation 1.

use serde::{Deserialize, Serialize};

/// The parameters that a data set's features were standardised with: `(value - mean) * scale`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    pub mean: Vec<f64>,
    /// One over the deviation; 0 for a constant feature.
    pub scale: Vec<f64>,
}

impl Scaling {
    /// Standardises samples of `mean.len()` features, row by row.
    pub(super) fn apply(&self, x: &mut [f32]) {
        for row in x.chunks_exact_mut(self.mean.len().max(1)) {
            for ((value, mean), scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
                *value = ((f64::from(*value) - mean) * scale).clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
            }
        }
    }
}
