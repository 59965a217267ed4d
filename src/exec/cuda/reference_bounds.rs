//! Compares the results of a kernel with those of plain loops: a bound for every element.

use crate::exec::cpu::kernels::reference::Real as Number;
use crate::exec::cpu::kernels::reference::bounded::Bounded;
use crate::ops::OpKind;
use crate::select::cuda::{Real, Route};
use crate::select::{Choice, Variant};
use crate::tensor::DType;
use half::{bf16, f16};

/// A number of the plain loops that says how far a kernel may be from it.
pub(super) trait Judged: Number + Default {
    /// A value that the kernel reads without rounding.
    fn exact(value: f64) -> Self;
    fn error(self) -> f64;
}

impl<const SUM: i32, const PRODUCT: i32> Judged for Bounded<SUM, PRODUCT> {
    fn exact(value: f64) -> Self {
        Self::exact(value)
    }
    fn error(self) -> f64 {
        self.error
    }
}

/// A device's approximate functions, and its own orders of merging parts, cause errors of a few times the rounding
/// errors of plain loops.
const SLACK: f64 = 8.0;

/// How an output compares with the expected values.
pub(super) struct Verdict {
    /// The largest ratio of an error to its bound; above 1 if the error is too large.
    pub(super) ratio: f64,
    pub(super) text: String,
}

/// The absolute error that an operation's results may have: the exponentials of losses may be zero if they are below
/// the smallest normal number of `f32`, and the factors that turn them into probabilities and gradients are not above
/// 1.
pub(super) fn flushed(kind: &OpKind) -> f64 {
    match kind {
        OpKind::SoftmaxCe { .. } | OpKind::SoftmaxCeFused { .. } | OpKind::DenseCe { .. } => {
            f64::from(f32::MIN_POSITIVE)
        }
        _ => 0.0,
    }
}

/// A precision whose products are coarse.
#[derive(Clone, Copy)]
pub(super) struct Coarse {
    pub(super) real: Real,
    /// The factor by which the relative error of results, as a share of their length, may exceed that of a product.
    pub(super) passed_on: f64,
    /// The number of products in each sum of a matrix product; 0 for other operations.
    pub(super) terms: usize,
}

impl Coarse {
    /// The factor of an operation.
    pub(super) const fn of(real: Real, kind: &OpKind) -> Self {
        let terms = match kind {
            OpKind::Gemm(gemm) => gemm.k,
            _ => 0,
        };
        Self { real, passed_on: passed_on(kind), terms }
    }
}

/// Compares every element with its bound, and, if products are coarse and their bounds are wide, the whole with its
/// length. In addition to its bound, an element may have an error of `slack`.
pub(super) fn judge<T: Judged>(
    found: &[f64],
    expected: &[T],
    dtype: DType,
    coarse: Option<Coarse>,
    slack: f64,
) -> Verdict {
    let mut verdict = Verdict { ratio: 0.0, text: "is as expected".into() };
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let value = e.f64();
        if *f == value || (f.is_nan() && value.is_nan()) {
            continue;
        }
        let allowed = SLACK * e.error() + storage(value, dtype, coarse.map(|c| c.real)) + slack;
        if overflows(*f, value, allowed, dtype) {
            continue;
        }
        let ratio = if f.is_nan() || value.is_nan() { f64::INFINITY } else { (f - value).abs() / allowed };
        if ratio > verdict.ratio {
            let of = found.len();
            let text = format!("element {i} of {of} is {f:e}, expected {value:e}, bound {allowed:.1e}");
            verdict = Verdict { ratio, text };
        }
    }
    if let Some(coarse) = coarse {
        let moved = moved(found, expected, dtype);
        let (error, limit) = (distance(&moved), coarse.passed_on * limit_of(&moved, coarse));
        if error / limit > verdict.ratio {
            verdict =
                Verdict { ratio: error / limit, text: format!("is off by {error:.1e} of its norm, bound {limit:.1e}") };
        }
    }
    verdict
}

/// The rounding error of storing a value, in its own type or in that in which a library may return it.
fn storage(value: f64, dtype: DType, coarse: Option<Real>) -> f64 {
    match (dtype, coarse) {
        (DType::Bf16, _) | (_, Some(Real::Bf16)) => value.abs() * 2f64.powi(-8),
        (DType::F16, _) | (_, Some(Real::F16)) => value.abs() * 2f64.powi(-11) + 2f64.powi(-25),
        // Results below the normal numbers of `f32`.
        _ => 2f64.powi(-149),
    }
}

/// Whether a value is stored as an infinity because it is, or may be, beyond the numbers of its type.
fn overflows(found: f64, value: f64, allowed: f64, dtype: DType) -> bool {
    let largest = match dtype {
        DType::F16 => f16::MAX.to_f64(),
        DType::Bf16 => bf16::MAX.to_f64(),
        _ => f64::from(f32::MAX),
    };
    found.is_infinite() && found.signum() == value.signum() && value.abs() + allowed >= largest
}

