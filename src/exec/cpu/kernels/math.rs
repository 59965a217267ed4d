//! Elementary functions for inner loops.
//!
//! Each is straight-line scalar code without calls, tables or branches, so that a loop over it becomes vector code for whatever instruction
//! set the caller is compiled for. Products and sums stay separate (never fused): every instruction set then gives the same bits. The
//! coefficients are minimax fits (weighted for relative error) over the ranges named beside them; rounding in `f32` dominates their error.
//! NaN gives NaN; arguments may be infinite or denormal.

#![allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "coefficients of fitted polynomials, as they came out of the fit"
)]

use crate::model::Activation;

/// `1.5 * 2^23`: adding it rounds to the nearest integer, which then stands in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// Upper part of `ln 2`, exact when multiplied by a small integer.
const LN2_HI: f32 = 0.693_359_4;
/// `ln 2 - LN2_HI`.
const LN2_LO: f32 = -2.121_944_4e-4;
/// `1 / sqrt(2 pi)`.
const INV_SQRT_TAU: f32 = 0.398_942_3;

/// `2^n` for `n` in `-126..=127`.
#[inline(always)]
fn exp2i(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}

/// `e^x`, within 1.5 ulp; denormal results are rounded like others, overflow gives infinity.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // Comparisons written so that NaN passes through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    // (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, 3e-9.
    let q = 1.395_043e-3;
    let q = q * r + 8.368_887e-3;
    let q = q * r + 4.166_620_7e-2;
    let q = q * r + 1.666_651_9e-1;
    let q = q * r + 0.5;
    let p = (q * r) * r + r + 1.0;
    // The power of two is applied in two halves: neither overflows where the result is finite, and denormals round once.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let n = if !(-200..=200).contains(&n) { 0 } else { n };
    let half = n >> 1;
    p * exp2i(half) * exp2i(n - half)
}

/// `ln x`, within 2 ulp; minus infinity at zero, NaN below.
#[inline(always)]
#[must_use]
pub fn ln(x: f32) -> f32 {
    const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 33_554_432.0 } else { x };
    let bits = (scaled.to_bits() as i32).wrapping_sub(SQRT_HALF_BITS);
    let exponent = (bits >> 23) as f32 - if small { 25.0 } else { 0.0 };
    let f = f32::from_bits(((bits & 0x007f_ffff) + SQRT_HALF_BITS) as u32) - 1.0;
    // (ln(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 <= f < sqrt(2) - 1, 6e-9.
    let q = -7.632_863e-2;
    let q = q * f + 1.276_091_5e-1;
    let q = q * f - 1.316_049e-1;
    let q = q * f + 1.420_186_9e-1;
    let q = q * f - 1.662_333_7e-1;
    let q = q * f + 2.000_122e-1;
    let q = q * f - 2.500_082e-1;
    let q = q * f + 3.333_333_2e-1;
    let f2 = f * f;
    let tail = q * f * f2 + exponent * LN2_LO - 0.5 * f2;
    let y = exponent * LN2_HI + (f + tail);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// `1 / (1 + e^-x)`, within 3 ulp on both sides of zero.
#[inline(always)]
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    top / (1.0 + e)
}

/// Hyperbolic tangent, within 4 ulp; never beyond 1.
#[inline(always)]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    let x = if x > 9.0 { 9.0 } else { x };
    let x = if x < -9.0 { -9.0 } else { x };
    let s = x * x;
    // x P(x^2) / Q(x^2) on |x| <= 9, 2e-8.
    let p = 1.335_51e-8;
    let p = p * s + 2.061_022e-5;
    let p = p * s + 3.495_696_3e-3;
    let p = p * s + 1.338_113_1e-1;
    let p = p * s + 1.0;
    let q = 7.776_975e-7;
    let q = q * s + 3.285_783_6e-4;
    let q = q * s + 2.587_743_7e-2;
    let q = q * s + 4.671_444_7e-1;
    let q = q * s + 1.0;
    clamp_unit(x * (p / q))
}

