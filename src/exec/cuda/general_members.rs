//! Data of general members in addition to the addresses of their operation: tables in memory, and the geometry of their
//! launches, which depends on sizes that are not compiled in. Small kernels compute the geometry with the formulas that
//! specialised members evaluate at compile time.

use super::arguments::put_numbers;
use super::bound_call::BoundCall;
use super::error::{CudaError, failed};
use super::kernel_store::Kernel;
use super::memory::DeviceMemory;
use super::source::META_LEN;
use crate::exec::cuda::gpu::Gpu;
use crate::select::cuda::KernelFamily;
use cudarc::driver::{result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// Copies the tables of general members to the device, in one allocation that the step keeps, and puts their addresses
/// into the calls; returns nothing if no call has a table.
///
/// # Errors
/// If the driver reports an error.
pub(super) fn place_tables(gpu: &Gpu, calls: &mut [Vec<BoundCall>]) -> Result<Option<DeviceMemory>, CudaError> {
    /// The alignment of tables, in words.
    const ALIGN: usize = 4;
    let (mut words, mut tables): (Vec<u32>, Vec<(usize, &mut BoundCall)>) = (Vec::new(), Vec::new());
    for call in calls.iter_mut().flatten() {
        let BoundCall::Kernel { spec, .. } = &*call else { continue };
        let Some(table) = spec.table() else { continue };
        let first = words.len();
        words.extend_from_slice(&table.words);
        words.resize(words.len().next_multiple_of(ALIGN), 0);
        tables.push((first, call));
    }
    if tables.is_empty() {
        return Ok(None);
    }
    let memory = DeviceMemory::zeroed(size_of_val(&words[..]), gpu.stream())?;
    // SAFETY: the memory has exactly this size; the copy is over when the call returns.
    unsafe { result::memcpy_htod_sync(memory.base(), &words) }.map_err(|e| failed("cuMemcpyHtoD", e))?;
    for (first, call) in tables {
        let BoundCall::Kernel { spec, args, .. } = call else { continue };
        let mut numbers = spec.numbers().to_vec();
        if let Some(table) = spec.table() {
            numbers[table.number] = memory.base() + (first * size_of::<u32>()) as u64;
        }
        put_numbers(&mut args[..], &numbers);
    }
    Ok(Some(memory))
}

/// Sets the blocks and the shared memory of every call of a general member. Runs on this thread's stream and waits.
///
/// # Errors
/// If the driver reports an error, or a launch has no blocks.
pub(super) fn set_geometry(gpu: &Gpu, calls: &mut [Vec<BoundCall>]) -> Result<(), CudaError> {
    let general =
        |call: &&mut BoundCall| matches!(&**call, BoundCall::Kernel { kernel, .. } if kernel.geometry.is_some());
    let calls: Vec<&mut BoundCall> = calls.iter_mut().flatten().filter(general).collect();
    let launches = calls.iter().filter_map(|call| match &**call {
        BoundCall::Kernel { kernel, args, .. } => Some((&**kernel, &args[..])),
        _ => None,
    });
    let found = geometries(gpu, &launches.collect::<Vec<_>>())?;
    for (call, geometry) in calls.into_iter().zip(found) {
        let BoundCall::Kernel { kernel, spec, .. } = call else { continue };
        if geometry[..kernel.phases.len()].iter().any(|[blocks, _]| *blocks == 0) {
            let numbers = KernelFamily::of(spec.template).map(|family| family.named(spec.numbers()));
            return Err(format!("{} has no blocks for {}", spec.ty(), numbers.unwrap_or_default()).into());
        }
        *kernel = Arc::new(kernel.with_geometry(&geometry));
    }
    Ok(())
}

/// The blocks and the shared memory of each phase of launches of general members, given their kernels and arguments.
/// Runs on this thread's stream and waits.
///
/// # Errors
/// If the driver reports an error.
pub(super) fn geometries(gpu: &Gpu, launches: &[(&Kernel, &[u64])]) -> Result<Vec<Vec<[u32; 2]>>, CudaError> {
    if launches.is_empty() {
        return Ok(Vec::new());
    }
    let memory = DeviceMemory::zeroed(launches.len() * META_LEN * size_of::<i64>(), gpu.stream())?;
    let address = |number: usize| memory.base() + (number * META_LEN * size_of::<i64>()) as u64;
    for (number, (kernel, args)) in launches.iter().enumerate() {
        let function = kernel.geometry.ok_or("the kernel is compiled for its sizes")?;
        let out = address(number);
        let mut params = [args.as_ptr().cast::<c_void>().cast_mut(), (&raw const out).cast::<c_void>().cast_mut()];
        // SAFETY: the function takes the arguments of the launch, of which it reads the numbers, and an address with
        // room for what it writes; both are copied by the call.
        unsafe {
            sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, gpu.stream(), params.as_mut_ptr(), std::ptr::null_mut())
        }
        .result()
        .map_err(|e| failed("cuLaunchKernel", e))?;
    }
    gpu.synchronize()?;
    let mut facts = vec![[0i64; META_LEN]; launches.len()];
    // SAFETY: the memory has exactly this size.
    unsafe { result::memcpy_dtoh_sync(facts.as_flattened_mut(), memory.base()) }
        .map_err(|e| failed("cuMemcpyDtoH", e))?;
    let pairs =
        |facts: &[i64; META_LEN]| facts[3..].chunks_exact(2).map(|pair| [pair[0] as u32, pair[1] as u32]).collect();
    Ok(facts.iter().map(pairs).collect())
}
