//! The bound operations of a step: which kernels or library calls compute them, and with which addresses.

use super::any_feed::expected_feeds;
use super::arguments::{ArgRow, DeviceEnv, FLAGS};
use super::bind::bind;
use super::bound_call::{BoundCall, launch_phase};
use super::clear_nodes::clear_memory;
use super::draft::{Drafts, asks_library, draft_all};
use super::error::CudaError;
use super::general_members::{place_tables, set_geometry};
use super::kernel_store::{FoundKernel, Phase};
use super::launch::Launch;
use super::memory::DeviceMemory;
use super::source::KernelSource;
use super::wider_kernels::use_wider;
use crate::compile::Compiled;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::exec::location::located;
use crate::exec::ready_times::{ReadyStage, ReadyTimes};
use crate::lower::LValueId;
use std::sync::Arc;
use std::time::Instant;

/// The operations of a step, bound to a device and its memory.
pub(super) struct BoundOps {
    pub(super) gpu: Arc<Gpu>,
    pub(super) compiled: Arc<Compiled>,
    pub(super) env: DeviceEnv,
    /// The calls of each operation.
    pub(super) calls: Vec<Vec<BoundCall>>,
    /// The operations for which a custom kernel replaces a library that refused.
    stood_in: Vec<bool>,
    /// The tables that general members read in addition to their arguments.
    _tables: Option<DeviceMemory>,
    /// The time that libraries, kernels and binding took.
    pub(super) ready_times: ReadyTimes,
}

impl BoundOps {
    /// Compiles kernels, lets libraries make their plans, and binds them: for all operations, or for those in `timed`.
    ///
    /// # Errors
    /// If a kernel is not available.
    pub(super) fn new(
        compiled: Arc<Compiled>,
        gpu: Arc<Gpu>,
        env: DeviceEnv,
        timed: Option<&[bool]>,
    ) -> Result<Self, ExecError> {
        let wanted = |index: usize| timed.is_none_or(|t| t[index]);
        let count = compiled.plan.program.ops.len();
        let asked: Vec<(&Compiled, usize)> = (0..count).filter(|i| wanted(*i)).map(|i| (&*compiled, i)).collect();
        let mut ready_times = ReadyTimes::default();
        let mut drafts = ready_times.of(ReadyStage::Libraries, || draft_all(&gpu, &asked))?;
        ready_times.of(ReadyStage::Kernels, || use_wider(&gpu, &mut drafts));
        let sources = all_sources(&drafts);
        let is_fed = timed.is_none() && compiled.selection.target.kernels.are_general();
        let feeds = if is_fed { missing_feeds(&gpu, &compiled) } else { Vec::new() };
        let compile = || with_feeds(&gpu, &feeds, || gpu.kernels(&sources));
        let mut kernels = ready_times.of(ReadyStage::Kernels, compile).into_iter();
        let started = Instant::now();
        let (mut calls, mut stood_in) = (vec![Vec::new(); count], vec![false; count]);
        for (drafts, (_, index)) in drafts.iter().zip(&asked) {
            let row = env.row(&compiled.plan, *index);
            calls[*index] = bind(&compiled, *index, drafts, &mut kernels, &row)?;
            stood_in[*index] = drafts.stood_in;
        }
        let tables = place_tables(&gpu, &mut calls)?;
        set_geometry(&gpu, &mut calls)?;
        ready_times.add(ReadyStage::Bind, started.elapsed());
        Ok(Self { gpu, compiled, env, calls, stood_in, _tables: tables, ready_times })
    }

    /// Operations of the step.
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether a custom kernel replaces a library that refused operation `index`.
    pub(super) fn stood_in(&self, index: usize) -> bool {
        self.stood_in[index]
    }

    /// Enqueues a single operation on the device's stream.
    ///
    /// # Errors
    /// If a launch fails.
    pub(super) fn put_op(&self, op: usize) -> Result<(), ExecError> {
        self.put_flagged(op, 0)
    }

    /// Enqueues a launch on the device's stream.
    ///
    /// # Errors
    /// If it fails.
    pub(super) fn put(&self, launch: &Launch) -> Result<(), ExecError> {
        match launch {
            Launch::Single { op, flags } => self.put_flagged(*op, *flags),
            Launch::Fused { ops, kernel, args } => {
                let put = |phase: &Phase| launch_phase(&self.gpu, *phase, kernel.threads, args);
                kernel.phases.iter().try_for_each(put).map_err(|why| ExecError::device(&self.compiled, ops[0], why))
            }
        }
    }

    fn put_flagged(&self, op: usize, flags: u64) -> Result<(), ExecError> {
        let put = |call: &BoundCall| call.launch(&self.gpu, flags);
        self.calls[op].iter().try_for_each(put).map_err(|why| ExecError::device(&self.compiled, op, why))
    }

    /// Whether a launch is a library's.
    pub(super) fn asks_library(&self, launch: &Launch) -> bool {
        let custom = |op: &usize| self.calls[*op].iter().all(|call| matches!(call, BoundCall::Kernel { .. }));
        matches!(launch, Launch::Single { op, .. } if !custom(op))
    }

    /// The planned addresses of an operation's arguments, computed from the plan.
    pub(super) fn row(&self, op: usize) -> ArgRow {
        self.env.row(&self.compiled.plan, op)
    }

    /// The address of a value.
    ///
    /// # Errors
    /// If it has no place.
    pub(super) fn address(&self, id: LValueId) -> Result<u64, ExecError> {
        located(&self.compiled, id).map(|(place, _)| self.env.address(&self.compiled.plan, place))
    }

