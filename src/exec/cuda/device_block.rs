//! The memory of steps on a device.

use super::error::failed;
use super::gpu::Gpu;
use super::half_parameters::HalfParameters;
use super::memory::DeviceMemory;
use crate::exec::ExecError;
use crate::exec::block::Block;
use crate::tensor::Bytes;
use cudarc::driver::{result, sys};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Memory of steps, with the device that it is on.
pub(super) struct DeviceBlock {
    memory: DeviceMemory,
    gpu: Arc<Gpu>,
    /// The stream of the thread that used it last; streams are never destroyed.
    last_stream: AtomicUsize,
    /// Where it is a store: the half-precision copy of its parameters, once the first step over it asked for one.
    pub(super) half: OnceLock<Option<Arc<HalfParameters>>>,
}

/// Takes blocks of memory of these sizes, zeroed. The device is current on this thread.
///
/// # Errors
/// Where not all of them are free.
pub(super) fn allocate(sizes: &[u64], gpu: &Arc<Gpu>) -> Result<Vec<Box<dyn Block>>, ExecError> {
    let needed = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
    let (free, _) = gpu.memory()?;
    let short = ExecError::OutOfMemory { needed: Bytes(needed), available: Bytes(free) };
    if needed > free {
        return Err(short);
    }
    let block = |bytes: &u64| {
        // Another program may have taken what was free a moment ago, or left it in pieces.
        let memory = DeviceMemory::zeroed(*bytes as usize, gpu.stream()).inspect_err(|why| log::debug!("{why}"));
        let memory = memory.map_err(|_| short.clone())?;
        let last_stream = AtomicUsize::new(gpu.stream() as usize);
        Ok(Box::new(DeviceBlock { memory, gpu: Arc::clone(gpu), last_stream, half: OnceLock::new() }) as Box<dyn Block>)
    };
    sizes.iter().map(block).collect()
}

impl Block for DeviceBlock {
    fn base(&self) -> u64 {
        self.memory.base()
    }

    fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
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

    fn settle(&self) -> Result<(), ExecError> {
        self.gpu.enter()?;
        let mine = self.gpu.stream();
        let last = self.last_stream.swap(mine as usize, Ordering::AcqRel) as sys::CUstream;
        if last == mine {
            return Ok(());
        }
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: streams live as long as the process.
        unsafe { sys::cuStreamIsCapturing(last, &raw mut status) }
            .result()
            .map_err(|e| failed("cuStreamIsCapturing", e))?;
        // A stream that captures belongs to another thread by now, which began when it was idle.
        if status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            // SAFETY: as above.
            unsafe { result::stream::synchronize(last) }.map_err(|e| failed("cuStreamSynchronize", e))?;
        }
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
