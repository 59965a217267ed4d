//! `stepgraph bench`: eager and replayed steps side by side.
//!
//! One random batch stays in the memory that the step reads. After a warm-up, blocks of eager and of replayed steps
//! alternate, so that other load on the machine affects both; every block starts from the same parameters, so that no
//! run reaches values that take longer to compute. Each step is timed separately; if it is shorter than 20 us,
//! several are timed together and divided by their number, so that the resolution of the clock does not matter.
//!
//! Each operation's time is compared with its floor: the larger of its arithmetic at the rate that a loop of only
//! multiplications and additions reaches on these threads, and its bytes at the rates of the levels of memory that they
//! must come from. The rates are measured before and after the steps, and the best ones are used. The floor of a step
//! is the sum over its operations; on a GPU, operations that are fused horizontally share one launch.

use super::args::BenchArgs;
use super::bench_edits::{Edits, InTurn};
use super::bench_kinds::Kinds;
use super::bench_steps::{Bench, before_change};
use super::ceilings::Limits;
use super::error::wrong;
use super::output::{self, Distribution};
use super::presets::{self, DataLook, Loaded};
use super::result_places::{Kind, Places};
use super::whole_step::{StepTimes, WholeStep, is_one};
use super::{device, kernel_times};
use crate::compile::{Compiled, Options, compile};
use crate::exec::{Executor, ReadyTimes, Step, peak_bytes};
use crate::select::{Target, Threads, Tuning};
use crate::tensor::Bytes;
use crate::train::{
    DataChoice, Purpose, Session, SessionSpec, TrainError, compile_for_shared_launches, gpu_times, needs,
};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds over the list for the time of each operation.
const OP_ROUNDS: usize = 31;

/// What `--json` prints; times are microseconds unless their name says otherwise.
#[derive(Serialize)]
struct Report {
    preset: String,
    device: String,
    threads: usize,
    /// How the number of threads was chosen.
    threads_why: Threads,
    batch: usize,
    /// Batches in a step; times, calls and operations are those of a whole step, and rows those of its last batch.
    #[serde(skip_serializing_if = "is_one")]
    accumulate: usize,
    parameters: usize,
    eager_us: Distribution,
    replay_us: Distribution,
    /// Replays with the general kernels that a run starts with, if it then changes over to those that the other times
    /// of the step are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    general_us: Option<Distribution>,
    /// The eager median divided by the replayed median.
    speedup: f64,
    samples_per_s: f64,
    /// A replay with empty kernels: the ledger and the calls only; the mean of many. On a GPU, the host's part of a
    /// launch.
    host_us: f64,
    /// The same with the synchronisation of the threads at shared calls.
    host_with_threads_us: f64,
    /// Why replays ran op by op; `None` if the step was captured.
    why_eager: Option<String>,
    /// Kernel calls a step.
    launches: usize,
    /// Calls whose kernel was chosen by measured times.
    tuned_calls: usize,
    /// The sum of the operations' medians, each timed separately.
    kernels_us: f64,
    /// The catalogue's estimate of the step, from rates that were not measured on this machine; for tuned calls the
    /// measured time.
    estimate_us: f64,
    /// The sum of the launches' floors: of one operation, or of several that are fused horizontally.
    floor_us: f64,
    /// The median replay over the floor.
    gap: f64,
    /// What the floors are computed from.
    ceilings: Limits,
    flops: u64,
    /// Floating-point operations a second, in thousands of millions.
    gflops: f64,
    /// Steps timed at once, and how many such samples there are of each kind.
    steps_per_sample: usize,
    samples: usize,
    /// From a checked preset to a recording: the compiler's stages, then memory and recording.
    capture_ms: f64,
    compile_ms: f64,
    /// Time for timing kernels that were never timed on this GPU; close to zero if all are known.
    tune_ms: f64,
    record_ms: f64,
    /// Time until the first step of a session can run, with the caches as they were.
    ready: ReadyTimes,
    arena_bytes: u64,
    lower_bound_bytes: u64,
    unshared_bytes: u64,
    /// The largest memory of this process so far, where the system reports it.
    peak_rss_bytes: Option<u64>,
    ops: Vec<OpTime>,
    /// The kinds of steps of a run whose steps differ; everything above is about the whole step.
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<Kinds>,
}

