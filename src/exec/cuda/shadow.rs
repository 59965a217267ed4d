//! The half-width copy of the parameters that products read: written by the optimizer, and anew where the host changed the masters.

use super::bind::{DeviceEnv, MAX_ARGS, Row};
use super::gpu::{Gpu, Kernel};
use super::step::gpu_error;
use crate::compile::Compiled;
use crate::exec::ExecError;
use crate::lower::OpKind;
use crate::ops;
use crate::select::cuda;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The copy of the parameters in half width, kept in step with the masters where the host changed these.
pub(super) struct Shadow {
    pub(super) kernel: Arc<Kernel>,
    pub(super) args: Row,
    pub(super) stale: AtomicBool,
}

/// The kernel that brings the half-width copy of the parameters up to date, where the step has one.
pub(super) fn make_shadow(compiled: &Compiled, gpu: &Gpu, env: &DeviceEnv) -> Result<Option<Arc<Shadow>>, ExecError> {
    let (plan, real) = (&compiled.plan, compiled.selection.real);
    let Some(half) = real.half() else { return Ok(None) };
    let find = |name: &str| plan.program.find(name).and_then(|id| plan.place(id)).map(|p| env.address(plan, p));
    let (Some(masters), Some(copy)) = (find("params"), find(&format!("params.{half}"))) else { return Ok(None) };
    let facts = compiled.selection.target.as_cuda().ok_or_else(|| gpu_error("the plan is for a CPU".into()))?;
    let kind = OpKind::Cast(ops::Cast { len: plan.program.flat_len() });
    let code = cuda::codes(&kind, real, &facts).into_iter().next_back();
    let code = code.ok_or_else(|| gpu_error("there is no kernel for cast".into()))?;
    let kernel = gpu.kernels(&[vec![(code.file, code.ty)]]).swap_remove(0).map_err(gpu_error)?;
    let mut args = [0; MAX_ARGS];
    (args[0], args[1]) = (masters, copy);
    Ok(Some(Arc::new(Shadow { kernel, args, stale: AtomicBool::new(true) })))
}
