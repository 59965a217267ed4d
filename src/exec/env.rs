//! The memory of a step: one allocation, made while planning, then sealed.

use super::location::shared_offsets;
use super::{ExecError, advise, available_bytes};
use crate::plan::{BindingPlan, EXTERNAL, Place};
use crate::tensor::{Bytes, Element, HUGE_PAGE};
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// One aligned allocation, freed when its last user goes.
struct Memory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is plain bytes; who writes while others read is governed by the executor that owns the
// environment.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc` with this layout and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// The only place where memory for a step is taken.
pub struct EnvBuilder {
    memory: Arc<Memory>,
    /// The memory of the step that shares its buffers, with their addresses by buffer; 0 for own ones.
    shared: Option<(Arc<Memory>, Vec<usize>)>,
    bytes: u64,
}

impl EnvBuilder {
    /// Allocates the arena of a plan, zeroed.
    ///
    /// # Errors
    /// Where the machine has not enough memory.
    pub fn allocate(plan: &BindingPlan) -> Result<Self, ExecError> {
        let needed = Bytes(plan.arena_bytes);
        if let Some(available) = available_bytes()
            && plan.arena_bytes > available
        {
            return Err(ExecError::OutOfMemory { needed, available: Bytes(available) });
        }
        let size = usize::try_from(plan.arena_bytes.max(1)).map_err(|_| ExecError::AllocationRefused(needed))?;
        let align = if size >= 2 * HUGE_PAGE { HUGE_PAGE } else { 4096 };
        let layout = Layout::from_size_align(size, align).map_err(|_| ExecError::AllocationRefused(needed))?;
        // SAFETY: the layout has a size above zero.
        let base = NonNull::new(unsafe { alloc(layout) }).ok_or(ExecError::AllocationRefused(needed))?;
        // Large pages need fewer entries in the processor's address tables, too.
        // SAFETY: the allocation has this size.
        unsafe {
            advise(base.as_ptr(), size);
            base.write_bytes(0, size);
        }
        Ok(Self { memory: Arc::new(Memory { base, layout }), shared: None, bytes: plan.arena_bytes })
    }

    /// Shares the buffers that `plan` does not own with those of the same name in `owner`'s plan.
    ///
    /// # Errors
    /// Where the owner lacks one.
    pub fn share(mut self, plan: &BindingPlan, owner: &SealedEnv, owner_plan: &BindingPlan) -> Result<Self, ExecError> {
        let address = |offset: Option<u64>| offset.map_or(0, |offset| owner.base() + offset as usize);
        let addresses = shared_offsets(plan, owner_plan)?.into_iter().map(address).collect();
        self.shared = Some((Arc::clone(&owner.memory), addresses));
        Ok(self)
    }

    /// No memory is taken after this.
    #[must_use]
    pub fn seal(self, plan: &BindingPlan) -> SealedEnv {
        let (shared, externals) = match self.shared {
            Some((memory, addresses)) => (Some(memory), addresses),
            None => (None, vec![0; plan.buffers.len()]),
        };
        SealedEnv { memory: self.memory, _shared: shared, externals, bytes: self.bytes }
    }
}

/// Memory that can be addressed and no longer changed in extent.
pub struct SealedEnv {
    memory: Arc<Memory>,
    /// Keeps the memory of shared buffers alive.
    _shared: Option<Arc<Memory>>,
    /// Addresses of shared buffers, by buffer; 0 for own ones.
    externals: Vec<usize>,
    bytes: u64,
}

impl SealedEnv {
    /// The arena's first byte.
    #[must_use]
    pub fn base(&self) -> usize {
        self.memory.base.as_ptr() as usize
    }

    /// Bytes of the arena.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of a place.
    #[must_use]
    pub fn address(&self, plan: &BindingPlan, place: Place) -> *mut u8 {
        if place.offset >= EXTERNAL {
            let start = (place.offset - plan.buffer(place.buffer).offset) as usize;
            return (self.externals[place.buffer.0 as usize] + start) as *mut u8;
        }
        (self.base() + place.offset as usize) as *mut u8
    }

    /// `len` elements at a place, to read.
    ///
    /// # Safety
    /// The place holds `len` elements of `T`, and nobody writes them while the slice lives.
    #[must_use]
    pub unsafe fn slice<T: Element>(&self, plan: &BindingPlan, place: Place, len: usize) -> &[T] {
        // SAFETY: places are aligned to 256 bytes plus whole elements, and are inside the allocation; the rest is the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(self.address(plan, place).cast(), len) }
    }

    /// `len` elements at a place, to write.
    ///
    /// # Safety
    /// As [`Self::slice`], and nobody reads them either.
    #[must_use]
    pub unsafe fn slice_mut<T: Element>(&mut self, plan: &BindingPlan, place: Place, len: usize) -> &mut [T] {
        // SAFETY: as in `slice`.
        unsafe { std::slice::from_raw_parts_mut(self.address(plan, place).cast(), len) }
    }

    /// The bytes that survive a step, to save or restore them.
    ///
    /// # Safety
    /// No step runs while the slice lives.
    #[must_use]
    pub unsafe fn persistent_mut(&mut self, plan: &BindingPlan) -> &mut [u8] {
        // SAFETY: the persistent region is at the arena's start.
        unsafe { std::slice::from_raw_parts_mut(self.memory.base.as_ptr(), plan.persistent_bytes as usize) }
    }
}
