//! The memory of steps: a store for values that survive them, and an arena for the others.

use super::block::Block;
use super::turns::Turns;
use crate::compile::Compiled;
use crate::exec::error::ExecError;
use crate::plan::{BindingPlan, Home, Homes, StoreLayout};
use crate::tensor::Bytes;
use crate::tensor::{copied, zero_bytes};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Values that survive the steps of a network: parameters, moments, statistics, counters, hyperparameters. They keep
/// their addresses for as long as the store lives, so that recordings of many steps can read and write them.
pub struct ParamStore {
    layout: StoreLayout,
    memory: Box<dyn Block>,
    /// The number of times that the host overwrote all its contents.
    changed: AtomicU64,
    /// The number of times that a step ran over it, or that the host wrote to it.
    revision: AtomicU64,
    turns: Turns,
}

impl ParamStore {
    /// A store in memory of the layout's size.
    pub(super) fn new(layout: StoreLayout, memory: Box<dyn Block>) -> Arc<Self> {
        Arc::new(Self {
            layout,
            memory,
            changed: AtomicU64::new(0),
            revision: AtomicU64::new(0),
            turns: Turns::default(),
        })
    }

    /// The layout of its contents.
    #[must_use]
    pub const fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    pub(super) fn memory(&self) -> &dyn Block {
        &*self.memory
    }

    /// The number of times that the host overwrote all of it; values derived from it store this number to detect
    /// changes.
    pub(super) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }

    /// Increases whenever one of the steps over it runs or the host writes to it: a copy of a value in it, or in an
    /// arena of these steps, is valid while this number is unchanged.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Records that a step runs over it or that the host writes to it: existing copies are then out of date.
    pub(super) fn revise(&self) {
        self.revision.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until no other thread uses the steps over this store, and excludes others while the result lives. Steps
    /// enter it themselves while they run; a caller that reads the results of a step must hold it around both if other
    /// threads have steps over the same store. On a GPU one thread runs all of them, and others only make recordings:
    /// the end of a turn does not wait for the device.
    #[must_use]
    pub fn turn(self: &Arc<Self>) -> Turn {
        self.turns.enter();
        Turn { store: Arc::clone(self), thread: PhantomData }
    }

    /// All its contents, byte for byte.
    ///
    /// # Errors
    /// If the device fails.
    pub fn snapshot(self: &Arc<Self>) -> Result<Vec<u8>, ExecError> {
        let mut turn = self.turn();
        if let Some(memory) = turn.host_bytes() {
            return Ok(copied(memory));
        }
        let mut out = zero_bytes(self.memory.bytes() as usize);
        self.memory.read(0, &mut out)?;
        Ok(out)
    }

    /// Like [`Self::snapshot`], into memory of the same size. Allocates nothing.
    ///
    /// # Errors
    /// If the device fails.
    pub fn snapshot_into(self: &Arc<Self>, saved: &mut [u8]) -> Result<(), ExecError> {
        let _turn = self.turn();
        let len = saved.len().min(self.memory.bytes() as usize);
        self.memory.read(0, &mut saved[..len])
    }

    /// Restores a [`Self::snapshot`] of this store, or of one of the same layout.
    ///
    /// # Errors
    /// If the device fails.
    pub fn restore(self: &Arc<Self>, saved: &[u8]) -> Result<(), ExecError> {
        let _turn = self.turn();
        self.changed.fetch_add(1, Ordering::AcqRel);
        self.revise();
        let len = saved.len().min(self.memory.bytes() as usize);
        self.memory.write(0, &saved[..len])
    }
}

/// The exclusive right of one thread to use the steps over a store.
pub struct Turn {
    store: Arc<ParamStore>,
    /// It must stay on its thread.
    thread: PhantomData<*const ()>,
}

