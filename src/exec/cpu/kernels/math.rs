//! Elementary functions for inner loops.
//!
//! Each is straight-line scalar code without calls, tables or branches, so that a loop over it becomes vector code for
//! the instruction set that the caller is compiled for. The coefficients are minimax fits (weighted for relative error)
//! over the ranges named beside them.
//!
//! [`exp`] and [`ln`] compute in `f32`, never fuse products and sums, and are within 1 unit in the last place. The
//! activations and their derivatives compute in `f64`, to about 28 bits, and round once, so that they are within 0.65
//! units if the result is a normal number, in the tails too. Their sums of products are [`Lanes::mul_add`]: fused with
//! AVX2 and AVX-512, which give the same bits, but not in plain code, whose results may be rounded differently. NaN
//! gives NaN; arguments may be infinite or denormal. `stepgraph functions` measures them over all inputs.

#![allow(
    clippy::excessive_precision,
    clippy::approx_constant,
    reason = "coefficients of fitted polynomials, as they came out of the fit"
)]

use super::lanes::Lanes;
use crate::model::Activation;

/// The polynomial with these coefficients, the highest first; each product and sum is rounded, or is one operation of
/// `$lanes`.
macro_rules! polynomial {
    ($x:ident; $highest:literal $(, $next:literal)+) => {{
        let p = $highest;
        $(let p = p * $x + $next;)+
        p
    }};
    ($lanes:ident, $x:ident; $highest:literal $(, $next:literal)+) => {{
        let p = $highest;
        $(let p = $lanes::mul_add(p, $x, $next);)+
        p
    }};
}
pub(in crate::exec::cpu::kernels) use polynomial;

/// `1.5 * 2^23`: adding it rounds to the nearest integer, which is then in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
/// Upper part of `ln 2`, exact when multiplied by a small integer.
const LN2_HI: f32 = 0.693_359_4;
/// `ln 2 - LN2_HI`.
const LN2_LO: f32 = -2.121_944_4e-4;
/// `2^n` for `n` in `-126..=127`.
#[inline(always)]
fn exp2i(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}

/// `e^x`, within 1 ulp; denormal results are rounded like others, overflow gives infinity.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // Comparisons are written so that NaN passes through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // The upper part of r is exact; the rest is added to the small terms, so that r is not rounded before it is added.
    let (upper, lower) = (x - n * LN2_HI, n * LN2_LO);
    let r = upper - lower;
    // (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2, 3e-9.
    let q = 1.395_043e-3;
    let q = q * r + 8.368_887e-3;
    let q = q * r + 4.166_620_7e-2;
    let q = q * r + 1.666_651_9e-1;
    let q = q * r + 0.5;
    let p = (upper + ((q * r) * r - lower)) + 1.0;
    // The factor 2^n is applied in two halves: neither overflows if the result is finite, and denormals are rounded
    // once.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let n = if !(-200..=200).contains(&n) { 0 } else { n };
    let half = n >> 1;
    p * exp2i(half) * exp2i(n - half)
}

/// `ln x`, within 1 ulp; minus infinity at zero, NaN below.
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

/// `1.5 * 2^52`: adding it rounds an `f64` to the nearest integer, which is then in the low bits of the sum.
const WIDE_ROUND: f64 = 6_755_399_441_055_744.0;
/// `1 / sqrt(2 pi)`.
const INV_SQRT_TAU: f64 = 0.398_942_280_401_432_7;
/// Beyond this the sigmoid function is 0 or 1 in `f32`.
const SIGMOID_END: f64 = 120.0;
/// Beyond this the hyperbolic tangent is 1 in `f32`.
const TANH_END: f64 = 10.0;
/// Beyond this the normal distribution function is 0 or 1 in `f32`.
const NORMAL_END: f64 = 15.0;

