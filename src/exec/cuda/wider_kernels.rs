//! Lets general kernels for wider classes stand in for those that would have to be compiled first.
//!
//! A kernel for a wider class gives the same results, more slowly. A run soon replaces it with one that is compiled for
//! the sizes of its operation, like every general kernel.

use super::draft::{Draft, Drafts};
use super::source::KernelSource;
use crate::exec::cuda::gpu::Gpu;
use crate::select::cuda::KernelSpec;
use std::sync::Arc;

/// Replaces each kernel that is neither loaded nor on the disk by the one for a wider class, if that one is.
pub(super) fn use_wider(gpu: &Gpu, drafts: &mut [Drafts]) {
    let calls = drafts.iter_mut().flat_map(|drafts| &mut drafts.calls);
    let specs = calls.filter_map(|draft| match draft {
        Draft::Kernel(spec) | Draft::Pass(spec, _) => spec.wider().map(|wider| (spec, wider)),
        Draft::CublasLt(..) | Draft::Cudnn(..) => None,
    });
    let mut specs: Vec<(&mut Arc<KernelSpec>, KernelSpec)> = specs.collect();
    let are_there = |sources: Vec<KernelSource>| gpu.has_kernels(&sources);
    let own = are_there(specs.iter().map(|(spec, _)| KernelSpec::clone(spec).into()).collect());
    let mut is_there = own.into_iter();
    specs.retain(|_| is_there.next() == Some(false));
    let wider = are_there(specs.iter().map(|(_, wider)| wider.clone().into()).collect());
    for ((spec, wider), _) in specs.into_iter().zip(wider).filter(|(_, is_there)| *is_there) {
        log::debug!("{} stands in for {}", wider.ty(), spec.ty());
        *spec = Arc::new(wider);
    }
}
