//! How the CPU's matrix products and convolutions are divided: pure functions of shape and instruction set.
//!
//! Selection uses these functions to decide whether a kernel supports an operation, how much scratch memory it needs
//! and what it costs; the kernels take their blocking from the same functions, so that plan and kernel cannot disagree.
//! Only the size of scratch memory depends on the number of threads, and no result of a kernel does.

use crate::ops::{Gemm, OpKind, Trans};
use crate::select::target::Isa;

/// The register tile of an instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileShape {
    /// The most rows.
    pub rows: usize,
    /// Elements in one vector.
    pub lanes: usize,
}

impl TileShape {
    /// Columns of a full tile: two vectors.
    #[must_use]
    pub const fn columns(self) -> usize {
        2 * self.lanes
    }
}

/// The register tile of an instruction set: accumulators, two vectors of `b` and one of `a` fill its registers.
#[must_use]
pub const fn tile_shape(isa: Isa) -> TileShape {
    match isa {
        Isa::Portable => TileShape { rows: 4, lanes: 4 },
        Isa::Avx2 => TileShape { rows: 6, lanes: 8 },
        Isa::Avx512 => TileShape { rows: 14, lanes: 16 },
    }
}

/// `total` divided into `parts` ranges whose lengths differ by at most one: start and length of range `i`.
#[must_use]
pub const fn stretch(total: usize, parts: usize, i: usize) -> (usize, usize) {
    let (base, more) = (total / parts, total % parts);
    (i * base + if i < more { i } else { more }, base + (i < more) as usize)
}

/// How a product is divided into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmBlocking {
    /// Tiles down the rows, of nearly equal height.
    pub row_tiles: usize,
    /// Panels of columns; all but the last are as wide as a tile.
    pub panels: usize,
    /// The number of ranges of the reduction; partial sums are stored in the output, or in separate sums.
    pub k_blocks: usize,
    /// `a` is rearranged in a separate phase, tile by tile.
    pub pack_a: bool,
    /// Each panel of `b` is rearranged by the thread that uses it.
    pub pack_b: bool,
    /// The number of parts of the reduction with separate sums, which a last phase adds in order; 1 if threads share
    /// the output instead.
    pub sums: usize,
}

/// The length of a range of the reduction for which a packed panel of `b` and a tile's rows of `a` stay in the
/// first-level cache.
const K_BLOCK: usize = 256;

/// The most parts of a reduction with separate sums, and their memory in bytes.
const MOST_SUMS: usize = 8;
const BYTES_OF_SUMS: usize = 2 << 20;

/// The number of separate sums for an output of `len` elements and a reduction of `most` ranges; 1 if the output is too
/// large.
#[must_use]
pub fn separate_sums(len: usize, most: usize) -> usize {
    let fitting = BYTES_OF_SUMS / (size_of::<f32>() * len.next_multiple_of(LINE)).max(1);
    fitting.min(MOST_SUMS).min(most).max(1)
}

/// The number of parts of a reduction over rows that are computed apart. Most operations divide rows among threads: a
/// thread that sums over its own rows finds them in its caches, while fetching the rows of others may take longer than
/// the product itself. Separate sums must move less than half as much as is read.
fn sums_over_rows(g: &Gemm, k_blocks: usize) -> usize {
    // Each range of the reduction writes its sum, and reads it again.
    let [moved, read] = [2 * g.m * g.n, K_BLOCK * (g.m + g.n)];
    if g.trans != Trans::Tn || !g.epilogue.is_empty() || moved > read / 2 {
        return 1;
    }
    separate_sums(g.m * g.n, k_blocks)
}

/// How a product is divided.
#[must_use]
pub fn gemm_blocking(g: &Gemm, isa: Isa) -> GemmBlocking {
    let tile = tile_shape(isa);
    let row_tiles = g.m.div_ceil(tile.rows);
    let panels = g.n.div_ceil(tile.columns());
    let pack_b = match g.trans {
        Trans::Nt => true,
        // Plain code has no efficient masked loads, so that its last columns are padded.
        Trans::Nn | Trans::Tn if isa == Isa::Portable && !g.n.is_multiple_of(tile.lanes) => true,
        // A panel that is not packed extends over as many cache lines and pages as it has rows.
        Trans::Nn | Trans::Tn => row_tiles >= 3 && g.k * g.n > 128 * 128,
    };
    let pack_a = match g.trans {
        Trans::Nn | Trans::Nt => g.k >= 256 && panels >= 4,
        Trans::Tn => g.m.is_multiple_of(256) && panels >= 4,
    };
    let k_blocks = g.k.div_ceil(K_BLOCK);
    GemmBlocking { row_tiles, panels, k_blocks, pack_a, pack_b, sums: sums_over_rows(g, k_blocks) }
}

impl GemmBlocking {
    /// The number of phases: rearranging `a`, the product, and adding separate sums.
    #[must_use]
    pub const fn phases(&self) -> usize {
        1 + self.pack_a as usize + (self.sums > 1) as usize
    }

    /// Elements of the packed `a`, rounded up to whole cache lines.
    #[must_use]
    pub fn packed_a_len(&self, g: &Gemm) -> usize {
        if self.pack_a { (g.m * g.k).next_multiple_of(LINE) } else { 0 }
    }

    /// Elements from one separate sum to the next.
    #[must_use]
    pub const fn sum_len(&self, g: &Gemm) -> usize {
        if self.sums > 1 { (g.m * g.n).next_multiple_of(LINE) } else { 0 }
    }

    /// Elements of a thread's packed panel of `b`.
    #[must_use]
    pub fn panel_len(&self, g: &Gemm, isa: Isa) -> usize {
        if self.pack_b { (g.k.div_ceil(self.k_blocks) * tile_shape(isa).columns()).next_multiple_of(LINE) } else { 0 }
    }
}

/// Elements in a cache line.
const LINE: usize = 16;

/// Work below this many microseconds stays on one thread: sharing it would save little, and would cost more than it
/// saves if two threads share a core.
pub const PARALLEL_US: f64 = 8.0;

/// Bytes of scratch that the kernel for `op` needs when up to `threads` threads share it; 0 for operations that are not
/// handled here.
#[must_use]
pub fn workspace_bytes(op: &OpKind, isa: Isa, threads: usize) -> usize {
    match op {
        OpKind::Gemm(g) => {
            let plan = gemm_blocking(g, isa);
            4 * (plan.packed_a_len(g) + plan.sums * plan.sum_len(g) + threads * plan.panel_len(g, isa))
        }
        _ => 0,
    }
}

/// An estimate of the time of `op` on one thread in microseconds; 0 for operations that are not handled here.
#[must_use]
pub fn cost_us(op: &OpKind, isa: Isa) -> f64 {
    // Multiply-adds in a microsecond at a usual clock, slightly below the rate of large shapes.
    let rate = match isa {
        Isa::Portable => 6e3,
        Isa::Avx2 => 4e4,
        Isa::Avx512 => 8e4,
    };
    match op {
        OpKind::Gemm(g) => {
            let columns = g.n.next_multiple_of(tile_shape(isa).lanes);
            0.1 + (g.m * columns * g.k) as f64 / rate
        }
        _ => 0.0,
    }
}
