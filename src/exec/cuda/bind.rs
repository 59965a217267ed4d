//! Binds the calls of an operation to addresses.

use super::arguments::{ArgRow, MAX_ARGS, put_numbers};
use super::bound_call::BoundCall;
use super::cudnn::Operand;
use super::draft::{ChosenPlan, Draft, Drafts};
use super::error::CudaError;
use super::kernel_store::{FoundKernel, Kernel};
use crate::compile::Compiled;
use crate::exec::error::ExecError;
use crate::ops::OpKind;
use crate::select::cuda;
use std::sync::Arc;

/// Binds drafts to addresses; takes the operation's kernels from `kernels`, in the order of its sources.
///
/// # Errors
/// If a kernel is not available, or a library refuses the addresses.
pub(super) fn bind(
    compiled: &Compiled,
    index: usize,
    drafts: &Drafts,
    kernels: &mut impl Iterator<Item = FoundKernel>,
    row: &ArgRow,
) -> Result<Vec<BoundCall>, ExecError> {
    let fail = |why: CudaError| ExecError::device(compiled, index, why);
    let mut next = || kernels.next().unwrap_or_else(|| Err("no kernel came back".into())).map_err(fail);
    let mut out = Vec::with_capacity(drafts.calls.len());
    for draft in &drafts.calls {
        out.push(match draft {
            Draft::Kernel(spec) => {
                let kernel = next()?;
                check_scratch(&kernel, compiled.selection.choices[index].workspace_bytes).map_err(fail)?;
                let mut args = *row;
                put_numbers(&mut args, spec.numbers());
                BoundCall::Kernel { kernel, spec: Arc::clone(spec), args: Box::new(args) }
            }
            Draft::Pass(spec, slots) => {
                let kernel = next()?;
                let mut args = [0; MAX_ARGS];
                for (to, from) in slots {
                    args[*to] = row[*from];
                }
                put_numbers(&mut args, spec.numbers());
                BoundCall::Kernel { kernel, spec: Arc::clone(spec), args: Box::new(args) }
            }
            Draft::CublasLt(plan, kind) => {
                BoundCall::CublasLt { plan: Arc::clone(plan), row: Box::new(*row), kind: kind.clone() }
            }
            Draft::Cudnn(plan, kind, first_bytes) => bind_cudnn(plan, kind, *first_bytes, row).map_err(fail)?,
        });
    }
    Ok(out)
}

/// Whether the scratch memory that was planned for a kernel is sufficient.
fn check_scratch(kernel: &Kernel, planned_bytes: u64) -> Result<(), CudaError> {
    if kernel.work_bytes <= planned_bytes {
        return Ok(());
    }
    let needs = kernel.work_bytes;
    Err(format!("the kernel needs {needs} bytes of scratch memory and was planned with {planned_bytes}").into())
}

/// A call of cuDNN bound to addresses. The first bytes of the scratch memory hold a gradient in half width, or the sums
/// of attention's gradient.
fn bind_cudnn(plan: &ChosenPlan, kind: &OpKind, first_bytes: u64, row: &ArgRow) -> Result<BoundCall, CudaError> {
    let at = |slot: &str| kind.slot(slot).map_or(0, |i| row[i]);
    // The image, the filters and the result of a convolution, as the library sees them.
    let images = || {
        let product = at(cuda::product_slot(kind));
        match kind {
            OpKind::Conv2d { .. } => [at("a"), at("b"), product],
            OpKind::Conv2dBwdX { .. } => [product, at("b"), at("a")],
            _ => [at("a"), if first_bytes > 0 { at("work") } else { product }, at("b")],
        }
    };
    let address = |operand: Operand| match operand {
        Operand::X => images()[0],
        Operand::W => images()[1],
        Operand::Y => images()[2],
        Operand::Bias => at("bias"),
        Operand::Saved => at("saved"),
        Operand::Packed => at("qkv"),
        Operand::Heads => at("y"),
        Operand::Lse => at("lse"),
        Operand::PackedGrad => at("dx"),
        Operand::HeadsGrad => at("dy"),
        Operand::Sums => at("work"),
    };
    let plan = &plan.0[plan.1];
    let call = plan.bind(address, at("work") + first_bytes)?;
    Ok(BoundCall::Cudnn { call: Arc::new(call), plan: format!("cuDNN {}", plan.describe()) })
}
