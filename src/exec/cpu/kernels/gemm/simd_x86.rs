//! The vectors of AVX2 and AVX-512.

use super::simd::{MAX_LANES, Vector};
use std::arch::x86_64::*;

/// Eight lanes, fused multiply-add.
#[derive(Clone, Copy)]
pub struct Avx2(__m256);

/// Sixteen lanes, mask registers.
#[derive(Clone, Copy)]
pub struct Avx512(__m512);

/// A window of eight words that starts here has any required number of set words at its start.
static MASK_WORDS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// Methods that have a corresponding intrinsic in both widths.
macro_rules! arithmetic {
    ($add:ident, $fmadd:ident, $max:ident, $setzero:ident) => {
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            Self($add(self.0, other.0))
        }
        #[inline(always)]
        unsafe fn fma(self, a: Self, b: Self) -> Self {
            Self($fmadd(a.0, b.0, self.0))
        }
        #[inline(always)]
        unsafe fn relu(self) -> Self {
            // The result is the second operand if one of them is NaN.
            Self($max($setzero(), self.0))
        }
    };
}

// The bodies contain one kind of unsafe operation, intrinsics on values or on the caller's pointers, under the trait's
// contract.
#[allow(unsafe_op_in_unsafe_fn)]
impl Vector for Avx2 {
    const LANES: usize = 8;
    type Mask = (__m256i, bool);

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(_mm256_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn mask(lanes: usize) -> Self::Mask {
        (_mm256_loadu_si256(MASK_WORDS.as_ptr().add(8 - lanes).cast()), lanes == 8)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        Self(_mm256_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn load_mask(p: *const f32, mask: Self::Mask) -> Self {
        Self(_mm256_maskload_ps(p, mask.0))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        _mm256_storeu_ps(p, self.0);
    }
    #[inline(always)]
    unsafe fn store_mask(self, p: *mut f32, mask: Self::Mask) {
        // Masked stores are slow on some processors; full stores are fast on all of them.
        if mask.1 {
            _mm256_storeu_ps(p, self.0);
        } else {
            _mm256_maskstore_ps(p, mask.0, self.0);
        }
    }
    #[inline(always)]
    unsafe fn scale_where_not_positive(self, key: Self, low: f32) -> Self {
        let below = _mm256_cmp_ps::<_CMP_LE_OQ>(key.0, _mm256_setzero_ps());
        let factor = _mm256_blendv_ps(_mm256_set1_ps(1.0), _mm256_set1_ps(low), below);
        Self(_mm256_mul_ps(self.0, factor))
    }
    arithmetic!(_mm256_add_ps, _mm256_fmadd_ps, _mm256_max_ps, _mm256_setzero_ps);
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; MAX_LANES]) {
        let r: [__m256; 8] = std::array::from_fn(|i| rows[i].0);
        // Pairs of rows interleaved, then pairs of pairs, then the halves exchanged.
        let pair = |i: usize| (_mm256_unpacklo_ps(r[i], r[i + 1]), _mm256_unpackhi_ps(r[i], r[i + 1]));
        let quad = |i: usize| {
            let ((a_lo, a_hi), (b_lo, b_hi)) = (pair(i), pair(i + 2));
            [
                _mm256_shuffle_ps::<0x44>(a_lo, b_lo),
                _mm256_shuffle_ps::<0xee>(a_lo, b_lo),
                _mm256_shuffle_ps::<0x44>(a_hi, b_hi),
                _mm256_shuffle_ps::<0xee>(a_hi, b_hi),
            ]
        };
        let (top, bottom) = (quad(0), quad(4));
        for i in 0..4 {
            rows[i] = Self(_mm256_permute2f128_ps::<0x20>(top[i], bottom[i]));
            rows[i + 4] = Self(_mm256_permute2f128_ps::<0x31>(top[i], bottom[i]));
        }
    }
}

#[allow(unsafe_op_in_unsafe_fn)]
impl Vector for Avx512 {
    const LANES: usize = 16;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self(_mm512_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn mask(lanes: usize) -> __mmask16 {
        (u32::MAX >> (32 - lanes)) as __mmask16
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        Self(_mm512_loadu_ps(p))
    }
    #[inline(always)]
    unsafe fn load_mask(p: *const f32, mask: __mmask16) -> Self {
        Self(_mm512_maskz_loadu_ps(mask, p))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        _mm512_storeu_ps(p, self.0);
    }
    #[inline(always)]
    unsafe fn store_mask(self, p: *mut f32, mask: __mmask16) {
        _mm512_mask_storeu_ps(p, mask, self.0);
    }
    #[inline(always)]
    unsafe fn scale_where_not_positive(self, key: Self, low: f32) -> Self {
        let below = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(key.0, _mm512_setzero_ps());
        Self(_mm512_mask_mul_ps(self.0, below, self.0, _mm512_set1_ps(low)))
    }
    arithmetic!(_mm512_add_ps, _mm512_fmadd_ps, _mm512_max_ps, _mm512_setzero_ps);
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; MAX_LANES]) {
        // Within each quarter of 4 lanes, 4 rows become 4 columns; then the quarters are transposed as a 4 x 4 square.
        let r: [__m512; 16] = std::array::from_fn(|i| rows[i].0);
        let quad = |i: usize| {
            let (a_lo, a_hi) = (_mm512_unpacklo_ps(r[i], r[i + 1]), _mm512_unpackhi_ps(r[i], r[i + 1]));
            let (b_lo, b_hi) = (_mm512_unpacklo_ps(r[i + 2], r[i + 3]), _mm512_unpackhi_ps(r[i + 2], r[i + 3]));
            [
                _mm512_shuffle_ps::<0x44>(a_lo, b_lo),
                _mm512_shuffle_ps::<0xee>(a_lo, b_lo),
                _mm512_shuffle_ps::<0x44>(a_hi, b_hi),
                _mm512_shuffle_ps::<0xee>(a_hi, b_hi),
            ]
        };
        let quads = [quad(0), quad(4), quad(8), quad(12)];
        for i in 0..4 {
            let [a, b, c, d] = [quads[0][i], quads[1][i], quads[2][i], quads[3][i]];
            let (ab_even, ab_odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            let (cd_even, cd_odd) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
            rows[i] = Self(_mm512_shuffle_f32x4::<0x88>(ab_even, cd_even));
            rows[i + 4] = Self(_mm512_shuffle_f32x4::<0x88>(ab_odd, cd_odd));
            rows[i + 8] = Self(_mm512_shuffle_f32x4::<0xdd>(ab_even, cd_even));
            rows[i + 12] = Self(_mm512_shuffle_f32x4::<0xdd>(ab_odd, cd_odd));
        }
    }
}
