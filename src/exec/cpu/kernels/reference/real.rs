//! The number types of the reference kernels, and functions that the standard library does not have.

use crate::model::Activation;
use crate::ops::Number;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// `f32`, `f64`, or an `f64` with a bound for its error ([`super::bounded`]). Transcendental functions are computed in
/// f64 and rounded once.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    const ZERO: Self;

    /// The nearest number of this type.
    fn of(value: f64) -> Self;

    /// The same number as f64.
    fn f64(self) -> f64;

    fn sqrt(self) -> Self {
        Self::of(self.f64().sqrt())
    }

    fn exp(self) -> Self {
        Self::of(self.f64().exp())
    }

    fn ln(self) -> Self {
        Self::of(self.f64().ln())
    }

    fn abs(self) -> Self {
        Self::of(self.f64().abs())
    }

    /// `1 / sqrt(self + eps)` for a variance `self`, which is a sum of squares and never negative.
    fn rstd(self, eps: f64) -> Self {
        Self::of(1.0) / (self + Self::of(eps)).sqrt()
    }

    /// The same number, which is mathematically between `low` and `high`.
    fn within(self, _low: f64, _high: f64) -> Self {
        self
    }

    /// The same number, for results that kernels replace by 0 if they are below the normal numbers of their type.
    fn zero_below_normal(self) -> Self {
        self
    }

    /// The same number, considered exact.
    fn without_error(self) -> Self {
        self
    }

    /// The same number, with the error of the other number added.
    fn with_error_of(self, _other: Self) -> Self {
        self
    }

    /// The same number, with an additional error of `scale` times the denormal rounding error of `product`: kernels may
    /// multiply by `scale` last.
    fn with_underflow_of(self, _product: Self, _scale: Self) -> Self {
        self
    }

    /// The same number as a kernel passes it from one step of a recurrence to the next, possibly rounded like the
    /// factors of its products.
    fn kept(self) -> Self {
        self
    }

    /// The larger of the two; NaN if one is NaN.
    fn larger(self, other: Self) -> Self {
        if other > self || other.f64().is_nan() { other } else { self }
    }

    /// -1 below zero, 1 above it, otherwise the number itself.
    fn signum_or_zero(self) -> Self {
        if self > Self::ZERO {
            Self::of(1.0)
        } else if self < Self::ZERO {
            Self::of(-1.0)
        } else {
            self
        }
    }

    /// `ln(1 + exp(-self))` of a non-negative number.
    fn ln_1p_exp_neg(self) -> Self {
        Self::of((-self.f64()).exp().ln_1p())
    }

    /// `1 / (1 + exp(-self))`.
    fn sigmoid(self) -> Self {
        self.act(Activation::Sigmoid)
    }

    /// The number, limited to the range from `-most` to `most`; NaN for NaN.
    fn clamped(self, most: f64) -> Self {
        if self.f64().abs() > most { Self::of(most * self.f64().signum()) } else { self }
    }

    /// Whether it is above `other`; this determines the position of a maximum.
    fn exceeds(self, other: Self) -> bool {
        self > other
    }

    /// The activation function.
    fn act(self, func: Activation) -> Self {
        Self::of(activation(func, self.f64()))
    }

    /// The derivative of the activation function, where `self` is its saved value: its output, or its input (see
    /// [`Activation::saves_output`]).
    fn act_grad(self, func: Activation) -> Self {
        Self::of(activation_grad(func, self.f64()))
    }
}

/// Implements the numbers of the optimizers' formulas for the plain loops.
impl<T: Real> Number for T {
    fn constant(value: f64) -> Self {
        Self::of(value)
    }

    fn root(self) -> Self {
        self.sqrt()
    }

    fn times_square(self, x: Self) -> Self {
        self * x * x
    }

    fn sign(self) -> Self {
        self.signum_or_zero()
    }
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    fn of(value: f64) -> Self {
        value as f32
    }
    fn f64(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    fn of(value: f64) -> Self {
        value
    }
    fn f64(self) -> f64 {
        self
    }
}

/// `f(x)`; NaN for NaN.
fn activation(func: Activation, x: f64) -> f64 {
    match func {
        Activation::Relu if x <= 0.0 => 0.0,
        Activation::Relu => x,
        Activation::LeakyRelu if x <= 0.0 => 0.01 * x,
        Activation::LeakyRelu => x,
        Activation::Gelu => x * normal_cdf(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
    }
}

/// `f'` at the saved value `s`: the output for functions that save it, otherwise the input.
fn activation_grad(func: Activation, s: f64) -> f64 {
    match func {
        Activation::Relu if s <= 0.0 => 0.0,
        Activation::LeakyRelu if s <= 0.0 => 0.01,
        Activation::Relu | Activation::LeakyRelu => 1.0,
        Activation::Gelu => normal_cdf(s) + s * (-0.5 * s * s).exp() / (2.0 * std::f64::consts::PI).sqrt(),
        Activation::Silu => sigmoid(s) * (1.0 + s * (1.0 - sigmoid(s))),
        Activation::Sigmoid => s * (1.0 - s),
        Activation::Tanh => 1.0 - s * s,
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The normal distribution function.
fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

/// The complementary error function, to a few units in the last place: the series of positive terms up to 2 (Abramowitz
/// and Stegun 7.1.6), beyond it the continued fraction (7.1.14).
pub fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let scale = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 2.0 {
        let (mut term, mut sum) = (2.0 * x * scale, 0.0);
        for n in 0..60 {
            sum += term;
            term *= 2.0 * x * x / f64::from(2 * n + 3);
        }
        1.0 - sum
    } else {
        let mut tail = 0.0;
        for k in (1..=80).rev() {
            tail = 0.5 * f64::from(k) / (x + tail);
        }
        scale / (x + tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complementary_error_function_has_its_known_values() {
        let known = [
            (-1.5, 1.966_105_146_475_310_8),
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953_5),
            (1.0, 0.157_299_207_050_285_13),
            (1.99, 0.004_888_586_800_383_003),
            (2.0, 0.004_677_734_981_047_266),
            (3.0, 2.209_049_699_858_544e-5),
            (5.0, 1.537_459_794_428_035e-12),
        ];
        for (x, expected) in known {
            let found = erfc(x);
            assert!((found - expected).abs() <= 1e-13 * expected + 4e-16, "erfc({x}) = {found}, not {expected}");
        }
        assert!(erfc(f64::NAN).is_nan());
    }

    #[test]
    fn derivatives_agree_with_differences() {
        for func in Activation::ALL {
            for x in [-3.0, -0.7, 0.2, 1.9] {
                let saved = if func.saves_output() { x.act(func) } else { x };
                let slope = ((x + 1e-6).act(func) - (x - 1e-6).act(func)) / 2e-6;
                assert!((saved.act_grad(func) - slope).abs() < 1e-8, "{func:?} at {x}");
            }
        }
    }

    #[test]
    fn nan_is_propagated() {
        for func in Activation::ALL {
            assert!(f64::NAN.act(func).is_nan(), "{func:?}");
        }
    }
}
