//! A compiled step in memory, on the device that it was planned for.

use super::backend::{Backend, Capabilities, Recording, ReferenceCheck, StepBackend, Ways};
use super::cpu::{CpuBackend, Floor, Pool};
use super::cuda::CudaBackend;
use super::location::located;
use super::ready_times::{ReadyStage, ReadyTimes};
use super::store::{ParamStore, StepArena, StepImage, StepMemory, Turn};
use crate::compile::Compiled;
use crate::exec::error::ExecError;
use crate::lower::LValueId;
use crate::plan::{StateKey, StateKind};
use crate::select::Device;
use crate::tensor::{Bytes, DType, Element, HostTensor};
use half::{bf16, f16};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a step is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Executor {
    /// Replay the recording.
    #[default]
    Replay,
    /// Op by op: for each operation, the kernel is looked up, arguments are resolved and threads are synchronised.
    Eager,
}

/// The backend of a device: the only place that depends on the kind of device.
fn backend_of(device: &Device) -> Box<dyn Backend> {
    match device {
        Device::Cpu(_) => Box::new(CpuBackend),
        Device::Cuda(facts) => Box::new(CudaBackend::new(facts.ordinal)),
    }
}

/// A compiled step with its memory.
pub struct Step {
    pub(super) backend: Box<dyn StepBackend>,
    threads: usize,
    /// The time that allocating its memory took.
    memory_took: Duration,
    /// Whether the values that are read after every step were set.
    is_watched: bool,
}

impl Step {
    /// Allocates the memory of a compiled step, seals it, and records the step. `threads` is the number of threads of
    /// the pools that will run it on a CPU.
    ///
    /// # Errors
    /// If there is too little memory, or the device cannot be used.
    pub fn new(compiled: Arc<Compiled>, threads: usize) -> Result<Self, ExecError> {
        Self::with_room(compiled, &[], threads)
    }

    /// Like [`Self::new`], in memory in which `others` over the same store can run too.
    ///
    /// # Errors
    /// As for [`Self::new`], and if one of the others needs a key that the step lacks.
    pub fn with_room(compiled: Arc<Compiled>, others: &[Arc<Compiled>], threads: usize) -> Result<Self, ExecError> {
        let device = backend_of(&compiled.selection.target.device);
        let started = Instant::now();
        let memory = StepMemory::new(&compiled, others, |sizes| device.allocate(sizes))?;
        let memory_took = started.elapsed();
        let backend = device.make_step(compiled, memory, threads, Ways::All)?;
        Ok(Self { backend, threads, memory_took, is_watched: false })
    }

    /// Records a compiled step over a store, and over an arena that is lent to several steps over this store.
    ///
    /// # Errors
    /// If the store lacks a key of the step, or has it with another size; if the arena is too small.
    pub fn over(
        compiled: Arc<Compiled>,
        store: &Arc<ParamStore>,
        arena: &Arc<StepArena>,
        threads: usize,
    ) -> Result<Self, ExecError> {
        Self::over_for(compiled, store, arena, threads, Ways::All)
    }

    /// Like [`Self::over`], for a step that will be run only in the given ways.
    ///
    /// # Errors
    /// As [`Self::over`].
    pub(super) fn over_for(
        compiled: Arc<Compiled>,
        store: &Arc<ParamStore>,
        arena: &Arc<StepArena>,
        threads: usize,
        ways: Ways,
    ) -> Result<Self, ExecError> {
        let device = backend_of(&compiled.selection.target.device);
        let memory = StepMemory { store: Arc::clone(store), arena: Arc::clone(arena), is_new: false };
        let backend = device.make_step(compiled, memory, threads, ways)?;
        Ok(Self { backend, threads, memory_took: Duration::ZERO, is_watched: false })
    }