#[derive(Serialize)]
struct OpTime {
    index: usize,
    kernel: String,
    layer: Option<String>,
    dims: String,
    /// What a library computes in it, as the library describes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    library: Option<String>,
    /// The median, timed separately.
    us: f64,
    estimate_us: f64,
    /// The least time that its arithmetic and its bytes take on this machine.
    floor_us: f64,
    /// What determines the floor: `arithmetic`, or a level of memory.
    floor_bound: &'static str,
    /// The median divided by the floor.
    gap: f64,
}

/// Measures every preset.
///
/// # Errors
/// If a preset is wrong, or the machine cannot run its step.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let loaded = presets::load_all(args.presets.iter().map(OsString::as_os_str), DataLook::Ignore)?;
    let mut places = Places::default();
    loaded.iter().for_each(|found| places.reads_preset(found));
    let graph = places.writes("the graph", Kind::Graph, args.graph.as_deref())?;
    let first = device::threads(args.cpu.threads, &loaded[0].model);
    let chosen = device::choose(args.device, first.count, loaded.iter().map(|found| &found.model))?;
    if args.in_turn {
        let report = InTurn::measure(&loaded, args, &chosen, started)?;
        return if args.json { output::print_json(&report) } else { output::print(&report.text()) };
    }
    if let Some(count) = args.edits {
        return run_edits(args, &loaded, &chosen, count);
    }
    let mut reports = Vec::with_capacity(loaded.len());
    let mut known: Option<Machine> = None;
    for found in &loaded {
        let machine = machine(found, args, &chosen, known.take())?;
        presets::warn_of_precision(&found.preset, &machine.target);
        let report = measure(found, &machine, args.seconds.0, graph.as_deref())?;
        known = Some(machine);
        if !args.json {
            output::print(&text(&report, args.per_op))?;
        }
        reports.push(report);
    }
    if args.json { print_reports(&reports) } else { Ok(()) }
}

/// Prints the report of one preset as an object, those of several presets as a list.
fn print_reports(reports: &[impl Serialize]) -> anyhow::Result<()> {
    match reports {
        [one] => output::print_json(one),
        several => output::print_json(&several),
    }
}

/// Measures changes of every preset instead.
fn run_edits(args: &BenchArgs, loaded: &[Loaded], (target, name): &(Target, String), count: u64) -> anyhow::Result<()> {
    let mut reports = Vec::with_capacity(loaded.len());
    for found in loaded {
        let (target, name) = device::with_threads(target, name, device::threads(args.cpu.threads, &found.model).count);
        let report = Edits::measure(found, args, (&target, &name), count)?;
        if !args.json {
            output::print(&report.text())?;
        }
        reports.push(report);
    }
    if args.json { print_reports(&reports) } else { Ok(()) }
}

/// The machine that a preset is measured on: the requested number of threads, or the fastest, which is measured first
/// if requested. Rates in `known`, measured for another preset, are not measured again.
fn machine(
    found: &Loaded,
    args: &BenchArgs,
    (target, name): &(Target, String),
    known: Option<Machine>,
) -> anyhow::Result<Machine> {
    let threads = if args.tune && args.cpu.threads.is_none() && target.as_cpu().is_some() {
        kernel_times::fastest_threads(found)?
    } else {
        device::threads(args.cpu.threads, &found.model)
    };
    let (target, name) = device::with_threads(target, name, threads.count);
    device::note_threads(&target, &threads);
    let tuning = if args.tune { kernel_times::measured(found, &target)? } else { device::tuning(&target) };
    let same = known.filter(|k| k.target == target && target.as_cpu().is_some()).map(|k| k.ceilings);
    let measured = || Limits::measure(&target, threads.count, found.model.precision);
    let ceilings = same.map_or_else(measured, Ok)?;
    Ok(Machine { tuning, ceilings, target, name, threads })
}

