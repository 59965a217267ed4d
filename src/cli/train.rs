//! `stepgraph train`: a run from the first step to the saved result.

use super::args::{Device, ExecutorArg, TrainArgs};
use super::error::wrong;
use super::keep::{Keeper, folder_of_runs};
use super::output::{self, Distribution};
use super::places::{Kind, Places};
use super::presets::Loaded;
use super::progress::{Progress, held_out};
use super::step_log::StepLog;
use super::times::Times;
use super::{device, presets};
use crate::exec::{ExecError, Executor, peak_bytes};
use crate::model::Preset;
use crate::select::Threads;
use crate::tensor::{Bytes, figure};
use crate::train::runs::RunEnd;
use crate::train::{DataChoice, Evaluation, Layout, Session, SessionSpec, StepReport, TrainError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What `--json` prints. Times ending in `_us` are microseconds.
#[derive(Serialize)]
struct Summary {
    preset: String,
    device: String,
    executor: &'static str,
    threads: usize,
    /// How the number of threads came about.
    threads_why: Threads,
    seed: u64,
    /// The last step made; `first_step` is above 1 for a run that was resumed.
    steps: u64,
    first_step: u64,
    /// True where Ctrl+C ended the run before its last step.
    interrupted: bool,
    /// The loss of the last batch, before its update.
    loss: Option<f32>,
    held_out: Option<HeldOut>,
    evaluations: Vec<HeldOut>,
    /// From the first step to the end of the last, evaluations in between included.
    seconds: f64,
    steps_per_s: f64,
    samples_per_s: f64,
    /// Of the step itself, without bringing its batch.
    step_us: Distribution,
    /// The median time to bring a batch.
    feed_us: f64,
    prepare_ms: f64,
    compile_ms: f64,
    arena_bytes: u64,
    /// The largest memory of this process so far, where the system tells.
    peak_rss_bytes: Option<u64>,
    lower_bound_bytes: u64,
    unshared_bytes: u64,
    parameters: usize,
    /// Kernel calls a step.
    launches: usize,
    files: Vec<String>,
    notes: Vec<String>,
}

#[derive(Clone, Serialize)]
struct HeldOut {
    step: u64,
    loss: f64,
    accuracy: Option<f64>,
    samples: usize,
}

impl HeldOut {
    fn new(step: u64, found: &Evaluation) -> Self {
        Self { step, loss: found.loss, accuracy: found.accuracy, samples: found.samples }
    }
}

/// Where results go, each looked at before the first step.
struct Outputs {
    log: Option<PathBuf>,
    save: Option<PathBuf>,
    checkpoint: Option<PathBuf>,
}

/// Trains.
///
/// # Errors
/// Where what was given is wrong, the run fails, or its results cannot be written.
pub fn run(args: &TrainArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut found = presets::load(&args.preset)?;
    change_split(&mut found.preset, args)?;
    let outputs = outputs(args, &found)?;
    let chosen = device::threads(args.threads, &found.model);
    let threads = chosen.count;
    let (target, device_name) = device::choose(args.device, threads)?;
    device::note_threads(&target, &chosen);
    let spec = SessionSpec {
        executor: if args.executor == ExecutorArg::Eager { Executor::Eager } else { Executor::Replay },
        threads,
        machine: Some(target.clone()),
        steps: args.steps.map(|s| usize::try_from(s).unwrap_or(usize::MAX)),
        seed: args.seed,
        init: args.init.clone(),
        resume: args.resume.clone(),
        tuning: device::tuning(&target),
        data: args.batches.clone().map_or(DataChoice::Preset, DataChoice::Batches),
        ..SessionSpec::new(found.preset.clone(), found.base.clone())
    };
    let (mut session, device_name) = prepare(&spec, args.device, device_name)?;
    let store = args.keep.then(folder_of_runs).transpose()?;
    // The log is opened last: until here a mistake leaves no file at all.
    let from = args.resume.as_ref().map(|_| session.done());
    let log = outputs.log.as_deref().map(|path| StepLog::open(path, from)).transpose()?;
    presets::warn_of_precision(&found.preset, &target);
    introduce(&session, args);
    if store.is_some() {
        session.collect_updates();
    }
    let keep = store.map(|store| Keeper::begin(&store, &session, &spec, &device_name)).transpose()?;
    let prepare_ms = started.elapsed().as_secs_f64() * 1e3;
    let mut run = Run {
        keep,
        first: session.done(),
        last: None,
        evaluations: Vec::new(),
        times: Times::new(session.total()),
        seconds: 0.0,
        files: Vec::new(),
        failures: Vec::new(),
    };
    let stop = stop_flag();
    // A run that fails at step n keeps the log of the steps before it, and nothing else: its parameters are those of no finished run.
    run.steps(&mut session, args, &outputs, log, &stop, &found.preset)?;
    let interrupted = stop.load(Ordering::Relaxed) && session.done() < session.total();
    // The hours of a run are worth more than one file: what can still be written is written, and every failure is told at the end.
    if let Some(path) = &outputs.save {
        let saved = session.save_weights(path);
        run.wrote(path, saved.map_err(late));
    }
    if let Some(path) = &outputs.checkpoint {
        let saved = session.save_checkpoint(path, &found.preset);
        run.wrote(path, saved.map_err(late));
    }
    let held = session.evaluate().unwrap_or_else(|error| {
        run.failures.push(error.into());
        None
    });
    if let Some(mut keep) = run.keep.take() {
        held.iter().for_each(|found| keep.evaluated(session.done(), found));
        let state = if interrupted { RunEnd::Stopped } else { RunEnd::Finished };
        run.failures.extend(keep.finish(state, None, &mut session).err());
    }
    let mut failures = std::mem::take(&mut run.failures);
    let summary = run.summary(&session, args, held.as_ref(), interrupted, prepare_ms, device_name, chosen);
    let printed = if args.json { output::print_json(&summary) } else { output::print(&told(&summary)) };
    failures.extend(printed.err());
    one_error(failures)
}

/// Several failures as one, each on its line.
fn one_error(mut failures: Vec<anyhow::Error>) -> anyhow::Result<()> {
    match failures.len() {
        0 => Ok(()),
        1 => failures.pop().map_or(Ok(()), Err),
        count => {
            let lines: Vec<String> = failures.iter().map(|e| format!("\n{e:#}")).collect();
            Err(anyhow::anyhow!("{count} things failed at the end of the run:{}", lines.concat()))
        }
    }
}

/// Prepares the run. Where the user left the choice of device open and the GPU has not the memory, the CPU takes over, and says so.
fn prepare(spec: &SessionSpec, asked: Device, name: String) -> anyhow::Result<(Session, String)> {
    match Session::prepare(spec) {
        Err(error @ (TrainError::Exec(ExecError::OutOfMemory { .. }) | TrainError::Shortage(_)))
            if asked == Device::Auto && spec.machine.as_ref().is_some_and(|m| m.as_cuda().is_some()) =>
        {
            output::note(&format!("note: {error}; the CPU takes over"));
            let (target, name) = device::choose(Device::Cpu, spec.threads)?;
            Ok((Session::prepare(&SessionSpec { machine: Some(target), tuning: None, ..spec.clone() })?, name))
        }
        other => Ok((other?, name)),
    }
}

/// A file that could be written before the run and cannot now is nobody's mistake in the command: status 1.
fn late(error: TrainError) -> anyhow::Error {
    anyhow::anyhow!("{error}")
}

fn change_split(preset: &mut Preset, args: &TrainArgs) -> anyhow::Result<()> {
    let wanted = args.held_out.is_some() || args.split.is_some();
    let Some(data) = preset.data.as_mut().filter(|_| wanted) else {
        let message = "--held-out and --split change the preset's data, and this preset names none";
        return if wanted { Err(wrong(message)) } else { Ok(()) };
    };
    if let Some(share) = args.held_out {
        data.held_out = share;
    }
    if let Some(split) = args.split {
        data.split = split.kind();
    }
    Ok(())
}

/// Looks whether every result can be written, to a place of its own, and replaces nothing that the run reads.
fn outputs(args: &TrainArgs, found: &Loaded) -> anyhow::Result<Outputs> {
    let network = Layout::of(&found.model);
    let mut places = Places::of(found);
    places.reads("the initial parameters", args.init.as_deref());
    places.reads("the batches", args.batches.as_deref());
    // A run that goes on may renew the checkpoint that it came from; nothing else may replace that.
    let checkpoint = places.writes("the checkpoint", Kind::Checkpoint(&network), args.checkpoint.as_deref())?;
    places.reads("the checkpoint to go on from", args.resume.as_deref());
    let log = places.writes_log(args.log.as_deref())?;
    let save = places.writes("the parameters", Kind::Weights(Some(&network)), args.save.as_deref())?;
    Ok(Outputs { log, save, checkpoint })
}

/// True once Ctrl+C (or the system) asks the run to end; the second time ends the program.
fn stop_flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    let handler = move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        output::note("\nstopping after this step; press Ctrl+C again to end at once");
    };
    if let Err(error) = ctrlc::set_handler(handler) {
        output::note(&format!("note: Ctrl+C will end the run at once ({error})"));
    }
    flag
}

