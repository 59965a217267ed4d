//! Injects faults into the steps that a thread makes, for tests: `verify` must find each of them.
//!
//! A fault exists while a [`Planted`] is alive, and only in steps that its own thread makes during that time. A step
//! checks for a fault when it binds its calls, so that running a step costs the same with this code as without it. The
//! plain-loop references are changed only by [`Plant::Rule`].

use super::call::{Call, KernelFn, MAX_ARGS, Part};
use super::kernels;
use crate::compile::Compiled;
use crate::exec::graph_key::GraphKey;
use crate::ops::OpKind;
use crate::select::Variant;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread::LocalKey;

/// Where a changed kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    All,
    /// In recordings only; op by op the unchanged kernel runs.
    Replays,
}

/// A fault in a CPU's step.
#[derive(Clone, Copy)]
pub enum Plant {
    /// In the kernels of the operations of this name.
    Kernel(&'static str, Runs, fn(&Faulty<'_>)),
    /// In the plain loops in `f64` of the operations of this name: a wrong rule of differentiation, which the fast
    /// kernels follow as well.
    Rule(&'static str, fn(&Faulty<'_>)),
    /// In the plan of a training step, after its referees have accepted it.
    Plan(fn(&mut Compiled)),
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// Keeps a fault planted for the thread that made it.
pub struct Planted<P: 'static> {
    place: &'static LocalKey<Cell<Option<P>>>,
    /// It must stay on its thread.
    thread: PhantomData<*const ()>,
}

impl<P> Planted<P> {
    /// Injects a fault for this thread's next steps.
    pub(crate) fn new(place: &'static LocalKey<Cell<Option<P>>>, plant: P) -> Self {
        place.set(Some(plant));
        Self { place, thread: PhantomData }
    }
}

impl<P> Drop for Planted<P> {
    fn drop(&mut self) {
        self.place.set(None);
    }
}

impl Plant {
    /// Injects the fault for as long as the result lives.
    #[must_use]
    pub fn planted(self) -> Planted<Self> {
        Planted::new(&PLANTED, self)
    }
}

/// The data around a kernel that was changed.
struct Around {
    real: KernelFn,
    phases: usize,
    spoil: fn(&Faulty<'_>),
    variant: Variant,
    key: GraphKey,
    /// Bytes of the value in each slot; 0 if there is none.
    bytes: [usize; MAX_ARGS],
}

/// Changes a call if a fault for it is injected. Then it runs on one thread.
pub(super) fn plant_in(call: &mut Call, compiled: &Compiled, index: usize, is_recorded: bool) {
    let variant = compiled.selection.choices[index].variant;
    let (name, runs, spoil) = match (PLANTED.get(), variant) {
        (Some(Plant::Kernel(name, runs, spoil)), Variant::Fast(_)) => (name, runs, spoil),
        (Some(Plant::Rule(name, spoil)), Variant::RefF64) => (name, Runs::All, spoil),
        _ => return,
    };
    if call.op.name() != name || (runs == Runs::Replays && !is_recorded) {
        return;
    }
    let program = &compiled.plan.program;
    let mut bytes = [0; MAX_ARGS];
    for (bytes, arg) in bytes.iter_mut().zip(&program.ops[index].args) {
        *bytes = arg.map_or(0, |id| program.value(id).bytes() as usize);
    }
    let key = GraphKey::of(compiled);
    call.around = Some(Box::new(Around { real: call.run, phases: call.phases, spoil, variant, key, bytes }));
    (call.run, call.phases, call.parallel) = (spoilt, 1, false);
}

/// The compiled step with the fault that is injected into its plan, if there is one.
pub(super) fn plant_in_plan(compiled: Arc<Compiled>) -> Arc<Compiled> {
    let is_fast = compiled.selection.choices.iter().any(|c| matches!(c.variant, Variant::Fast(_)));
    let is_training = compiled.plan.program.mode == crate::ir::Mode::Train;
    let (Some(Plant::Plan(change)), true) = (PLANTED.get(), is_fast && is_training) else { return compiled };
    let mut changed = (*compiled).clone();
    change(&mut changed);
    Arc::new(changed)
}

/// Runs the fault in place of the kernel.
///
/// # Safety
/// As [`KernelFn`].
unsafe fn spoilt(call: &Call, _: Part) {
    if let Some(around) = call.around.as_ref().and_then(|around| around.downcast_ref::<Around>()) {
        (around.spoil)(&Faulty { call, around });
    }
}

/// A call, as a fault sees it.
pub struct Faulty<'a> {
    call: &'a Call,
    around: &'a Around,
}