/// The machine that is measured.
struct Machine {
    threads: Threads,
    target: Target,
    name: String,
    ceilings: Limits,
    tuning: Option<Arc<Tuning>>,
}

/// A compiled step, and the milliseconds that compiling took.
struct Prepared {
    compiled: Arc<Compiled>,
    spec: SessionSpec,
    tune_ms: f64,
    compile_ms: f64,
    record_ms: f64,
}

/// Compiles and records a preset's step; fails if memory is too small for it.
fn prepared(found: &Loaded, machine: &Machine) -> anyhow::Result<Prepared> {
    let threads = machine.threads.count;
    let started = Instant::now();
    let options = Options { tuning: machine.tuning.clone(), ..Options::train(machine.target.clone()) };
    let gpu_times = gpu_times(&found.model, &options)?;
    let tune_ms = started.elapsed().as_secs_f64() * 1e3;
    let started = Instant::now();
    let compiled = Arc::new(compile(&found.model, &Options { gpu_times, ..options })?);
    let compile_ms = started.elapsed().as_secs_f64() * 1e3;
    let spec = SessionSpec {
        threads,
        machine: Some(machine.target.clone()),
        data: DataChoice::Resident,
        tuning: machine.tuning.clone(),
        purpose: Purpose::Time,
        ..SessionSpec::new(found.preset.clone(), found.base.clone())
    };
    needs(&spec, &compiled).check_here().map_err(TrainError::from)?;
    let started = Instant::now();
    drop(Step::new(Arc::clone(&compiled), threads)?);
    let record_ms = started.elapsed().as_secs_f64() * 1e3;
    Ok(Prepared { compiled, spec, tune_ms, compile_ms, record_ms })
}

/// The measured times of a step, in microseconds.
struct Measured {
    eager: Distribution,
    replay: Distribution,
    /// Replays that were timed, each sample the mean of this many steps.
    samples: usize,
    steps_per_sample: usize,
    host_us: f64,
    host_with_threads_us: f64,
    why_eager: Option<String>,
    /// What a library computes in each operation.
    libraries: Vec<Option<String>>,
    /// The median of each operation, timed separately, of a step's last batch.
    op_us: Vec<f64>,
    whole: WholeStep,
    /// The rates from before, or those reached since if they are higher.
    ceilings: Limits,
}

impl Measured {
    fn of(bench: &mut Bench<'_>, ops: usize, ceilings: &Limits, seconds: f64) -> anyhow::Result<Self> {
        let single = bench.single_us()?;
        let steps_per_sample = bench.steps_per_sample()?;
        let (mut eager, mut replay) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs_f64(seconds);
        while eager.is_empty() || Instant::now() < deadline {
            bench.block(Executor::Eager, steps_per_sample, &mut eager)?;
            bench.block(Executor::Replay, steps_per_sample, &mut replay)?;
        }
        let rounds = (20_000.0 / single.max(1.0)).clamp(50.0, 5000.0) as usize;
        let mut host = [0.0; 2];
        for (step, count) in bench.step.recordings_mut() {
            let one = step.time_bookkeeping(rounds, bench.pool)?;
            host.iter_mut().zip(one).for_each(|(sum, us)| *sum += us * count as f64);
        }
        let [host_us, host_with_threads_us] = host;
        bench.step.restore(&bench.start)?;
        let libraries = (0..ops).map(|op| bench.step.library_of(op)).collect();
        let (mut op_us, mut timed) = (Vec::new(), Vec::new());
        for (step, count) in bench.step.recordings_mut() {
            op_us = step.time_calls(OP_ROUNDS, bench.pool)?;
            timed.push((op_us.iter().sum::<f64>(), count as f64));
        }
        // Measure again: a machine that was busy before is probably idle now.
        let ceilings = ceilings.or_better(bench.pool);
        let whole = WholeStep::of(bench.step, &timed, &ceilings);
        Ok(Self {
            samples: replay.len(),
            eager: Distribution::of(&mut eager),
            replay: Distribution::of(&mut replay),
            steps_per_sample,
            host_us,
            host_with_threads_us,
            why_eager: bench.step.recording().why_eager,
            libraries,
            op_us,
            whole,
            ceilings,
        })
    }

