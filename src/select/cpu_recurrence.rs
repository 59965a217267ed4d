//! The layout of the CPU's recurrences: weights and scratch memory, as pure functions of shape and instruction set,
//! which the kernels use too.

use super::cpu_gemm::tile_shape;
use super::cpu_rest;
use crate::model::Cell;
use crate::ops::{OpKind, RecurrenceGeometry};
use crate::select::target::Isa;

/// Floats in a line of the cache.
const LINE: usize = 16;

/// The number of tiles of samples that are processed together, while their panel of the weight stays in the first-level
/// cache.
const TILES_TOGETHER: usize = 4;

/// The number of columns of the weight whose products are added to the input part; the columns after them, of a GRU's
/// last gate, are stored separately, because the reset gate multiplies them.
#[must_use]
pub const fn added_columns(g: &RecurrenceGeometry) -> usize {
    if matches!(g.cell, Cell::Gru) { 2 * g.units } else { g.wide() }
}

/// Panels of the weight; those before the second number are added to the input part. A panel contains `units` rows of a
/// tile's columns.
#[must_use]
pub const fn panels(g: &RecurrenceGeometry, isa: Isa) -> (usize, usize) {
    let columns = tile_shape(isa).columns();
    let added = added_columns(g).div_ceil(columns);
    (added + (g.wide() - added_columns(g)).div_ceil(columns), added)
}

/// Panels of the transposed weight. A panel contains a row of a tile's columns for each value of the gates.
#[must_use]
pub const fn panels_back(g: &RecurrenceGeometry, isa: Isa) -> usize {
    g.units.div_ceil(tile_shape(isa).columns())
}

/// The number of samples that are processed together.
#[must_use]
pub const fn samples_together(isa: Isa) -> usize {
    TILES_TOGETHER * tile_shape(isa).rows
}

/// Floats of the packed weight of a recurrence.
#[must_use]
pub const fn packed_len(g: &RecurrenceGeometry, isa: Isa) -> usize {
    (panels(g, isa).0 * g.units * tile_shape(isa).columns()).next_multiple_of(LINE)
}

/// Floats of the packed weight of a derivative.
#[must_use]
pub const fn packed_back_len(g: &RecurrenceGeometry, isa: Isa) -> usize {
    (panels_back(g, isa) * g.wide() * tile_shape(isa).columns()).next_multiple_of(LINE)
}

/// Floats of a gradient that passes from one position to the preceding one, for all samples.
#[must_use]
pub const fn carry_len(g: &RecurrenceGeometry) -> usize {
    (g.batch * g.units).next_multiple_of(LINE)
}

/// Bytes of scratch memory of the fast kernel; `None` for operations of other families.
#[must_use]
pub fn workspace_bytes(op: &OpKind, isa: Isa) -> Option<usize> {
    let floats = match op {
        OpKind::Recurrence(op) => packed_len(&op.geometry, isa),
        OpKind::RecurrenceBwd(op) => {
            let carries = if op.geometry.cell == Cell::Lstm { 2 } else { 1 };
            packed_back_len(&op.geometry, isa) + carries * carry_len(&op.geometry)
        }
        _ => return None,
    };
    Some(floats * size_of::<f32>())
}

/// Whether the fast kernel is shared among threads, each of which processes its own samples.
#[must_use]
pub fn is_parallel(op: &OpKind, g: &RecurrenceGeometry, threads: usize) -> bool {
    g.batch > 1 && cpu_rest::is_parallel(op, threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_hold_every_column_and_no_panel_holds_two_kinds() {
        for cell in Cell::ALL {
            for units in [1, 7, 8, 16, 33, 128] {
                let g = RecurrenceGeometry {
                    cell,
                    batch: 3,
                    positions: 5,
                    units,
                    reverse: false,
                    bidirectional: false,
                    last: true,
                };
                for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                    let (columns, (all, added)) = (tile_shape(isa).columns(), panels(&g, isa));
                    assert!(added * columns >= added_columns(&g) && (added - 1) * columns < added_columns(&g));
                    assert!((all - added) * columns >= g.wide() - added_columns(&g));
                    assert_eq!(packed_len(&g, isa), (all * columns * units).next_multiple_of(16));
                    assert!(panels_back(&g, isa) * columns >= units);
                }
            }
        }
    }
}