/// The elements that rounding can change, each with its expected value. The others (those beside a result in a flat
/// vector, masked ones, and those beyond the numbers of their type) are irrelevant for the norm of a product, and are
/// compared by their own values.
fn moved<T: Judged>(found: &[f64], expected: &[T], dtype: DType) -> Vec<(f64, T)> {
    let both = found.iter().copied().zip(expected.iter().copied());
    let is_moved = |f: f64, e: T| e.error() > 0.0 && !f.is_nan() && !e.f64().is_nan();
    both.filter(|(f, e)| is_moved(*f, *e) && !overflows(*f, e.f64(), SLACK * e.error(), dtype)).collect()
}

fn length(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// The length of the difference divided by the length of the expected vector.
fn distance<T: Judged>(moved: &[(f64, T)]) -> f64 {
    let difference = length(moved.iter().map(|(f, e)| f - e.f64()));
    if difference == 0.0 { 0.0 } else { difference / length(moved.iter().map(|(_, e)| e.f64())).max(1e-15) }
}

/// Whether a kernel rounds the factors of products to the step's type: products do, and attention on tensor cores,
/// which that of cuDNN is.
pub(super) fn rounds_factors(kind: &OpKind, choice: &Choice) -> bool {
    match kind {
        OpKind::Gemm(_)
        | OpKind::WeightStep { .. }
        | OpKind::Conv2d { .. }
        | OpKind::Conv2dBwdX { .. }
        | OpKind::Conv2dBwdW { .. }
        | OpKind::Recurrence(_)
        | OpKind::RecurrenceBwd(_) => true,
        OpKind::Attention { .. } | OpKind::AttentionBwd { .. } => {
            choice.kernel.contains("mma") || matches!(choice.variant, Variant::Cuda(Route::Dnn(_)))
        }
        _ => false,
    }
}

/// The factor for operations whose rounding errors at a position of a sequence, including those of states, are passed
/// on to the next positions.
const fn passed_on(kind: &OpKind) -> f64 {
    match kind {
        OpKind::Recurrence(_) | OpKind::RecurrenceBwd(_) => 4.0,
        _ => 1.0,
    }
}

/// The number of elements from which on the errors of products have their average size.
const MANY: usize = 32;

/// As [`limit`]. For few elements, which may all be sums that nearly cancel, it is their bounds if these are wider.
/// Many sums nearly cancel if training made them small. The errors of `terms` products are independent, so that the
/// norm of their sum is about a third of the limit here: twice the bound, divided by the root of their number.
fn limit_of<T: Judged>(moved: &[(f64, T)], Coarse { real, terms, .. }: Coarse) -> f64 {
    let bounds = length(moved.iter().map(|(_, e)| e.error()));
    let relative = bounds / length(moved.iter().map(|(_, e)| e.f64())).max(1e-15);
    match terms {
        _ if moved.len() < MANY => limit(real).max(relative),
        0 => limit(real),
        terms => limit(real).max(2.0 * relative / (terms as f64).sqrt()),
    }
}

/// The largest error of a low-precision product, relative to its norm. Rounding both factors changes a single product
/// by a relative error of up to `2^-10` in `tf32` and `f16`, and a sum of products by less than that times the root of
/// the sum of their squares, which is the norm of many sums.
const fn limit(real: Real) -> f64 {
    match real {
        Real::F32 => 1e-5,
        Real::Tf32 | Real::F16 => 1e-3,
        Real::Bf16 => 6e-3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    #[test]
    fn elements_are_compared_with_their_bounds_and_coarse_products_also_with_their_length() {
        let expected = |error: f64| [1.0, 2.37743e-3].map(|value| Bounded::<24, 24>::off(value, error));
        // The error of a mean near zero comes from rounding its terms, not from rounding the mean itself.
        let found = [1.0, 2.37751e-3];
        assert!(judge(&found, &expected(2e-8), DType::F32, None, 0.0).ratio < 1.0);
        let wrong = judge(&found, &expected(1e-9), DType::F32, None, 0.0);
        assert!(wrong.ratio > 1.0 && wrong.text.starts_with("element 1 of 2"), "{}", wrong.text);
        assert_eq!(judge(&[1.0, f64::NAN], &expected(1.0), DType::F32, None, 0.0).ratio, f64::INFINITY);
        // If it is stored in half precision, the rounding error of that is allowed too.
        assert!(judge(&[1.003, 2.377e-3], &expected(0.0), DType::Bf16, None, 0.0).ratio < 1.0);
        // Many elements are accurate on average, even if their bounds are wide; few elements are only compared with
        // their bounds.
        let wide = [Bounded::<24, 24>::off(1.0, 0.1); MANY];
        let coarse = |passed_on: f64| Some(Coarse { real: Real::Tf32, passed_on, terms: 0 });
        let long = judge(&[1.01; MANY], &wide, DType::F32, coarse(1.0), 0.0);
        assert!(long.ratio > 1.0 && long.text.contains("of its norm"), "{}", long.text);
        assert!(judge(&[1.003; MANY], &wide, DType::F32, coarse(1.0), 0.0).ratio > 1.0);
        assert!(judge(&[1.003; MANY], &wide, DType::F32, coarse(4.0), 0.0).ratio < 1.0);
        // The errors of many products partly cancel.
        let sums = Some(Coarse { real: Real::Tf32, passed_on: 1.0, terms: 10_000 });
        assert!(judge(&[1.0015; MANY], &wide, DType::F32, sums, 0.0).ratio < 1.0);
        assert!(judge(&[1.003; MANY], &wide, DType::F32, sums, 0.0).ratio > 1.0);
        let few = |found: [f64; 2], error: f64| judge(&found, &expected(error), DType::F32, coarse(1.0), 0.0);
        assert!(few([1.01, 2.4e-3], 0.1).ratio < 1.0);
        let wrong = few([1.01, 2.4e-3], 1e-3);
        assert!(wrong.ratio > 1.0 && wrong.text.contains("of its norm"), "{}", wrong.text);
    }

    /// A weight gradient of one element at the start of a vector, whose terms mostly cancel: its relative error is
    /// larger than that of a single product may be, and smaller than the rounding of its factors allows.
    #[test]
    fn a_single_sum_beside_zeros_is_compared_with_its_own_bound() {
        type Coarsened = Bounded<24, 11>;
        let tf32 = |v: f64| f64::from(f32::from_bits(((v as f32).to_bits() + (1 << 12)) & !((1 << 13) - 1)));
        let coarse = Some(Coarse { real: Real::Tf32, passed_on: 1.0, terms: 24 });
        let (mut rng, mut farther) = (crate::model::Rng::new(480_123, 1), 0);
        for _ in 0..2000 {
            let factors: Vec<[f64; 2]> = (0..24).map(|_| [0; 2].map(|_| f64::from(rng.normal() as f32))).collect();
            let sum = factors.iter().map(|[a, b]| tf32(*a) * tf32(*b)).sum::<f64>();
            let product = |[a, b]: &[f64; 2]| Coarsened::exact(*a) * Coarsened::exact(*b);
            let wide = factors.iter().fold(Coarsened::default(), |wide, both| wide + product(both));
            let (mut found, mut expected) = ([0.0; 128], [Coarsened::exact(0.0); 128]);
            (found[0], expected[0]) = (sum, wide);
            let right = judge(&found, &expected, DType::F32, coarse, 0.0);
            assert!(right.ratio < 1.0, "{} {}", right.ratio, right.text);
            farther += u32::from((sum - wide.value).abs() > limit(Real::Tf32) * wide.value.abs());
            found[0] = wide.value + 10.0 * wide.error.max(limit(Real::Tf32) * wide.value.abs());
            let wrong = judge(&found, &expected, DType::F32, coarse, 0.0);
            assert!(wrong.ratio > 9.9 && wrong.text.contains("of its norm"), "{} {}", wrong.ratio, wrong.text);
            // No value may be beside it.
            (found[0], found[100]) = (wide.value, 1e-30);
            assert!(judge(&found, &expected, DType::F32, coarse, 0.0).ratio > 1.0);
        }
        assert!(farther > 20, "{farther}");
    }

    #[test]
    fn values_beyond_the_numbers_of_their_type_may_be_infinite() {
        let ratio = |found: f64, value: f64, dtype: DType| {
            judge(&[found], &[Bounded::<24, 24>::off(value, value.abs() * 1e-7)], dtype, None, 0.0).ratio
        };
        assert_eq!(ratio(f64::INFINITY, 67_973.0, DType::F16), 0.0);
        assert_eq!(ratio(f64::NEG_INFINITY, -67_973.0, DType::F16), 0.0);
        for (found, value, dtype) in [
            (f64::INFINITY, -67_973.0, DType::F16),
            (f64::INFINITY, 60_000.0, DType::F16),
            (f64::INFINITY, 67_973.0, DType::Bf16),
            (f64::INFINITY, 67_973.0, DType::F32),
            (f64::NAN, 67_973.0, DType::F16),
        ] {
            assert_eq!(ratio(found, value, dtype), f64::INFINITY, "{found} for {value} in {dtype}");
        }
    }

    #[test]
    fn exponentials_of_losses_may_be_zero_below_the_normal_numbers_and_nothing_else_may() {
        let zero = crate::ops::Scalar::new(0.0);
        let loss = OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows: 4, classes: 5, smoothing: zero, parts: 1 });
        let expected = [Bounded::<24, 24>::exact(2.94e-40)];
        let ratio =
            |kind: &OpKind, found: f64, dtype: DType| judge(&[found], &expected, dtype, None, flushed(kind)).ratio;
        for dtype in [DType::F32, DType::Bf16] {
            assert!(
                ratio(&loss, 0.0, dtype) < 1.0 && ratio(&OpKind::Mse(ops::Mse { len: 1 }), 0.0, dtype) > 1.0,
                "{dtype:?}"
            );
            // Ten times the bound is too much.
            assert!(ratio(&loss, 1.2e-37, dtype) > 9.0, "{dtype:?}");
        }
    }
}
