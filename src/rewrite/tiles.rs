//! What passes need to know about the tiles of a GPU's matrix products: the tile sizes by which the largest change and
//! the gradient norm are stored, and those by which operations share a launch or the whole GPU.

use crate::model::Precision;

/// Tile shape `[rows, columns]` of an optimizer update that is fused into a weight gradient at the end of a step and
/// has a launch of its own.
pub(crate) const LONE_UPDATE_TILE: [usize; 2] = [96, 64];

/// The largest number of operations in one launch.
pub(crate) const MOST_TOGETHER: usize = 16;

/// Rows of the smallest tile among the kernels that are offered for a weight gradient with a fused update. The largest
/// change and the gradient norm are stored for each group of this many rows.
pub(super) const fn smallest_rows(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 8,
        Precision::Tf32 | Precision::Bf16 | Precision::F16 => 16,
    }
}
