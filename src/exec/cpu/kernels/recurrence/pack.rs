//! The weight of a recurrence as panels of a tile's columns.

use super::super::gemm::machine::Machine;
use super::super::gemm::pack::{copy_rows, transpose_rows};
use super::super::gemm::simd::Vector;
use crate::exec::cpu::call::Part;
use crate::ops::RecurrenceGeometry;
use crate::select::cpu_recurrence::{added_columns, panels, panels_back};

/// Packs this part's share of the panels of `weight [units, wide]`: each contains `units` rows of a tile's columns;
/// columns past the last are zero.
///
/// # Safety
/// The weight and `to` have the sizes of the geometry.
#[inline(always)]
pub unsafe fn pack<M: Machine>(g: &RecurrenceGeometry, weight: *const f32, to: *mut f32, part: Part) {
    let columns = 2 * M::V::LANES;
    let (all, added) = panels(g, M::ISA);
    let (from, end) = part.range(all, 1);
    for panel in from..end {
        let (first, limit) = if panel < added {
            (panel * columns, added_columns(g))
        } else {
            (added_columns(g) + (panel - added) * columns, g.wide())
        };
        // SAFETY: the panel's columns are within the rows of the weight, and it has its place in `to`.
        unsafe {
            let to = to.add(panel * columns * g.units);
            let width = (limit - first).min(columns);
            if width > M::V::LANES {
                copy_rows::<M::V>(weight.add(first), g.wide(), g.units, width, 2, to);
            } else {
                let mask = M::V::mask(width);
                for row in 0..g.units {
                    let to = to.add(row * columns);
                    M::V::load_mask(weight.add(row * g.wide() + first), mask).store(to);
                    M::V::splat(0.0).store(to.add(M::V::LANES));
                }
            }
        }
    }
}

/// Packs this part's share of the panels of the transposed weight: each contains `wide` rows of a tile's columns.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
pub unsafe fn pack_back<M: Machine>(g: &RecurrenceGeometry, weight: *const f32, to: *mut f32, part: Part) {
    let (lanes, wide) = (M::V::LANES, g.wide());
    // Half a panel at a time, because a panel of many gates is long.
    let (from, end) = part.range(2 * panels_back(g, M::ISA), 1);
    for half in from..end {
        let first = half * lanes;
        // SAFETY: the rows are within the weight, and each half of a panel has its place in `to`.
        unsafe {
            let to = to.add(half / 2 * 2 * lanes * wide + half % 2 * lanes);
            let rows = g.units.saturating_sub(first).min(lanes);
            if rows > 0 {
                transpose_rows::<M::V>(weight.add(first * wide), wide, rows, wide, to, 2 * lanes, lanes);
            }
        }
    }
}
