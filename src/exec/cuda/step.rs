//! A compiled step in device memory: run op by op, or captured and replayed.

use super::arguments::DeviceEnv;
use super::bound_ops::BoundOps;
use super::device_block::DeviceBlock;
use super::device_feed::DeviceFeed;
use super::error::{CudaError, failed};
use super::feed_memory::HeldRows;
use super::graph_reader::{Planned, check_size, planned, read};
use super::graphs::Graphs;
use super::half_parameters::HalfParameters;
use super::recording::{Recording, Role};
use super::transfers::Transfers;
use crate::compile::Compiled;
use crate::data::BatchPlace;
use crate::exec::backend::GraphRead;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::exec::location::located;
use crate::exec::ready_times::{ReadyStage, ReadyTimes};
use crate::exec::store::StepMemory;
use crate::exec::stream::{DataSet, HeldData, MAX_WATCHED, StepRecord};
use crate::lower::LValueId;
use crate::plan::StateKind;
use cudarc::driver::result;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A data set may take one part in this many of the free memory.
const SHARE: u64 = 2;
/// The number of launches that are made, of one step each, before launches of several steps are captured.
const LAUNCHES_OF_ONE: u64 = 1;

/// A compiled step with its device memory.
pub(super) struct Step {
    /// Dropped before the fields below, which keep its kernels loaded.
    pub(super) graphs: Graphs,
    pub(super) ops: BoundOps,
    pub(super) recording: Recording,
    /// The data set that steps fetch their batches from.
    feed: Option<Box<DeviceFeed>>,
    pub(super) half: Option<Arc<HalfParameters>>,
    pub(super) transfers: Transfers,
    trace: Option<Vec<u32>>,
    /// The time that each stage of its preparation took.
    pub(super) ready_times: ReadyTimes,
}

impl Step {
    /// Compiles the kernels of a step, binds them to its memory and captures it.
    ///
    /// # Errors
    /// If the memory is not what the step needs, or a kernel is not available. A step that cannot be captured is not an
    /// error: it runs op by op, and its recording says why.
    pub(super) fn new(compiled: Arc<Compiled>, gpu: Arc<Gpu>, memory: StepMemory) -> Result<Self, ExecError> {
        let mut step = Self::bound(compiled, gpu, memory)?;
        let started = Instant::now();
        step.warm()?;
        let whole = started.elapsed();
        let graphs: f64 =
            [ReadyStage::Capture, ReadyStage::Upload].map(|stage| step.ready_times.us(stage)).iter().sum();
        step.ready_times.add(ReadyStage::FirstRun, whole.saturating_sub(Duration::from_secs_f64(graphs / 1e6)));
        Ok(step)
    }