/// `2^y` with a relative error of 2e-9, for `|y| < 1000`.
#[inline(always)]
fn wide_exp2<V: Lanes>(y: f64) -> f64 {
    let shifted = y + WIDE_ROUND;
    let r = y - (shifted - WIDE_ROUND);
    // 2^r on |r| <= 1/2.
    let p = polynomial!(V, r;
        1.534_580_735_872_187_6e-4, 1.339_993_118_266_338_8e-3, 9.618_488_974_376_182e-3, 5.550_328_777_079_043e-2,
        2.402_264_689_047_444e-1, 6.931_472_057_371_965e-1, 1.000_000_000_554_187_4);
    // The low bits of `shifted` are the integer; the shift moves them into the exponent and discards the others.
    f64::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// The larger of `x` and `low`; NaN passes through.
#[inline(always)]
fn at_least(low: f64, x: f64) -> f64 {
    if x < low { low } else { x }
}

/// The smaller of `x` and `high`; NaN passes through.
#[inline(always)]
fn at_most(high: f64, x: f64) -> f64 {
    if x > high { high } else { x }
}

/// `e^-x` for `|x| <= SIGMOID_END`, and the value at that limit beyond it.
#[inline(always)]
fn wide_exp_neg<V: Lanes>(x: f64) -> f64 {
    wide_exp2::<V>(at_least(-SIGMOID_END, at_most(SIGMOID_END, x)) * -std::f64::consts::LOG2_E)
}

/// The normal distribution function at `-t` divided by `e^(-t^2 / 2)`, for `0 <= t <= NORMAL_END`: its relative error
/// is 7e-9 if the function is a normal `f32`.
#[inline(always)]
fn normal_tail<V: Lanes>(t: f64) -> f64 {
    let w = (t - 3.0) / (t + 3.0);
    polynomial!(V, w;
        5.411_313_860_314_534e-5, 1.159_900_926_274_668e-4, -3.398_840_281_413_811_4e-4, -9.841_418_250_021_508e-4,
        2.904_695_324_961_151e-3, 6.132_171_820_941_341_4e-3, -4.621_331_274_716_953e-2, 1.232_250_226_669_021_1e-1,
        -2.064_026_179_910_395e-1, 1.215_139_477_118_850_2e-1)
}

/// `|x|` limited to `NORMAL_END`, and `e^(-x^2 / 2)` there.
#[inline(always)]
fn bell<V: Lanes>(x: f32) -> (f64, f64) {
    let t = at_most(NORMAL_END, f64::from(x.abs()));
    (t, wide_exp2::<V>(t * t * (-0.5 * std::f64::consts::LOG2_E)))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
#[must_use]
pub fn sigmoid<V: Lanes>(x: f32) -> f32 {
    (1.0 / (1.0 + wide_exp_neg::<V>(f64::from(x)))) as f32
}

/// Hyperbolic tangent; never beyond 1.
#[inline(always)]
#[must_use]
pub fn tanh<V: Lanes>(x: f32) -> f32 {
    let y = at_most(TANH_END, f64::from(x.abs())) * (2.0 * std::f64::consts::LOG2_E);
    let shifted = y + WIDE_ROUND;
    let r = y - (shifted - WIDE_ROUND);
    // 2^r - 1 on |r| <= 1/2, with a relative error of 2e-10, so that small x keep their digits.
    let q = polynomial!(V, r;
        1.525_271_607_176_015_1e-5, 1.546_132_990_513_098_2e-4, 1.333_366_946_576_927_6e-3, 9.618_057_036_973_294e-3,
        5.550_410_727_583_158_4e-2, 2.402_265_092_005_194_4e-1, 6.931_471_805_815_711e-1)
        * r;
    let power = f64::from_bits((1023u64 << 52).wrapping_add(shifted.to_bits() << 52));
    // e^2x - 1.
    let e = V::mul_add(power, q, power - 1.0);
    ((e / (e + 2.0)) as f32).copysign(x)
}

/// `x Phi(x)`, where `Phi` is the normal distribution function.
#[inline(always)]
#[must_use]
pub fn gelu<V: Lanes>(x: f32) -> f32 {
    let (t, bell) = bell::<V>(x);
    // Below zero Phi(x) is the tail, above zero 1 minus the tail.
    V::mul_add(-t, normal_tail::<V>(t) * bell, f64::from(relu(x))) as f32
}

/// The derivative of [`gelu`] at its input `x`.
#[inline(always)]
#[must_use]
pub fn gelu_grad<V: Lanes>(x: f32) -> f32 {
    let (t, bell) = bell::<V>(x);
    let below = V::mul_add(-t, INV_SQRT_TAU, normal_tail::<V>(t)) * bell;
    (if x > 0.0 { 1.0 - below } else { below }) as f32
}

/// `ln(1 + e^-x)` of a non-negative `x`.
#[inline(always)]
#[must_use]
pub fn ln_1p_exp_neg(x: f32) -> f32 {
    let small = exp(-x);
    let sum = 1.0 + small;
    // The quotient corrects the rounding error of the sum (Kahan).
    let log = ln(sum) * (small / (sum - 1.0));
    if sum == 1.0 { small } else { log }
}

/// `x sigmoid(x)`.
#[inline(always)]
#[must_use]
pub fn silu<V: Lanes>(x: f32) -> f32 {
    let x = at_least(-SIGMOID_END, f64::from(x));
    (x / (1.0 + wide_exp_neg::<V>(x))) as f32
}

/// The derivative of [`silu`] at its input `x`.
#[inline(always)]
#[must_use]
pub fn silu_grad<V: Lanes>(x: f32) -> f32 {
    let x = at_least(-SIGMOID_END, at_most(SIGMOID_END, f64::from(x)));
    let e = wide_exp_neg::<V>(x);
    let s = 1.0 / (1.0 + e);
    // 1 - s is e s.
    V::mul_add(s, x * (e * s), s) as f32
}

/// The derivative of [`sigmoid`] at its output `y`, rounded once.
#[inline(always)]
#[must_use]
pub fn sigmoid_grad(y: f32) -> f32 {
    let y = f64::from(y);
    (y - y * y) as f32
}

/// The derivative of [`tanh`] at its output `y`, rounded once.
#[inline(always)]
#[must_use]
pub fn tanh_grad(y: f32) -> f32 {
    let y = f64::from(y);
    (1.0 - y * y) as f32
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
fn apply<V: Lanes>(f: Activation, x: f32) -> f32 {
    match f {
        Activation::Relu => relu(x),
        Activation::LeakyRelu => leaky_relu(x),
        Activation::Gelu => gelu::<V>(x),
        Activation::Silu => silu::<V>(x),
        Activation::Sigmoid => sigmoid::<V>(x),
        Activation::Tanh => tanh::<V>(x),
    }
}

/// The derivative of `f` at its saved value: its output if [`Activation::saves_output`], otherwise its input.
#[inline(always)]
#[must_use]
pub fn derivative<V: Lanes>(f: Activation, saved: f32) -> f32 {
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
        Activation::Gelu => gelu_grad::<V>(saved),
        Activation::Silu => silu_grad::<V>(saved),
        Activation::Sigmoid => sigmoid_grad(saved),
        Activation::Tanh => tanh_grad(saved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernels::lanes;

    /// The check for separate and, where a type has them, for fused products and sums: the functions use nothing else
    /// of the types, so that every processor can run them.
    macro_rules! for_both {
        ($check:ident) => {
            $check::<lanes::Portable>();
            #[cfg(target_arch = "x86_64")]
            $check::<lanes::Avx2>();
        };
    }

    /// A few hundred thousand arguments: evenly spread bit patterns of both signs and a fine grid around zero.
    fn arguments() -> impl Iterator<Item = f32> {
        let patterns = (0..u32::MAX).step_by(15_013).map(f32::from_bits);
        let grid = (-120_000..=120_000).map(|i| i as f32 * 1e-3);
        patterns.chain(grid).filter(|x| x.is_finite())
    }

    /// The largest error of `f` in units in the last place of the exact result, among results that are normal numbers.
    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
        arguments().fold((0.0, 0.0), |worst, x| {
            let error = units(f(x), exact(f64::from(x)));
            if error > worst.0 { (error, x) } else { worst }
        })
    }

    /// The error of `got` relative to `exact`, in units in the last place; 0 if `exact` overflows `f32` in either
    /// direction and `got` does too.
    fn units(got: f32, exact: f64) -> f64 {
        if exact.abs() > f64::from(f32::MAX) {
            return if f64::from(got.abs()) >= 0.999_999 * f64::from(f32::MAX) { 0.0 } else { f64::INFINITY };
        }
        let exponent = libm::frexp(exact).1.max(-125) - 24;
        let unit = libm::ldexp(1.0, exponent);
        let error = (f64::from(got) - exact).abs() / unit;
        // Results below the normal numbers are rounded to multiples of the smallest number.
        if exact.abs() < f64::from(f32::MIN_POSITIVE) && error <= 1.0 { 0.0 } else { error }
    }

    fn sigmoid64(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn cdf64(x: f64) -> f64 {
        0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
    }

    #[test]
    fn functions_are_accurate() {
        for_both!(check_accuracy);
    }

    fn check_accuracy<V: Lanes>() {
        let pdf = |x: f64| (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt();
        let found = [
            ("exp", worst(exp, f64::exp), 1.0),
            ("ln", worst(|x| ln(x.abs()), |x| x.abs().ln()), 1.0),
            ("ln_1p_exp_neg", worst(|x| ln_1p_exp_neg(x.abs()), |x| (-x.abs()).exp().ln_1p()), 4.0),
            ("sigmoid", worst(sigmoid::<V>, sigmoid64), 0.65),
            ("tanh", worst(tanh::<V>, f64::tanh), 0.65),
            ("silu", worst(silu::<V>, |x| x * sigmoid64(x)), 0.65),
            ("gelu", worst(gelu::<V>, |x| x * cdf64(x)), 0.65),
        ];
        for (name, (error, at), bound) in found {
            assert!(error <= bound, "{name}({at:e}) is off by {error:.3} units in the last place");
        }
        // Derivatives cross zero, where a relative error has no meaning.
        for x in arguments().filter(|x| x.abs() < 80.0) {
            let wide = f64::from(x);
            let of_silu = sigmoid64(wide) * (1.0 + wide * sigmoid64(-wide));
            for (got, want) in [(gelu_grad::<V>(x), cdf64(wide) + wide * pdf(wide)), (silu_grad::<V>(x), of_silu)] {
                let error = (f64::from(got) - want).abs();
                assert!(error <= 6.2e-8 * want.abs() + 3e-9, "slope at {x:e}: {got:e}, not {want:e}");
            }
        }
    }

    #[test]
    fn special_values() {
        for_both!(check_special_values);
    }

    fn check_special_values<V: Lanes>() {
        let inf = f32::INFINITY;
        assert_eq!((exp(inf), exp(-inf), exp(0.0)), (inf, 0.0, 1.0));
        assert_eq!((sigmoid::<V>(inf), sigmoid::<V>(-inf), sigmoid::<V>(0.0)), (1.0, 0.0, 0.5));
        assert_eq!((tanh::<V>(inf), tanh::<V>(-inf), tanh::<V>(-0.0).to_bits()), (1.0, -1.0, (-0.0f32).to_bits()));
        assert_eq!((gelu::<V>(inf), gelu::<V>(-1e30), silu::<V>(inf), silu::<V>(-1e30)), (inf, -0.0, inf, -0.0));
        assert_eq!((ln(inf), ln(0.0), ln(1.0)), (inf, -inf, 0.0));
        assert!(ln(-1.0).is_nan() && ln(-inf).is_nan());
        assert_eq!((ln(1e-45), exp(-103.5) > 0.0), (f64::from(1e-45f32).ln() as f32, true));
        for f in
            [exp, ln, sigmoid::<V>, tanh::<V>, gelu::<V>, gelu_grad::<V>, silu::<V>, silu_grad::<V>, relu, leaky_relu]
        {
            assert!(f(f32::NAN).is_nan());
        }
        for f in Activation::ALL {
            assert!(apply::<V>(f, f32::NAN).is_nan());
        }
    }

    #[test]
    fn derivatives_match_differences() {
        for_both!(check_derivatives);
    }

    fn check_derivatives<V: Lanes>() {
        for f in Activation::ALL {
            for i in -60..=60 {
                let x = f64::from(i) * 0.1 + 0.05;
                let at = |x: f64| f64::from(apply::<V>(f, x as f32));
                let saved = if f.saves_output() { at(x) as f32 } else { x as f32 };
                let slope = (at(x + 5e-3) - at(x - 5e-3)) / 1e-2;
                assert!((slope - f64::from(derivative::<V>(f, saved))).abs() < 2e-4, "{} at {x}", f.name());
            }
        }
    }
}
