//! [`Lanes`] with AVX2 (two registers of eight) and AVX-512 (one of sixteen).

use super::{LANES, Lanes};
use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

/// Sixteen floats in one AVX-512 register.
#[derive(Clone, Copy)]
pub struct Avx512(__m512);

/// Sixteen floats in two AVX2 registers.
#[derive(Clone, Copy)]
pub struct Avx2(__m256, __m256);

macro_rules! operators {
    ($($trait:ident $method:ident $wide:ident $half:ident),*) => { $(
        impl $trait for Avx512 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: the type is only used where the processor has AVX-512.
                Self(unsafe { $wide(self.0, other.0) })
            }
        }
        impl $trait for Avx2 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: the type is only used where the processor has AVX2.
                unsafe { Self($half(self.0, other.0), $half(self.1, other.1)) }
            }
        }
    )* };
}
operators!(
    Add add _mm512_add_ps _mm256_add_ps,
    Sub sub _mm512_sub_ps _mm256_sub_ps,
    Mul mul _mm512_mul_ps _mm256_mul_ps,
    Div div _mm512_div_ps _mm256_div_ps
);

/// The mask of the lanes below `n`.
#[inline(always)]
fn below(n: usize) -> u16 {
    ((1u32 << n.min(LANES)) - 1) as u16
}

