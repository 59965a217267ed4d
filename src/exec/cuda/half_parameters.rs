//! The half-precision copy of the parameters that products read: written by the optimizer, and again when the host has
//! changed the parameters.

use super::arguments::{ArgRow, DeviceEnv, MAX_ARGS};
use super::bound_call::launch_phase;
use super::error::CudaError;
use super::kernel_store::Kernel;
use crate::compile::Compiled;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::ops::{self, OpKind};
use crate::select::cuda;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The copy of the parameters in half precision, updated when the host has changed the parameters. Several steps may
/// share it.
pub(super) struct HalfParameters {
    kernel: Arc<Kernel>,
    args: ArgRow,
    is_stale: AtomicBool,
    /// The number of times that the host had overwritten the store when the copy was last made.
    seen: AtomicU64,
}

impl HalfParameters {
    /// The copy of a step's parameters, if it has one.
    ///
    /// # Errors
    /// If its kernel is not available.
    pub(super) fn new(compiled: &Compiled, gpu: &Gpu, env: &DeviceEnv) -> Result<Option<Arc<Self>>, ExecError> {
        let (plan, real) = (&compiled.plan, compiled.selection.real);
        let Some(half) = real.half() else { return Ok(None) };
        let find = |name: &str| plan.program.find(name).and_then(|id| plan.place(id)).map(|p| env.address(plan, p));
        let (Some(masters), Some(copy)) = (find("params"), find(&format!("params.{half}"))) else { return Ok(None) };
        let facts = compiled.selection.target.as_cuda().ok_or_else(|| CudaError::from("the plan is for a CPU"))?;
        let kind = OpKind::Cast(ops::Cast { len: plan.program.flat_len() });
        let found = cuda::custom_kernels(&kind, real, &facts).into_iter().next_back();
        let found = found.ok_or_else(|| CudaError::from("there is no kernel for cast"))?;
        let kernel = gpu.kernel(found.spec)?;
        let mut args = [0; MAX_ARGS];
        (args[0], args[1]) = (masters, copy);
        Ok(Some(Arc::new(Self { kernel, args, is_stale: AtomicBool::new(true), seen: AtomicU64::new(0) })))
    }

    /// Records that the host changed the parameters, or that the copy is out of date.
    pub(super) fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// Records that the copy is up to date; `changed` is the number of times that the host has overwritten the store.
    pub(super) fn set_fresh(&self, changed: u64) {
        self.seen.store(changed, Ordering::Release);
        self.is_stale.store(false, Ordering::Release);
    }

    /// Updates the copy if it is out of date: `changed` is the number of times that the host has overwritten the store.
    ///
    /// # Errors
    /// If the launch fails.
    pub(super) fn refresh(&self, gpu: &Gpu, changed: u64) -> Result<(), CudaError> {
        let is_overwritten = self.seen.swap(changed, Ordering::AcqRel) != changed;
        if self.is_stale.swap(false, Ordering::AcqRel) || is_overwritten {
            launch_phase(gpu, self.kernel.phases[0], self.kernel.threads, &self.args)?;
        }
        Ok(())
    }
}
