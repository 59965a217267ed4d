//! Iterates over a matrix `[rows, cols]` in groups of lanes, and sums over its rows.
//!
//! Few columns would leave lanes idle, so several rows are combined into one *wide row*: with one column, 64 rows make
//! a wide row of 64; with six, 16 rows make one of 96. Values of a column (a mean, a scale) are repeated along the wide
//! row ([`Grid::spread`]). Long rows are divided into tiles of [`TILE`] columns.

use super::lanes::{LANES, Lanes};
use crate::exec::cpu::call::Part;
use crate::ops::chunks::FLAT_CHUNK;

/// The number of columns of a wide row that are processed together.
pub const TILE: usize = 256;

/// A number for each column of a tile's wide row, aligned so that no group of 16 crosses a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Tile(pub [f32; TILE]);

impl Tile {
    const ZERO: Self = Self([0.0; TILE]);

    /// The 16 numbers from column `j` on.
    ///
    /// # Safety
    /// `j` is a multiple of 16 below [`TILE`].
    #[inline(always)]
    pub unsafe fn lanes<V: Lanes>(&self, j: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe { V::load(self.0.as_ptr().add(j)) }
    }
}

/// How the rows of a matrix are combined. The choice depends only on the number of columns.
#[derive(Clone, Copy)]
pub struct Grid {
    /// Columns of the matrix.
    pub cols: usize,
    /// Rows of the matrix in a wide row, a power of two; 1 from 64 columns on.
    per: usize,
    /// Columns of a wide row; at most [`TILE`] if it consists of several rows.
    pub width: usize,
}

impl Grid {
    #[must_use]
    pub fn new(cols: usize) -> Self {
        let per = if cols < 64 { 64usize.div_ceil(cols.max(1)).next_power_of_two() } else { 1 };
        Self { cols, per, width: per * cols }
    }

    /// Columns of the matrix in the tile that starts at column `tile`.
    #[inline(always)]
    #[must_use]
    pub fn tile_cols(self, tile: usize) -> usize {
        (self.cols - tile).min(TILE)
    }

    /// `f(i)` for the tile's columns `i`, repeated along the wide row.
    #[inline(always)]
    pub fn spread(self, tile: usize, f: impl Fn(usize) -> f32) -> Tile {
        let mut spread = Tile::ZERO;
        let (out, cols) = (&mut spread.0, self.tile_cols(tile));
        for (i, value) in out[..cols].iter_mut().enumerate() {
            *value = f(i);
        }
        if self.per > 1 {
            for i in cols..self.width.min(TILE) {
                out[i] = out[i - cols];
            }
        }
        spread
    }
}

/// Runs `$body` for every group of up to 16 elements of the rows `$from..$to`, in the tile that starts at column
/// `$tile`: `$at` is the group's first element in the matrix, `$j` its column in the tile's wide row, `$n` its number
/// of elements (the constant 16 except at ends).
macro_rules! for_stretches {
    ($grid:expr, $tile:expr, $from:expr, $to:expr, |$at:ident, $j:ident, $n:ident| $body:block) => {{
        let grid: crate::exec::cpu::kernels::columns::Grid = $grid;
        let tile_width = (grid.width - $tile).min(crate::exec::cpu::kernels::columns::TILE);
        let end = $to * grid.cols;
        let mut row = $from * grid.cols;
        while row < end {
            let mut $at = row + $tile;
            let mut $j = 0;
            let stop = ($at + tile_width).min(end);
            while $at + LANES <= stop {
                let $n = LANES;
                $body
                $at += LANES;
                $j += LANES;
            }
            if $at < stop {
                let $n = stop - $at;
                $body
            }
            row += grid.width;
        }
    }};
}
pub(super) use for_stretches;

/// What is summed: `N` numbers for each element.
pub trait Term<V: Lanes, const N: usize> {
    /// The addends of the `n` elements (up to 16) from `at` on, at column `j` of the tile's wide row. Lanes from `n` on
    /// are zero.
    ///
    /// # Safety
    /// The elements are within the matrix.
    unsafe fn at(&self, at: usize, j: usize, n: usize) -> [V; N];
}

#[inline(always)]
fn accumulate<V: Lanes, const N: usize>(sums: &mut [V; N], addends: [V; N]) {
    for i in 0..N {
        sums[i] = sums[i] + addends[i];
    }
}

