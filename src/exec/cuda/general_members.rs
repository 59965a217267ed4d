//! The geometry of general members' launches, which follows from numbers that the compiler did not know: kernels work
//! it out by the formulas that specialised members were compiled with.

use super::bound_call::BoundCall;
use super::error::{CudaError, failed};
use super::memory::DeviceMemory;
use super::source::META_LEN;
use crate::exec::cuda::gpu::Gpu;
use crate::select::cuda::KernelFamily;
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// Gives every call of a general member its blocks and its shared memory. Runs on this thread's stream and waits.
///
/// # Errors
/// What the driver says, and a launch without blocks.
pub(super) fn set_geometry(gpu: &Gpu, calls: &mut [Vec<BoundCall>]) -> Result<(), CudaError> {
    let general =
        |call: &&mut BoundCall| matches!(&**call, BoundCall::Kernel { kernel, .. } if kernel.geometry.is_some());
    let calls: Vec<&mut BoundCall> = calls.iter_mut().flatten().filter(general).collect();
    if calls.is_empty() {
        return Ok(());
    }
    let memory = DeviceMemory::zeroed(calls.len() * META_LEN * size_of::<i64>(), gpu.stream())?;
    let address = |number: usize| memory.base() + (number * META_LEN * size_of::<i64>()) as u64;
    for (number, call) in calls.iter().enumerate() {
        let BoundCall::Kernel { kernel, args, .. } = &**call else { continue };
        let Some(function) = kernel.geometry else { continue };
        let out = address(number);
        let mut params = [args.as_ptr().cast::<c_void>().cast_mut(), (&raw const out).cast::<c_void>().cast_mut()];
        // SAFETY: the function takes a row of arguments, of which it reads the numbers, and an address with room for
        // what it writes; both are copied by the call.
        unsafe {
            sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, gpu.stream(), params.as_mut_ptr(), std::ptr::null_mut())
        }
        .result()
        .map_err(|e| failed("cuLaunchKernel", e))?;
    }
    gpu.synchronize()?;
    let mut facts = vec![[0i64; META_LEN]; calls.len()];
    // SAFETY: the memory has exactly this size.
    unsafe { result::memcpy_dtoh_sync(facts.as_flattened_mut(), memory.base()) }
        .map_err(|e| failed("cuMemcpyDtoH", e))?;
    for (call, facts) in calls.into_iter().zip(facts) {
        let BoundCall::Kernel { kernel, spec, .. } = call else { continue };
        let phases: Vec<[u32; 2]> = facts[3..].chunks_exact(2).map(|pair| [pair[0] as u32, pair[1] as u32]).collect();
        if phases[..kernel.phases.len()].iter().any(|[blocks, _]| *blocks == 0) {
            let numbers = KernelFamily::of(spec.template).map(|family| family.named(spec.numbers()));
            return Err(format!("{} has no blocks for {}", spec.ty(), numbers.unwrap_or_default()).into());
        }
        *kernel = Arc::new(kernel.with_geometry(&phases));
    }
    Ok(())
}
