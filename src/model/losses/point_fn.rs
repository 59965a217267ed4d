//! Losses that are the mean of a function of each output and its target.

use serde::{Deserialize, Serialize};

/// A function of one output and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointFn {
    /// `-t ln(sigmoid(y)) - (1 - t) ln(1 - sigmoid(y))`, where `y` is a logit.
    BinaryCrossEntropy,
    /// `|y - t|`; the derivative is 0 if both are equal.
    L1,
    /// `(y - t)^2 / 2` if the difference is at most `delta`, otherwise `delta (|y - t| - delta / 2)`.
    Huber,
}

impl PointFn {
    pub const ALL: [Self; 3] = [Self::BinaryCrossEntropy, Self::L1, Self::Huber];

    /// The name of the loss.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BinaryCrossEntropy => "binary_cross_entropy",
            Self::L1 => "l1",
            Self::Huber => "huber",
        }
    }

    /// The value in f64; NaN if the output or the target is NaN.
    #[must_use]
    pub fn value(self, y: f64, t: f64, delta: f64) -> f64 {
        match self {
            // No exponential is above 1.
            Self::BinaryCrossEntropy => (if y < 0.0 { 0.0 } else { y }) - y * t + (-y.abs()).exp().ln_1p(),
            Self::L1 => (y - t).abs(),
            Self::Huber => {
                let distance = (y - t).abs();
                if distance <= delta { 0.5 * distance * distance } else { delta * (distance - 0.5 * delta) }
            }
        }
    }
}
