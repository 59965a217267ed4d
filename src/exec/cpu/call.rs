//! A bound kernel call, the element of a recording.

use crate::ops::OpKind;
use std::any::Any;

/// The largest number of slots of an operation that CPU kernels use; later slots are bound only for GPUs.
pub const MAX_ARGS: usize = 12;

/// The share of a call that a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// This thread, in `0..count`.
    pub index: usize,
    /// The number of threads that share the call; 1 if a single thread runs it.
    pub count: usize,
    /// The phase of the call, in `0..phases`; a barrier separates phases.
    pub phase: usize,
}

impl Part {
    /// The whole of a single-phase call.
    pub const WHOLE: Self = Self { index: 0, count: 1, phase: 0 };

    /// This part's share `[from, to)` of `units` units, divided at multiples of `grain`.
    #[must_use]
    pub fn range(self, units: usize, grain: usize) -> (usize, usize) {
        let chunks = units.div_ceil(grain);
        let cut = |i: usize| (chunks * i / self.count * grain).min(units);
        (cut(self.index), cut(self.index + 1))
    }
}

/// A kernel's entry point. It runs the part of the operation that `Part` names; all parts of one phase may run at the
/// same time, a barrier separates phases. The result must not depend on `Part::count`.
///
/// # Safety
/// Every bound pointer of the call is valid for the operation's dimensions and aligned to 64 bytes, and no other code
/// accesses the outputs during the call.
pub type KernelFn = unsafe fn(&Call, Part);

/// One kernel with its fixed arguments.
pub struct Call {
    pub run: KernelFn,
    pub op: OpKind,
    /// Pointers by slot of the operation; null if a slot is unused.
    pub ptr: [*mut u8; MAX_ARGS],
    /// Index tables that the kernel prepared when it was bound (see its `prepare`); empty for most.
    pub table: Box<[i32]>,
    /// Number of phases; a barrier follows each.
    pub phases: usize,
    /// Whether the threads share the call; otherwise the first thread runs it alone.
    pub parallel: bool,
    /// A test's data around the kernel, whose type only the test's entry point knows; `None` in all other steps.
    pub around: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: a call only describes memory that the environment owns; who runs it upholds `KernelFn`'s contract.
unsafe impl Send for Call {}
// SAFETY: as above; a call is never changed after it is bound.
unsafe impl Sync for Call {}

impl Call {
    /// The pointer in slot `index` as elements of `T`.
    #[inline(always)]
    #[must_use]
    pub fn arg<T>(&self, index: usize) -> *mut T {
        self.ptr[index].cast()
    }
}

/// The result of binding a kernel to an operation, before the pointers are known.
pub struct KernelImpl {
    pub run: KernelFn,
    /// Number of phases, at least 1.
    pub phases: usize,
    /// Index tables for [`Call::table`].
    pub table: Box<[i32]>,
    /// Whether the operation is large enough for its work to be shared among threads.
    pub parallel: bool,
}

impl KernelImpl {
    /// A kernel of one phase and no tables.
    #[must_use]
    pub fn simple(run: KernelFn, parallel: bool) -> Self {
        Self { run, phases: 1, table: Box::default(), parallel }
    }
}
