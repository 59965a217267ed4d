//! Requirements of the CPU kernels that are neither products nor convolutions: workspace, and whether an operation is
//! worth sharing among threads.

use crate::ops::OpKind;
use crate::select::variant::Variant;

/// Work below which a second thread costs more than it saves, in nanoseconds.
const PARALLEL_NS: u64 = 4_000;

/// Bytes of workspace that a kernel of this variant needs. Zero for products and convolutions, whose kernels have a
/// separate plan, and for references, which need none.
#[must_use]
pub fn workspace_bytes(op: &OpKind, variant: Variant) -> usize {
    if matches!(variant, Variant::Fast(_)) { op.scratch_floats() * size_of::<f32>() } else { 0 }
}

/// Whether the fast kernel of this operation is shared among threads.
#[must_use]
pub fn is_parallel(op: &OpKind, threads: usize) -> bool {
    threads > 1 && op.work_ns() >= PARALLEL_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Add;

    #[test]
    fn only_large_operations_are_shared() {
        assert!(!is_parallel(&OpKind::Add(Add { len: 1_000 }), 8));
        assert!(is_parallel(&OpKind::Add(Add { len: 1_000_000 }), 2));
        assert!(!is_parallel(&OpKind::Add(Add { len: 1_000_000 }), 1));
    }
}
