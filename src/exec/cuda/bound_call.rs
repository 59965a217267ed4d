//! One call of the driver or of a library, with all its arguments.

use super::arguments::{ArgRow, FLAGS};
use super::cublaslt::{LtPlan, Pointers};
use super::cudnn::DnnCall;
use super::error::{CudaError, failed};
use super::kernel_store::{Kernel, Phase};
use crate::exec::cuda::gpu::Gpu;
use crate::ops::OpKind;
use crate::select::cuda::KernelSpec;
use cudarc::driver::sys;
use std::ffi::c_void;
use std::sync::Arc;

/// One call of the driver or of a library.
#[derive(Clone)]
pub(super) enum BoundCall {
    Kernel { kernel: Arc<Kernel>, spec: Arc<KernelSpec>, args: Box<ArgRow> },
    CublasLt { plan: Arc<LtPlan>, row: Box<ArgRow>, kind: OpKind },
    Cudnn { call: Arc<DnnCall>, plan: String },
}

/// Enqueues one phase on the stream. `args` are the kernel's pointers; for a launch that several operations share, the
/// pointers of its members one after the other.
pub(super) fn launch_phase(gpu: &Gpu, phase: Phase, threads: u32, args: &[u64]) -> Result<(), CudaError> {
    let has_pdl = gpu.info().capability.0 >= 9;
    // Blocks that wait for each other must all be resident at the same time, whatever runs on other streams. They wait
    // for the whole preceding launch.
    let (id, value) = if phase.is_cooperative() {
        (sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sys::CUlaunchAttributeValue { cooperative: 1 })
    } else {
        (
            sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        )
    };
    let mut attribute = sys::CUlaunchAttribute { id, pad: [0; 4], value };
    let config = sys::CUlaunchConfig {
        gridDimX: phase.blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: phase.smem,
        hStream: gpu.stream(),
        attrs: &raw mut attribute,
        numAttrs: u32::from(has_pdl || phase.is_cooperative()),
    };
    let mut params = [args.as_ptr().cast::<c_void>().cast_mut()];
    // SAFETY: the caller's kernel keeps the function loaded; its one parameter is a structure of as many pointers as
    // `args` holds, which the driver copies.
    unsafe { sys::cuLaunchKernelEx(&raw const config, phase.function, params.as_mut_ptr(), std::ptr::null_mut()) }
        .result()
        .map_err(|e| failed("cuLaunchKernelEx", e))
}

/// Enqueues all phases of a kernel on the stream, with the flags of its launch.
pub(super) fn launch_kernel(gpu: &Gpu, kernel: &Kernel, args: &ArgRow, flags: u64) -> Result<(), CudaError> {
    let mut args = *args;
    args[FLAGS] = flags;
    kernel.phases.iter().try_for_each(|phase| launch_phase(gpu, *phase, kernel.threads, &args[..]))
}

impl BoundCall {
    /// Enqueues the call on the device's stream, with the flags of its launch.
    pub(super) fn launch(&self, gpu: &Gpu, flags: u64) -> Result<(), CudaError> {
        match self {
            Self::Kernel { kernel, args, .. } => launch_kernel(gpu, kernel, args, flags),
            Self::CublasLt { plan, row, kind } => {
                let at = |slot: &str| kind.slot(slot).map_or(0, |i| row[i]);
                let [a, b, bias, c_prev, c, saved, z] = ["a", "b", "bias", "c_prev", "c", "saved", "z"].map(at);
                let bias = if at("bias_half") == 0 { bias } else { at("bias_half") };
                let pointers = Pointers { a, b, bias, c, c_prev, saved, z };
                gpu.libraries().with_lt(|lt| {
                    // SAFETY: the addresses are the plan's, and the scratch memory is as large as selection was given.
                    unsafe { plan.run(lt, gpu.stream().cast(), &pointers, at("work")) }
                })
            }
            Self::Cudnn { call, .. } => {
                // Handles are used by one thread at a time, the owner of this value.
                let _turn = gpu.libraries().dnn();
                // SAFETY: the addresses are the plan's, and live as long as the step.
                unsafe { call.run(gpu.stream()) }
            }
        }
    }

    /// What a library computes in it, as the library describes it; `None` for custom kernels.
    pub(super) fn describe(&self) -> Option<String> {
        match self {
            Self::Kernel { .. } => None,
            Self::CublasLt { .. } | Self::Cudnn { .. } => Some(self.name()),
        }
    }

    /// The C++ type of a custom kernel, or what a library computes, as the library describes it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Kernel { spec, .. } => spec.ty(),
            Self::CublasLt { plan, .. } => plan.describe(),
            Self::Cudnn { plan, .. } => plan.clone(),
        }
    }

    /// The number of kernel launches, as far as it is known: a library's call counts as one.
    pub(super) fn launches(&self) -> usize {
        match self {
            Self::Kernel { kernel, .. } => kernel.phases.len(),
            Self::CublasLt { .. } | Self::Cudnn { .. } => 1,
        }
    }
}