    /// Compiles the kernels of a step and binds them to its memory, to be run op by op.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn bound(compiled: Arc<Compiled>, gpu: Arc<Gpu>, memory: StepMemory) -> Result<Self, ExecError> {
        gpu.enter()?;
        let env = DeviceEnv::new(memory, &compiled.plan)?;
        // From here on only addresses are requested from the environment.
        let ops = BoundOps::new(compiled, gpu, env, None)?;
        let mut ready_times = ops.ready_times.clone();
        let recording = ready_times.of(ReadyStage::Launches, || Recording::new(&ops));
        let graphs = Graphs::new(&ops);
        let half = half_of(&ops)?;
        let transfers = Transfers::new(Arc::clone(&ops.gpu));
        Ok(Self { ops, recording, graphs, feed: None, half, transfers, trace: None, ready_times })
    }

    /// Runs everything once on fresh memory, op by op, launch by launch and as captured, so that modules are loaded and
    /// libraries have made their decisions, and clears the results. Over a store that other steps have used, nothing is
    /// run.
    fn warm(&mut self) -> Result<(), ExecError> {
        if self.ops.env.memory.is_new {
            self.run_ops(0, self.ops.len())?;
            self.recording.launches().iter().try_for_each(|launch| self.ops.put(launch))?;
            self.capture()?;
            if let Ok(graph) = self.graphs.one() {
                graph.launch(&self.ops.gpu)?;
            }
            for (from, to) in self.ops.env.ranges() {
                // SAFETY: the whole allocation is ours.
                unsafe { result::memset_d8_async(from, 0, (to - from) as usize, self.ops.gpu.stream()) }
                    .map_err(|e| failed("cuMemsetD8Async", e))?;
            }
            self.set_half_stale();
        } else {
            self.capture()?;
        }
        Ok(self.ops.gpu.synchronize()?)
    }

    /// Captures one step.
    fn capture(&mut self) -> Result<(), ExecError> {
        let started = Instant::now();
        self.graphs.capture_one(&self.ops, &self.recording)?;
        let upload = self.graphs.one().map_or(Duration::ZERO, |graph| graph.upload_took);
        self.ready_times.add(ReadyStage::Capture, started.elapsed().saturating_sub(upload));
        self.ready_times.add(ReadyStage::Upload, upload);
        Ok(())
    }

    /// Records that the half-precision parameters are out of date.
    fn set_half_stale(&self) {
        if let Some(half) = &self.half {
            half.set_stale();
        }
    }

    /// Preparation before every run: the device becomes current, and the half-precision parameters are updated.
    pub(super) fn begin(&self) -> Result<(), ExecError> {
        self.ops.gpu.enter()?;
        if let Some(half) = &self.half {
            half.refresh(&self.ops.gpu, self.ops.env.memory.store.changed())?;
        }
        Ok(())
    }

    /// Replays the captured step once; returns before the device is done.
    ///
    /// # Errors
    /// If the ledger finds that memory, graph or a live constant has changed since capture (then nothing was run), or a
    /// launch fails.
    pub(super) fn replay(&mut self) -> Result<(), ExecError> {
        let graph = self.graphs.one().ok();
        match graph {
            Some(graph) => self.graphs.ledger.check(&self.ops, Role::One, graph)?,
            None => self.graphs.ledger.check_memory(&self.ops)?,
        }
        self.begin()?;
        match graph {
            Some(graph) => graph.launch(&self.ops.gpu)?,
            None => self.recording.launches().iter().try_for_each(|l| self.ops.put(l))?,
        }
        if let Some(trace) = &mut self.trace {
            trace.extend(0..self.ops.len() as u32);
        }
        Ok(())
    }

    /// Replays `count` steps back to back, several in one launch if the graph allows it.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub(super) fn replay_many(&mut self, count: usize) -> Result<(), ExecError> {
        let has_several = self.graphs.capture_several(&self.ops, &self.recording, count)?;
        let mut left = count;
        if let Some((steps, graph)) = self.graphs.several().filter(|_| has_several) {
            self.graphs.ledger.check(&self.ops, Role::Several(steps), graph)?;
            self.begin()?;
            while left >= steps {
                graph.launch(&self.ops.gpu)?;
                left -= steps;
            }
        }
        (0..left).try_for_each(|_| self.replay())
    }

    /// Waits until the device has done all its work.
    ///
    /// # Errors
    /// If the device has reported an error since the last wait.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        self.ops.gpu.enter().and_then(|()| self.ops.gpu.synchronize())
    }

    /// Runs operations `from..to` one by one.
    ///
    /// # Errors
    /// If a launch fails.
    pub(super) fn run_ops(&mut self, from: usize, to: usize) -> Result<(), ExecError> {
        self.begin()?;
        for index in from..to.min(self.ops.len()) {
            self.ops.put_op(index)?;
            if let Some(trace) = &mut self.trace {
                trace.push(index as u32);
            }
        }
        Ok(())
    }

    /// Sets which values the host reads after every step.
    ///
    /// # Errors
    /// If there is too little memory.
    pub(super) fn watch(&self, ids: &[LValueId]) -> Result<(), CudaError> {
        let plan = &self.ops.compiled.plan;
        let address = |id: &LValueId| plan.place(*id).map(|place| self.ops.env.address(plan, place));
        let extents = ids.iter().filter_map(|id| Some((address(id)?, plan.program.value(*id).bytes())));
        let (from, to) = extents.fold((u64::MAX, 0), |(a, b), (start, bytes)| (a.min(start), b.max(start + bytes)));
        // One copy stays inside one allocation.
        let is_inside = self.ops.env.ranges().iter().any(|range| range.0 <= from && to <= range.1);
        if is_inside { self.transfers.watch(from, to) } else { Ok(()) }
    }

    /// A value's bytes as they are in memory; waits for the device.
    ///
    /// # Errors
    /// If the value has no place, or the device failed.
    pub(super) fn bytes(&self, id: LValueId) -> Result<Vec<u8>, ExecError> {
        let (place, value) = located(&self.ops.compiled, id)?;
        let mut bytes = vec![0u8; value.bytes() as usize];
        let address = self.ops.env.address(&self.ops.compiled.plan, place);
        if !self.transfers.fetched(address, self.ops.env.memory.store.revision(), &mut bytes)? {
            self.transfers.read(address, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Lets `fill` prepare a value's bytes, which are then copied to the device without waiting for it.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub(super) fn fill_bytes(&mut self, id: LValueId, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), ExecError> {
        let (place, value) = located(&self.ops.compiled, id)?;
        let address = self.ops.env.address(&self.ops.compiled.plan, place);
        self.is_changed(id);
        Ok(self.transfers.stage(address, value.bytes() as usize, fill)?)
    }

    /// Overwrites a value once. A large value is not copied through pinned memory, because allocating that takes longer
    /// than filling it.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub(super) fn write_once(&mut self, id: LValueId, bytes: &[u8]) -> Result<(), ExecError> {
        /// Smaller values than this are staged like any other value.
        const LARGE: usize = 1 << 20;
        let (place, value) = located(&self.ops.compiled, id)?;
        if bytes.len() < LARGE || bytes.len() as u64 != value.bytes() {
            return self.fill_bytes(id, &mut |out| out.copy_from_slice(bytes));
        }
        let address = self.ops.env.address(&self.ops.compiled.plan, place);
        self.is_changed(id);
        Ok(self.transfers.write_directly(address, bytes)?)
    }

    /// Records that the host overwrites a value.
    fn is_changed(&self, id: LValueId) {
        let plan = &self.ops.compiled.plan;
        let key = plan.place(id).and_then(|place| plan.buffer(place.buffer).key.as_ref());
        if key.is_some_and(|key| key.kind == StateKind::Params) {
            self.set_half_stale();
        }
    }

    /// Starts or stops recording the ids of executed kernels.
    pub(super) fn set_trace(&mut self, on: bool) {
        self.trace = on.then(Vec::new);
    }

    /// The ids of the kernels executed since tracing began.
    pub(super) fn trace(&self) -> Vec<String> {
        let kernel = |op: &u32| self.ops.compiled.selection.choices[*op as usize].kernel.clone();
        self.trace.iter().flatten().map(kernel).collect()
    }
}

