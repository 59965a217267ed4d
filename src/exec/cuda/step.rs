//! A compiled step in device memory: run op by op, or captured and replayed.

use super::bind::{DeviceEnv, Row, Unit, Work, asks_library, bind, device_error, draft_all, launch_phase};
use super::capture::Role;
use super::chain::Chain;
use super::gpu::Gpu;
use super::graph::{CLEAR, Graph};
use super::group::{Launch, group};
use super::intake::Intake;
use super::ledger::Ledger;
use super::memory::DeviceMemory;
use super::overlap::overlap;
use super::shadow::{Shadow, make_shadow};
use super::tensors::{Mirror, Stage};
use crate::compile::Compiled;
use crate::exec::{ExecError, Executor, zero_bytes};
use crate::tensor::Bytes;
use cudarc::driver::result;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Nodes in a graph of several steps, and steps in it, at most.
pub(super) const MAX_NODES: usize = 2_000;
pub(super) const MAX_STEPS: usize = 64;

/// A compiled step with its device memory.
pub struct Step {
    pub(super) gpu: Arc<Gpu>,
    pub(super) compiled: Arc<Compiled>,
    pub(super) env: DeviceEnv,
    pub(super) calls: Vec<Vec<Work>>,
    pub(super) launches: Vec<Launch>,
    /// What differs in a chain of steps.
    pub(super) chain: Chain,
    /// One step captured, or why it cannot be.
    pub(super) graph: Result<Graph, String>,
    /// Several steps in one graph.
    pub(super) many: Option<(usize, Graph)>,
    /// The data set that steps fetch their batches from.
    pub(super) intake: Option<Box<Intake>>,
    /// What every launch of a graph is checked against.
    pub(super) ledger: Ledger,
    pub(super) shadow: Option<Arc<Shadow>>,
    pub(super) mirror: RefCell<Option<Mirror>>,
    pub(super) stages: RefCell<HashMap<usize, VecDeque<Stage>>>,
    trace: Option<Vec<u32>>,
    /// The operations for which an own kernel stands in for a library that refused.
    stood_in: Vec<bool>,
}

pub(super) fn gpu_error(why: String) -> ExecError {
    ExecError::Gpu(why)
}

impl Step {
    /// Takes the memory of a compiled step, compiles its kernels, and captures it.
    ///
    /// # Errors
    /// Where memory is short, or a kernel cannot be had. A step that cannot be captured is no error: it runs op by op, and [`Self::why_eager`] says why.
    pub fn new(compiled: Arc<Compiled>, gpu: Arc<Gpu>) -> Result<Self, ExecError> {
        gpu.enter().map_err(gpu_error)?;
        let memory = Self::allocate(&compiled, &gpu)?;
        let externals = vec![0; compiled.plan.buffers.len()];
        let env = DeviceEnv { memory, shared: None, externals };
        Self::build(compiled, gpu, env, None, None)
    }

