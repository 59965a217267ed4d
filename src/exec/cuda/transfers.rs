//! Copies between the host and a step's memory.

use super::error::{CudaError, failed};
use super::memory::{Event, Pinned};
use crate::exec::cuda::gpu::Gpu;
use cudarc::driver::result;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The values that the host reads after every step, fetched by one copy.
struct Mirror {
    /// The address of the first byte.
    address: u64,
    memory: Pinned,
    /// The revision of the store at the time of the copy; `None` before the first copy.
    of: Option<u64>,
}

/// Memory in which the host prepares a value while the device may still be copying the previous one.
struct Stage {
    memory: Pinned,
    copied: Event,
}

/// The copies of one step, all on the stream of its thread.
pub(super) struct Transfers {
    gpu: Arc<Gpu>,
    mirror: RefCell<Option<Mirror>>,
    /// By size in bytes.
    stages: RefCell<HashMap<usize, VecDeque<Stage>>>,
}

impl Transfers {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, mirror: RefCell::new(None), stages: RefCell::default() }
    }

    /// Copies bytes from the device; waits for everything before.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), CudaError> {
        self.gpu.enter()?;
        // SAFETY: the caller asks for bytes inside the arena, and the copy is waited for.
        unsafe { result::memcpy_dtoh_async(out, address, self.gpu.stream()) }
            .map_err(|e| failed("cuMemcpyDtoHAsync", e))?;
        self.gpu.synchronize()
    }

    /// Copies bytes to the device without staging them, and waits for the copy.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn write_directly(&self, address: u64, bytes: &[u8]) -> Result<(), CudaError> {
        self.gpu.enter()?;
        self.copy_in(address, bytes)?;
        self.gpu.synchronize()
    }

    /// Enqueues a copy of bytes to the device on the stream.
    fn copy_in(&self, address: u64, bytes: &[u8]) -> Result<(), CudaError> {
        // SAFETY: the target is inside the arena and has this size; callers keep the source until the copy is done.
        unsafe { result::memcpy_htod_async(address, bytes, self.gpu.stream()) }
            .map_err(|e| failed("cuMemcpyHtoDAsync", e))
    }

    /// Lets `fill` prepare `len` bytes in pinned memory and copies them to the device without waiting.
    ///
    /// # Errors
    /// If there is too little memory, or a call fails.
    pub(super) fn stage(&self, address: u64, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), CudaError> {
        self.gpu.enter()?;
        let mut stages = self.stages.borrow_mut();
        let queue = stages.entry(len).or_default();
        let mut stage = match queue.pop_front() {
            Some(oldest) if queue.len() + 1 >= 2 => {
                oldest.copied.wait()?;
                oldest
            }
            other => {
                queue.extend(other);
                let memory = Pinned::new(len)?;
                Stage { memory, copied: Event::new(false)? }
            }
        };
        fill(stage.memory.bytes_mut());
        // The source is not changed until the event after the copy has been waited for.
        self.copy_in(address, stage.memory.bytes())?;
        stage.copied.record(self.gpu.stream())?;
        queue.push_back(stage);
        Ok(())
    }

    /// Sets the bytes, at the addresses `from..to` of one block, that the host reads after every step, so that one copy
    /// fetches them all.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(super) fn watch(&self, from: u64, to: u64) -> Result<(), CudaError> {
        /// Larger ranges are not fetched at once.
        const MAX_BYTES: u64 = 64 << 10;
        if from < to && to - from <= MAX_BYTES {
            let memory = Pinned::new((to - from) as usize)?;
            *self.mirror.borrow_mut() = Some(Mirror { address: from, memory, of: None });
        }
        Ok(())
    }

    /// Reads bytes at an address from the copy of watched values, which is fetched again if the store has another
    /// `revision`; returns false if the copy does not contain all of them.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn fetched(&self, address: u64, revision: u64, out: &mut [u8]) -> Result<bool, CudaError> {
        let mut mirror = self.mirror.borrow_mut();
        let Some(mirror) = mirror.as_mut() else { return Ok(false) };
        let size = mirror.memory.bytes().len() as u64;
        if address < mirror.address || address + out.len() as u64 > mirror.address + size {
            return Ok(false);
        }
        if mirror.of != Some(revision) {
            mirror.of = None;
            self.read(mirror.address, mirror.memory.bytes_mut())?;
            mirror.of = Some(revision);
        }
        let start = (address - mirror.address) as usize;
        out.copy_from_slice(&mirror.memory.bytes()[start..start + out.len()]);
        Ok(true)
    }
}
