//! Vectors of sixteen numbers, for each instruction set.
//!
//! A kernel is written once over [`Lanes`] and compiled once for each instruction set by [`for_isa!`]. Every operation
//! here but one rounds in the same way on all of them (there is no fused multiply-add of vectors, no reciprocal
//! estimate, and sums over lanes have one fixed tree), so a kernel gives the same bits with each of them. The exception
//! is [`Lanes::mul_add`], for functions that compute in `f64`.

use std::ops::{Add, Div, Mul, Sub};

mod entry;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

pub(super) use entry::{entry_point, for_isa};

/// The number of lanes.
pub const LANES: usize = 16;

/// Sixteen `f32`. The types for one instruction set may be used only if the processor supports it: in functions made by
/// [`for_isa!`].
pub trait Lanes:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + 'static
{
    /// A boolean for each lane.
    type Mask: Copy;

    /// `a b + c`, rounded once with AVX2 and AVX-512, and twice in plain code.
    fn mul_add(a: f64, b: f64, c: f64) -> f64;

    fn splat(value: f32) -> Self;

    /// # Safety
    /// 16 floats can be read at `from`; no alignment is required.
    unsafe fn load(from: *const f32) -> Self;

    /// The first `n` lanes (up to 16) from memory, zero in the others.
    ///
    /// # Safety
    /// `n` floats can be read at `from`.
    unsafe fn load_n(from: *const f32, n: usize) -> Self;

    /// # Safety
    /// 16 floats can be written at `to`; no alignment is required.
    unsafe fn store(self, to: *mut f32);

    /// Stores the first `n` lanes (up to 16).
    ///
    /// # Safety
    /// `n` floats can be written at `to`.
    unsafe fn store_n(self, to: *mut f32, n: usize);

    fn sqrt(self) -> Self;

    fn abs(self) -> Self;

    /// The larger of two non-negative numbers; NaN if one is NaN.
    fn max_magnitude(self, other: Self) -> Self;

    /// `self < other`, false if one is NaN.
    fn lt(self, other: Self) -> Self::Mask;

    /// `self <= other`, false if one is NaN.
    fn le(self, other: Self) -> Self::Mask;

    /// `self == other`, false if one is NaN.
    fn same(self, other: Self) -> Self::Mask;

    /// Whether `self` replaces the largest number so far: it is larger, or the first NaN.
    fn beats(self, best: Self) -> Self::Mask;

    /// `yes` if the mask is set, otherwise `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// The mask as bits, lane 0 in the lowest.
    fn bits(mask: Self::Mask) -> u16;

    /// The mask from bits, lane 0 in the lowest.
    fn mask(bits: u16) -> Self::Mask;

    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array has 16 floats.
        unsafe { self.store(out.as_mut_ptr()) };
        out
    }

    #[inline(always)]
    fn from_array(values: [f32; LANES]) -> Self {
        // SAFETY: the array has 16 floats.
        unsafe { Self::load(values.as_ptr()) }
    }

    /// `f` applied to each lane.
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        let mut values = self.to_array();
        for value in &mut values {
            *value = f(*value);
        }
        Self::from_array(values)
    }

    /// The lanes below `n`; the others are zero.
    #[inline(always)]
    fn first(self, n: usize) -> Self {
        if n >= LANES { self } else { Self::select(Self::mask((1 << n) - 1), self, Self::zero()) }
    }

    /// The sum of the lanes: the upper half is added to the lower, eight lanes, then four, two, one.
    fn sum(self) -> f32;

    /// The largest of the lanes, in the order of [`Lanes::sum`]. If a pair cannot be compared, the lower lane is kept.
    fn largest(self) -> f32;

    /// The larger of each pair; `self` if they cannot be compared.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::select(self.lt(other), other, self)
    }
}

/// Sixteen floats in plain code, compiled for the compiler's baseline.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }

    #[inline(always)]
    fn compare(self, other: Self, f: impl Fn(f32, f32) -> bool) -> [bool; LANES] {
        std::array::from_fn(|i| f(self.0[i], other.0[i]))
    }
}

macro_rules! portable_operator {
    ($($trait:ident $method:ident $op:tt),*) => { $(
        impl $trait for Portable {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, |a, b| a $op b)
            }
        }
    )* };
}
portable_operator!(Add add +, Sub sub -, Mul mul *, Div div /);

impl Lanes for Portable {
    type Mask = [bool; LANES];

    #[inline(always)]
    fn mul_add(a: f64, b: f64, c: f64) -> f64 {
        a * b + c
    }

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller; an array of floats has a float's alignment.
        Self(unsafe { from.cast::<[f32; LANES]>().read() })
    }

    #[inline(always)]
    unsafe fn load_n(from: *const f32, n: usize) -> Self {
        let mut out = [0.0; LANES];
        // SAFETY: the caller promises `n` floats.
        unsafe {
            if n >= LANES {
                return Self::load(from);
            }
            for (i, value) in out.iter_mut().enumerate().take(n) {
                *value = *from.add(i);
            }
        }
        Self(out)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller; an array of floats has a float's alignment.
        unsafe { to.cast::<[f32; LANES]>().write(self.0) }
    }

    #[inline(always)]
    unsafe fn store_n(self, to: *mut f32, n: usize) {
        // SAFETY: the caller promises `n` floats.
        unsafe {
            if n >= LANES {
                return self.store(to);
            }
            for (i, value) in self.0.iter().enumerate().take(n) {
                *to.add(i) = *value;
            }
        }
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        self.zip(self, |a, _| a.sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.zip(self, |a, _| f32::from_bits(a.to_bits() & 0x7fff_ffff))
    }

    #[inline(always)]
    fn max_magnitude(self, other: Self) -> Self {
        // The bits of non-negative floats, as integers, have the order of the floats, and those of NaN are above
        // infinity's.
        self.zip(other, |a, b| f32::from_bits((a.to_bits() as i32).max(b.to_bits() as i32) as u32))
    }

    #[inline(always)]
    fn lt(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a < b)
    }

    #[inline(always)]
    fn le(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a <= b)
    }

    #[inline(always)]
    fn same(self, other: Self) -> Self::Mask {
        self.compare(other, |a, b| a == b)
    }

    #[inline(always)]
    fn beats(self, best: Self) -> Self::Mask {
        self.compare(best, |value, best| (value > best) | (value.is_nan() & !best.is_nan()))
    }

    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        Self(std::array::from_fn(|i| if mask[i] { yes.0[i] } else { no.0[i] }))
    }

    #[inline(always)]
    fn bits(mask: Self::Mask) -> u16 {
        (0..LANES).fold(0, |bits, i| bits | u16::from(mask[i]) << i)
    }

    #[inline(always)]
    fn sum(self) -> f32 {
        let mut values = self.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                values[i] += values[i + half];
            }
        }
        values[0]
    }

    #[inline(always)]
    fn largest(self) -> f32 {
        let mut values = self.0;
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                values[i] = if values[i] < values[i + half] { values[i + half] } else { values[i] };
            }
        }
        values[0]
    }

    #[inline(always)]
    fn mask(bits: u16) -> Self::Mask {
        std::array::from_fn(|i| bits >> i & 1 == 1)
    }
}
