//! Evaluates single functions with the kernels of a step, to measure how exact they are.

use super::arguments::MAX_ARGS;
use super::bound_call::launch_kernel;
use super::error::{CudaError, failed};
use super::kernel_store::Kernel;
use super::memory::DeviceMemory;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::function::Function;
use crate::ops::{self, OpKind};
use crate::select::cuda::{KernelSpec, Real, custom_kernels, loss_function};
use cudarc::driver::result;
use std::sync::Arc;

/// One function, and memory for its inputs and results.
pub(in crate::exec) struct GpuFunctions {
    gpu: Arc<Gpu>,
    kernel: Arc<Kernel>,
    /// Inputs; and results, whose memory may contain a gradient before the call.
    memory: [DeviceMemory; 2],
    /// Whether results are multiplied by the gradient that their memory contains.
    scales: bool,
}

impl GpuFunctions {
    /// The number of inputs of one evaluation.
    pub(in crate::exec) const LEN: usize = 1 << 20;

    /// Compiles the kernel of a step that computes a function in `f32`.
    ///
    /// # Errors
    /// If there is none, or too little memory.
    pub(in crate::exec) fn new(gpu: &Arc<Gpu>, function: Function) -> Result<Self, CudaError> {
        gpu.enter()?;
        let len = Self::LEN;
        let of_step = |op: OpKind| -> Result<KernelSpec, CudaError> {
            let facts = gpu.target().as_cuda().ok_or("the device is not a GPU")?;
            let kernel = custom_kernels(&op, Real::F32, &facts).into_iter().next();
            Ok(kernel.ok_or_else(|| format!("no kernel for {} exists", op.name()))?.spec)
        };
        let spec = match function {
            Function::Exp => loss_function(false, len),
            Function::Ln => loss_function(true, len),
            Function::Activation(func) => of_step(OpKind::Act(ops::Act { func, len }))?,
            Function::Derivative(func) => of_step(OpKind::ActBwd(ops::ActBwd { func, len }))?,
        };
        let kernel = gpu.kernel(spec)?;
        let memory = || DeviceMemory::zeroed(size_of::<f32>() * len, gpu.stream());
        let scales = matches!(function, Function::Derivative(_));
        Ok(Self { gpu: Arc::clone(gpu), kernel, memory: [memory()?, memory()?], scales })
    }

    /// Whether a step can ever need this value: losses compute exponentials only of numbers that are not above zero.
    pub(in crate::exec) fn meets(function: Function, x: f32) -> bool {
        function != Function::Exp || x <= 0.0 || x.is_nan()
    }

    /// Applies the function to [`Self::LEN`] numbers.
    ///
    /// # Errors
    /// If the device fails.
    pub(in crate::exec) fn evaluate(&mut self, x: &[f32], y: &mut [f32]) -> Result<(), CudaError> {
        if x.len() != Self::LEN || y.len() != Self::LEN {
            return Err(format!("{} numbers for a kernel of {}", x.len(), Self::LEN).into());
        }
        // Each thread has its own stream; the memory is used by one thread at a time.
        self.gpu.enter()?;
        let stream = self.gpu.stream();
        let [from, to] = &self.memory;
        // SAFETY: the allocation has room for as many numbers, which live until the stream was waited for.
        unsafe { result::memcpy_htod_async(from.base(), x, stream) }.map_err(|e| failed("cuMemcpyHtoDAsync", e))?;
        let mut args = [0; MAX_ARGS];
        if self.scales {
            y.fill(1.0);
            // SAFETY: as above.
            unsafe { result::memcpy_htod_async(to.base(), y, stream) }.map_err(|e| failed("cuMemcpyHtoDAsync", e))?;
            // Gradient, saved value, result: an operation may work in place.
            (args[0], args[1], args[2]) = (to.base(), from.base(), to.base());
        } else {
            (args[0], args[1]) = (from.base(), to.base());
        }
        launch_kernel(&self.gpu, &self.kernel, &args, 0)?;
        // SAFETY: as above.
        unsafe { result::memcpy_dtoh_async(y, to.base(), stream) }.map_err(|e| failed("cuMemcpyDtoHAsync", e))?;
        self.gpu.synchronize()
    }
}
