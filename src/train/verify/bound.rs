//! Errors beside the bounds that rounding allows them.

use crate::exec::cpu::kernels::reference::bounded::Bounded;

/// Below this a difference is that of numbers too small for `f32`.
const TINY: f64 = 1e-40;
/// Decimals that tell any two numbers in `f64` apart.
const DIGITS: usize = 17;

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
    let [error_shown, bound_shown] = apart(error, bound, 1);
    format!("error {error_shown}, bound {bound_shown}, ratio {}", ratio_text(ratio(error, bound), 2))
}

/// A ratio with so many decimals, or with two digits if it is small or large. If it is rounded to 1, it has as many
/// decimals as show on which side of 1 it is.
#[must_use]
pub fn ratio_text(ratio: f64, decimals: usize) -> String {
    if ratio != 0.0 && !(0.01..100.0).contains(&ratio) {
        return format!("{ratio:.1e}");
    }
    let same_side = |text: &String| text.parse().is_ok_and(|shown: f64| shown.total_cmp(&1.0) == ratio.total_cmp(&1.0));
    let shown = (decimals..=DIGITS).map(|decimals| format!("{ratio:.decimals$}")).find(same_side);
    shown.unwrap_or_else(|| ratio.to_string())
}

/// Two numbers in scientific form with at least so many decimals, and with as many as show that they differ.
pub(super) fn apart(a: f64, b: f64, decimals: usize) -> [String; 2] {
    let at = |decimals: usize| [a, b].map(|value| format!("{value:.decimals$e}"));
    (decimals..=DIGITS).map(at).find(|[a, b]| a != b).unwrap_or_else(|| at(decimals))
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
            let [found, exact] = apart(found, bound.value, 6);
            let error = error_text(error, bound.error);
            self.text = format!("{}[{index}]: {error} ({found} instead of {exact})", name());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_shown_on_its_own_side_of_1() {
        let shown = [0.997, 1.003, 1.0, 0.5, 0.0, 1.234, 0.99996, 1.0 - f64::EPSILON / 2.0].map(|r| ratio_text(r, 2));
        assert_eq!(shown, ["0.997", "1.003", "1.00", "0.50", "0.00", "1.23", "0.99996", "0.9999999999999999"]);
        let large = [1.0 + f64::EPSILON, 99.999, 250.0, f64::INFINITY].map(|r| ratio_text(r, 2));
        assert_eq!(large, ["1.0000000000000002", "100.00", "2.5e2", "inf"]);
        assert_eq!([0.9999, 2.0, 0.001].map(|r| ratio_text(r, 3)), ["0.9999", "2.000", "1.0e-3"]);
    }

    #[test]
    fn numbers_that_differ_are_shown_as_different() {
        assert_eq!(apart(1.0, 1.000_000_01, 6), ["1.00000000e0", "1.00000001e0"]);
        assert_eq!(apart(1.0, 1.0, 6), ["1.000000e0", "1.000000e0"]);
        assert_eq!(apart(1.0, 2.0, 1), ["1.0e0", "2.0e0"]);
        assert_eq!(error_text(1.003, 1.0), "error 1.003e0, bound 1.000e0, ratio 1.003");
        let next = f64::from_bits(0.1f64.to_bits() + 1);
        let [a, b] = apart(0.1, next, 6);
        assert_eq!([a.parse(), b.parse()], [Ok(0.1), Ok(next)]);
        let mut worst = Worst::default();
        assert!(!worst.meets(|| "w".into(), 0, 2.0 + 1e-12, Bound { value: 2.0, error: 1e-13 }));
        assert!(worst.text.contains("(2.000000000001e0 instead of 2.000000000000e0)"), "{}", worst.text);
    }
}