impl Turn {
    /// All contents of the store, if it is in the host's memory.
    pub(super) fn host_bytes(&mut self) -> Option<&mut [u8]> {
        let memory = &self.store.memory;
        let len = memory.bytes() as usize;
        // SAFETY: the allocation has this number of initialised bytes, and only the holder of the turn uses them.
        memory.host().map(|base| unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.store.turns.leave();
    }
}

/// Transient memory, which is lent to the steps over one store, one after the other: as large as the largest of them
/// needs.
pub struct StepArena {
    memory: Box<dyn Block>,
}

impl StepArena {
    pub(super) fn new(memory: Box<dyn Block>) -> Arc<Self> {
        Arc::new(Self { memory })
    }

    pub(super) fn memory(&self) -> &dyn Block {
        &*self.memory
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Overwrites all of it with this byte: the results of a step must not depend on the old contents.
    ///
    /// # Errors
    /// If the device reports an error.
    pub fn overwrite(&self, byte: u8) -> Result<(), ExecError> {
        const PIECE: u64 = 1 << 20;
        let piece = vec![byte; self.bytes().min(PIECE) as usize];
        (0..self.bytes()).step_by(PIECE as usize).try_for_each(|start| {
            let len = (self.bytes() - start).min(PIECE) as usize;
            self.memory.write(start, &piece[..len])
        })
    }
}

/// The memory that a step is recorded over.
#[derive(Clone)]
pub struct StepMemory {
    pub store: Arc<ParamStore>,
    pub arena: Arc<StepArena>,
    /// Both were allocated for this step, so that their contents have no meaning yet.
    pub(super) is_new: bool,
}

impl StepMemory {
    /// The memory of a single step, in blocks that `allocate` allocates: a new store, which also has the entries that
    /// only `others` need and counters for later steps, and an arena in which the others can run too.
    ///
    /// # Errors
    /// If there is too little memory, or the store lacks what one of the others needs.
    pub(super) fn new(
        compiled: &Compiled,
        others: &[Arc<Compiled>],
        allocate: impl FnOnce(&[u64]) -> Result<Vec<Box<dyn Block>>, ExecError>,
    ) -> Result<Self, ExecError> {
        let plan = &compiled.plan;
        let plans: Vec<&BindingPlan> = std::iter::once(plan).chain(others.iter().map(|other| &other.plan)).collect();
        let layout = StoreLayout::of(&plans).with_spare_tickets(spare_tickets(compiled));
        let mut arena_bytes = layout.homes(plan)?.arena_bytes;
        for other in others {
            arena_bytes = arena_bytes.max(layout.homes(&other.plan)?.arena_bytes);
        }
        let sizes = [layout.bytes(), arena_bytes];
        let mut blocks = allocate(&sizes)?.into_iter();
        let (Some(store), Some(arena)) = (blocks.next(), blocks.next()) else {
            return Err(ExecError::AllocationRefused(Bytes(sizes[0] + sizes[1])));
        };
        Ok(Self { store: ParamStore::new(layout, store), arena: StepArena::new(arena), is_new: true })
    }

    /// The start addresses of the store and the arena.
    pub(super) fn bases(&self) -> [u64; 2] {
        [self.store.memory.base(), self.arena.memory.base()]
    }

