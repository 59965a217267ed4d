//! The functions of gates, in `f32` alone: within 3 units in the last place, at half the time of those that compute in
//! `f64`. Straight-line scalar code, as in [`math`].

use crate::exec::cpu::kernels::math;

/// `1 / (1 + e^-x)`.
#[inline(always)]
#[must_use]
pub fn sigmoid(x: f32) -> f32 {
    // The power is at most 1, so that small results keep their digits.
    let e = math::exp(-x.abs());
    let upper = 1.0 / (1.0 + e);
    if x < 0.0 { e * upper } else { upper }
}

/// Beyond this the hyperbolic tangent is 1.
const TANH_END: f32 = 10.0;

/// Hyperbolic tangent; never beyond 1.
#[inline(always)]
#[must_use]
pub fn tanh(x: f32) -> f32 {
    let t = x.abs();
    // NaN passes through the comparison.
    let t = if t > TANH_END { TANH_END } else { t };
    let e = math::exp_less_1(t + t);
    (e / (e + 2.0)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error in units in the last place of the result, over a fine grid and powers of two.
    fn worst(f: fn(f32) -> f32, exact: fn(f64) -> f64) -> (f64, f32) {
        let grid = (-100_000..=100_000).map(|i| i as f32 * 9e-4);
        let powers = (0..u32::MAX).step_by(60_013).map(f32::from_bits).filter(|x| x.abs() < 80.0);
        grid.chain(powers).fold((0.0, 0.0), |worst, x| {
            let wanted = exact(f64::from(x));
            let unit = libm::ldexp(1.0, libm::frexp(wanted).1.max(-125) - 24);
            let error = (f64::from(f(x)) - wanted).abs() / unit;
            if error > worst.0 { (error, x) } else { worst }
        })
    }

    #[test]
    fn gates_are_accurate() {
        let exact = |x: f64| 1.0 / (1.0 + (-x).exp());
        for (name, (error, at)) in [("sigmoid", worst(sigmoid, exact)), ("tanh", worst(tanh, f64::tanh))] {
            assert!(error <= 3.0, "{name}({at:e}) is off by {error:.3} units in the last place");
        }
    }

    #[test]
    fn special_values() {
        let inf = f32::INFINITY;
        assert_eq!((sigmoid(inf), sigmoid(-inf), sigmoid(0.0)), (1.0, 0.0, 0.5));
        assert_eq!((tanh(inf), tanh(-inf), tanh(-0.0).to_bits()), (1.0, -1.0, (-0.0f32).to_bits()));
        assert!(sigmoid(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }
}
