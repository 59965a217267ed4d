//! Measures how long a step's operations take, and the overhead of a replay on the host.

use super::any_feed::MAX_STEPS;
use super::arguments::DeviceEnv;
use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::capture::capture;
use super::captured_graph::CapturedGraph;
use super::device_block::allocate;
use super::error::CudaError;
use super::half_parameters::HalfParameters;
use super::launch::Launch;
use super::memory::Event;
use super::recording::Role;
use super::step::Step;
use crate::compile::Compiled;
use crate::exec::cuda::gpu::Gpu;
use crate::exec::error::ExecError;
use crate::exec::store::StepMemory;
use std::sync::Arc;
use std::time::Instant;

/// What a library computes in operation `index`: algorithm, tile, workspace; `None` for custom kernels.
pub(super) fn library_of(step: &Step, index: usize) -> Option<String> {
    step.ops.calls[index].iter().find_map(BoundCall::describe)
}

/// A pair of events between which the device measures the time.
struct Stopwatch<'a> {
    gpu: &'a Gpu,
    start: Event,
    end: Event,
}

impl<'a> Stopwatch<'a> {
    fn new(gpu: &'a Gpu) -> Result<Self, CudaError> {
        Ok(Self { gpu, start: Event::new(true)?, end: Event::new(true)? })
    }

    /// The time of what `put` enqueues on the stream, in microseconds.
    fn time_us<E: From<CudaError>>(&self, put: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
        let stream = self.gpu.stream();
        self.start.record(stream)?;
        put()?;
        self.end.record(stream)?;
        self.end.wait()?;
        Ok(self.start.until_us(&self.end)?)
    }
}

/// Times each operation separately: `rounds` launches back to back between two events, the median of five such
/// measurements, in microseconds.
///
/// # Errors
/// As [`Step::replay`].
pub(super) fn time_calls(step: &Step, rounds: usize) -> Result<Vec<f64>, ExecError> {
    step.begin()?;
    let gpu = &step.ops.gpu;
    let watch = Stopwatch::new(gpu)?;
    let mut out = Vec::with_capacity(step.ops.len());
    for op in 0..step.ops.len() {
        // The launches of one operation are captured, so that the host's speed does not matter.
        let graph = capture_repeated(&step.ops, op, rounds)?;
        let mut samples = Vec::with_capacity(5);
        for _ in 0..5 {
            samples.push(watch.time_us(|| graph.launch(gpu))? / rounds.max(1) as f64);
        }
        samples.sort_by(f64::total_cmp);
        out.push(samples[2]);
    }
    Ok(out)
}

/// One operation `rounds` times in a graph whose nodes were read.
fn capture_repeated(ops: &BoundOps, op: usize, rounds: usize) -> Result<CapturedGraph, ExecError> {
    let launch = Launch::Single { op, flags: 0 };
    let graph = capture(ops, Role::Several(rounds), &vec![&launch; rounds], &[]);
    graph.map_err(|error| match error {
        ExecError::Gpu(why) => ExecError::device(&ops.compiled, op, why),
        other => other,
    })
}

/// The overhead of a replay on the host, in microseconds for each step: the ledger and the launch, with nothing queued
/// before it. The median of `rounds` launches.
///
/// # Errors
/// As [`Step::replay`].
pub(super) fn time_bookkeeping(step: &mut Step, rounds: usize) -> Result<f64, ExecError> {
    step.replay_many(MAX_STEPS)?;
    let steps = step.graphs.several().map_or(1, |(k, _)| k);
    let mut samples = Vec::with_capacity(rounds.clamp(1, 200));
    for _ in 0..rounds.clamp(1, 200) {
        step.synchronize()?;
        let started = Instant::now();
        step.replay_many(steps)?;
        samples.push(started.elapsed().as_secs_f64() * 1e6 / steps as f64);
    }
    step.synchronize()?;
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

/// A step of which some operations are timed, one by one, to choose among kernels: nothing is captured in advance, and
/// the other operations do nothing.
pub struct OpTimer {
    pub(super) ops: BoundOps,
    half: Option<Arc<HalfParameters>>,
}

impl OpTimer {
    /// Allocates the memory of a step and prepares the operations in `timed`.
    ///
    /// # Errors
    /// If there is too little memory, or a kernel is not available.
    pub fn new(compiled: Arc<Compiled>, gpu: Arc<Gpu>, timed: &[bool]) -> Result<Self, ExecError> {
        gpu.enter()?;
        // It has its own store, although an evaluation would use that of the training step.
        let memory = StepMemory::new(&compiled, &[], |sizes| allocate(sizes, &gpu))?;
        let env = DeviceEnv::new(memory, &compiled.plan)?;
        let ops = BoundOps::new(compiled, gpu, env, Some(timed))?;
        let half = HalfParameters::new(&ops.compiled, &ops.gpu, &ops.env)?;
        Ok(Self { ops, half })
    }

    /// Whether a custom kernel replaces a library that refused operation `index`.
    #[must_use]
    pub fn stood_in(&self, index: usize) -> bool {
        self.ops.stood_in(index)
    }

    /// An estimate of the time of one operation, timed separately, in microseconds: operations slower than `give_up_us`
    /// are not timed again.
    ///
    /// # Errors
    /// If a launch fails.
    pub fn time_op(&self, op: usize, give_up_us: f64) -> Result<f64, ExecError> {
        let gpu = &self.ops.gpu;
        gpu.enter()?;
        if let Some(half) = &self.half {
            half.refresh(gpu, self.ops.env.memory.store.changed())?;
        }
        self.draw_tokens(op)?;
        let watch = Stopwatch::new(gpu)?;
        // The first launch loads what a library has not loaded yet.
        self.ops.put_op(op)?;
        let once = watch.time_us(|| self.ops.put_op(op))?;
        if once > give_up_us + 20.0 {
            return Ok(once);
        }
        // For long operations a few launches are enough.
        let launches = ((400.0 / once.max(1.0)) as usize).clamp(3, 12);
        let graph = capture_repeated(&self.ops, op, launches)?;
        let mut best = f64::INFINITY;
        for _ in 0..3 {
            best = best.min(watch.time_us(|| graph.launch(gpu))? / launches as f64);
        }
        Ok(best)
    }
}