    /// A row for each operation.
    fn ops(&self, compiled: &Compiled) -> Vec<OpTime> {
        let model = &compiled.model;
        let rows = compiled.plan.program.ops.iter().zip(&compiled.selection.choices).zip(&self.op_us).enumerate();
        let ops = rows.map(|(index, ((op, choice), us))| {
            let floor = self.ceilings.floor(choice.least_flops, choice.bytes);
            OpTime {
                index,
                kernel: choice.kernel.clone(),
                layer: op.layer.map(|l| model.layer(l).label()),
                dims: crate::lower::dims(&op.kind),
                library: self.libraries[index].clone(),
                us: *us,
                estimate_us: choice.cost_us,
                floor_us: floor.us,
                floor_bound: floor.bound,
                gap: us / floor.us,
            }
        });
        ops.collect()
    }
}

/// Writes the graph of a GPU's step.
fn write_graph(step: &Step, path: &Path) -> anyhow::Result<()> {
    if step.write_graph(path)? {
        return Ok(());
    }
    Err(wrong("--graph writes the graph of a GPU; the CPU's recording is that of `stepgraph plan --format dot`"))
}

/// Operations whose kernels are chosen by measured times.
fn tuned_calls(compiled: &Compiled, machine: &Machine) -> usize {
    let facts = machine.target.as_cpu().zip(machine.tuning.as_ref());
    let is_tuned = |op: &&crate::lower::Op| facts.is_some_and(|(cpu, known)| known.fastest(&op.kind, cpu).is_some());
    compiled.plan.program.ops.iter().filter(is_tuned).count()
}

fn measure(found: &Loaded, machine: &Machine, seconds: f64, graph: Option<&Path>) -> anyhow::Result<Report> {
    let Prepared { compiled, spec, tune_ms, compile_ms, record_ms } = prepared(found, machine)?;
    let mut session = Session::prepare(&spec)?;
    let ready = session.ready_times().clone();
    if compile_for_shared_launches(&machine.target, machine.threads.count, || true) > 0 {
        drop(session);
        session = Session::prepare(&spec)?;
    }
    let general_us = before_change(&mut session, seconds)?;
    let (step, pool) = session.step_mut();
    let mut bench = Bench { start: step.snapshot()?, step, pool };
    if let Some(path) = graph {
        write_graph(bench.step, path)?;
    }
    let (plan, model) = (&compiled.plan, &compiled.model);
    let measured = Measured::of(&mut bench, plan.program.ops.len(), &machine.ceilings, seconds)?;
    let WholeStep { launches, flops, ref times } = measured.whole;
    let StepTimes { kernels_us, estimate_us, floor_us } = *times;
    let (eager_us, replay_us) = (measured.eager, measured.replay);
    let kinds = Kinds::measure(found, &spec, seconds)?;
    Ok(Report {
        kinds,
        preset: model.name.clone(),
        device: machine.name.clone(),
        threads: machine.threads.count,
        threads_why: machine.threads,
        batch: model.batch,
        accumulate: model.accumulate,
        parameters: model.trained_len(),
        eager_us,
        replay_us,
        general_us,
        speedup: eager_us.median / replay_us.median,
        samples_per_s: model.samples_a_step() as f64 * 1e6 / replay_us.median,
        host_us: measured.host_us,
        host_with_threads_us: measured.host_with_threads_us,
        ops: measured.ops(&compiled),
        why_eager: measured.why_eager,
        launches,
        tuned_calls: tuned_calls(&compiled, machine),
        kernels_us,
        estimate_us,
        floor_us,
        gap: replay_us.median / floor_us,
        ceilings: measured.ceilings,
        flops,
        gflops: flops as f64 / replay_us.median / 1e3,
        steps_per_sample: measured.steps_per_sample,
        samples: measured.samples,
        capture_ms: compile_ms + record_ms,
        compile_ms,
        tune_ms,
        record_ms,
        ready,
        arena_bytes: plan.arena_bytes,
        lower_bound_bytes: plan.lower_bound_bytes,
        unshared_bytes: plan.unshared_bytes,
        peak_rss_bytes: peak_bytes(),
    })
}

