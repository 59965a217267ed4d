//! The host memory for the values of a step: two allocations, made before anything is recorded, then sealed.

use super::block::Block;
use super::store::StepMemory;
use crate::exec::error::ExecError;
use crate::exec::memory::available_bytes;
use crate::plan::{BindingPlan, Place};
use crate::tensor::advise;
use crate::tensor::{Bytes, Element, HUGE_PAGE};
use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ptr::NonNull;

/// One aligned allocation.
struct HostBlock {
    base: NonNull<u8>,
    layout: Layout,
    bytes: u64,
}

// SAFETY: the memory is plain bytes; who writes while others read is governed by the turns of the store.
unsafe impl Send for HostBlock {}
// SAFETY: as above.
unsafe impl Sync for HostBlock {}

impl Drop for HostBlock {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc` with this layout and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl HostBlock {
    /// The range of `len` bytes from `start` on, cut at the end.
    fn stretch(&self, start: u64, len: usize) -> (*mut u8, usize) {
        let (start, all) = (start.min(self.bytes) as usize, self.bytes as usize);
        // SAFETY: the start is inside the allocation or right behind it.
        (unsafe { self.base.as_ptr().add(start) }, len.min(all - start))
    }
}

impl Block for HostBlock {
    fn base(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn host(&self) -> Option<NonNull<u8>> {
        Some(self.base)
    }

    fn read(&self, start: u64, out: &mut [u8]) -> Result<(), ExecError> {
        let (from, len) = self.stretch(start, out.len());
        // SAFETY: the stretch is inside the allocation, and whoever has the store's turn is alone.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), len) };
        Ok(())
    }

    fn write(&self, start: u64, bytes: &[u8]) -> Result<(), ExecError> {
        let (to, len) = self.stretch(start, bytes.len());
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The only place that allocates memory for a CPU's steps: blocks of these sizes, zeroed.
///
/// # Errors
/// If the machine has too little memory for all of them.
pub(super) fn allocate(sizes: &[u64]) -> Result<Vec<Box<dyn Block>>, ExecError> {
    let all = sizes.iter().fold(0u64, |sum, size| sum.saturating_add(*size));
    let needed = Bytes(all);
    if let Some(available) = available_bytes()
        && all > available
    {
        return Err(ExecError::OutOfMemory { needed, available: Bytes(available) });
    }
    let block = |bytes: &u64| match host_block(*bytes) {
        Some(block) => Ok(Box::new(block) as Box<dyn Block>),
        None => Err(ExecError::AllocationRefused(needed)),
    };
    sizes.iter().map(block).collect()
}

/// A block of `bytes`, zeroed; `None` if the system refuses.
fn host_block(bytes: u64) -> Option<HostBlock> {
    let size = usize::try_from(bytes.max(1)).ok()?;
    let align = if size >= 2 * HUGE_PAGE { HUGE_PAGE } else { 4096 };
    let layout = Layout::from_size_align(size, align).ok()?;
    // SAFETY: the layout has a size above zero.
    let base = NonNull::new(unsafe { alloc(layout) })?;
    // Huge pages also need fewer TLB entries.
    // SAFETY: the allocation has this size.
    unsafe {
        advise(base.as_ptr(), size);
        base.write_bytes(0, size);
    }
    Some(HostBlock { base, layout, bytes })
}

/// Memory that can be addressed and can no longer grow.
pub struct SealedEnv {
    memory: StepMemory,
    /// The address of each buffer.
    addresses: Vec<u64>,
}

impl SealedEnv {
    /// No memory is allocated after this.
    ///
    /// # Errors
    /// If the memory does not contain what the plan needs.
    pub(super) fn new(memory: StepMemory, plan: &BindingPlan) -> Result<Self, ExecError> {
        let addresses = memory.addresses(plan)?;
        Ok(Self { memory, addresses })
    }

    /// The memory that the step runs in.
    pub(super) const fn memory(&self) -> &StepMemory {
        &self.memory
    }

    /// The address of a place.
    #[must_use]
    pub fn address(&self, plan: &BindingPlan, place: Place) -> *mut u8 {
        let start = place.offset - plan.buffer(place.buffer).offset;
        (self.addresses[place.buffer.0 as usize] + start) as *mut u8
    }

    /// `len` elements at a place, to read.
    ///
    /// # Safety
    /// The place contains `len` elements of `T`, and no code writes them while the slice lives.
    #[must_use]
    pub unsafe fn slice<T: Element>(&self, plan: &BindingPlan, place: Place, len: usize) -> &[T] {
        // SAFETY: places are aligned to 256 bytes plus whole elements, and are inside their allocation; the rest is the
        // caller's promise.
        unsafe { std::slice::from_raw_parts(self.address(plan, place).cast(), len) }
    }

    /// `len` elements at a place, to write.
    ///
    /// # Safety
    /// As for [`Self::slice`], and no other code reads them either.
    #[must_use]
    pub unsafe fn slice_mut<T: Element>(&mut self, plan: &BindingPlan, place: Place, len: usize) -> &mut [T] {
        // SAFETY: as in `slice`.
        unsafe { std::slice::from_raw_parts_mut(self.address(plan, place).cast(), len) }
    }

    /// The bytes of the arena.
    ///
    /// # Safety
    /// No step runs in it while the slice lives.
    #[must_use]
    pub(super) unsafe fn arena(&self) -> &[u8] {
        let arena = self.memory.arena.memory();
        // SAFETY: the arena is one allocation of this many initialised bytes.
        unsafe { std::slice::from_raw_parts(arena.base() as *const u8, arena.bytes() as usize) }
    }
}