impl Faulty<'_> {
    /// The operation with its dimensions.
    #[must_use]
    pub const fn op(&self) -> &OpKind {
        &self.call.op
    }

    /// The key of the step that the call belongs to: its inputs with their shapes, and its path.
    #[must_use]
    pub const fn key(&self) -> &GraphKey {
        &self.around.key
    }

    /// Runs the unchanged kernel.
    pub fn run(&self) {
        self.run_part(0, 1);
    }

    /// Runs the part of a kernel that one of `count` threads would run.
    pub fn run_part(&self, index: usize, count: usize) {
        for phase in 0..self.around.phases {
            // SAFETY: the pointers are the call's own, whose caller promises what the kernel needs.
            unsafe { (self.around.real)(self.call, Part { index, count, phase }) };
        }
    }

    /// Runs the kernel of a changed operation on the call's arguments.
    ///
    /// # Safety
    /// The changed operation accesses no more elements of any argument than the call's operation.
    pub unsafe fn run_as(&self, change: impl FnOnce(&mut OpKind)) {
        let mut op = self.call.op.clone();
        change(&mut op);
        let Some(found) = kernels::resolve(&op, self.around.variant, 1) else { return };
        let (phases, parallel, around) = (found.phases, false, None);
        let call = Call { run: found.run, op, ptr: self.call.ptr, table: found.table, phases, parallel, around };
        for phase in 0..phases {
            // SAFETY: the caller promises that the arguments are large enough; the rest is as in `run`.
            unsafe { (call.run)(&call, Part { index: 0, count: 1, phase }) };
        }
    }

    /// Runs the kernel on another input, which is restored unless the operation wrote to it.
    pub fn run_with(&self, slot: &str, change: impl FnOnce(&mut Vec<f32>)) {
        let before = self.bytes(slot);
        self.edit(slot, change);
        let changed = self.bytes(slot);
        self.run();
        if self.bytes(slot) == changed {
            self.set_bytes(slot, &before);
        }
    }

    /// Whether the slot is bound.
    #[must_use]
    pub fn has(&self, slot: &str) -> bool {
        self.place(slot).is_some()
    }

    /// The elements in a slot of reals; empty if it is not bound.
    #[must_use]
    pub fn get(&self, slot: &str) -> Vec<f32> {
        bytemuck::pod_collect_to_vec(&self.bytes(slot))
    }

    /// Overwrites a slot of reals.
    pub fn set(&self, slot: &str, values: &[f32]) {
        self.set_bytes(slot, bytemuck::cast_slice(values));
    }

    /// Changes the elements in a slot of reals.
    pub fn edit(&self, slot: &str, change: impl FnOnce(&mut Vec<f32>)) {
        let mut values = self.get(slot);
        change(&mut values);
        self.set(slot, &values);
    }

    /// Changes the elements in a slot of reals of plain loops in `f64`.
    pub fn edit_doubles(&self, slot: &str, change: impl FnOnce(&mut Vec<f64>)) {
        let mut values: Vec<f64> = bytemuck::pod_collect_to_vec(&self.bytes(slot));
        change(&mut values);
        self.set_bytes(slot, bytemuck::cast_slice(&values));
    }

    /// The bytes in a slot; empty if it is not bound.
    #[must_use]
    pub fn bytes(&self, slot: &str) -> Vec<u8> {
        let Some((at, len)) = self.place(slot) else { return Vec::new() };
        let mut out = vec![0; len];
        // SAFETY: the plan gives the value in this slot this size, and nobody writes it while the call runs.
        unsafe { std::ptr::copy_nonoverlapping(at, out.as_mut_ptr(), len) };
        out
    }

    /// Overwrites the first bytes in a slot; does nothing if it is not bound.
    pub fn set_bytes(&self, slot: &str, bytes: &[u8]) {
        let Some((at, len)) = self.place(slot) else { return };
        // SAFETY: as in `bytes`; nobody reads them while the call runs.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, len.min(bytes.len())) };
    }

    fn place(&self, slot: &str) -> Option<(*mut u8, usize)> {
        let index = self.call.op.slot(slot).filter(|i| *i < MAX_ARGS)?;
        let at = self.call.ptr[index];
        (!at.is_null()).then_some((at, self.around.bytes[index]))
    }
}
