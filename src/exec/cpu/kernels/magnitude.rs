//! Norms of numbers whose squares may overflow `f32`, or be lost by underflow.

use super::columns::{Term, flat_sums};
use super::lanes::Lanes;

/// The range of sums of squares in `f32` in which no square overflowed or was lost by underflow.
const SOUND_SQUARES: std::ops::RangeInclusive<f32> = 1e-30..=f32::MAX;

/// 2^100: all numbers whose squares sum to less than 1e-30 have sound squares if they are multiplied by it, and the
/// squares of all numbers if they are divided by it, except those that are lost beside a square that overflowed.
const FACTOR: f32 = f32::from_bits((127 + 100) << 23);

/// The square root of the sum of the squares of `len` numbers, whose sum in `f32` is `squares`.
///
/// # Safety
/// `len` numbers can be read at `values`.
#[inline(always)]
pub unsafe fn norm<V: Lanes>(squares: f32, values: *const f32, len: usize) -> f32 {
    if SOUND_SQUARES.contains(&squares) {
        return squares.sqrt();
    }
    let factor = if squares < 1.0 { FACTOR } else { 1.0 / FACTOR };
    // SAFETY: promised by the caller.
    let [squares] = unsafe { flat_sums::<V, 1, _>(&Squares { values, factor: V::splat(factor) }, 0, len) };
    (f64::from(squares).sqrt() / f64::from(factor)) as f32
}

/// The squares of numbers, each multiplied by a factor first.
pub struct Squares<V> {
    pub values: *const f32,
    pub factor: V,
}

impl<V: Lanes> Term<V, 1> for Squares<V> {
    #[inline(always)]
    unsafe fn at(&self, at: usize, _j: usize, n: usize) -> [V; 1] {
        // SAFETY: promised by the caller.
        let values = unsafe { V::load_n(self.values.add(at), n) } * self.factor;
        [values * values]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::kernels::lanes::Portable;

    #[test]
    fn norms_of_tiny_huge_and_mixed_numbers_are_those_of_doubles() {
        let scales = [1e-45f32, 3e-43, 1e-39, 1e-30, 1e-20, 1.0, 1e18, 1e30, 3e38];
        for (scale, len) in scales.iter().flat_map(|scale| [1, 15, 16, 100, 4096].map(|len| (*scale, len))) {
            // From nearly the scale down to a ten thousandth of it, with both signs.
            let of = |i: usize| scale * (1.0 - i as f32 / len as f32).max(1e-4) * [1.0, -1.0][i % 2];
            let values: Vec<f32> = (0..len).map(of).collect();
            let exact = values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
            let squares = values.iter().map(|v| f64::from(v * v)).sum::<f64>() as f32;
            // SAFETY: the length is that of the vector, and plain code runs everywhere.
            let found = f64::from(unsafe { norm::<Portable>(squares, values.as_ptr(), len) });
            let expected = f64::from(exact as f32);
            assert!(
                found == expected || (found - exact).abs() <= 1e-6 * exact + 1.5e-45,
                "{scale} {len}: {found} instead of {exact}"
            );
        }
    }

    #[test]
    fn what_is_no_number_stays_what_it_is() {
        let of = |values: &[f32]| {
            // SAFETY: as above.
            unsafe { norm::<Portable>(values.iter().map(|v| v * v).sum(), values.as_ptr(), values.len()) }
        };
        assert_eq!(of(&[0.0, -0.0]).to_bits(), 0);
        assert_eq!(of(&[1.0, f32::NEG_INFINITY]), f32::INFINITY);
        assert!(of(&[1.0, f32::NAN, f32::INFINITY]).is_nan());
    }
}
