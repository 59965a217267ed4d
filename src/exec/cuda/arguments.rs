//! The arguments of kernels: a row of addresses by slot with the flags of the launch, and where addresses come from.

use crate::exec::error::ExecError;
use crate::exec::store::StepMemory;
use crate::plan::{BindingPlan, Place};

/// The number of pointers that a kernel takes; equals that of `Args` in the kernels' prelude.
pub(super) const MAX_ARGS: usize = 20;

/// The arguments of one operation's kernel by slot; 0 if a slot is unused.
pub(super) type ArgRow = [u64; MAX_ARGS];

/// The slot that contains the flags of a launch; no operation uses it for anything else.
pub(super) const FLAGS: usize = MAX_ARGS - 1;

/// Puts the numbers that a general member reads before the flags, in reverse order.
pub(super) fn put_numbers(args: &mut [u64], numbers: &[u64]) {
    for (place, number) in args[..FLAGS].iter_mut().rev().zip(numbers) {
        *place = *number;
    }
}

// As `LaunchFlags` in the kernels' prelude: which inputs a kernel may load while the preceding launch still runs, and
// whether the next launch may start as soon as this launch has finished waiting.
pub(super) const EARLY_A: u64 = 1;
pub(super) const EARLY_B: u64 = 2;
pub(super) const STARTS_NEXT: u64 = 4;
pub(super) const EARLY_ENDS: u64 = 8;

/// A range of bytes in the memory of the plan or of the device.
pub(super) type Range = (u64, u64);

/// Whether two ranges of memory overlap.
pub(super) const fn meet(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// Device memory that can be addressed and can no longer grow.
pub(super) struct DeviceEnv {
    pub(super) memory: StepMemory,
    /// The address of each buffer.
    addresses: Vec<u64>,
}

impl DeviceEnv {
    /// No memory is allocated after this.
    ///
    /// # Errors
    /// If the memory does not contain what the plan needs.
    pub(super) fn new(memory: StepMemory, plan: &BindingPlan) -> Result<Self, ExecError> {
        let addresses = memory.addresses(plan)?;
        Ok(Self { memory, addresses })
    }

    /// The address of a place.
    pub(super) fn address(&self, plan: &BindingPlan, place: Place) -> u64 {
        self.addresses[place.buffer.0 as usize] + (place.offset - plan.buffer(place.buffer).offset)
    }

    /// The planned addresses of one operation's arguments, computed from the plan.
    pub(super) fn row(&self, plan: &BindingPlan, index: usize) -> ArgRow {
        let count = plan.program.ops[index].kind.slots().len();
        let at = |slot| if slot < count { plan.argument(index, slot) } else { None };
        std::array::from_fn(|slot| at(slot).map_or(0, |p| self.address(plan, p)))
    }

    /// The start addresses of the store and the arena.
    pub(super) fn bases(&self) -> [u64; 2] {
        self.memory.bases()
    }

    /// The memory that the step may access: the store and its arena, merged if they are one allocation.
    pub(super) fn ranges(&self) -> Vec<Range> {
        let StepMemory { store, arena, .. } = &self.memory;
        let [store, arena] = [store.memory(), arena.memory()].map(|m| (m.base(), m.base() + m.bytes()));
        if store.1 == arena.0 { vec![(store.0, arena.1)] } else { vec![arena, store] }
    }
}
