//! Numbers that carry a bound for their rounding error: the reference kernels run on them, and each result then
//! includes the largest possible error of a kernel in a lower precision.
//!
//! This is a running error analysis (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.3): each
//! operation adds its own rounding error and propagates the errors of its operands, to first order, and as an upper
//! bound if the operation is not linear.

use crate::exec::cpu::kernels::reference::real::Real;
use crate::model::Activation;
use std::cell::Cell;
use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// An `f64` value and a bound for the error of a kernel. The kernel adds with unit roundoff `2^-SUM`, and its products
/// round their operands with unit roundoff `2^-PRODUCT`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Bounded<const SUM: i32, const PRODUCT: i32> {
    pub value: f64,
    /// At least 0; infinite if there is no bound.
    pub error: f64,
    /// The sum of the squares of the terms that were added to give this number.
    squares: f64,
}

thread_local! {
    static UNDECIDED: Cell<u64> = const { Cell::new(0) };
}

/// The number of comparisons on this thread since the last call whose outcome rounding may change; the count is reset
/// to 0.
pub fn take_undecided() -> u64 {
    UNDECIDED.replace(0)
}

/// The largest difference between the partial sums of two orders of addition, as a multiple of the root of the sum of
/// squared terms. No order of up to nine terms exceeds it; for more terms, one order in thirty million does: the
/// partial sums of a random order form a bridge from zero to the whole sum, which deviates from its mean by `x` roots
/// with probability `2 exp(-2 x^2)` (Higham and Mary, *A new approach to probabilistic rounding error analysis*, 2019,
/// consider orders random).
const OTHER_ORDERS: f64 = 3.0;

/// A bound for the second derivative of a smooth activation, and for the derivative with respect to its saved value.
const CURVATURE: f64 = 1.0;
/// The largest slope of a smooth activation: 1.129 of GELU.
const STEEPEST: f64 = 1.13;
/// The distance between the smallest and the largest slope of a smooth activation: 1.258 of GELU.
const SLOPES: f64 = 1.26;

impl<const SUM: i32, const PRODUCT: i32> Bounded<SUM, PRODUCT> {
    /// The unit roundoff of a sum.
    const U: f64 = power_of_two(-SUM);
    /// The relative error of a product: its own rounding and that of both operands if they are rounded.
    const OF_PRODUCT: f64 = if PRODUCT < SUM { 2.0 * power_of_two(-PRODUCT) + Self::U } else { Self::U };

    /// A value that the kernel reads without rounding.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self::off(value, 0.0)
    }

    /// A single term with an error of at most `error`.
    #[must_use]
    pub const fn off(value: f64, error: f64) -> Self {
        Self { value, error, squares: value * value }
    }

    /// The number as its readers use it: a single term, even if it is a sum.
    #[must_use]
    pub const fn stored(self) -> Self {
        Self::off(self.value, self.error)
    }

    /// Half the smallest number of the kernel's type: the rounding error of results below its normal numbers.
    const UNDERFLOW: f64 = if SUM == 24 { power_of_two(-150) } else { f64::from_bits(1) };
    /// The smallest normal number of the kernel's type.
    const NORMAL: f64 = if SUM == 24 { power_of_two(-126) } else { f64::MIN_POSITIVE };

    /// The error of rounding a result of this size once.
    fn rounding(value: f64) -> f64 {
        Self::U * value.abs() + Self::underflow(value)
    }

    /// The rounding error of a result of this size that is due to denormal numbers: even scaling by a power of two may
    /// lose digits there.
    fn underflow(value: f64) -> f64 {
        if value != 0.0 && value.abs() < Self::NORMAL { Self::UNDERFLOW } else { 0.0 }
    }

    /// The value with an error of at most `error`, plus `units` roundings of the value's size.
    fn rounded(value: f64, error: f64, units: f64) -> Self {
        // Zero times an unbounded error is unknown.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        Self::off(value, error + units * Self::rounding(value))
    }

    /// True for 0 and for exact powers of two: products with them are not rounded if the result is a normal number.
    fn only_scales(self) -> bool {
        self.error == 0.0 && (self.value == 0.0 || self.value.abs().to_bits() & 0x000f_ffff_ffff_ffff == 0)
    }
}

/// `2^exponent`, for normal numbers.
const fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

