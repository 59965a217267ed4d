//! The innermost kernel: a tile of the product is kept in registers during the reduction.
//!
//! One kernel serves products and convolutions. Its `b` rows are vectors over the columns of the tile, and its `a`
//! elements are broadcast. The reduction index runs over segments of equal length, each of which starts at its own
//! offset in `a` (the taps of a convolution), while `b` is contiguous. The epilogue is applied in registers, except for
//! slow functions: see [`super::finish`].

#![allow(
    clippy::needless_range_loop,
    reason = "rows and vectors index registers and addresses alike; iterators hide that"
)]

use super::simd::Vector;

/// The largest number of rows of a tile.
pub const MAX_ROWS: usize = 14;

/// What the kernel itself applies to finished elements, after the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    None,
    Relu,
    LeakyRelu,
    /// Multiply by the derivative of relu at `saved`.
    ReluGrad,
    LeakyReluGrad,
}

/// The operands of one tile. Offsets count elements.
pub struct Tile {
    /// First element of each row of `a` (segment offset 0); with consecutive rows (`COLUMN`) only the first counts.
    pub a: [*const f32; MAX_ROWS],
    /// The stride between successive reduction indices within a segment of `a` with consecutive rows (`COLUMN`);
    /// otherwise they are consecutive.
    pub a_step: usize,
    /// The offset of each segment in `a`.
    pub segments: *const i32,
    pub segment_count: usize,
    /// Reduction indices in each segment.
    pub segment_len: usize,
    /// The tile's first column of the first row of `b`.
    pub b: *const f32,
    /// The stride between rows of `b`.
    pub b_step: usize,
    /// Columns in the last vector, `1..=LANES`; only these are read from `b` and written.
    pub lanes: usize,
    /// The tile's first column in the output.
    pub c: *mut f32,
    /// The offset from `c` (and `z`, `saved`) to each row of the tile.
    pub c_row: [usize; MAX_ROWS],
    /// Start from the contents of `c` instead of zero.
    pub add: bool,
    /// One element for each column, or null.
    pub bias: *const f32,
    /// Receives the elements before the activation, or null.
    pub z: *mut f32,
    /// The argument of the derivative.
    pub saved: *const f32,
    pub finish: Finish,
}

impl Tile {
    /// An empty tile, to be filled in.
    pub const EMPTY: Self = Self {
        a: [std::ptr::null(); MAX_ROWS],
        a_step: 0,
        segments: std::ptr::null(),
        segment_count: 0,
        segment_len: 0,
        b: std::ptr::null(),
        b_step: 0,
        lanes: 0,
        c: std::ptr::null_mut(),
        c_row: [0; MAX_ROWS],
        add: false,
        bias: std::ptr::null(),
        z: std::ptr::null_mut(),
        saved: std::ptr::null(),
        finish: Finish::None,
    };
}

/// A kernel for tiles of one size.
pub type MicroFn = unsafe fn(&Tile);

/// Computes a tile of `ROWS` rows and `VECTORS` vectors. With `COLUMN`, row `i` of `a` starts `i` elements after the
/// first.
///
/// # Safety
/// Runs only if `V` may be used. All pointers of the tile are valid for its dimensions; the output overlaps no input
/// except `saved`.
#[inline(always)]
pub unsafe fn micro<V: Vector, const ROWS: usize, const VECTORS: usize, const COLUMN: bool>(t: &Tile) {
    // SAFETY: every access stays inside the tile's operands, as the caller promises.
    unsafe {
        let mask = V::mask(t.lanes);
        let zero = V::splat(0.0);
        let mut acc = [[zero; VECTORS]; ROWS];
        let mut b = t.b;
        // With a stride that is not known, the compiler would advance a pointer for each row; more of them than the
        // processor has registers make the kernel take 1.5 times as long.
        let step = if COLUMN { t.a_step as isize } else { 1 };
        let (b_step, len) = (t.b_step, t.segment_len);
        let mut rows = [std::ptr::null(); ROWS];
        rows.copy_from_slice(&t.a[..ROWS]);
        for segment in 0..t.segment_count {
            let mut at = *t.segments.add(segment) as isize;
            for _ in 0..len {
                let mut bs = [zero; VECTORS];
                for (j, v) in bs.iter_mut().enumerate() {
                    *v = if j + 1 < VECTORS {
                        V::load(b.add(j * V::LANES))
                    } else {
                        V::load_mask(b.add(j * V::LANES), mask)
                    };
                }
                for i in 0..ROWS {
                    let a = V::splat(if COLUMN { *rows[0].offset(at + i as isize) } else { *rows[i].offset(at) });
                    for j in 0..VECTORS {
                        acc[i][j] = acc[i][j].fma(a, bs[j]);
                    }
                }
                b = b.add(b_step);
                at += step;
            }
        }
        let load = |from: *const f32, i: usize, j: usize| {
            let p = from.add(t.c_row[i] + j * V::LANES);
            if j + 1 < VECTORS { V::load(p) } else { V::load_mask(p, mask) }
        };
        let store = |to: *mut f32, i: usize, j: usize, v: V| {
            let p = to.add(t.c_row[i] + j * V::LANES);
            if j + 1 < VECTORS { v.store(p) } else { v.store_mask(p, mask) }
        };
        if t.add {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    acc[i][j] = acc[i][j].add(load(t.c, i, j));
                }
            }
        }
        if !t.bias.is_null() {
            for j in 0..VECTORS {
                let p = t.bias.add(j * V::LANES);
                let bias = if j + 1 < VECTORS { V::load(p) } else { V::load_mask(p, mask) };
                for row in &mut acc {
                    row[j] = row[j].add(bias);
                }
            }
        }
        if !t.z.is_null() {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    store(t.z, i, j, acc[i][j]);
                }
            }
        }
        match t.finish {
            Finish::None => {}
            Finish::Relu => {
                for v in acc.as_flattened_mut() {
                    *v = v.relu();
                }
            }
            Finish::LeakyRelu => {
                for v in acc.as_flattened_mut() {
                    *v = v.scale_where_not_positive(*v, LEAKY_SLOPE);
                }
            }
            Finish::ReluGrad | Finish::LeakyReluGrad => {
                let low = if t.finish == Finish::ReluGrad { 0.0 } else { LEAKY_SLOPE };
                for i in 0..ROWS {
                    for j in 0..VECTORS {
                        acc[i][j] = acc[i][j].scale_where_not_positive(load(t.saved, i, j), low);
                    }
                }
            }
        }
        for i in 0..ROWS {
            for j in 0..VECTORS {
                store(t.c, i, j, acc[i][j]);
            }
        }
    }
}

/// The slope of leaky relu below zero.
const LEAKY_SLOPE: f32 = 0.01;
