//! The CPU's kernels: one file for each family, the plain-loop references, and the choice of an entry point for an
//! operation.
//!
//! The fast kernels are written once over `lanes::Lanes` and compiled for each instruction set. They give the same bits
//! for any number of threads, and all but the products (gemm, conv) on every instruction set too: products use fused
//! multiply-add where there is one.

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
mod math;
mod norm;
mod optimizer;
mod pool;
pub mod reference;
#[cfg(test)]
mod tests;

use super::call::KernelImpl;
use crate::lower::OpKind;
use crate::select::{Isa, Variant};

/// The kernel of this variant for an operation that up to `threads` threads share, or `None` where the variant has none.
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

fn fast(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    match op {
        OpKind::Gemm(_) => gemm::resolve(op, isa, threads),
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } | OpKind::Conv2dBwdW { .. } => {
            conv::resolve(op, isa, threads)
        }
        OpKind::Fill { .. } | OpKind::Transpose { .. } => layout::resolve(op, isa, threads),
        OpKind::BiasAdd { .. }
        | OpKind::Act { .. }
        | OpKind::ActBwd { .. }
        | OpKind::BiasGrad { .. }
        | OpKind::Add { .. } => elementwise::resolve(op, isa, threads),
        OpKind::BatchNorm { .. } | OpKind::BatchNormEval { .. } | OpKind::BatchNormBwd { .. } => {
            norm::resolve(op, isa, threads)
        }
        OpKind::LayerNorm { .. } | OpKind::LayerNormBwd { .. } => layer_norm::resolve(op, isa, threads),
        OpKind::MaxPool { .. }
        | OpKind::MaxPoolBwd { .. }
        | OpKind::AvgPool { .. }
        | OpKind::AvgPoolBwd { .. }
        | OpKind::GlobalAvgPool { .. }
        | OpKind::GlobalAvgPoolBwd { .. } => pool::resolve(op, isa, threads),
        OpKind::Dropout { .. } | OpKind::DropoutBwd { .. } => dropout::resolve(op, isa, threads),
        OpKind::SoftmaxCe { .. }
        | OpKind::SoftmaxCeGrad { .. }
        | OpKind::LossMean { .. }
        | OpKind::Accuracy { .. }
        | OpKind::SoftmaxCeFused { .. }
        | OpKind::Mse { .. }
        | OpKind::MseGrad { .. }
        | OpKind::MseFused { .. } => loss::resolve(op, isa, threads),
        OpKind::StepInc { .. }
        | OpKind::BiasCorr { .. }
        | OpKind::AdamStep { .. }
        | OpKind::SgdStep { .. }
        | OpKind::UpdateMetrics { .. } => optimizer::resolve(op, isa, threads),
        OpKind::Cast { .. }
        | OpKind::ScaleUpdate { .. }
        | OpKind::AddAct { .. }
        | OpKind::SignBits { .. }
        | OpKind::DenseCe { .. }
        | OpKind::WeightStep { .. }
        | OpKind::BiasStep { .. }
        | OpKind::StepMetrics { .. } => None,
    }
}
