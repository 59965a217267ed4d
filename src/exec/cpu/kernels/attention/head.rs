//! Shared code of the forward pass and the derivative for the rows of a head: copies with rotary embedding, transposes,
//! and the random numbers of a tile of queries.

use crate::exec::cpu::call::Call;
use crate::exec::cpu::kernels::dropout::words;
use crate::exec::cpu::kernels::gemm::machine::{self, Machine};
use crate::exec::cpu::kernels::gemm::pack::transpose_rows;
use crate::exec::cpu::kernels::gemm::simd::Vector;
use crate::exec::cpu::kernels::lanes::{self, LANES, Lanes};
use crate::exec::cpu::kernels::math::polynomial;
use crate::ops::{AttentionGeometry, dropout_threshold};
use crate::select::Isa;
use crate::select::cpu_attention::Scratch;

/// An instruction set's vectors for elementary functions and for products.
pub trait Vectors: Lanes {
    const ISA: Isa;
    type Wide: Vector;
}

impl Vectors for lanes::Portable {
    const ISA: Isa = Isa::Portable;
    type Wide = <machine::Portable as Machine>::V;
}

#[cfg(target_arch = "x86_64")]
impl Vectors for lanes::Avx2 {
    const ISA: Isa = Isa::Avx2;
    type Wide = <machine::Avx2Fma as Machine>::V;
}

#[cfg(target_arch = "x86_64")]
impl Vectors for lanes::Avx512 {
    const ISA: Isa = Isa::Avx512;
    type Wide = <machine::Avx512Full as Machine>::V;
}

/// The angles of all positions, `[positions, 2, head_dim / 2]`: the bits of cosines and of sines. Empty without rotary
/// embedding.
#[must_use]
pub fn angles(g: &AttentionGeometry) -> Box<[i32]> {
    let pairs = g.head_dim / 2;
    let of = |position: usize, which: usize| {
        (0..pairs).map(move |pair| (g.rotation(position, pair)[which] as f32).to_bits().cast_signed())
    };
    (0..if g.rotary { g.positions } else { 0 }).flat_map(|p| of(p, 0).chain(of(p, 1))).collect()
}

/// How a row is copied.
#[derive(Clone, Copy)]
pub struct Turn {
    /// The angles of the row's position; null without rotary embedding.
    pub angles: *const f32,
    /// Whether it is rotated back.
    pub is_back: bool,
    pub scale: f32,
}

impl Turn {
    /// A plain copy.
    pub const NONE: Self = Self { angles: std::ptr::null(), is_back: false, scale: 1.0 };

    /// The rotation for a position, from a table of [`angles`].
    pub fn at(g: &AttentionGeometry, table: &[i32], position: usize) -> Self {
        let pairs = 2 * (g.head_dim / 2);
        let angles = if g.rotary { table[position * pairs..].as_ptr().cast() } else { std::ptr::null() };
        Self { angles, ..Self::NONE }
    }

    /// Copies a row of `d` features, scaled and rotated.
    ///
    /// # Safety
    /// Both rows have `d` features, and the angles are those of `d / 2` pairs.
    #[inline(always)]
    pub unsafe fn copy<V: Lanes>(self, from: *const f32, to: *mut f32, d: usize) {
        let scale = V::splat(self.scale);
        // SAFETY: every stretch is within the rows.
        unsafe {
            if self.angles.is_null() {
                for j in (0..d).step_by(LANES) {
                    let n = (d - j).min(LANES);
                    (V::load_n(from.add(j), n) * scale).store_n(to.add(j), n);
                }
                return;
            }
            let half = d / 2;
            let sign = V::splat(if self.is_back { -1.0 } else { 1.0 });
            for j in (0..half).step_by(LANES) {
                let n = (half - j).min(LANES);
                let (cos, sin) = (V::load_n(self.angles.add(j), n), V::load_n(self.angles.add(half + j), n) * sign);
                let (x, y) = (V::load_n(from.add(j), n) * scale, V::load_n(from.add(half + j), n) * scale);
                (x * cos - y * sin).store_n(to.add(j), n);
                (y * cos + x * sin).store_n(to.add(half + j), n);
            }
        }
    }
}

/// Transposes: `to[column * to_step + row] = from[row * from_step + column]`.
///
/// # Safety
/// Runs only if `V` may be used; both are valid for the dimensions.
#[inline(always)]
pub unsafe fn transpose<V: Vector>(
    (from, from_step): (*const f32, usize),
    (rows, columns): (usize, usize),
    (to, to_step): (*mut f32, usize),
) {
    for row in (0..rows).step_by(V::LANES) {
        let here = (rows - row).min(V::LANES);
        // SAFETY: the rows are within both.
        unsafe { transpose_rows::<V>(from.add(row * from_step), from_step, here, columns, to.add(row), to_step, here) };
    }
}