/// The error function, within 6 ulp; never beyond 1.
#[inline(always)]
#[must_use]
pub fn erf(x: f32) -> f32 {
    let x = if x > 4.0 { 4.0 } else { x };
    let x = if x < -4.0 { -4.0 } else { x };
    let s = x * x;
    // x P(x^2) / Q(x^2) on |x| <= 4, 3e-8.
    let p = 1.986_606_3e-6;
    let p = p * s + 2.843_392_4e-4;
    let p = p * s + 3.877_262_9e-3;
    let p = p * s + 5.308_267_4e-2;
    let p = p * s + 1.934_160_1e-1;
    let p = p * s + 1.128_379_1;
    let q = 3.740_645_7e-5;
    let q = q * s + 1.183_928_6e-3;
    let q = q * s + 1.519_514_1e-2;
    let q = q * s + 1.152_948_4e-1;
    let q = q * s + 5.047_430_6e-1;
    let q = q * s + 1.0;
    clamp_unit(x * (p / q))
}

/// `x` limited to [-1, 1]; NaN passes through.
#[inline(always)]
fn clamp_unit(x: f32) -> f32 {
    let x = if x > 1.0 { 1.0 } else { x };
    if x < -1.0 { -1.0 } else { x }
}

/// The normal distribution function, within 2e-7 absolute.
#[inline(always)]
fn normal_cdf(x: f32) -> f32 {
    0.5 + 0.5 * erf(x * std::f32::consts::FRAC_1_SQRT_2)
}

/// `x Phi(x)`, within `2e-7 |x|`.
#[inline(always)]
#[must_use]
pub fn gelu(x: f32) -> f32 {
    x * normal_cdf(x)
}

/// The derivative of [`gelu`] at its input `x`.
#[inline(always)]
#[must_use]
pub fn gelu_grad(x: f32) -> f32 {
    normal_cdf(x) + x * (exp(-0.5 * x * x) * INV_SQRT_TAU)
}

/// `x sigmoid(x)`.
#[inline(always)]
#[must_use]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// The derivative of [`silu`] at its input `x`.
#[inline(always)]
#[must_use]
pub fn silu_grad(x: f32) -> f32 {
    let s = sigmoid(x);
    s + x * s * (1.0 - s)
}

/// `max(x, 0)`; NaN passes through.
#[inline(always)]
#[must_use]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// `x` above zero, `0.01 x` otherwise.
#[inline(always)]
#[must_use]
pub fn leaky_relu(x: f32) -> f32 {
    if x > 0.0 { x } else { 0.01 * x }
}

/// The activation function `f` at `x`.
#[cfg(test)]
fn apply(f: Activation, x: f32) -> f32 {
    match f {
        Activation::Relu => relu(x),
        Activation::LeakyRelu => leaky_relu(x),
        Activation::Gelu => gelu(x),
        Activation::Silu => silu(x),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => tanh(x),
    }
}