fn introduce(session: &Session, args: &TrainArgs) {
    let (model, plan) = (session.model(), &session.compiled().plan);
    let samples = session.dataset().map(|(set, split)| {
        format!(
            ", {}: {} samples, {} held out",
            set.name,
            output::count(set.len() as u64),
            output::count(split.held_out.len() as u64)
        )
    });
    output::note(&format!(
        "{}: {} parameters, {} operations, arena {}{}",
        model.name,
        output::count(model.trained_len() as u64),
        plan.program.ops.len(),
        Bytes(plan.arena_bytes),
        samples.unwrap_or_default()
    ));
    for note in session.notes() {
        output::note(&format!("note: {note}"));
    }
    // Otherwise the closing summary says so.
    if args.json && session.done() >= session.total() {
        output::note(&format!(
            "note: nothing is left to do, as step {} was made before; give more --steps to go on",
            session.done()
        ));
    }
    if args.eval_every.is_some() && session.dataset().is_none_or(|(_, split)| split.held_out.is_empty()) {
        output::note("note: nothing is held out, so --eval-every has nothing to evaluate");
    }
    let asked = args.steps.unwrap_or(0);
    if asked > session.total() {
        output::note(&format!("note: the file holds {} batches, so the run has that many steps", session.total()));
    }
}