    /// A step of which only the operations in `timed` are to be timed, one by one: nothing is captured, and the others do nothing.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn to_time(compiled: Arc<Compiled>, gpu: Arc<Gpu>, timed: &[bool]) -> Result<Self, ExecError> {
        gpu.enter().map_err(gpu_error)?;
        let memory = Self::allocate(&compiled, &gpu)?;
        // What another plan owns is stood in for by memory of the same size.
        let mut externals = vec![0; compiled.plan.buffers.len()];
        let bytes: u64 = compiled.plan.buffers.iter().filter(|b| b.external).map(|b| b.bytes).sum();
        let mut shared = None;
        if bytes > 0 {
            let stand_in = DeviceMemory::zeroed(bytes as usize, gpu.stream()).map_err(gpu_error)?;
            let mut next = stand_in.base();
            for (address, buffer) in externals.iter_mut().zip(&compiled.plan.buffers).filter(|(_, b)| b.external) {
                *address = next;
                next += buffer.bytes;
            }
            shared = Some(Arc::new(stand_in));
        }
        let env = DeviceEnv { memory, shared, externals };
        Self::build(compiled, gpu, env, None, Some(timed))
    }

    /// Compiles what operations need, each given by its step and its place there, and has libraries make their plans, all at once: what is built of them
    /// later finds it ready.
    ///
    /// # Errors
    /// Where an operation can be done in no way.
    pub fn prefetch(gpu: &Gpu, ops: &[(&Compiled, usize)]) -> Result<(), ExecError> {
        gpu.enter().map_err(gpu_error)?;
        // Own kernels are compiled while libraries prepare theirs. One that cannot be had is told of where it is needed.
        let (asking, own): (Vec<_>, Vec<_>) = ops.iter().partition(|(compiled, index)| asks_library(compiled, *index));
        std::thread::scope(|scope| {
            let compile = || -> Result<(), ExecError> {
                gpu.enter().map_err(gpu_error)?;
                let units: Vec<Unit> = draft_all(gpu, &own)?.into_iter().flat_map(|d| d.units).collect();
                let _ = gpu.kernels(&units);
                Ok(())
            };
            let compiling = std::thread::Builder::new().name("compile".into()).spawn_scoped(scope, compile);
            let mut units: Vec<Unit> = draft_all(gpu, &asking)?.into_iter().flat_map(|d| d.units).collect();
            if !asking.is_empty() {
                // What their graphs will ask for.
                units.push(vec![(CLEAR.0, CLEAR.1.to_owned())]);
            }
            let _ = gpu.kernels(&units);
            match compiling.map(std::thread::ScopedJoinHandle::join) {
                Ok(Ok(compiled)) => compiled,
                Ok(Err(_)) => Err(gpu_error("the thread that compiles kernels ended in a panic".into())),
                // What was not compiled ahead is compiled where it is needed.
                Err(_) => Ok(()),
            }
        })
    }

    /// Whether an own kernel stands in for a library that refused operation `index`.
    #[must_use]
    pub fn stood_in(&self, index: usize) -> bool {
        self.stood_in[index]
    }

    /// A step (an evaluation) that shares the parameters and running statistics of `owner`.
    ///
    /// # Errors
    /// As [`Self::new`], and where the owner trains another network.
    pub fn sharing(compiled: Arc<Compiled>, owner: &Self) -> Result<Self, ExecError> {
        owner.gpu.enter().map_err(gpu_error)?;
        let memory = Self::allocate(&compiled, &owner.gpu)?;
        let mut externals = vec![0; compiled.plan.buffers.len()];
        for (address, buffer) in externals.iter_mut().zip(&compiled.plan.buffers).filter(|(_, b)| b.external) {
            let theirs = owner.compiled.plan.buffers.iter().find(|b| b.name == buffer.name && b.bytes == buffer.bytes);
            let theirs = theirs.ok_or_else(|| ExecError::NoValue(buffer.name.clone()))?;
            *address = owner.env.memory.base() + theirs.offset;
        }
        let env = DeviceEnv { memory, shared: Some(Arc::clone(&owner.env.memory)), externals };
        Self::build(compiled, Arc::clone(&owner.gpu), env, owner.shadow.clone(), None)
    }

    fn allocate(compiled: &Compiled, gpu: &Gpu) -> Result<Arc<DeviceMemory>, ExecError> {
        let needed = compiled.plan.arena_bytes;
        let (free, _) = gpu.memory().map_err(gpu_error)?;
        if needed > free {
            return Err(ExecError::OutOfMemory { needed: Bytes(needed), available: Bytes(free) });
        }
        // Another program may have taken what was free a moment ago, or left it in pieces.
        let memory = DeviceMemory::zeroed(needed as usize, gpu.stream()).inspect_err(|why| log::debug!("{why}"));
        memory.map(Arc::new).map_err(|_| ExecError::OutOfMemory { needed: Bytes(needed), available: Bytes(free) })
    }

    /// Compiles, binds and captures. From here on only addresses are asked of the environment.
    fn build(
        compiled: Arc<Compiled>,
        gpu: Arc<Gpu>,
        env: DeviceEnv,
        shadow: Option<Arc<Shadow>>,
        timed: Option<&[bool]>,
    ) -> Result<Self, ExecError> {
        let record = timed.is_none();
        let wanted = |index: usize| timed.is_none_or(|t| t[index]);
        let count = compiled.plan.program.ops.len();
        let asked: Vec<(&Compiled, usize)> = (0..count).filter(|i| wanted(*i)).map(|i| (&*compiled, i)).collect();
        let drafts = draft_all(&gpu, &asked)?;
        let units: Vec<Unit> = drafts.iter().flat_map(|d| d.units.iter().cloned()).collect();
        let kernels = gpu.kernels(&units);
        let planned: Vec<Row> = (0..count).map(|i| env.row(&compiled.plan, i)).collect();
        let mut kernels = &kernels[..];
        let (mut calls, mut stood_in) = (vec![Vec::new(); count], vec![false; count]);
        for (drafts, (_, index)) in drafts.iter().zip(&asked) {
            let (own, rest) = kernels.split_at(drafts.units.len());
            calls[*index] = bind(&compiled, *index, drafts, own, &planned[*index])?;
            stood_in[*index] = drafts.stood_in;
            kernels = rest;
        }
        let mut launches = if record { group(&gpu, &compiled, &calls) } else { Vec::new() };
        overlap(&compiled, &calls, &mut launches);
        let chain = Chain::new(&gpu, &compiled, &calls, &mut launches);
        let ledger = Ledger::new(&env);
        let shadow = match shadow {
            Some(shared) => Some(shared),
            None => make_shadow(&compiled, &gpu, &env)?,
        };
        let mut step = Self {
            gpu,
            compiled,
            env,
            calls,
            launches,
            chain,
            graph: Err("not captured yet".into()),
            many: None,
            intake: None,
            ledger,
            shadow,
            mirror: RefCell::new(None),
            stages: RefCell::default(),
            trace: None,
            stood_in,
        };
        if record {
            step.warm()?;
        }
        Ok(step)
    }

    /// Runs everything once on the fresh memory, op by op, launch by launch and as it was captured, so that modules are loaded and libraries have made up their
    /// minds, and clears what it left.
    fn warm(&mut self) -> Result<(), ExecError> {
        if self.env.externals.iter().all(|a| *a == 0) {
            self.run_ops(0, self.calls.len())?;
            for launch in &self.launches {
                self.put(launch)?;
            }
            self.capture()?;
            if let Ok(graph) = &self.graph {
                graph.launch(&self.gpu).map_err(gpu_error)?;
            }
            let (base, bytes) = (self.env.memory.base(), self.env.memory.bytes());
            // SAFETY: the whole allocation is ours.
            unsafe { result::memset_d8_async(base, 0, bytes, self.gpu.stream()) }
                .map_err(|e| gpu_error(super::failed("cuMemsetD8Async", e)))?;
            if let Some(shadow) = &self.shadow {
                shadow.stale.store(true, Ordering::Release);
            }
        } else {
            self.capture()?;
        }
        self.gpu.synchronize().map_err(gpu_error)
    }

    pub(super) fn put(&self, launch: &Launch) -> Result<(), ExecError> {
        match launch {
            Launch::Single { op, flags } => self.put_flagged(*op, *flags),
            Launch::Group { ops, kernel, args } => launch_phase(&self.gpu, kernel.phases[0], kernel.threads, args)
                .map_err(|why| device_error(&self.compiled, ops[0], why)),
        }
    }

    pub(super) fn put_op(&self, op: usize) -> Result<(), ExecError> {
        self.put_flagged(op, 0)
    }

    fn put_flagged(&self, op: usize, flags: u64) -> Result<(), ExecError> {
        let put = |work: &Work| work.launch(&self.gpu, flags);
        self.calls[op].iter().try_for_each(put).map_err(|why| device_error(&self.compiled, op, why))
    }

    /// The artefacts it was made from.
    #[must_use]
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// The device that it runs on.
    #[must_use]
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Why replaying runs op by op, where it does.
    #[must_use]
    pub fn why_eager(&self) -> Option<&str> {
        self.graph.as_ref().err().map(String::as_str)
    }

    /// Launches a replayed step makes, and nodes of its graph.
    #[must_use]
    pub fn launches(&self) -> (usize, usize) {
        let count = self.launches.iter().map(|l| match l {
            Launch::Single { op, .. } => self.calls[*op].iter().map(Work::launches).sum(),
            Launch::Group { .. } => 1,
        });
        (count.sum(), self.graph.as_ref().map_or(0, |g| g.nodes().max(g.kernels())))
    }

    /// Writes the captured graph in Graphviz's language, as the driver sees it.
    ///
    /// # Errors
    /// Where there is no graph, or it cannot be written.
    pub fn write_graph(&self, path: &Path) -> Result<(), ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        match &self.graph {
            Ok(graph) => graph.write_dot(path).map_err(gpu_error),
            Err(why) => Err(gpu_error(format!("there is no graph: {why}"))),
        }
    }

    pub(super) fn begin(&self) -> Result<(), ExecError> {
        self.gpu.enter().map_err(gpu_error)?;
        if let Some(shadow) = &self.shadow
            && shadow.stale.swap(false, Ordering::AcqRel)
        {
            launch_phase(&self.gpu, shadow.kernel.phases[0], shadow.kernel.threads, &shadow.args).map_err(gpu_error)?;
        }
        if let Some(mirror) = self.mirror.borrow_mut().as_mut() {
            mirror.fresh = false;
        }
        Ok(())
    }

    /// Runs the whole step once; returns before the device is done.
    ///
    /// # Errors
    /// Where the ledger finds that memory, graph or a live constant is another than at capture (nothing was run then),
    /// or a launch fails.
    pub fn run(&mut self, executor: Executor) -> Result<(), ExecError> {
        match executor {
            Executor::Replay => self.replay(),
            Executor::Eager => self.run_ops(0, self.calls.len()),
        }
    }

    /// Replays the captured step once.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn replay(&mut self) -> Result<(), ExecError> {
        match &self.graph {
            Ok(graph) => self.check(Role::One, graph)?,
            Err(_) => self.check_memory()?,
        }
        self.begin()?;
        match &self.graph {
            Ok(graph) => graph.launch(&self.gpu).map_err(gpu_error)?,
            Err(_) => self.launches.iter().try_for_each(|l| self.put(l))?,
        }
        if let Some(trace) = &mut self.trace {
            trace.extend(0..self.calls.len() as u32);
        }
        Ok(())
    }

    /// Replays `count` steps back to back, several in one launch where the graph allows.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn replay_many(&mut self, count: usize) -> Result<(), ExecError> {
        let has_several = self.capture_several(count)?;
        let mut left = count;
        if let Some((steps, graph)) = self.many.as_ref().filter(|_| has_several) {
            self.check(Role::Several(*steps), graph)?;
            self.begin()?;
            while left >= *steps {
                graph.launch(&self.gpu).map_err(gpu_error)?;
                left -= steps;
            }
        }
        (0..left).try_for_each(|_| self.replay())
    }

    /// Waits until the device has done everything.
    ///
    /// # Errors
    /// What went wrong on the device since the last wait.
    pub fn synchronize(&self) -> Result<(), ExecError> {
        self.gpu.enter().and_then(|()| self.gpu.synchronize()).map_err(gpu_error)
    }

    /// Runs operations `from..to` one by one.
    ///
    /// # Errors
    /// Where a launch fails.
    pub fn run_ops(&mut self, from: usize, to: usize) -> Result<(), ExecError> {
        self.begin()?;
        for index in from..to.min(self.calls.len()) {
            self.put_op(index)?;
            if let Some(trace) = &mut self.trace {
                trace.push(index as u32);
            }
        }
        Ok(())
    }

    /// Runs the step once each way and puts back everything that survives a step.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn warm_up(&mut self) -> Result<(), ExecError> {
        let saved = self.snapshot()?;
        self.run(Executor::Eager)?;
        self.replay()?;
        self.restore(&saved)?;
        self.synchronize()
    }

    /// Everything that survives a step, byte for byte.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn snapshot(&self) -> Result<Vec<u8>, ExecError> {
        let mut out = zero_bytes(self.compiled.plan.persistent_bytes as usize);
        self.snapshot_into(&mut out)?;
        Ok(out)
    }

    /// As [`Self::snapshot`], into memory of the same size.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn snapshot_into(&self, saved: &mut [u8]) -> Result<(), ExecError> {
        let len = saved.len().min(self.compiled.plan.persistent_bytes as usize);
        self.read_bytes(self.env.memory.base(), &mut saved[..len])
    }

    /// Puts back what [`Self::snapshot`] took from this step.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn restore(&self, saved: &[u8]) -> Result<(), ExecError> {
        let len = saved.len().min(self.compiled.plan.persistent_bytes as usize);
        self.gpu.enter().map_err(gpu_error)?;
        if let Some(mirror) = self.mirror.borrow_mut().as_mut() {
            mirror.fresh = false;
        }
        // SAFETY: the persistent region lies at the arena's start; the copy is waited for.
        unsafe { result::memcpy_htod_async(self.env.memory.base(), &saved[..len], self.gpu.stream()) }
            .map_err(|e| gpu_error(super::failed("cuMemcpyHtoDAsync", e)))?;
        // A snapshot may be older than the half-width copy in it.
        if let Some(shadow) = &self.shadow {
            shadow.stale.store(true, Ordering::Release);
        }
        self.gpu.synchronize().map_err(gpu_error)
    }

    /// The whole arena's bytes, to compare.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn arena(&self) -> Result<Vec<u8>, ExecError> {
        let mut out = zero_bytes(self.env.memory.bytes());
        self.read_bytes(self.env.memory.base(), &mut out)?;
        Ok(out)
    }

    /// Starts or stops keeping the ids of executed kernels.
    pub fn set_trace(&mut self, on: bool) {
        self.trace = on.then(Vec::new);
    }

    /// The ids of the kernels executed since tracing began.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        let kernel = |op: &u32| self.compiled.selection.choices[*op as usize].kernel.clone();
        self.trace.iter().flatten().map(kernel).collect()
    }
}
