//! One launch of a recording.

use super::arguments::{FLAGS, MAX_ARGS, STARTS_NEXT};
use super::kernel_store::Kernel;
use std::sync::Arc;

/// One launch of a recording: a single operation, or several that are fused horizontally.
#[derive(Clone)]
pub(super) enum Launch {
    /// With the flags that describe the preceding and the following launch to its kernels.
    Single {
        op: usize,
        flags: u64,
    },
    Fused {
        ops: Vec<usize>,
        kernel: Arc<Kernel>,
        args: Vec<u64>,
    },
}

impl Launch {
    pub(super) fn ops(&self) -> &[usize] {
        match self {
            Self::Single { op, .. } => std::slice::from_ref(op),
            Self::Fused { ops, .. } => ops,
        }
    }

    /// Whether the next launch may start as soon as this one has finished waiting.
    pub(super) fn starts_next_early(&self) -> bool {
        match self {
            Self::Single { flags, .. } => flags & STARTS_NEXT != 0,
            Self::Fused { args, .. } => args[FLAGS] & STARTS_NEXT != 0,
        }
    }

    /// Allows the next launch to start as soon as this one has finished waiting.
    pub(super) fn start_next_early(&mut self) {
        for op in self.ops().to_vec() {
            self.add_flags(op, STARTS_NEXT);
        }
    }

    /// Adds flags for one of its operations.
    pub(super) fn add_flags(&mut self, of: usize, more: u64) {
        match self {
            Self::Single { flags, .. } => *flags |= more,
            Self::Fused { ops, args, .. } => {
                if let Some(member) = ops.iter().position(|op| *op == of) {
                    args[member * MAX_ARGS + FLAGS] |= more;
                }
            }
        }
    }
}
