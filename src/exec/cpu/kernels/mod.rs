//! The CPU's kernels: one file for each family, the plain-loop references, and the selection of an entry point for an
//! operation.
//!
//! The fast kernels are written once over `lanes::Lanes` and compiled for each instruction set. They give the same bits
//! for any number of threads, and most of them also on every instruction set. The exceptions are products (gemm, conv,
//! attention) and functions that compute in `f64` (`math.rs`): with AVX2 and AVX-512 they use fused multiply-add.

mod attention;
mod classifier;
mod columns;
mod conv;
pub mod dropout;
mod elementwise;
pub mod functions;
mod gemm;
pub(in crate::exec::cpu) mod lanes;
mod layer_norm;
mod layout;
mod loss;
mod magnitude;
mod math;
mod norm;
mod optimizer;
mod pieces;
mod point_loss;
mod pool;
mod recurrence;
pub mod reference;
mod sequence;
#[cfg(test)]
mod tests;

use super::call::KernelImpl;
use crate::ops::OpKind;
use crate::select::{Isa, Variant};

/// The kernel of this variant for an operation that up to `threads` threads share, or `None` if the variant has none.
#[must_use]
pub fn resolve(op: &OpKind, variant: Variant, threads: usize) -> Option<KernelImpl> {
    if op.is_for_gpus() {
        return None;
    }
    match variant {
        Variant::RefF32 => Some(reference::resolve::<f32>()),
        Variant::RefF64 => Some(reference::resolve::<f64>()),
        Variant::Fast(isa) => fast(op, isa, threads),
        Variant::Cuda(_) => None,
    }
}

/// Returns the fast kernel of an operation if its family has one, for this number of threads.
type Family = fn(&OpKind, Isa, usize) -> Option<KernelImpl>;

/// Every family of operations with fast kernels.
const FAMILIES: [Family; 15] = [
    gemm::resolve,
    conv::resolve,
    layout::resolve,
    elementwise::resolve,
    norm::resolve,
    layer_norm::resolve,
    attention::resolve,
    pool::resolve,
    recurrence::resolve,
    dropout::resolve,
    sequence::resolve,
    loss::resolve,
    classifier::resolve,
    point_loss::resolve,
    optimizer::resolve,
];

fn fast(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    FAMILIES.iter().find_map(|resolve| resolve(op, isa, threads))
}