/// Combines the halves of a register with an operation on pairs `(lower, upper)`, down to one lane.
macro_rules! fold {
    ($eight:expr, $four_op:ident) => {{
        let eight = $eight;
        let four = $four_op(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = $four_op(four, _mm_movehl_ps(four, four));
        let one = $four_op(two, _mm_shuffle_ps::<1>(two, two));
        _mm_cvtss_f32(one)
    }};
}

/// The larger of each pair, the first one if they cannot be compared: then the instruction returns its second operand.
#[inline(always)]
unsafe fn larger(a: __m128, b: __m128) -> __m128 {
    // SAFETY: the baseline has it.
    unsafe { _mm_max_ps(b, a) }
}

// In all of the following the calls are sound because the type is used only if the processor has AVX-512, and pointers
// satisfy the trait's contract.
impl Lanes for Avx512 {
    type Mask = __mmask16;

    #[inline(always)]
    fn mul_add(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn load_n(from: *const f32, n: usize) -> Self {
        // SAFETY: see above; masked lanes are not read.
        Self(unsafe { _mm512_maskz_loadu_ps(below(n), from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn store_n(self, to: *mut f32, n: usize) {
        // SAFETY: see above; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(to, below(n), self.0) }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }

    #[inline(always)]
    fn max_magnitude(self, other: Self) -> Self {
        // SAFETY: see above. The bits of floats without a sign rise with their value, and those of NaN are above
        // infinity's.
        unsafe {
            let larger = _mm512_max_epi32(_mm512_castps_si512(self.0), _mm512_castps_si512(other.0));
            Self(_mm512_castsi512_ps(larger))
        }
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn same(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn beats(self, best: Self) -> Self::Mask {
        // SAFETY: see above. Not at most the best: larger, or one is NaN; and the best is a number.
        unsafe {
            let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(best.0, best.0);
            _mm512_mask_cmp_ps_mask::<_CMP_NLE_UQ>(number, self.0, best.0)
        }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        Self(unsafe { _mm512_mask_blend_ps(mask, no.0, yes.0) })
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: see above.
        unsafe {
            let upper = _mm512_extractf32x8_ps::<1>(self.0);
            fold!(_mm256_add_ps(_mm512_castps512_ps256(self.0), upper), _mm_add_ps)
        }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        // SAFETY: see above.
        unsafe {
            let upper = _mm512_extractf32x8_ps::<1>(self.0);
            fold!(_mm256_max_ps(upper, _mm512_castps512_ps256(self.0)), larger)
        }
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: see above. The instruction gives its second operand where the two do not compare.
        Self(unsafe { _mm512_max_ps(other.0, self.0) })
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u16 {
        mask
    }

    #[inline(always)]
    fn mask(bits: u16) -> Self::Mask {
        bits
    }
}

/// The lanes below `n` as a mask for AVX2's masked loads and stores, from lane `base` on.
#[inline(always)]
unsafe fn below_eight(n: usize, base: i32) -> __m256i {
    // SAFETY: promised by the caller: the processor has AVX2.
    unsafe {
        let lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(base));
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(LANES) as i32), lane)
    }
}

// As for AVX-512, with AVX2.
impl Lanes for Avx2 {
    type Mask = [__m256; 2];

    #[inline(always)]
    fn mul_add(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }

    #[inline(always)]
    unsafe fn load_n(from: *const f32, n: usize) -> Self {
        // SAFETY: see above; masked lanes are not read.
        unsafe {
            if n >= LANES {
                return Self::load(from);
            }
            let upper = from.wrapping_add(8);
            Self(_mm256_maskload_ps(from, below_eight(n, 0)), _mm256_maskload_ps(upper, below_eight(n, 8)))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: see above.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn store_n(self, to: *mut f32, n: usize) {
        // SAFETY: see above; masked lanes are not written.
        unsafe {
            if n >= LANES {
                return self.store(to);
            }
            _mm256_maskstore_ps(to, below_eight(n, 0), self.0);
            _mm256_maskstore_ps(to.wrapping_add(8), below_eight(n, 8), self.1);
        }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_sqrt_ps(self.0), _mm256_sqrt_ps(self.1)) }
    }

    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see above.
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            Self(_mm256_andnot_ps(sign, self.0), _mm256_andnot_ps(sign, self.1))
        }
    }

    #[inline(always)]
    fn max_magnitude(self, other: Self) -> Self {
        #[inline(always)]
        unsafe fn larger(a: __m256, b: __m256) -> __m256 {
            // SAFETY: promised by the caller: the processor has AVX2.
            unsafe { _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b))) }
        }
        // SAFETY: see above. The bits of floats without a sign rise with their value, and those of NaN are above
        // infinity's.
        unsafe { Self(larger(self.0, other.0), larger(self.1, other.1)) }
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { [_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0), _mm256_cmp_ps::<_CMP_LT_OQ>(self.1, other.1)] }
    }

    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { [_mm256_cmp_ps::<_CMP_LE_OQ>(self.0, other.0), _mm256_cmp_ps::<_CMP_LE_OQ>(self.1, other.1)] }
    }

    #[inline(always)]
    fn same(self, other: Self) -> Self::Mask {
        // SAFETY: see above.
        unsafe { [_mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, other.0), _mm256_cmp_ps::<_CMP_EQ_OQ>(self.1, other.1)] }
    }

    #[inline(always)]
    fn beats(self, best: Self) -> Self::Mask {
        #[inline(always)]
        unsafe fn beats(value: __m256, best: __m256) -> __m256 {
            // SAFETY: promised by the caller: the processor has AVX2.
            unsafe {
                let number = _mm256_cmp_ps::<_CMP_ORD_Q>(best, best);
                _mm256_and_ps(number, _mm256_cmp_ps::<_CMP_NLE_UQ>(value, best))
            }
        }
        // SAFETY: see above. Not at most the best: larger, or one is NaN; and the best is a number.
        unsafe { [beats(self.0, best.0), beats(self.1, best.1)] }
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        // SAFETY: see above.
        unsafe { Self(_mm256_blendv_ps(no.0, yes.0, mask[0]), _mm256_blendv_ps(no.1, yes.1, mask[1])) }
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: see above.
        unsafe { fold!(_mm256_add_ps(self.0, self.1), _mm_add_ps) }
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        // SAFETY: see above.
        unsafe { fold!(_mm256_max_ps(self.1, self.0), larger) }
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        // SAFETY: see above. The instruction gives its second operand where the two do not compare.
        unsafe { Self(_mm256_max_ps(other.0, self.0), _mm256_max_ps(other.1, self.1)) }
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u16 {
        // SAFETY: see above.
        unsafe { (_mm256_movemask_ps(mask[0]) | _mm256_movemask_ps(mask[1]) << 8) as u16 }
    }

    #[inline(always)]
    fn mask(bits: u16) -> Self::Mask {
        // SAFETY: see above.
        unsafe {
            let all = _mm256_set1_epi32(bits.into());
            let low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let high = _mm256_slli_epi32::<8>(low);
            let lower = _mm256_cmpeq_epi32(_mm256_and_si256(all, low), low);
            let upper = _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high);
            [_mm256_castsi256_ps(lower), _mm256_castsi256_ps(upper)]
        }
    }
}