/// The data of one thread, in both directions.
pub struct Own<'a> {
    pub g: AttentionGeometry,
    /// The thread's scratch memory, and the offsets of its parts.
    pub work: *mut f32,
    pub at: Scratch,
    pub angles: &'a [i32],
    pub random: Option<Random>,
}

impl<'a> Own<'a> {
    /// # Safety
    /// As for [`Random::new`].
    #[inline(always)]
    pub unsafe fn new(call: &'a Call, g: AttentionGeometry, at: Scratch, work: *mut f32, counter: *const i64) -> Self {
        // SAFETY: promised by the caller.
        Self { g, work, at, angles: &call.table, random: unsafe { Random::new(&g, counter) } }
    }
}

/// The random numbers of an attention's dropout.
#[derive(Clone, Copy)]
pub struct Random {
    seed: i64,
    step: i64,
    stream: u32,
    threshold: u32,
    groups: usize,
    /// The factor of kept probabilities.
    pub scale: f32,
}

impl Random {
    /// `None` without dropout.
    ///
    /// # Safety
    /// With dropout, the counter holds two numbers.
    pub unsafe fn new(g: &AttentionGeometry, counter: *const i64) -> Option<Self> {
        let rate = g.dropout.get();
        let (threshold, scale) = (dropout_threshold(rate), (1.0 / (1.0 - rate)) as f32);
        g.has_dropout().then(|| {
            // SAFETY: promised by the caller.
            let (seed, step) = unsafe { (*counter, *counter.add(1)) };
            Self { seed, step, stream: g.stream, threshold, groups: g.dropout_groups(), scale }
        })
    }

    /// Which probabilities of 16 rows from `row` on are kept, for a group of keys: a word for each key, with a bit for
    /// each row.
    ///
    /// # Safety
    /// `kept` has space for a group of keys.
    #[inline(always)]
    pub unsafe fn kept(&self, row: usize, group: usize, kept: *mut u16) {
        for place in 0..LANES {
            let mut bits = [[0u16; LANES]; 4];
            let [first, second, third, fourth] = &mut bits;
            for lane in 0..LANES {
                let block = ((row + lane) * self.groups + group) * LANES + place;
                let words = words(self.seed, self.stream, self.step, block as u32);
                let kept = words.map(|word| u16::from(word >= self.threshold) << lane);
                [first[lane], second[lane], third[lane], fourth[lane]] = kept;
            }
            for (i, bits) in bits.iter().enumerate() {
                let word = bits.iter().fold(0, |word, bit| word | bit);
                // SAFETY: the key is in the group.
                unsafe { *kept.add(i * LANES + place) = word };
            }
        }
    }
}

/// The lanes whose query attends to `key`; lane 0 is the query at `first`.
#[inline(always)]
pub fn attending(causal: bool, key: usize, first: usize) -> u16 {
    if causal && key > first { (0xffff_u32 << (key - first).min(LANES)) as u16 } else { u16::MAX }
}

/// A tile of queries: the index of its head within a sample, and its first position.
#[derive(Clone, Copy)]
pub struct TilePlace {
    pub sample: usize,
    pub head: usize,
    pub first: usize,
}

/// The factor of scores in addition to [`AttentionGeometry::scale`], so that probabilities are powers of two.
pub const TO_POWERS: f32 = std::f32::consts::LOG2_E;

/// `2^y` for `y` up to about 0, within 1 unit in the last place; NaN for NaN. Results below the normal numbers are 0,
/// because denormal numbers are slow on many processors, and every masked score would be one.
#[inline(always)]
pub fn exp2(y: f32) -> f32 {
    /// Adding it rounds to the nearest whole number, which is then in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    const LEAST: f32 = -126.0;
    let at = if y < LEAST { LEAST } else { y };
    let shifted = at + ROUND;
    let r = at - (shifted - ROUND);
    // 2^r on |r| <= 1/2, 2e-9.
    let p = polynomial!(r;
        1.534_580_7e-4, 1.339_993_1e-3, 9.618_489e-3, 5.550_328_7e-2, 2.402_264_7e-1, 6.931_472e-1, 1.0);
    // The low bits of `shifted` are the power of two; the shift moves them into the exponent and discards the others.
    let power = f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23));
    if y < LEAST { 0.0 } else { power }
}

#[cfg(test)]
mod tests {
    use super::exp2;

    #[test]
    fn powers_of_two_are_accurate_and_end_at_zero() {
        for i in 0..=1_264_000 {
            let y = 0.4 - i as f32 * 1e-4;
            let exact = f64::from(y).exp2();
            assert!((f64::from(exp2(y)) - exact).abs() <= exact * 2f64.powi(-23), "2^{y}: {}", exp2(y));
        }
        let found = [0.0, -1.0, -126.0, -127.0, -1e30, f32::NEG_INFINITY].map(exp2);
        assert_eq!(found, [1.0, 0.5, f32::MIN_POSITIVE, 0.0, 0.0, 0.0]);
        assert!(exp2(f32::NAN).is_nan());
    }
}