/// The derivative of `f` at what was kept of it: its output where [`Activation::saves_output`], its input otherwise.
#[inline(always)]
#[must_use]
pub fn derivative(f: Activation, saved: f32) -> f32 {
    match f {
        Activation::Relu => {
            if saved <= 0.0 {
                0.0
            } else {
                1.0
            }
        }
        Activation::LeakyRelu => {
            if saved <= 0.0 {
                0.01
            } else {
                1.0
            }
        }
        Activation::Gelu => gelu_grad(saved),
        Activation::Silu => silu_grad(saved),
        Activation::Sigmoid => saved * (1.0 - saved),
        Activation::Tanh => 1.0 - saved * saved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few hundred thousand arguments: evenly spread bit patterns of both signs and a fine grid around zero.
    fn arguments() -> impl Iterator<Item = f32> {
        let patterns = (0..u32::MAX).step_by(15_013).map(f32::from_bits);
        let grid = (-120_000..=120_000).map(|i| i as f32 * 1e-3);
        patterns.chain(grid).filter(|x| x.is_finite())
    }

    /// Checks `f` against `exact` with a relative bound where the result is normal and an absolute one below.
    fn check(
        name: &str,
        f: impl Fn(f32) -> f32,
        exact: impl Fn(f64) -> f64,
        relative: f64,
        absolute: impl Fn(f64) -> f64,
    ) {
        let mut worst = 0.0f64;
        for x in arguments() {
            let (got, want) = (f64::from(f(x)), exact(f64::from(x)));
            if want.abs() > f64::from(f32::MAX) {
                assert!(
                    got.abs() >= f64::from(f32::MAX) * 0.999_999 && got.signum() == want.signum(),
                    "{name}({x:e}) = {got:e}, not {want:e}"
                );
                continue;
            }
            let error = (got - want).abs();
            let bound = relative * want.abs() + absolute(f64::from(x));
            worst = worst.max(error / bound);
            assert!(error <= bound, "{name}({x:e}) = {got:e}, not {want:e}");
        }
        println!("{name}: {worst:.2} of the bound");
    }

    #[test]
    fn functions_are_accurate() {
        let tiny = |_: f64| 1.5e-45;
        let sigmoid64 = |x: f64| 1.0 / (1.0 + (-x).exp());
        let cdf64 = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        let pdf64 = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
        check("exp", exp, f64::exp, 1.5e-7, tiny);
        check("sigmoid", sigmoid, sigmoid64, 2.5e-7, tiny);
        check("tanh", tanh, f64::tanh, 3.0e-7, tiny);
        check("erf", erf, libm::erf, 5.0e-7, tiny);
        check("silu", silu, |x| x * sigmoid64(x), 4.0e-7, |x| 3e-45 * x.abs().max(1.0));
        check("gelu", gelu, |x| x * cdf64(x), 5.0e-7, |x| 2.0e-7 * x.abs() + 1.5e-45);
        let wide = |x: f64| 1.2e-7 * x.abs().clamp(1.0, 20.0);
        check("gelu_grad", gelu_grad, |x| cdf64(x) + x * pdf64(x), 3.0e-7, wide);
        check("silu_grad", silu_grad, |x| sigmoid64(x) * (1.0 + x * (1.0 - sigmoid64(x))), 3.0e-7, wide);
        for x in arguments().filter(|x| *x > 0.0) {
            let (got, want) = (f64::from(ln(x)), f64::from(x).ln());
            assert!((got - want).abs() <= 2.0e-7 * want.abs(), "ln({x:e}) = {got:e}, not {want:e}");
        }
    }

    #[test]
    fn special_values() {
        let inf = f32::INFINITY;
        assert_eq!((exp(inf), exp(-inf), exp(0.0)), (inf, 0.0, 1.0));
        assert_eq!((sigmoid(inf), sigmoid(-inf), sigmoid(0.0)), (1.0, 0.0, 0.5));
        assert_eq!((tanh(inf), tanh(-inf), tanh(-0.0).to_bits()), (1.0, -1.0, (-0.0f32).to_bits()));
        assert_eq!((erf(inf), erf(-inf), erf(0.0)), (1.0, -1.0, 0.0));
        assert_eq!((ln(inf), ln(0.0), ln(1.0)), (inf, -inf, 0.0));
        assert!(ln(-1.0).is_nan() && ln(-inf).is_nan());
        assert_eq!((ln(1e-45), exp(-103.5) > 0.0), (f64::from(1e-45f32).ln() as f32, true));
        for f in [exp, ln, sigmoid, tanh, erf, gelu, gelu_grad, silu, silu_grad, relu, leaky_relu] {
            assert!(f(f32::NAN).is_nan());
        }
        for f in Activation::ALL {
            assert!(apply(f, f32::NAN).is_nan());
        }
    }

    #[test]
    fn derivatives_match_differences() {
        for f in Activation::ALL {
            for i in -60..=60 {
                let x = f64::from(i) * 0.1 + 0.05;
                let at = |x: f64| f64::from(apply(f, x as f32));
                let saved = if f.saves_output() { at(x) as f32 } else { x as f32 };
                let slope = (at(x + 5e-3) - at(x - 5e-3)) / 1e-2;
                assert!((slope - f64::from(derivative(f, saved))).abs() < 2e-4, "{} at {x}", f.name());
            }
        }
    }
}