    /// The address of each buffer of a plan.
    ///
    /// # Errors
    /// If the store lacks what the plan needs, or the arena is too small.
    pub(super) fn addresses(&self, plan: &BindingPlan) -> Result<Vec<u64>, ExecError> {
        let homes = self.store.layout.homes(plan)?;
        if homes.arena_bytes > self.arena.bytes() {
            let (needed, found) = (Bytes(homes.arena_bytes), Bytes(self.arena.bytes()));
            return Err(ExecError::SmallArena { needed, found });
        }
        let [store, arena] = self.bases();
        let address = |home: &Home| match home {
            Home::Store(start) => store + start,
            Home::Arena(start) => arena + start,
        };
        Ok(homes.all().iter().map(address).collect())
    }
}

/// Counters of finished blocks that later steps over a store may need in addition to the known ones: an update for each
/// group of parameters, and a loss and a scale if the first step computes them without counters. Only GPUs count
/// blocks.
fn spare_tickets(compiled: &Compiled) -> usize {
    /// Losses in parts, and the loss scale.
    const OTHERS: usize = 8;
    let groups = compiled.model.params.iter().map(|param| param.group as usize + 1).max().unwrap_or(0);
    if compiled.selection.target.as_cuda().is_some() { groups + OTHERS } else { 0 }
}

/// A copy of all the memory that a step runs in.
pub struct StepImage {
    pub(super) homes: Homes,
    pub(super) store: Vec<u8>,
    pub(super) arena: Vec<u8>,
}

impl StepImage {
    /// The first `bytes` of a buffer, given by its number in the plan; fewer if it is cut off.
    #[must_use]
    pub fn buffer(&self, number: usize, bytes: u64) -> &[u8] {
        let (memory, start) = match self.homes.all()[number] {
            Home::Store(start) => (&self.store, start),
            Home::Arena(start) => (&self.arena, start),
        };
        let end = (start + bytes).min(memory.len() as u64);
        memory.get(start as usize..end as usize).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::random::{Size, random_preset};
    use crate::model::{Model, Precision, check, read_preset};
    use crate::plan::{Buffer, StateKind};
    use crate::select::{Isa, Target};

    /// A network whose early exit has more scores than a small classifier has; later layers may be left out.
    const EXIT: &str = r#"{"name": "n", "input": {"shape": [16], "batch": 8}, "layers": [
        {"type": "dense", "units": 24},
        {"type": "early_exit", "layers": [{"type": "dense", "units": 8}, {"type": "activation", "function": "tanh"}],
            "choose": {"by": "random", "weights": [1, 1]}},
        {"type": "dense", "units": 8}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

    #[test]
    fn a_store_on_a_gpu_has_counters_for_paths_that_were_not_planned_in_advance() {
        let mut texts = vec![read_preset(EXIT).unwrap()];
        texts.extend((0..150).map(|seed| random_preset(seed, Size::SMALL.choosing())));
        let (mut paths, mut lacked) = (0, 0);
        for (mut preset, precision) in
            texts.into_iter().flat_map(|p| [(p.clone(), Precision::F32), (p, Precision::F16)])
        {
            preset.precision = precision;
            let Some(model) = check(&preset).model.filter(Model::chooses) else { continue };
            let on_gpu = |model: &Model| compile(model, &Options::train(Target::h200()));
            let Ok(whole) = on_gpu(&model) else { continue };
            let bare = StoreLayout::of(&[&whole.plan]);
            let layout = bare.clone().with_spare_tickets(spare_tickets(&whole));
            for path in model.foreseen(8).paths {
                let Ok(compiled) = on_gpu(&model.along(&path)) else { continue };
                let plan = &compiled.plan;
                let homes = layout.homes(plan).unwrap_or_else(|error| panic!("{} {path}: {error}", preset.name));
                paths += 1;
                lacked += usize::from(bare.homes(plan).is_err());
                // Every operation has a separate counter, inside the store.
                let tickets = plan.buffers.iter().zip(homes.all());
                let is_ticket = |b: &Buffer| b.key.as_ref().is_some_and(|key| key.kind == StateKind::Ticket);
                let mut places: Vec<u64> = tickets
                    .filter(|(buffer, _)| is_ticket(buffer))
                    .map(|(buffer, home)| match home {
                        Home::Store(start) if start + buffer.bytes <= layout.bytes() => *start,
                        other => panic!("{}: {other:?}", buffer.name),
                    })
                    .collect();
                let count = places.len();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), count, "{} {path}", preset.name);
            }
        }
        assert!(paths > 60 && lacked > 0, "{lacked} of {paths} paths need counters that the whole network has not");
        // A CPU has no such counters.
        let model = check(&read_preset(EXIT).unwrap()).model.unwrap();
        let here = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap();
        assert_eq!(spare_tickets(&here), 0);
    }
}
