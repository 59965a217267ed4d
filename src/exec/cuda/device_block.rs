//! The memory of steps on a device.

use super::error::failed;
use super::half_parameters::HalfParameters;
use super::memory::DeviceMemory;
use crate::exec::block::Block;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::tensor::Bytes;
use cudarc::driver::result;
use std::any::Any;
use std::sync::{Arc, OnceLock};

/// A range of the memory of steps, with its device. All steps over one store share it, and one thread runs them, one
/// after the other, on its own stream: work on another thread's stream would not wait for theirs. At the same time,
/// another thread may make a recording over it. On memory that other steps have used, this runs nothing and needs only
/// the addresses.
pub(super) struct DeviceBlock {
    /// The allocation that it is a part of.
    memory: Arc<DeviceMemory>,
    /// Its first byte there.
    start: u64,
    bytes: u64,
    gpu: Arc<Gpu>,
    /// If it is a store: the half-precision copy of its parameters, once a step over it has requested one.
    pub(super) half: OnceLock<Option<Arc<HalfParameters>>>,
}

/// Allocates blocks of memory of these sizes, zeroed, one after the other in one allocation. The device is current on
/// this thread.
///
/// # Errors
/// If there is not enough free memory for all of them.
pub(super) fn allocate(sizes: &[u64], gpu: &Arc<Gpu>) -> Result<Vec<Box<dyn Block>>, ExecError> {
    let needed = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
    let (free, _) = gpu.memory()?;
    let short = ExecError::OutOfMemory { needed: Bytes(needed), available: Bytes(free) };
    if needed > free {
        return Err(short);
    }
    // Another program may have taken memory that was free before, or the memory may be fragmented.
    let memory = DeviceMemory::zeroed(needed as usize, gpu.stream()).inspect_err(|why| log::debug!("{why}"));
    let memory = memory.map(Arc::new).map_err(|_| short)?;
    let mut start = 0;
    let mut block = |bytes: &u64| {
        let (memory, gpu) = (Arc::clone(&memory), Arc::clone(gpu));
        start += bytes;
        let block = DeviceBlock { memory, start: start - bytes, bytes: *bytes, gpu, half: OnceLock::new() };
        Box::new(block) as Box<dyn Block>
    };
    Ok(sizes.iter().map(&mut block).collect())
}

impl Block for DeviceBlock {
    fn base(&self) -> u64 {
        self.memory.base() + self.start
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, start: u64, out: &mut [u8]) -> Result<(), ExecError> {
        self.gpu.enter()?;
        // SAFETY: the caller asks for bytes inside the block, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(out, self.base() + start, self.gpu.stream()) }
            .map_err(|e| failed("cuMemcpyDtoHAsync", e))?;
        Ok(self.gpu.synchronize()?)
    }

    fn write(&self, start: u64, bytes: &[u8]) -> Result<(), ExecError> {
        self.gpu.enter()?;
        // SAFETY: the target is inside the block, and the copy is waited for.
        unsafe { result::memcpy_htod_async(self.base() + start, bytes, self.gpu.stream()) }
            .map_err(|e| failed("cuMemcpyHtoDAsync", e))?;
        Ok(self.gpu.synchronize()?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
