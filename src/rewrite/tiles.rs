//! What passes need to know about the tiles of a GPU's products: the resolution of their metrics, and how they share
//! the machine.

use crate::model::Precision;

/// Rows and columns of the tile of updates at the end of a step, each fused into a product, that run without other
/// operations.
pub(crate) const LONE_UPDATE_TILE: [usize; 2] = [96, 64];

/// Operations that one launch takes at most.
pub(crate) const MOST_TOGETHER: usize = 16;

/// Rows of the smallest tile among the kernels that are offered for a product with an update.
pub(super) const fn smallest_rows(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 8,
        Precision::Tf32 | Precision::Bf16 | Precision::F16 => 16,
    }
}
