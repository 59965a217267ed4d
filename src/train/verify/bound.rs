//! Errors beside the bounds that rounding allows them.

use crate::exec::cpu::kernels::reference::bounded::Bounded;

/// Below this a difference is that of numbers too small for `f32`.
const TINY: f64 = 1e-40;

/// An exact value with the bound for a kernel's error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl<const SUM: i32, const PRODUCT: i32> From<Bounded<SUM, PRODUCT>> for Bound {
    fn from(from: Bounded<SUM, PRODUCT>) -> Self {
        Self { value: from.value, error: from.error }
    }
}

/// Error over bound: 0 where there is no error, infinite where the error is not a number.
pub(super) fn ratio(error: f64, bound: f64) -> f64 {
    if error == 0.0 {
        0.0
    } else if error.is_nan() || bound.is_nan() {
        f64::INFINITY
    } else {
        error / (bound + TINY)
    }
}

/// An error with its bound, as every line of a check has them.
pub(super) fn error_text(error: f64, bound: f64) -> String {
    format!("error {error:.1e}, bound {bound:.1e}, ratio {}", ratio_text(ratio(error, bound)))
}

/// A ratio with two decimals, or with two digits where it is small or large.
fn ratio_text(ratio: f64) -> String {
    if ratio == 0.0 || (0.01..100.0).contains(&ratio) { format!("{ratio:.2}") } else { format!("{ratio:.1e}") }
}

/// The element whose error takes the largest part of its bound.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    /// Error over bound; infinite where a value is not a number and the exact one is.
    pub(super) ratio: f64,
    /// Such as `layers.0.weight[17]: error 1.2e-9, bound 3.4e-8, ratio 0.04`.
    pub(super) text: String,
}

impl Worst {
    /// Takes the element in; true where it is within its bound.
    pub(super) fn meets(&mut self, name: impl Fn() -> String, index: usize, found: f64, bound: Bound) -> bool {
        // What may be beyond the range of `f32` may be infinite there.
        let leaves = found.is_infinite() && bound.value.abs() + bound.error >= f64::from(f32::MAX);
        let both_same = found == bound.value || (found.is_nan() && bound.value.is_nan()) || leaves;
        let error = if both_same { 0.0 } else { (found - bound.value).abs() };
        let ratio = ratio(error, bound.error);
        if ratio > self.ratio {
            self.ratio = ratio;
            let values = format!("{found:.6e} instead of {:.6e}", bound.value);
            self.text = format!("{}[{index}]: {} ({values})", name(), error_text(error, bound.error));
        }
        ratio <= 1.0
    }

    /// Takes the other in where its error takes a larger part of its bound.
    pub(super) fn join(&mut self, other: Self) {
        if other.ratio > self.ratio {
            *self = other;
        }
    }

    pub(super) fn figures(&self) -> String {
        if self.text.is_empty() {
            return "no difference (error 0, ratio 0.00)".into();
        }
        format!("largest error at {}", self.text)
    }
}