/// The half-precision parameters of a step's store; the first step over the store creates them.
fn half_of(ops: &BoundOps) -> Result<Option<Arc<HalfParameters>>, ExecError> {
    let Some(block) = ops.env.memory.store.memory().as_any().downcast_ref::<DeviceBlock>() else { return Ok(None) };
    if let Some(known) = block.half.get() {
        return Ok(known.clone());
    }
    let found = HalfParameters::new(&ops.compiled, &ops.gpu, &ops.env)?;
    Ok(block.half.get_or_init(|| found).clone())
}

/// Steps that fetch their own batches.
impl Step {
    /// Stores a data set on the device. Returns false if the step is not captured, or the device has no room.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn hold(&mut self, data: &DataSet<'_>) -> Result<bool, ExecError> {
        self.ops.gpu.enter()?;
        self.graphs.drop_fed();
        self.feed = None;
        let bytes = |len: usize| (len * 4) as u64;
        let needed = bytes(data.samples.len()) + bytes(data.targets.len());
        let (free, _) = self.ops.gpu.memory()?;
        if needed > free / SHARE || !self.can_be_fed(data.watched) {
            return Ok(false);
        }
        match HeldRows::new(&self.ops, data)? {
            Some(rows) => self.feed_from(Arc::new(rows), data.watched),
            None => Ok(false),
        }
    }

    /// Fetches batches from a data set that another step holds. Returns false if the step is not captured.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn share(&mut self, held: &HeldData, watched: &[LValueId]) -> Result<bool, ExecError> {
        self.ops.gpu.enter()?;
        match Arc::clone(&held.0).downcast() {
            Ok(rows) if self.can_be_fed(watched) => self.feed_from(rows, watched),
            _ => Ok(false),
        }
    }

    fn can_be_fed(&self, watched: &[LValueId]) -> bool {
        self.graphs.one().is_ok() && watched.len() <= MAX_WATCHED
    }

    fn feed_from(&mut self, rows: Arc<HeldRows>, watched: &[LValueId]) -> Result<bool, ExecError> {
        let Some((feed, graph)) = DeviceFeed::new(&self.ops, &self.recording, &self.graphs, rows, watched)? else {
            return Ok(false);
        };
        self.graphs.keep_fed(1, graph);
        self.feed = Some(Box::new(feed));
        Ok(true)
    }

    /// The data set on the device.
    pub(super) fn held(&self) -> Option<HeldData> {
        self.feed.as_ref().map(|feed| HeldData(Arc::<HeldRows>::clone(feed.rows())))
    }

    /// The largest number of steps that the next launch makes if `left` are requested; 0 if steps do not fetch their
    /// batches themselves.
    pub(super) fn launch_size(&self, left: u64) -> usize {
        self.graphs.fed_sizes().find(|steps| *steps as u64 <= left).unwrap_or(0)
    }

    /// Whether another launch may be started before the records of the first one are taken.
    pub(super) fn has_free_slot(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.has_free_slot())
    }

    /// Launches the steps whose batches are at `places`; `first` is the value of the step counter before them. Returns
    /// immediately.
    ///
    /// # Errors
    /// If the ledger finds that memory, graph or a live constant has changed since capture (then nothing was run), or a
    /// call fails.
    pub(super) fn launch(&mut self, first: u64, places: &[BatchPlace]) -> Result<(), ExecError> {
        if self.feed.as_ref().is_some_and(|feed| feed.launched == LAUNCHES_OF_ONE) {
            // The device runs the first step in the meantime.
            match self.capture_several_fed() {
                Err(ExecError::Gpu(why)) => log::warn!("each launch makes one step: {why}"),
                other => other?,
            }
        }
        let graph = self.graphs.fed(places.len());
        match graph {
            Some(graph) => self.graphs.ledger.check(&self.ops, Role::Fed(places.len()), graph)?,
            None => self.graphs.ledger.check_memory(&self.ops)?,
        }
        self.feed.as_ref().map_or(Ok(()), |feed| feed.check_rings())?;
        self.begin()?;
        let Some(feed) = &mut self.feed else { return Err(ExecError::Gpu("no data set is on the device".into())) };
        Ok(feed.launch(&self.ops.gpu, graph, first, places)?)
    }

    /// Captures the launches of several steps that fetch their batches, if steps do.
    ///
    /// # Errors
    /// If the driver or a library reports an error, or a graph is not the planned one.
    pub(super) fn capture_several_fed(&mut self) -> Result<(), ExecError> {
        self.ops.gpu.enter()?;
        let Some(feed) = &self.feed else { return Ok(()) };
        self.graphs.capture_several_fed(&self.ops, &self.recording, feed.all_launches())
    }

    /// The largest number of steps in a launch of steps that fetch their batches; 0 if steps do not.
    pub(super) fn most_fed(&self) -> usize {
        self.feed.as_ref().map_or(0, |_| self.graphs.most_fed())
    }

    /// The records of the oldest launch in flight, in order; waits only for that launch. Empty if none is in flight.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn completed(&mut self) -> Result<&[StepRecord], CudaError> {
        self.ops.gpu.enter()?;
        match &mut self.feed {
            Some(feed) => feed.completed(),
            None => Ok(&[]),
        }
    }

    /// Waits for all launches and discards their records.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn abandon_launches(&mut self) -> Result<(), CudaError> {
        self.synchronize()?;
        if let Some(feed) = &mut self.feed {
            feed.forget_launches();
        }
        Ok(())
    }
}