/// The time between looks at what the user wants.
const LOOK_UP_EVERY: Duration = Duration::from_millis(50);

/// Steps from `done` on until something is to be done between steps.
fn until_due(done: u64, args: &TrainArgs) -> u64 {
    let due = [args.eval_every, args.checkpoint_every].into_iter().flatten();
    due.map(|every| every - done % every).min().unwrap_or(u64::MAX)
}

/// A run in progress.
struct Run {
    keep: Option<Keeper>,
    /// Steps made before.
    first: u64,
    last: Option<StepReport>,
    evaluations: Vec<HeldOut>,
    times: Times,
    seconds: f64,
    /// Results that were written.
    files: Vec<PathBuf>,
    /// Results that could not be written.
    failures: Vec<anyhow::Error>,
}

impl Run {
    /// Notes a result, or why there is none.
    fn wrote(&mut self, path: &Path, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.files.push(path.to_owned()),
            Err(error) => self.failures.push(error),
        }
    }

    /// Makes the steps and closes the log, which is whole even where a step fails. A log that cannot be written ends, and the run goes on.
    fn steps(
        &mut self,
        session: &mut Session,
        args: &TrainArgs,
        outputs: &Outputs,
        mut log: Option<StepLog>,
        stop: &AtomicBool,
        preset: &Preset,
    ) -> anyhow::Result<()> {
        let mut progress = Progress::new(self.first, session.total(), session.model().batch);
        let started = Instant::now();
        let mut failure: Option<anyhow::Error> = None;
        while failure.is_none() && !stop.load(Ordering::Relaxed) {
            let (most, total) = (until_due(session.done(), args), session.total());
            let made = session.steps(most, LOOK_UP_EVERY, |report| {
                let now = Instant::now();
                if let Some(error) = log.as_mut().and_then(|l| l.add(report, now).err()) {
                    progress.say(&format!("note: {error:#}; the run goes on without its log"));
                    self.failures.push(error);
                    log = None;
                }
                self.times.add(report);
                self.keep.iter_mut().for_each(|k| k.step(report, now));
                self.last = Some(*report);
                progress.step(report, now);
            });
            self.keep.iter_mut().for_each(|k| k.moved(session));
            match made {
                Ok(0) => break,
                Ok(_) if session.done() < total => {
                    failure = self.between(session, args, outputs, &progress, preset).err();
                }
                Ok(_) => {}
                Err(error) => failure = Some(error.into()),
            }
        }
        self.seconds = started.elapsed().as_secs_f64();
        progress.finish();
        if stop.load(Ordering::Relaxed) {
            output::note(&format!("stopped after step {} of {}", session.done(), session.total()));
        }
        let finished = log.map(StepLog::finish);
        let Some(error) = failure else {
            match finished {
                Some(Ok(path)) => self.files.extend(path),
                Some(Err(error)) => self.failures.push(error),
                None => {}
            }
            return Ok(());
        };
        if let Some(kept) = self.keep.take() {
            let kept = kept.finish(RunEnd::Failed, Some(error.to_string()), session);
            kept.unwrap_or_else(|e| output::note(&format!("note: {e:#}")));
        }
        // The failed step is the error to tell; the log keeps what it can.
        match finished {
            Some(Ok(Some(path))) => {
                output::note(&format!("note: {} holds the steps before the failure", path.display()));
            }
            Some(Err(error)) => output::note(&format!("note: {error:#}")),
            Some(Ok(None)) | None => {}
        }
        Err(error)
    }

    /// What the user wants between steps.
    fn between(
        &mut self,
        session: &mut Session,
        args: &TrainArgs,
        outputs: &Outputs,
        progress: &Progress,
        preset: &Preset,
    ) -> anyhow::Result<()> {
        let step = session.done();
        if args.eval_every.is_some_and(|n| step.is_multiple_of(n))
            && let Some(found) = session.evaluate()?
        {
            progress.evaluated(step, &found);
            self.keep.iter_mut().for_each(|k| k.evaluated(step, &found));
            self.evaluations.push(HeldOut::new(step, &found));
        }
        if let Some(Err(error)) = self.keep.as_mut().map(|k| k.save_in_time(session)) {
            progress.say(&format!("note: {error}; the run goes on"));
        }
        if let (Some(every), Some(path)) = (args.checkpoint_every, &outputs.checkpoint)
            && step.is_multiple_of(every)
        {
            // The next one is tried again, and the last one's failure is the run's.
            if let Err(error) = session.save_checkpoint(path, preset) {
                progress.say(&format!("note: {error}; the run goes on"));
            }
        }
        Ok(())
    }

    fn summary(
        mut self,
        session: &Session,
        args: &TrainArgs,
        held: Option<&Evaluation>,
        interrupted: bool,
        prepare_ms: f64,
        device: String,
        threads: Threads,
    ) -> Summary {
        let (compiled, step) = (session.compiled(), session.done());
        let made = (step - self.first) as f64;
        let held_out = held.map(|h| HeldOut::new(step, h));
        self.evaluations.extend(held_out.clone());
        let rate = if self.seconds > 0.0 { made / self.seconds } else { 0.0 };
        Summary {
            preset: session.model().name.clone(),
            device,
            executor: if args.executor == ExecutorArg::Eager { "eager" } else { "replay" },
            threads: threads.count,
            threads_why: threads,
            seed: session.seed(),
            steps: step,
            first_step: self.first + 1,
            interrupted,
            loss: self.last.map(|r| r.loss),
            held_out,
            evaluations: self.evaluations,
            seconds: self.seconds,
            steps_per_s: rate,
            samples_per_s: rate * session.model().batch as f64,
            step_us: Distribution::of(&mut self.times.step_us),
            feed_us: Distribution::of(&mut self.times.feed_us).median,
            prepare_ms,
            compile_ms: compiled.times.total().as_secs_f64() * 1e3,
            arena_bytes: compiled.plan.arena_bytes,
            peak_rss_bytes: peak_bytes(),
            lower_bound_bytes: compiled.plan.lower_bound_bytes,
            unshared_bytes: compiled.plan.unshared_bytes,
            parameters: session.model().trained_len(),
            launches: compiled.plan.program.ops.len(),
            files: self.files.iter().map(|file| file.display().to_string()).collect(),
            notes: session.notes().to_vec(),
        }
    }
}

/// The summary in words.
fn told(s: &Summary) -> String {
    let mut out = if s.steps < s.first_step && !s.interrupted {
        format!(
            "{}: nothing was left to do, as step {} was made before; give more --steps to go on\n",
            s.preset,
            output::count(s.steps)
        )
    } else {
        format!(
            "{}: step {} after {:.2} s, {} samples/s, {} a step (median, {})\n",
            s.preset,
            output::count(s.steps),
            s.seconds,
            output::count(s.samples_per_s as u64),
            output::micros(s.step_us.median),
            s.executor
        )
    };
    if let Some(loss) = s.loss {
        out.push_str(&format!("last batch: loss {}\n", figure(f64::from(loss), 4)));
    }
    match &s.held_out {
        Some(h) => {
            let found = Evaluation { samples: h.samples, loss: h.loss, accuracy: h.accuracy, confusion: Vec::new() };
            out.push_str(&format!("{}\n", held_out(&found)));
        }
        None => out.push_str("held out: nothing, so there is no evaluation\n"),
    }
    for file in &s.files {
        out.push_str(&format!("wrote {file}\n"));
    }
    out
}
