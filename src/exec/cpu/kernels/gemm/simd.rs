//! The vector trait of the matrix kernels, so that each kernel is written once and compiled for every instruction set.

/// A vector of `f32` lanes.
///
/// # Safety
/// Every method may be called only if the instruction set of the implementing type is available; the callers are all
/// inlined into functions compiled for it. Loads and stores need no alignment.
pub trait Vector: Copy {
    /// Number of `f32` lanes.
    const LANES: usize;
    /// Selects the first lanes of a vector.
    type Mask: Copy;

    /// All lanes `x`.
    unsafe fn splat(x: f32) -> Self;
    /// The mask of the first `lanes` lanes, `1..=LANES`.
    unsafe fn mask(lanes: usize) -> Self::Mask;
    /// Reads `LANES` elements.
    unsafe fn load(p: *const f32) -> Self;
    /// Reads the masked elements only; the other lanes are zero.
    unsafe fn load_mask(p: *const f32, mask: Self::Mask) -> Self;
    /// Writes `LANES` elements.
    unsafe fn store(self, p: *mut f32);
    /// Writes the masked elements only.
    unsafe fn store_mask(self, p: *mut f32, mask: Self::Mask);
    /// `self + other`.
    unsafe fn add(self, other: Self) -> Self;
    /// `self + a b`, fused if the instruction set does so.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    /// Each lane `x` becomes `low x` if `key <= 0`, otherwise `x`. NaN in `key` counts as above zero.
    unsafe fn scale_where_not_positive(self, key: Self, low: f32) -> Self;
    /// `max(x, 0)` for each lane; NaN stays.
    unsafe fn relu(self) -> Self;
    /// Transposes a square of `LANES` rows.
    unsafe fn transpose(rows: &mut [Self; MAX_LANES]);
}

/// The largest number of lanes of any [`Vector`].
pub const MAX_LANES: usize = 16;

/// Four lanes of plain code for any processor.
#[derive(Clone, Copy)]
pub struct Plain([f32; 4]);

impl Vector for Plain {
    const LANES: usize = 4;
    type Mask = usize;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 4])
    }
    #[inline(always)]
    unsafe fn mask(lanes: usize) -> usize {
        lanes
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller's pointer has 4 elements.
        Self(unsafe { p.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_mask(p: *const f32, mask: usize) -> Self {
        if mask == 4 {
            // SAFETY: all 4 elements are the caller's.
            return unsafe { Self::load(p) };
        }
        let mut v = [0.0; 4];
        for (i, x) in v.iter_mut().enumerate().take(mask) {
            // SAFETY: only masked elements are read.
            *x = unsafe { *p.add(i) };
        }
        Self(v)
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller's pointer has 4 elements.
        unsafe { p.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_mask(self, p: *mut f32, mask: usize) {
        for (i, x) in self.0.iter().enumerate().take(mask) {
            // SAFETY: only masked elements are written.
            unsafe { *p.add(i) = *x }
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    #[inline(always)]
    unsafe fn fma(self, a: Self, b: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + a.0[i] * b.0[i]))
    }
    #[inline(always)]
    unsafe fn scale_where_not_positive(self, key: Self, low: f32) -> Self {
        Self(std::array::from_fn(|i| self.0[i] * if key.0[i] <= 0.0 { low } else { 1.0 }))
    }
    #[inline(always)]
    unsafe fn relu(self) -> Self {
        Self(self.0.map(|x| if x < 0.0 { 0.0 } else { x }))
    }
    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self; MAX_LANES]) {
        for i in 0..4 {
            for j in 0..i {
                let x = rows[i].0[j];
                rows[i].0[j] = rows[j].0[i];
                rows[j].0[i] = x;
            }
        }
    }
}