/// The captured graphs.
impl Step {
    /// The planned kernel launches of one of the step's graphs.
    pub(super) fn planned_of(&self, role: Role) -> Vec<Planned> {
        let feeds = match (role, &self.feed) {
            (Role::Fed(steps), Some(feed)) => feed.launches(steps),
            _ => Vec::new(),
        };
        planned(&self.ops, &self.recording.of(role), &feeds)
    }

    /// The graphs that may be launched, as text.
    pub(super) fn graph_names(&self) -> Vec<String> {
        let mode = self.ops.compiled.plan.program.mode;
        self.graphs.by_role().iter().map(|(role, _)| role.name(mode)).collect()
    }

    /// Reads the nodes of a graph, given by its index in [`Self::graph_names`], and compares their arguments with those
    /// of the plan. Nothing is launched.
    ///
    /// # Errors
    /// The first difference, with operation and layer, or an error of the driver.
    pub(super) fn read_graph(&self, number: usize) -> Result<GraphRead, ExecError> {
        self.ops.gpu.enter()?;
        let numbered = self.graphs.numbered(number);
        let (role, graph) = numbered.ok_or_else(|| CudaError::from(format!("there is no graph {number}")))?;
        check_size(&self.ops, role, graph)?;
        if let (Role::Fed(_), Some(feed)) = (role, &self.feed) {
            feed.check(&self.ops)?;
        }
        read(&self.ops, role, graph, &self.planned_of(role))
    }

    /// Performs the checks that precede a launch of the graph with this number. Nothing is launched.
    ///
    /// # Errors
    /// What changed.
    pub(super) fn check_graph(&self, number: usize) -> Result<(), ExecError> {
        match self.graphs.numbered(number) {
            Some((role, graph)) => self.graphs.ledger.check(&self.ops, role, graph),
            None => self.graphs.ledger.check_memory(&self.ops),
        }
    }

    /// Writes the captured graph in Graphviz's language, as the driver sees it.
    ///
    /// # Errors
    /// If there is no graph, or it cannot be written.
    pub(super) fn write_graph(&self, path: &Path) -> Result<(), CudaError> {
        self.ops.gpu.enter()?;
        match self.graphs.one() {
            Ok(graph) => graph.write_dot(path),
            Err(why) => Err(format!("there is no graph: {why}").into()),
        }
    }
}
