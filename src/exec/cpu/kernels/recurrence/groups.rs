//! Which samples are processed together, and the product of their states with the weight.

use super::super::gemm::machine::Machine;
use super::super::gemm::micro::Tile;
use super::super::gemm::simd::Vector;
use crate::exec::cpu::call::Part;
use crate::ops::RecurrenceGeometry;
use crate::select::Isa;
use crate::select::cpu_gemm::stretch;
use crate::select::cpu_recurrence::samples_together;

/// The row of `[batch, positions]` for a sample at a step.
pub(super) const fn row(g: &RecurrenceGeometry, sample: usize, step: usize) -> usize {
    sample * g.positions + if g.reverse { g.positions - 1 - step } else { step }
}

/// The groups of a part's samples that are processed together. Vector code is called in plain loops over them, because
/// a closure would be compiled without the instruction set's features.
pub(super) struct Groups {
    pub(super) from: usize,
    pub(super) samples: usize,
    pub(super) count: usize,
}

impl Groups {
    pub(super) fn of(g: &RecurrenceGeometry, isa: Isa, part: Part) -> Self {
        let (from, to) = part.range(g.batch, 1);
        Self { from, samples: to - from, count: (to - from).div_ceil(samples_together(isa)) }
    }

    /// The first sample of a group, and the number of its samples.
    pub(super) fn at(&self, group: usize) -> (usize, usize) {
        let (first, count) = stretch(self.samples, self.count, group);
        (self.from + first, count)
    }
}

/// A product of some rows with packed panels.
pub(super) struct PanelProduct {
    /// Panels of `depth` rows of a tile's columns.
    pub(super) panels: *const f32,
    /// Length of the reduction.
    pub(super) depth: usize,
    /// Columns of the result.
    pub(super) columns: usize,
    /// Whether the product is added to the previous contents.
    pub(super) add: bool,
    /// One element for each column, or null.
    pub(super) bias: *const f32,
}

impl PanelProduct {
    /// Computes the product of `count` rows; `a` returns the address of a row and `c` that of its result.
    ///
    /// # Safety
    /// As for the matrix kernels: all rows and panels have the declared lengths.
    #[inline(always)]
    pub(super) unsafe fn run<M: Machine>(
        &self,
        count: usize,
        a: impl Fn(usize) -> *const f32,
        c: impl Fn(usize) -> *mut f32,
    ) {
        let (lanes, segment) = (M::V::LANES, [0i32]);
        let base = c(0);
        let mut t = Tile { segments: segment.as_ptr(), segment_count: 1, segment_len: self.depth, ..Tile::EMPTY };
        (t.b_step, t.add) = (2 * lanes, self.add);
        let tiles = count.div_ceil(M::ROWS.len());
        for panel in 0..self.columns.div_ceil(2 * lanes) {
            let first = panel * 2 * lanes;
            let width = (self.columns - first).min(2 * lanes);
            let vectors = width.div_ceil(lanes);
            t.lanes = width - (vectors - 1) * lanes;
            t.b = self.panels.wrapping_add(first * self.depth);
            t.bias = if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(first) };
            t.c = base.wrapping_add(first);
            for tile in 0..tiles {
                let (row0, rows) = stretch(count, tiles, tile);
                for i in 0..rows {
                    t.a[i] = a(row0 + i);
                    // Offsets are whole numbers of elements within one buffer, whose rows are in rising order.
                    t.c_row[i] = (c(row0 + i) as usize - base as usize) / size_of::<f32>();
                }
                // SAFETY: the caller promises the rows, the panels and the result.
                unsafe { M::ROWS[rows - 1][vectors - 1](&t) };
            }
        }
    }
}