impl<const SUM: i32, const PRODUCT: i32> PartialEq for Bounded<SUM, PRODUCT> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<const SUM: i32, const PRODUCT: i32> PartialOrd for Bounded<SUM, PRODUCT> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<const SUM: i32, const PRODUCT: i32> Add for Bounded<SUM, PRODUCT> {
    type Output = Self;

    /// Adding an exact zero causes no rounding. Kernels may add their terms in another order, with larger partial sums.
    fn add(self, b: Self) -> Self {
        let value = self.value + b.value;
        let squares = self.squares + b.squares;
        let is_zero = |x: Self| x.value == 0.0 && x.error == 0.0 && x.squares == 0.0;
        let rounding = if is_zero(self) || is_zero(b) {
            0.0
        } else {
            value.abs().max(self.value.abs()).max(b.value.abs()) + OTHER_ORDERS * squares.sqrt()
        };
        Self { value, error: self.error + b.error + Self::U * rounding, squares }
    }
}

impl<const SUM: i32, const PRODUCT: i32> Sub for Bounded<SUM, PRODUCT> {
    type Output = Self;

    fn sub(self, b: Self) -> Self {
        self + -b
    }
}

impl<const SUM: i32, const PRODUCT: i32> Neg for Bounded<SUM, PRODUCT> {
    type Output = Self;