/// Sums over the rows `from..to`, for the columns `tile..tile + cols` (at most [`TILE`]; all columns if there are fewer
/// than 64). The order of additions depends only on the arguments.
///
/// # Safety
/// The rows are within the term's matrix.
#[inline(always)]
pub unsafe fn column_sums<V: Lanes, const N: usize, T: Term<V, N>>(
    term: &T,
    grid: Grid,
    tile: usize,
    cols: usize,
    from: usize,
    to: usize,
) -> [Tile; N] {
    let mut out = [Tile::ZERO; N];
    let tile_width = if grid.per > 1 { grid.width } else { cols };
    let mut j = 0;
    while j < tile_width {
        // SAFETY: the block is in the tile.
        unsafe {
            let width = tile_width - j;
            j += match width.div_ceil(LANES) {
                1 => column_block::<V, N, T, 1>(term, grid, tile, [j, width], [from, to], &mut out),
                2 | 3 => column_block::<V, N, T, 2>(term, grid, tile, [j, width], [from, to], &mut out),
                _ => column_block::<V, N, T, 4>(term, grid, tile, [j, width], [from, to], &mut out),
            };
        }
    }
    // The rows within a wide row are added by halves.
    let mut half = grid.per / 2;
    while half > 0 {
        for sums in &mut out {
            let (upper, lower) = (half * grid.cols, &mut sums.0[..2 * half * grid.cols]);
            for i in 0..upper {
                lower[i] += lower[i + upper];
            }
        }
        half /= 2;
    }
    out
}

/// Sums of `U` groups of columns of the wide rows in the rows `from..to`, from the tile's column `j` on, with `width`
/// columns left in the tile. Returns the number of columns that it processed.
///
/// # Safety
/// The rows are within the term's matrix, the first `U - 1` groups within the tile.
#[inline(always)]
unsafe fn column_block<V: Lanes, const N: usize, T: Term<V, N>, const U: usize>(
    term: &T,
    grid: Grid,
    tile: usize,
    [j, width]: [usize; 2],
    [from, to]: [usize; 2],
    out: &mut [Tile; N],
) -> usize {
    let (begin, end) = (from * grid.cols + tile, to * grid.cols);
    let full = (to - from) / grid.per;
    let rest = begin + full * grid.width + j;
    let mut sums = [[V::zero(); N]; U];
    // SAFETY: every stretch is in the rows `from..to`; `out` has room for whole stretches, as a tile is a multiple of
    // 16.
    unsafe {
        if width >= U * LANES {
            for row in 0..full {
                let at = begin + row * grid.width + j;
                for (u, sums) in sums.iter_mut().enumerate() {
                    accumulate(sums, term.at(at + u * LANES, j + u * LANES, LANES));
                }
            }
        } else {
            for row in 0..full {
                let at = begin + row * grid.width + j;
                for (u, sums) in sums.iter_mut().enumerate() {
                    let n = (width - u * LANES).min(LANES);
                    accumulate(sums, term.at(at + u * LANES, j + u * LANES, n));
                }
            }
        }
        for (u, sums) in sums.iter_mut().enumerate() {
            let at = rest + u * LANES;
            if grid.per > 1 && at < end {
                accumulate(sums, term.at(at, j + u * LANES, (end - at).min(LANES)));
            }
            for i in 0..N {
                sums[i].store(out[i].0.as_mut_ptr().add(j + u * LANES));
            }
        }
    }
    U * LANES
}

/// One half to the power of the number of times that 1 must be multiplied by `growth` until it is at least `len`.
#[must_use]
pub fn power_of_two(len: usize, growth: usize) -> f32 {
    let (mut power, mut size) = (1.0, 1usize);
    while size < len {
        (power, size) = (power * 0.5, size.saturating_mul(growth));
    }
    power
}

/// The chunks of fixed length `len` that a part has: number, first element, and length of each.
#[inline(always)]
pub fn chunks_of(len: usize, part: Part) -> impl Iterator<Item = (usize, usize, usize)> {
    let (first, last) = part.range(len.div_ceil(FLAT_CHUNK), 1);
    (first..last).map(move |chunk| (chunk, chunk * FLAT_CHUNK, (len - chunk * FLAT_CHUNK).min(FLAT_CHUNK)))
}

/// Sums over the `len` elements from `at` on.
///
/// # Safety
/// The elements are within the range of the term.
#[inline(always)]
pub unsafe fn flat_sums<V: Lanes, const N: usize, T: Term<V, N>>(term: &T, at: usize, len: usize) -> [f32; N] {
    let mut sums = [[V::zero(); N]; 4];
    let mut j = 0;
    // SAFETY: every stretch is in `at..at + len`.
    unsafe {
        while j + 4 * LANES <= len {
            for (u, sums) in sums.iter_mut().enumerate() {
                let j = j + u * LANES;
                accumulate(sums, term.at(at + j, j, LANES));
            }
            j += 4 * LANES;
        }
        while j < len {
            accumulate(&mut sums[0], term.at(at + j, j, (len - j).min(LANES)));
            j += LANES;
        }
    }
    let mut out = [0.0; N];
    for i in 0..N {
        out[i] = ((sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i])).sum();
    }
    out
}