    /// An arena of this many bytes on the device that a compiled step runs on.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn new_arena(compiled: &Compiled, bytes: u64) -> Result<Arc<StepArena>, ExecError> {
        let blocks = backend_of(&compiled.selection.target.device).allocate(&[bytes])?;
        blocks.into_iter().next().map(StepArena::new).ok_or(ExecError::AllocationRefused(Bytes(bytes)))
    }

    /// The capabilities of the device of a compiled step, before the step is in its memory.
    #[must_use]
    pub fn capabilities_for(compiled: &Compiled) -> Capabilities {
        backend_of(&compiled.selection.target.device).capabilities()
    }

    /// Refuses a compiled step if its memory, and `beside` bytes that are allocated after it, are not free now on the
    /// device or on the host.
    ///
    /// # Errors
    /// If there is too little memory, or the device cannot be used.
    pub fn check_room(compiled: &Compiled, beside: u64) -> Result<(), ExecError> {
        let needed = compiled.plan.arena_bytes.saturating_add(beside);
        let free = backend_of(&compiled.selection.target.device).free_bytes()?;
        match free.filter(|free| needed > *free) {
            Some(free) => Err(ExecError::OutOfMemory { needed: Bytes(needed), available: Bytes(free) }),
            None => Ok(()),
        }
    }

    /// A step (an evaluation) that shares the parameters and running statistics of `owner`.
    ///
    /// # Errors
    /// If there is too little memory, or the owner trains another network.
    pub fn sharing(compiled: Arc<Compiled>, owner: &Self) -> Result<Self, ExecError> {
        let store = owner.store();
        let arena = Self::new_arena(&compiled, store.layout().homes(&compiled.plan)?.arena_bytes)?;
        Self::over(compiled, store, &arena, owner.threads)
    }

    /// The store, with what survives a step; other steps may share it.
    #[must_use]
    pub fn store(&self) -> &Arc<ParamStore> {
        &self.backend.memory().store
    }

    /// The transient memory that it was lent.
    #[must_use]
    pub fn lent_arena(&self) -> &Arc<StepArena> {
        &self.backend.memory().arena
    }

    /// The approximate size of its recording and its plan, without the values of the step.
    #[must_use]
    pub fn recording_bytes(&self) -> u64 {
        /// The device memory of a graph and of each of its nodes: up to a quarter more than was measured on an H200,
        /// where graphs of 10, 56 and 98 nodes take 128, 224 and 288 KiB, in steps of 32 KiB.
        const GRAPH: usize = 128 << 10;
        const NODE: usize = 2_400;
        /// The size of an operation and a value in the host's memory, in a plan and in a recording.
        const HOST: usize = 1_024;
        let (program, recording) = (&self.compiled().plan.program, self.recording());
        let entries = program.ops.len() + program.values.len() + recording.calls;
        let graph = if recording.nodes > 0 { GRAPH + recording.nodes * NODE } else { 0 };
        (graph + entries * HOST) as u64
    }

    /// The results of the compiler that it was made from.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        self.backend.compiled()
    }

    /// How the device runs steps.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    /// The device's implementation.
    #[must_use]
    pub fn backend(&self) -> &dyn StepBackend {
        &*self.backend
    }

    /// The lock that this thread holds on the memory while it changes values in it.
    fn turn_to_change(&self) -> Turn {
        let turn = self.store().turn();
        self.store().revise();
        turn
    }

    /// Runs the whole step once. On a GPU this returns before the step is done; reading a value waits for it.
    ///
    /// # Errors
    /// If the ledger finds a recorded address that is not that of the plan, or, on a GPU, that memory, graph or a live
    /// constant has changed since capture; then nothing was run.
    pub fn run(&mut self, executor: Executor, pool: &mut Pool) -> Result<(), ExecError> {
        let _turn = self.turn_to_change();
        match executor {
            Executor::Replay => self.backend.replay(pool),
            Executor::Eager => self.backend.run_ops(0, self.compiled().plan.program.ops.len(), pool),
        }
    }

    /// Replays the recording once. Allocates nothing on a CPU.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn replay(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        let _turn = self.turn_to_change();
        self.backend.replay(pool)
    }

    /// Replays `count` steps back to back; a GPU runs several in one launch.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn replay_many(&mut self, count: usize, pool: &mut Pool) -> Result<(), ExecError> {
        let _turn = self.turn_to_change();
        self.backend.replay_many(count, pool)
    }

    /// The time that each stage of its preparation took.
    #[must_use]
    pub fn ready_times(&self) -> ReadyTimes {
        let mut times = self.backend.ready_times().clone();
        times.add(ReadyStage::Memory, self.memory_took);
        times
    }

    /// How it was recorded.
    #[must_use]
    pub fn recording(&self) -> Recording {
        self.backend.recording()
    }

    /// Waits until all started work is done.
    ///
    /// # Errors
    /// If the device has reported an error since the last wait.
    pub fn synchronize(&self) -> Result<(), ExecError> {
        self.backend.synchronize()
    }

    /// Runs operations `from..to` eagerly.
    ///
    /// # Errors
    /// If a kernel is missing.
    pub fn run_ops(&mut self, from: usize, to: usize, pool: &mut Pool) -> Result<(), ExecError> {
        let _turn = self.turn_to_change();
        self.backend.run_ops(from, to, pool)
    }

    /// Runs the step once eagerly and once as a replay, and restores everything that survives a step: caches are warm,
    /// and nothing has changed.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn warm_up(&mut self, pool: &mut Pool) -> Result<(), ExecError> {
        let saved = self.snapshot()?;
        self.run(Executor::Eager, pool)?;
        self.replay(pool)?;
        self.rewind(&saved)
    }

    /// Restores a [`Self::snapshot`] of this step, and waits until the device has done so.
    ///
    /// # Errors
    /// If the device fails.
    pub fn rewind(&mut self, saved: &[u8]) -> Result<(), ExecError> {
        self.restore(saved)?;
        self.synchronize()
    }

    /// Everything that survives a step, byte for byte.
    ///
    /// # Errors
    /// If the device fails.
    pub fn snapshot(&mut self) -> Result<Vec<u8>, ExecError> {
        self.store().snapshot()
    }

    /// Like [`Self::snapshot`], into memory of the same size. Allocates nothing.
    ///
    /// # Errors
    /// If the device fails.
    pub fn snapshot_into(&mut self, saved: &mut [u8]) -> Result<(), ExecError> {
        self.store().snapshot_into(saved)
    }

    /// Restores a [`Self::snapshot`] of this step.
    ///
    /// # Errors
    /// If the device fails.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), ExecError> {
        self.store().restore(saved)
    }

    /// A copy of all the memory that it runs in, for comparisons.
    ///
    /// # Errors
    /// If the device fails.
    pub fn image(&self) -> Result<StepImage, ExecError> {
        let homes = self.store().layout().homes(&self.compiled().plan)?;
        Ok(StepImage { homes, store: self.store().snapshot()?, arena: self.arena()?.into_owned() })
    }

    /// The bytes of the arena, to compare.
    ///
    /// # Errors
    /// If the device fails.
    pub fn arena(&self) -> Result<Cow<'_, [u8]>, ExecError> {
        self.backend.arena()
    }

    /// Starts or stops recording the ids of executed kernels.
    pub fn set_trace(&mut self, on: bool) {
        self.backend.set_trace(on);
    }

    /// The ids of the kernels executed since tracing began.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.backend.trace()
    }

    /// The median time of each operation, timed separately, over `rounds`, in microseconds.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time_calls(&mut self, rounds: usize, pool: &mut Pool) -> Result<Vec<f64>, ExecError> {
        let _turn = self.turn_to_change();
        self.backend.time_calls(rounds, pool)
    }

    /// The overhead of a replay in addition to its kernels, in microseconds for each step: on a CPU the ledger and the
    /// calls, then the same with the synchronisation of threads; on a GPU, twice the same value, the host's part of a
    /// launch, for which steps are made.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn time_bookkeeping(&mut self, rounds: usize, pool: &mut Pool) -> Result<[f64; 2], ExecError> {
        let _turn = self.turn_to_change();
        self.backend.time_bookkeeping(rounds, pool)
    }

    /// What a library computes in operation `op`, as the library describes it; `None` if no library computes it.
    #[must_use]
    pub fn library_of(&self, op: usize) -> Option<String> {
        self.backend.library_of(op)
    }

    /// The least time of each operation at the highest rates of a GPU, measured now; `None` on a CPU.
    ///
    /// # Errors
    /// If the device fails or has no free memory.
    pub fn floors(&self) -> Result<Option<Vec<Floor>>, ExecError> {
        self.backend.floors()
    }

    /// Compares one operation on random inputs with plain loops; `None` on a CPU. Afterwards the step's values are
    /// undefined.
    ///
    /// # Errors
    /// If the device fails. A difference is not an error: it is part of the result.
    pub fn compare_with_reference(&mut self, op: usize, seed: u64) -> Result<Option<ReferenceCheck>, ExecError> {
        let _turn = self.turn_to_change();
        self.backend.compare_with_reference(op, seed)
    }

    /// Sets which values are read after every step, so that a GPU fetches them by one copy.
    ///
    /// # Errors
    /// If there is too little memory.
    pub fn watch(&mut self, ids: &[LValueId]) -> Result<(), ExecError> {
        self.is_watched = true;
        self.backend.watch(ids)
    }

    /// Whether the values that are read after every step were set.
    #[must_use]
    pub const fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// A value's elements as they are in memory; real values of half width are widened to `f32`.
    ///
    /// # Errors
    /// If the value has no place, or another type.
    pub fn stored<T: Element>(&self, id: LValueId) -> Result<Cow<'_, [T]>, ExecError> {
        let (_, value) = located(self.compiled(), id)?;
        let halves = |bytes: &[u8], widen: fn(u16) -> f32| -> Vec<T> {
            let wide: Vec<f32> = bytemuck::pod_collect_to_vec::<u8, u16>(bytes).into_iter().map(widen).collect();
            bytemuck::cast_slice(&wide).to_vec()
        };
        match (value.dtype, T::DTYPE) {
            (own, wanted) if own == wanted => Ok(match self.backend.bytes(id)? {
                // The plan aligns values to more than their types require.
                Cow::Borrowed(bytes) => Cow::Borrowed(bytemuck::cast_slice(bytes)),
                Cow::Owned(bytes) => Cow::Owned(bytemuck::pod_collect_to_vec(&bytes)),
            }),
            (DType::Bf16, DType::F32) => {
                Ok(Cow::Owned(halves(&self.backend.bytes(id)?, |bits| bf16::from_bits(bits).to_f32())))
            }
            (DType::F16, DType::F32) => {
                Ok(Cow::Owned(halves(&self.backend.bytes(id)?, |bits| f16::from_bits(bits).to_f32())))
            }
            _ => Err(ExecError::NoValue(format!("{} ({})", value.name, value.dtype))),
        }
    }

    /// Lets `fill` overwrite a value's elements in memory order; elements that it does not write are unspecified.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn fill<T: Element>(&mut self, id: LValueId, fill: impl FnOnce(&mut [T])) -> Result<(), ExecError> {
        let (_, value) = located(self.compiled(), id)?;
        let (dtype, len) = (value.dtype, value.shape.len());
        self.store().revise();
        if dtype == T::DTYPE {
            let mut fill = Some(fill);
            return self.backend.fill_bytes(id, &mut |out| match bytemuck::try_cast_slice_mut(out) {
                Ok(values) => {
                    if let Some(fill) = fill.take() {
                        fill(values);
                    }
                }
                // Arenas and pinned memory start at a page.
                Err(_) => log::error!("staging memory is not aligned"),
            });
        }
        let narrow: fn(f32) -> u16 = match (dtype, T::DTYPE) {
            (DType::Bf16, DType::F32) => |v| bf16::from_f32(v).to_bits(),
            (DType::F16, DType::F32) => |v| f16::from_f32(v).to_bits(),
            _ => return Err(ExecError::NoValue(format!("{} ({dtype})", value.name))),
        };
        let mut wide = vec![T::zeroed(); len];
        fill(&mut wide);
        let wide: &[f32] = bytemuck::cast_slice(&wide);
        self.backend.fill_bytes(id, &mut |out| {
            for (out, v) in out.chunks_exact_mut(2).zip(wide) {
                out.copy_from_slice(&narrow(*v).to_le_bytes());
            }
        })
    }

    /// Overwrites a value with elements in memory order.
    ///
    /// # Errors
    /// As for [`Self::stored`], and if the number of elements differs.
    pub fn write<T: Element>(&mut self, id: LValueId, values: &[T]) -> Result<(), ExecError> {
        let value = self.compiled().plan.program.value(id);
        let (name, expected) = (value.name.as_str(), value.shape.len());
        if expected != values.len() {
            return Err(ExecError::Size { name: name.to_owned(), expected, found: values.len() });
        }
        self.fill(id, |out: &mut [T]| out.copy_from_slice(values))
    }

    /// A value in logical order, read from memory.
    ///
    /// # Errors
    /// As [`Self::stored`].
    pub fn tensor(&self, id: LValueId) -> Result<HostTensor, ExecError> {
        match self.compiled().plan.program.value(id).dtype {
            DType::F64 => self.logical::<f64>(id),
            DType::F32 | DType::F16 | DType::Bf16 => self.logical::<f32>(id),
            DType::I64 => self.logical::<i64>(id),
            DType::I32 => self.logical::<i32>(id),
            DType::U16 => self.logical::<u16>(id),
            DType::U8 => self.logical::<u8>(id),
        }
    }

    fn logical<T: Element + Default>(&self, id: LValueId) -> Result<HostTensor, ExecError> {
        let stored = self.stored::<T>(id)?;
        let shape = self.compiled().plan.program.value(id).shape.clone();
        HostTensor::from_slice(shape, &self.ordered(id, &stored)).map_err(|e| ExecError::NoValue(e.to_string()))
    }

    /// The value with this name.
    ///
    /// # Errors
    /// If the step has none.
    pub fn find(&self, name: &str) -> Result<LValueId, ExecError> {
        self.compiled().plan.program.find(name).ok_or_else(|| ExecError::NoValue(name.to_owned()))
    }

    /// The first value of this kind that survives the step.
    ///
    /// # Errors
    /// If the step has none.
    pub fn state(&self, kind: StateKind) -> Result<LValueId, ExecError> {
        let found = StateKey::values_of(&self.compiled().plan.program, &[kind]).next();
        found.ok_or_else(|| ExecError::NoValue(kind.name().to_owned()))
    }
}