    fn neg(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

impl<const SUM: i32, const PRODUCT: i32> Mul for Bounded<SUM, PRODUCT> {
    type Output = Self;

    fn mul(self, b: Self) -> Self {
        let value = self.value * b.value;
        let error = self.value.abs() * b.error + b.value.abs() * self.error + self.error * b.error;
        let rounding = if self.only_scales() || b.only_scales() {
            Self::underflow(value)
        } else {
            (Self::OF_PRODUCT / Self::U) * Self::rounding(value)
        };
        // Zero times an operand without a bound is unknown.
        Self::off(value, if error.is_nan() { f64::INFINITY } else { error + rounding })
    }
}

impl<const SUM: i32, const PRODUCT: i32> Div for Bounded<SUM, PRODUCT> {
    type Output = Self;

    /// Kernels may multiply with a reciprocal, which rounds twice.
    fn div(self, b: Self) -> Self {
        let value = self.value / b.value;
        let least = b.value.abs() - b.error;
        let error = if least > 0.0 { (self.error + value.abs() * b.error) / least } else { f64::INFINITY };
        if b.only_scales() {
            Self::off(value, error + Self::underflow(value))
        } else {
            Self::rounded(value, error, 2.0)
        }
    }
}

impl<const SUM: i32, const PRODUCT: i32> Real for Bounded<SUM, PRODUCT> {
    const ZERO: Self = Self::exact(0.0);

    /// A constant of the kernel, which is rounded to the kernel's type.
    fn of(value: f64) -> Self {
        let is_held = f64::from(value as f32) == value;
        Self::off(value, if is_held { 0.0 } else { Self::U * value.abs() })
    }

    fn f64(self) -> f64 {
        self.value
    }

    fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        let (low, high) = ((self.value - self.error).max(0.0).sqrt(), (self.value + self.error).sqrt());
        Self::rounded(value, (high - value).max(value - low), 2.0)
    }

    fn exp(self) -> Self {
        let value = self.value.exp();
        Self::rounded(value, value * self.error.exp_m1(), 2.0)
    }

    fn ln(self) -> Self {
        let least = self.value - self.error;
        let error = if least > 0.0 { self.error / least } else { f64::INFINITY };
        Self::rounded(self.value.ln(), error, 2.0)
    }

    fn abs(self) -> Self {
        Self { value: self.value.abs(), ..self }
    }

    /// Kernels add squares, so that their variance is not negative for any error: the divisor is at least `eps`.
    fn rstd(self, eps: f64) -> Self {
        let of = |variance: f64| 1.0 / (variance + eps).sqrt();
        let value = of(self.value);
        let (most, least) = (of((self.value - self.error).max(0.0)), of(self.value + self.error));
        // A sum, a root, a quotient, and `eps` in the kernel's type.
        const UNITS: f64 = 8.0;
        let error = (most - value).max(value - least);
        Self::off(value, error + UNITS * Self::rounding(most))
    }

    /// The slope is at most one half, and `exp(-self)`.
    fn ln_1p_exp_neg(self) -> Self {
        let steepest = (-(self.value - self.error)).exp().min(0.5);
        Self::rounded((-self.value).exp().ln_1p(), steepest * self.error, 8.0)
    }

    /// Inside the limits the number's error is unchanged; beyond them it is a constant of the kernel.
    fn clamped(self, most: f64) -> Self {
        let limit = Self::of(most);
        let size = self.value.abs();
        if size <= most || self.value.is_nan() {
            return Self { error: self.error + limit.error, ..self };
        }
        let error = (self.error - (size - most)).max(0.0) + limit.error;
        Self::off(most * self.value.signum(), error)
    }

    fn zero_below_normal(self) -> Self {
        let least = (self.value.abs() - self.error).max(0.0);
        let lost = if least < Self::NORMAL { self.value.abs().min(Self::NORMAL) } else { 0.0 };
        Self { error: self.error + lost, ..self }
    }

    fn without_error(self) -> Self {
        Self::exact(self.value)
    }

    fn with_error_of(self, other: Self) -> Self {
        Self { error: self.error + other.error, ..self }
    }

    fn with_underflow_of(self, product: Self, scale: Self) -> Self {
        Self { error: self.error + Self::underflow(product.value) * (scale.value.abs() + scale.error), ..self }
    }

    fn kept(self) -> Self {
        let rounding = if PRODUCT < SUM { power_of_two(-PRODUCT) * self.value.abs() } else { 0.0 };
        Self::off(self.value, self.error + rounding)
    }

    /// The error is at most the distance to either side of the interval, plus rounding beyond its ends.
    fn within(self, low: f64, high: f64) -> Self {
        let range = (self.value - low).max(high - self.value).max(0.0);
        let limit = range + 4.0 * Self::rounding(low.abs().max(high.abs()));
        Self { error: if self.error <= limit || self.value.is_nan() { self.error } else { limit }, ..self }
    }

    fn act(self, func: Activation) -> Self {
        let value = self.value.act(func);
        let e = self.error;
        match func {
            Activation::Relu => Self::off(value, e.min((self.value + e).max(0.0))),
            Activation::LeakyRelu => {
                let slope = if self.value + e <= 0.0 { 0.01 } else { 1.0 };
                Self::rounded(value, slope * e, 2.0)
            }
            Activation::Gelu | Activation::Silu | Activation::Sigmoid | Activation::Tanh => {
                let saved = if func.saves_output() { value } else { self.value };
                let passed = saved.act_grad(func).abs() * e + 0.5 * CURVATURE * e * e;
                // A bounded function changes by no more than its range, and every function by no more than its steepest
                // slope allows.
                let range = if func.saves_output() { 2.0 } else { f64::INFINITY };
                Self::rounded(value, passed.min(STEEPEST * e).min(range), 4.0)
            }
        }
    }

    fn act_grad(self, func: Activation) -> Self {
        let value = self.value.act_grad(func);
        match func {
            // If rounding decides the sign, the derivative may be that of either side.
            Activation::Relu | Activation::LeakyRelu => {
                let jump = if func == Activation::Relu { 1.0 } else { 0.99 };
                let error = if self.error > 0.0 && self.value.abs() <= self.error { jump } else { 0.0 };
                // 0 and 1 are exact in the kernel's type, 0.01 is not.
                let is_rounded = value != 0.0 && value != 1.0;
                Self::rounded(value, error, f64::from(u8::from(is_rounded)))
            }
            Activation::Gelu | Activation::Silu => {
                Self::rounded(value, (CURVATURE * self.error).min(SLOPES) + 2.0 * Self::U, 8.0)
            }
            Activation::Sigmoid | Activation::Tanh => {
                let slope = if func == Activation::Tanh { 2.0 * self.value } else { 1.0 - 2.0 * self.value };
                let passed = slope.abs() * self.error + self.error * self.error;
                Self::rounded(value, passed.min(SLOPES) + 2.0 * Self::U * self.value.abs(), 2.0)
            }
        }
    }

    /// The maximum may be either number, and its error is at most the larger of both errors.
    fn larger(self, other: Self) -> Self {
        let larger = if other.value > self.value || other.value.is_nan() { other } else { self };
        Self { error: self.error.max(other.error), ..larger }
    }

    /// If rounding decides the sign, the sign may be the opposite one.
    fn signum_or_zero(self) -> Self {
        let value = if self.value == 0.0 || self.value.is_nan() { self.value } else { self.value.signum() };
        Self::off(value, if self.error > 0.0 && self.value.abs() <= self.error { 1.0 + value.abs() } else { 0.0 })
    }

    fn exceeds(self, other: Self) -> bool {
        let undecided = self.error + other.error;
        if undecided > 0.0 && (self.value - other.value).abs() <= undecided {
            UNDECIDED.set(UNDECIDED.get() + 1);
        }
        self.value > other.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Rng;

    /// The errors of `f32` kernels.
    type Single = Bounded<24, 24>;

    /// A sum of products in `f32` stays within the bound, and its error is large enough to show that the bound is not
    /// trivial.
    #[test]
    fn dot_products_stay_within_their_bound() {
        let mut rng = Rng::new(7, 1);
        let mut largest = 0.0f64;
        for _ in 0..200 {
            let pairs: Vec<(f32, f32)> = (0..64).map(|_| (rng.normal() as f32, rng.normal() as f32)).collect();
            let narrow = pairs.iter().fold(0.0f32, |sum, (a, b)| sum + a * b);
            let exact = |v: f32| Single::exact(f64::from(v));
            let wide = pairs.iter().fold(Single::ZERO, |sum, (a, b)| sum + exact(*a) * exact(*b));
            let ratio = (f64::from(narrow) - wide.value).abs() / wide.error;
            assert!(ratio <= 1.0, "{ratio}");
            largest = largest.max(ratio);
        }
        assert!(largest > 0.01, "the bound is far too wide: {largest}");
    }

    #[test]
    fn cancellation_keeps_the_error_of_what_was_subtracted() {
        let (a, b) = (Single::of(1.0 / 3.0), Single::of(1.0 / 3.0));
        let difference = a - b;
        assert_eq!(difference.value, 0.0);
        assert!(difference.error >= 2.0 * power_of_two(-24) / 3.0);
    }

    #[test]
    fn comparisons_that_rounding_may_change_are_counted() {
        let near = Single::off(1e-9, 1e-8);
        assert_eq!((near.signum_or_zero().value, near.signum_or_zero().error), (1.0, 2.0));
        assert_eq!(Single::off(0.0, 1e-8).signum_or_zero().error, 1.0);
        assert_eq!(Single::exact(-1e-9).signum_or_zero(), Single::exact(-1.0));
        assert_eq!(Single::exact(-1e-9).signum_or_zero().error, 0.0);
        assert_eq!(near.act_grad(Activation::Relu).error, 1.0);
        assert_eq!(Single::exact(1e-9).act_grad(Activation::Relu).error, 0.0);
        // A relu of a clearly negative number is exactly zero.
        assert_eq!(Single::off(-1.0, 1e-3).act(Activation::Relu).error, 0.0);
        take_undecided();
        assert!(!near.exceeds(Single::off(2e-9, 0.0)));
        assert!(Single::exact(2.0).exceeds(Single::exact(1.0)));
        assert_eq!((take_undecided(), take_undecided()), (1, 0));
    }

    /// Two large terms that cancel immediately here, but last in a kernel that adds them in the opposite order.
    #[test]
    fn other_orders_of_a_sum_stay_within_its_bound() {
        let terms: Vec<f32> = [1e4, -1e4].into_iter().chain((1..8).map(|i| 1.0 / i as f32)).collect();
        let sum = |terms: &mut dyn Iterator<Item = &f32>| terms.fold(0.0f32, |sum, t| sum + t);
        let wide = terms.iter().fold(Single::ZERO, |sum, t| sum + Single::exact(f64::from(*t)));
        let off = |narrow: f32| (f64::from(narrow) - wide.value).abs();
        let (here, elsewhere) = (off(sum(&mut terms.iter())), off(sum(&mut terms.iter().rev())));
        assert!(elsewhere > 100.0 * here && elsewhere <= wide.error, "{here} {elsewhere} {wide:?}");
        // A number that was stored and read again is one term.
        assert!((wide.stored() + Single::exact(1.0)).error < 1e-5 + wide.error);
    }

    #[test]
    fn slopes_limit_the_errors_that_activations_propagate() {
        let far = Single::off(0.3, 1e3);
        for func in [Activation::Gelu, Activation::Silu, Activation::Sigmoid, Activation::Tanh] {
            assert!(far.act(func).error <= 1.14e3 && far.act_grad(func).error < 1.3, "{func:?}");
            // No slope exceeds the constant.
            let slopes = (-400..400).map(|i| {
                let x = f64::from(i) * 0.02;
                (if func.saves_output() { x.act(func) } else { x }).act_grad(func)
            });
            let (low, high) = slopes.fold((0.0f64, 0.0f64), |(low, high), s| (low.min(s), high.max(s)));
            assert!(high <= STEEPEST && high - low <= SLOPES, "{func:?}: {low} to {high}");
        }
    }

    #[test]
    fn the_known_range_of_a_result_limits_its_bound() {
        // A variance that is small compared with its error: the root is at least that of eps.
        let scale = Single::off(1e-14, 1e-6).rstd(1e-4);
        assert!((scale.value - 100.0).abs() < 1e-3 && scale.error > 0.4 && scale.error < 0.6, "{scale:?}");
        let probability = Single::off(0.9, f64::INFINITY).within(0.0, 1.0);
        assert!(probability.error >= 0.9 && probability.error < 0.901, "{probability:?}");
        let narrow = Single::off(0.9, 1e-6);
        assert_eq!(narrow.within(0.0, 1.0).error, 1e-6);
        assert!(Single::off(f64::NAN, f64::INFINITY).within(0.0, 1.0).error.is_infinite());
    }

    #[test]
    fn denormal_results_have_larger_relative_rounding_errors() {
        let square = Single::exact(1e-22) * Single::exact(1e-22);
        assert!(square.error >= power_of_two(-150) && square.sqrt().error >= 3e-24, "{square:?}");
    }

    /// The smallest number is a power of two, but products with it are rounded nevertheless: here to zero, whose sign
    /// differs.
    #[test]
    fn scaling_by_powers_of_two_rounds_denormal_results() {
        let smallest = f32::from_bits(1);
        let (narrow, wide) = (smallest * 0.1, Single::exact(f64::from(smallest)) * Single::of(0.1));
        assert!(narrow == 0.0 && wide.value > 0.0 && wide.error >= wide.value, "{wide:?}");
        assert_eq!((wide.signum_or_zero().value, wide.signum_or_zero().error), (1.0, 2.0));
        let quarter = Single::exact(3.0 * f64::from(smallest)) / Single::exact(4.0);
        assert!((f64::from(3.0 * smallest / 4.0) - quarter.value).abs() <= quarter.error, "{quarter:?}");
        // Normal numbers are scaled without rounding, and their signs are decided.
        assert_eq!((Single::exact(3.0) * Single::exact(0.25)).error, 0.0);
        assert_eq!((Single::exact(power_of_two(-120)) * Single::of(0.1)).signum_or_zero().error, 0.0);
    }

    #[test]
    fn a_factor_that_kernels_may_apply_last_scales_the_underflow_error() {
        let (g, deviation, scale) = (1.3e-38_f32, 7.1e-6_f32, 4.0e5_f32);
        let last = f64::from(g * deviation * scale);
        let [g, deviation, scale] = [g, deviation, scale].map(|x| Single::exact(f64::from(x)));
        let first = g * (deviation * scale);
        let bounded = first.with_underflow_of(g * deviation, scale);
        let off = (last - first.value).abs();
        assert!(
            first.error < off && off <= bounded.error && bounded.error < 10.0 * off,
            "{off:e} {first:?} {bounded:?}"
        );
        // Normal numbers do not get a larger bound.
        assert_eq!(first.with_underflow_of(Single::exact(1e-37), scale).error, first.error);
    }

    #[test]
    fn results_that_kernels_may_replace_by_zero_are_at_most_the_smallest_normal_number() {
        let normal = power_of_two(-126);
        let error = |value: f64, error: f64| Single::off(value, error).zero_below_normal().error;
        assert_eq!((error(0.5 * normal, 0.0), error(2.0 * normal, 0.0), error(0.0, 0.0)), (0.5 * normal, 0.0, 0.0));
        // Rounding may decide whether it is below the normal numbers.
        assert_eq!((error(1.5 * normal, normal), error(1.0, 1e-7)), (2.0 * normal, 1e-7));
    }

    #[test]
    fn a_divisor_that_may_be_zero_has_no_bound() {
        let divisor = Single::off(1e-3, 1e-2);
        assert!((Single::of(1.0) / divisor).error.is_infinite());
        assert!(divisor.ln().error.is_infinite());
        assert!((Single::of(3.0) / Single::of(2.0)).error == 0.0);
    }
}
