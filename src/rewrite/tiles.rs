//! What passes know of the tiles in which a GPU's kernels do a product: how finely they measure, and how they share the
//! machine.

use crate::model::Precision;

/// Rows and columns of the tile of updates that have the machine to themselves at the end of a step, each as part of a
/// product.
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