/// A report as text, for people.
fn text(r: &Report, per_op: bool) -> String {
    let row = |name: &str, d: &Distribution| {
        let [median, p10, p99] = [d.median, d.p10, d.p99].map(output::micros);
        format!("  {name:<10} median {median:>9}, p10 {p10:>9}, p99 {p99:>9}\n")
    };
    let mut out = format!(
        "{} (batch {}, {}, {})\n",
        r.preset,
        r.batch,
        output::counted(r.parameters as u64, "parameter"),
        output::counted(r.threads as u64, "thread")
    );
    if let Some(why) = &r.why_eager {
        out.push_str(&format!("  the step could not be captured, so that replays ran op by op too: {why}\n"));
    }
    let rows = [("eager", Some(&r.eager_us)), ("replay", Some(&r.replay_us)), ("general", r.general_us.as_ref())];
    out.extend(rows.into_iter().filter_map(|(name, found)| found.map(|times| row(name, times))));
    out.push_str(&format!(
        "  replay is {:.2} times as fast: {} samples/s, {:.1} GFLOP/s\n",
        r.speedup,
        output::count(r.samples_per_s as u64),
        r.gflops
    ));
    out.push_str(&format!(
        "  {}, {} when timed separately; {} a step without them ({} with the threads' barriers); estimated {}\n",
        output::counted(r.launches as u64, "kernel call"),
        output::micros(r.kernels_us),
        output::micros(r.host_us),
        output::micros(r.host_with_threads_us),
        output::micros(r.estimate_us)
    ));
    if r.tuned_calls > 0 {
        out.push_str(&format!("  {} of the kernels are chosen by stored times\n", r.tuned_calls));
    }
    out.push_str(&format!(
        "  at least {} on this machine; a replay takes {:.1} times this least time\n",
        output::micros(r.floor_us),
        r.gap
    ));
    out.push_str(&format!(
        "  preset to recording {:.2} ms; arena {} (bound {}, unshared {})\n",
        r.capture_ms,
        Bytes(r.arena_bytes),
        Bytes(r.lower_bound_bytes),
        Bytes(r.unshared_bytes)
    ));
    if r.steps_per_sample > 1 {
        out.push_str(&format!(
            "  each of the {} samples is the mean of {} steps\n",
            output::count(r.samples as u64),
            r.steps_per_sample
        ));
    }
    out.extend(r.kinds.iter().map(|kinds| kinds.text()));
    if per_op {
        out.push_str(&per_op_text(r));
    }
    out
}

/// The operations of a report, one per line.
fn per_op_text(r: &Report) -> String {
    let mut out = r.ceilings.to_string();
    for op in &r.ops {
        let [us, estimate, floor] = [op.us, op.estimate_us, op.floor_us].map(output::micros);
        let (gap, bound) = (op.gap, op.floor_bound);
        let layer = op.layer.as_deref().unwrap_or("-");
        out.push_str(&format!(
            "  {:>4}  {:<38} {us:>9}  floor {floor:>9} ({bound:<10}) gap {gap:>6.1}  estimated {estimate:>9}  \
             {layer:<16} {}\n",
            op.index,
            op.kernel,
            op.library.as_deref().map_or_else(|| op.dims.clone(), |l| format!("{} by {l}", op.dims))
        ));
    }
    out
}