    /// The error of a recorded argument of an operation that differs from the planned one.
    #[cold]
    pub(super) fn mismatch(&self, op: usize, slot: usize, expected: u64, found: u64) -> ExecError {
        let mut error = ExecError::ledger(&self.compiled, op, slot, expected as usize, found as usize);
        if let ExecError::Ledger { slot: name, .. } = &mut error
            && slot == FLAGS
        {
            *name = "launch flags";
        }
        error
    }
}

/// Kernels that stay loaded until this value is dropped.
#[must_use]
pub struct Prefetched {
    _kernels: Vec<FoundKernel>,
}

/// Prepares operations, each given by its step and its index there: compiles their kernels and lets libraries make
/// their plans, all at once. Steps that are built from them while the returned value is alive find the results ready.
///
/// # Errors
/// If no kernel or library can compute an operation.
pub fn prefetch(gpu: &Gpu, ops: &[(&Compiled, usize)]) -> Result<Prefetched, ExecError> {
    gpu.enter()?;
    // Custom kernels are compiled while libraries prepare theirs. A missing kernel is reported when it is needed.
    let (asking, custom): (Vec<_>, Vec<_>) = ops.iter().partition(|(compiled, index)| asks_library(compiled, *index));
    std::thread::scope(|scope| {
        let compile = || -> Result<Vec<FoundKernel>, ExecError> {
            gpu.enter()?;
            Ok(gpu.kernels(&sources_of(gpu, &custom)?))
        };
        let compiling = std::thread::Builder::new().name("stepgraph-bind".into()).spawn_scoped(scope, compile);
        let mut sources = sources_of(gpu, &asking)?;
        if !asking.is_empty() {
            // The kernels that their graphs will need.
            sources.push(clear_memory().into());
        }
        let mut kernels = gpu.kernels(&sources);
        match compiling.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(compiled)) => kernels.extend(compiled?),
            Ok(Err(_)) => return Err(CudaError::from("the thread that compiles kernels ended in a panic").into()),
            // Kernels that were not compiled in advance are compiled when they are needed.
            Err(_) => {}
        }
        Ok(Prefetched { _kernels: kernels })
    })
}

/// The kernels that will probably feed this step, if some of them are not compiled yet.
fn missing_feeds(gpu: &Gpu, compiled: &Compiled) -> Vec<KernelSource> {
    let feeds = expected_feeds(&compiled.plan.program, compiled.model.batch);
    if gpu.has_kernels(&feeds).contains(&false) { feeds } else { Vec::new() }
}

/// Compiles and loads the kernels of feeds on a separate thread while `work` runs.
fn with_feeds<T>(gpu: &Gpu, feeds: &[KernelSource], work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        if !feeds.is_empty() {
            // Other processes compile them; if they cannot be stored, this one does. If one is not available, the feed
            // says so when it needs it.
            let compile = || {
                gpu.compile_ahead(feeds, feeds.len(), || true);
                gpu.enter().map(|()| gpu.kernels(feeds))
            };
            let thread = std::thread::Builder::new().name("stepgraph-feeds".into()).spawn_scoped(scope, compile);
            if let Err(why) = thread {
                log::debug!("the kernels of feeds are compiled when they are needed: {why}");
            }
        }
        work()
    })
}

/// The sources of the kernels that operations will run.
fn sources_of(gpu: &Gpu, ops: &[(&Compiled, usize)]) -> Result<Vec<KernelSource>, ExecError> {
    let mut drafts = draft_all(gpu, ops)?;
    use_wider(gpu, &mut drafts);
    Ok(all_sources(&drafts))
}

fn all_sources(drafts: &[Drafts]) -> Vec<KernelSource> {
    drafts.iter().flat_map(Drafts::sources).collect()
}

/// Compiles the custom kernels of a step that are not in the cache yet, one after the other, as long as `goes_on`, and
/// writes them to the disk. No module is loaded, so that a step may run and be captured at the same time. Kernels that
/// follow products of libraries are omitted, because they depend on the library's answer. Returns the number of
/// kernels.
///
/// # Errors
/// If no kernel or library can compute an operation.
pub fn compile_ahead(gpu: &Gpu, compiled: &Compiled, goes_on: impl Fn() -> bool + Sync) -> Result<usize, ExecError> {
    let custom = (0..compiled.plan.program.ops.len()).filter(|index| !asks_library(compiled, *index));
    let custom: Vec<(&Compiled, usize)> = custom.map(|index| (compiled, index)).collect();
    Ok(gpu.compile_ahead(&all_sources(&draft_all(gpu, &custom)?), 1, goes_on))
}

/// Like [`compile_ahead`], for a step whose libraries have answered before: all its kernels, several at a time, on at
/// most half of the processors.
///
/// # Errors
/// As [`compile_ahead`].
pub fn compile_for(gpu: &Gpu, compiled: &Compiled, goes_on: impl Fn() -> bool + Sync) -> Result<usize, ExecError> {
    /// The largest number of compiling processes.
    const MOST: usize = 8;
    let ops: Vec<(&Compiled, usize)> = (0..compiled.plan.program.ops.len()).map(|index| (compiled, index)).collect();
    let sources = all_sources(&draft_all(gpu, &ops)?);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() / 2).clamp(1, MOST);
    Ok(gpu.compile_ahead(&sources, threads, goes_on))
}
