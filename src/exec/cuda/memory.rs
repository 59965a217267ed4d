//! Device memory, pinned host memory and events.

use super::error::{CudaError, failed};
use cudarc::driver::{result, sys};
use std::ptr::NonNull;

/// One allocation on a device, freed when its last user is dropped.
pub(super) struct DeviceMemory {
    base: u64,
}

impl DeviceMemory {
    /// `bytes` of memory on the current device, zeroed.
    ///
    /// # Errors
    /// If the driver cannot allocate it.
    pub(super) fn zeroed(bytes: usize, stream: sys::CUstream) -> Result<Self, CudaError> {
        // SAFETY: a context is current, and the size is above zero.
        let base = unsafe { result::malloc_sync(bytes.max(1)) }.map_err(|e| failed("cuMemAlloc", e))?;
        let memory = Self { base };
        // SAFETY: the whole allocation is ours.
        unsafe { result::memset_d8_async(base, 0, bytes, stream) }.map_err(|e| failed("cuMemsetD8Async", e))?;
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(stream) }.map_err(|e| failed("cuStreamSynchronize", e))?;
        Ok(memory)
    }

    /// The first byte's address.
    pub(super) const fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the allocation is ours and is freed once; the driver waits for work that uses it.
        let _ = unsafe { result::free_sync(self.base) };
    }
}

/// Host memory that the device copies to and from directly. It is not write-combined, because the host also reads it.
pub(super) struct Pinned {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain bytes; whoever owns the value orders the accesses.
unsafe impl Send for Pinned {}

impl Pinned {
    /// # Errors
    /// If the system refuses.
    pub(super) fn new(bytes: usize) -> Result<Self, CudaError> {
        // SAFETY: a context is current, and the size is above zero.
        let base = unsafe { result::malloc_host(bytes.max(1), 0) }.map_err(|e| failed("cuMemHostAlloc", e))?;
        let base = NonNull::new(base.cast::<u8>()).ok_or("cuMemHostAlloc gave no address")?;
        // SAFETY: the allocation has this many bytes.
        unsafe { std::ptr::write_bytes(base.as_ptr(), 0, bytes) };
        Ok(Self { base, bytes })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is initialised and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the allocation is ours and is freed once.
        let _ = unsafe { result::free_host(self.base.as_ptr().cast()) };
    }
}

/// A point in a stream's work.
pub(super) struct Event(sys::CUevent);

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// # Errors
    /// If the driver refuses.
    pub(super) fn new(timing: bool) -> Result<Self, CudaError> {
        let flags =
            if timing { sys::CUevent_flags::CU_EVENT_DEFAULT } else { sys::CUevent_flags::CU_EVENT_DISABLE_TIMING };
        result::event::create(flags).map(Self).map_err(|e| failed("cuEventCreate", e))
    }

    pub(super) fn record(&self, stream: sys::CUstream) -> Result<(), CudaError> {
        // SAFETY: both handles are alive.
        unsafe { result::event::record(self.0, stream) }.map_err(|e| failed("cuEventRecord", e))
    }

    pub(super) fn wait(&self) -> Result<(), CudaError> {
        // SAFETY: the handle is alive.
        unsafe { result::event::synchronize(self.0) }.map_err(|e| failed("cuEventSynchronize", e))
    }

    /// Microseconds from `self` to `end`; both must have been reached.
    pub(super) fn until_us(&self, end: &Self) -> Result<f64, CudaError> {
        // SAFETY: both handles are alive and were made with timing.
        let ms = unsafe { result::event::elapsed(self.0, end.0) }.map_err(|e| failed("cuEventElapsedTime", e))?;
        Ok(f64::from(ms) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
