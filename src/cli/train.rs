//! `stepgraph train`: a run from the first step to its saved results.

use super::args::{ExecutorArg, TrainArgs};
use super::choices::Device;
use super::error::wrong;
use super::keep_run::{Keeper, folder_of_runs};
use super::log_lines::Continuation;
use super::presets::{DataLook, Loaded};
use super::progress::Progress;
use super::result_places::{Kind, Places, WeightsFile};
use super::signals::{self, Signal};
use super::step_log::StepLog;
use super::text_progress::TextProgress;
use super::train_summary::{HeldOut, MadeSteps, Outcome, text};
use super::{device, output, presets};
use crate::exec::{ExecError, Executor};
use crate::model::Preset;
use crate::select::Target;
use crate::tensor::Bytes;
use crate::train::runs::{RunEnd, missing_checkpoint};
use crate::train::{
    DataChoice, Evaluation, Layout, Overrides, RecordingRules, Session, SessionSpec, Start, TrainError, checkpoint_step,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The paths of results, all of which are checked before the first step.
struct Outputs {
    log: Option<PathBuf>,
    save: Option<WeightsFile>,
    checkpoint: Option<PathBuf>,
}

/// Trains the network. The exit status is that of the signal that ended the run before its last step, if there was one.
///
/// # Errors
/// If an argument or file is wrong, the run fails, or its results cannot be written.
pub fn run(args: &TrainArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let looks = if args.batches.is_some() { DataLook::Ignore } else { DataLook::Report };
    let mut found = presets::load(&args.preset, looks)?;
    change_split(&mut found.preset, args)?;
    // Before a device is opened and its kernels are compiled.
    if args.batches.is_none() && found.preset.data.is_none() {
        return Err(TrainError::NoData.into());
    }
    if let Some((path, help)) = args.resume.as_ref().and_then(|path| Some((path, missing_checkpoint(path)?))) {
        return Err(wrong(format!("{}: {help}", path.display())));
    }
    let outputs = outputs(args, &found)?;
    let chosen = device::threads(args.cpu.threads, &found.model);
    let threads = chosen.count;
    let (target, device_name) = device::choose(args.device, threads, [&found.model])?;
    device::note_threads(&target, &chosen);
    let spec = spec(args, &found, &target, threads);
    let (mut session, device_name) = prepare(&spec, args.device, device_name)?;
    let store = args.keep.then(folder_of_runs).transpose()?;
    // From here on there is something to save. The log is opened last, so that an error before this point leaves no
    // file.
    signals::finish_first("this step");
    let from = args.resume.as_ref().map(|_| Continuation { step: session.done(), loss: session.last_loss() });
    let mut log = outputs.log.as_deref().map(|path| StepLog::open(path, from)).transpose()?;
    if let Some(log) = &mut log {
        log.set_maybe_trained(session.is_maybe_trained());
        log.set_names(session.names());
    }
    presets::warn_of_precision(&found.preset, &target);
    introduce(&session, args);
    if let Some(text) = outputs.save.as_ref().and_then(WeightsFile::plan) {
        output::note(&format!("note: {text}"));
    }
    if let Some(text) = replaced_checkpoint(args) {
        output::note(&format!("note: {text}"));
    }
    if store.is_some() {
        session.collect_updates();
    }
    let keep = store.map(|store| Keeper::begin(&store, &session, &spec, &device_name)).transpose()?;
    let prepare_ms = started.elapsed().as_secs_f64() * 1e3;
    let mut run = Run { keep, log, made: MadeSteps::none(&session), saved: Vec::new(), failures: Vec::new() };
    // A run that fails at step n keeps only the log of the steps before it: its parameters are not those of a finished
    // step.
    run.steps(&mut session, args, &outputs, &found.preset)?;
    let signal = signals::asked().filter(|_| session.done() < session.total());
    let held = run.save(&mut session, &outputs, &found.preset, signal);
    let mut failures = std::mem::take(&mut run.failures);
    let files: Vec<PathBuf> = run.saved.iter().map(|(_, path)| path.clone()).collect();
    let outcome = Outcome { made: run.made, prepare_ms, signal, device: device_name, threads: chosen };
    let summary = outcome.summary(&session, args, held.as_ref(), &files);
    let printed = if args.json { output::print_json(&summary) } else { output::print(&text(&summary)) };
    failures.extend(printed.err());
    one_error(failures)?;
    Ok(signal.map_or(ExitCode::SUCCESS, Signal::exit_code))
}

/// The specification of the session.
fn spec(args: &TrainArgs, found: &Loaded, target: &Target, threads: usize) -> SessionSpec {
    SessionSpec {
        executor: if args.executor == ExecutorArg::Eager { Executor::Eager } else { Executor::Replay },
        threads,
        machine: Some(target.clone()),
        overrides: Overrides { steps: args.steps.map(|s| usize::try_from(s).unwrap_or(usize::MAX)), seed: args.seed },
        start: Start { init: args.init.clone(), resume: args.resume.clone() },
        tuning: device::tuning(target),
        data: args.batches.clone().map_or(DataChoice::Preset, DataChoice::Batches),
        recordings: RecordingRules {
            bytes: args.recordings_mib.map(|mib| (mib * f64::from(1 << 20)) as u64),
            is_strict: args.strict,
        },
        ..SessionSpec::new(found.preset.clone(), found.base.clone())
    }
}

/// Several failures as one error, with one line for each.
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

/// Prepares the run. If the user did not choose a device and the GPU has too little memory, the CPU is used instead,
/// and this is reported.
fn prepare(spec: &SessionSpec, asked: Device, name: String) -> anyhow::Result<(Session, String)> {
    let _progress = TextProgress::start();
    match Session::prepare(spec) {
        Err(error @ (TrainError::Exec(ExecError::OutOfMemory { .. }) | TrainError::Shortage(_)))
            if asked == Device::Auto && spec.machine.as_ref().is_some_and(|m| m.as_cuda().is_some()) =>
        {
            output::note(&format!("note: {error}; the CPU takes over"));
            let (target, name) = device::choose(Device::Cpu, spec.threads, [])?;
            Ok((Session::prepare(&SessionSpec { machine: Some(target), tuning: None, ..spec.clone() })?, name))
        }
        other => Ok((other?, name)),
    }
}

/// What happens to the checkpoint of another run, if one has the name that this run writes to.
fn replaced_checkpoint(args: &TrainArgs) -> Option<String> {
    let path = args.checkpoint.as_ref().filter(|path| args.resume.as_ref() != Some(*path))?;
    let step = output::count(checkpoint_step(path).ok()?);
    let path = path.display();
    Some(format!(
        "{path} holds another run until step {step}, which this run's first checkpoint replaces; to keep it, copy the \
         file now, or give another name to --checkpoint"
    ))
}

/// If a file could be written before the run and cannot be written now, the user made no mistake: exit status 1.
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

/// Checks that every result can be written, each to a different path, and that none replaces a file that the run
/// reads.
fn outputs(args: &TrainArgs, found: &Loaded) -> anyhow::Result<Outputs> {
    let network = Layout::of(&found.model);
    let mut places = Places::of(found);
    places.reads("the initial parameters", args.init.as_deref());
    places.reads("the batches", args.batches.as_deref());
    // A resumed run may replace the checkpoint that it was resumed from; no other result may.
    let checkpoint = places.writes("the checkpoint", Kind::Checkpoint(&network), args.checkpoint.as_deref())?;
    places.reads("the checkpoint to resume from", args.resume.as_deref());
    let log = places.writes_log(args.log.as_deref())?;
    let save = places.writes_weights(&network, args.save.as_deref())?;
    Ok(Outputs { log, save, checkpoint })
}

fn introduce(session: &Session, args: &TrainArgs) {
    let (model, plan) = (session.model(), &session.compiled().plan);
    let samples = session.dataset().map(|(set, split)| {
        format!(
            ", {}: {}, {} held out",
            set.name,
            output::counted(set.len() as u64, "sample"),
            output::count(split.held_out.len() as u64)
        )
    });
    output::note(&format!(
        "{}: {}, {}, arena {}{}",
        model.name,
        output::counted(model.trained_len() as u64, "parameter"),
        output::counted(plan.program.ops.len() as u64, "operation"),
        Bytes(plan.arena_bytes),
        samples.unwrap_or_default()
    ));
    if let Some(path) = &args.resume {
        output::note(&format!("resumed from {} after step {}", path.display(), output::count(session.done())));
    }
    for note in session.notes().iter().chain(session.resumed().iter().flat_map(|r| &r.notes)) {
        output::note(&format!("note: {note}"));
    }
    // Otherwise the closing summary reports it.
    if args.json && session.done() >= session.total() {
        output::note(&format!(
            "note: nothing to do: the run already made step {}; increase --steps to continue",
            session.done()
        ));
    }
    if args.eval_every.is_some() && session.dataset().is_none_or(|(_, split)| split.held_out.is_empty()) {
        output::note("note: nothing is held out, so --eval-every has nothing to evaluate");
    }
    let asked = args.steps.unwrap_or(0);
    if asked > session.total() {
        let batches = output::counted(session.total(), "batch");
        output::note(&format!("note: the file holds {batches}, so the run has that many steps"));
    }
}

/// The interval at which the user's requests are checked.
const LOOK_UP_EVERY: Duration = Duration::from_millis(50);

/// The number of steps from `done` on until something must be done between steps.
fn until_due(done: u64, args: &TrainArgs) -> u64 {
    let due = [args.eval_every, args.checkpoint_every].into_iter().flatten();
    due.map(|every| every - done % every).min().unwrap_or(u64::MAX)
}

/// A run in progress.
struct Run {
    keep: Option<Keeper>,
    log: Option<StepLog>,
    made: MadeSteps,
    /// Results that were written, each with a description.
    saved: Vec<(&'static str, PathBuf)>,
    /// Results that could not be written.
    failures: Vec<anyhow::Error>,
}

impl Run {
    /// Records that a result was written, or why it was not.
    fn wrote(&mut self, what: &'static str, path: &Path, outcome: anyhow::Result<()>) {
        match outcome {
            Ok(()) => self.saved.push((what, path.to_owned())),
            Err(error) => self.failures.push(error),
        }
    }

    /// Performs an operation on the log. If the log cannot be written, it ends, and the run continues.
    fn with_log(&mut self, say: impl FnOnce(&str), work: impl FnOnce(&mut StepLog) -> anyhow::Result<()>) {
        if let Some(Err(error)) = self.log.as_mut().map(work) {
            say(&format!("note: {error:#}; the run continues without its log"));
            self.failures.push(error);
            self.log = None;
        }
    }

    /// Makes the steps; if one fails, the log is closed with the steps before it.
    fn steps(
        &mut self,
        session: &mut Session,
        args: &TrainArgs,
        outputs: &Outputs,
        preset: &Preset,
    ) -> anyhow::Result<()> {
        let mut progress = Progress::new(self.made.first, session.total(), session.model().samples_a_step());
        let started = Instant::now();
        let mut failure: Option<anyhow::Error> = None;
        while failure.is_none() && signals::asked().is_none() {
            let (most, total) = (until_due(session.done(), args), session.total());
            let made = session.steps(most, LOOK_UP_EVERY, |report| {
                let now = Instant::now();
                self.with_log(|text| progress.say(text), |log| log.add(report, now));
                let removed = self.log.as_mut().and_then(StepLog::take_removed);
                removed.iter().for_each(|text| progress.say(text));
                self.made.times.add(report);
                self.keep.iter_mut().for_each(|k| k.step(report, now));
                self.made.last = Some(*report);
                if report.kernels.is_some() {
                    progress.say(&format!("from step {} on, kernels are compiled for their sizes", report.step));
                }
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
        self.made.seconds = started.elapsed().as_secs_f64();
        progress.finish();
        if signals::asked().is_some() {
            output::note(&format!("stopped after step {} of {}", session.done(), session.total()));
        }
        failure.map_or(Ok(()), |error| Err(self.failed(error, session)))
    }

    /// Saves what can be saved of a run whose last step failed; returns the error to report.
    fn failed(&mut self, error: anyhow::Error, session: &mut Session) -> anyhow::Error {
        if let Some(kept) = self.keep.take() {
            let kept = kept.finish(RunEnd::Failed, Some(error.to_string()), session);
            kept.unwrap_or_else(|e| output::note(&format!("note: {e:#}")));
        }
        match self.log.take().map(StepLog::finish) {
            Some(Ok(Some(path))) => {
                output::note(&format!("note: {} holds the steps before the failure", path.display()));
            }
            Some(Err(error)) => output::note(&format!("note: {error:#}")),
            Some(Ok(None)) | None => {}
        }
        error
    }

    /// Writes the results of a finished run, and evaluates it. A failure does not prevent the other results from being
    /// written: hours of training are worth more than one file. All failures are reported at the end.
    fn save(
        &mut self,
        session: &mut Session,
        outputs: &Outputs,
        preset: &Preset,
        signal: Option<Signal>,
    ) -> Option<Evaluation> {
        if let Some(file) = &outputs.save {
            let saved = file.make_room().and_then(|made| {
                made.iter().for_each(|text| output::note(&format!("note: {text}")));
                session.save_weights(&file.path).map_err(late)
            });
            self.wrote("the parameters", &file.path, saved);
        }
        if let Some(path) = &outputs.checkpoint {
            self.with_log(output::note, StepLog::sync);
            let saved = session.save_checkpoint(path, preset);
            self.wrote("the checkpoint", path, saved.map_err(late));
        }
        let held = session.evaluate().unwrap_or_else(|error| {
            self.failures.push(error.into());
            None
        });
        let step = session.done();
        if let Some(found) = &held {
            self.with_log(output::note, |log| log.evaluated(step, found));
            self.keep.iter_mut().for_each(|k| k.evaluated(step, found));
        }
        match self.log.take().map(StepLog::finish) {
            Some(Ok(path)) => self.saved.extend(path.map(|path| ("the log", path))),
            Some(Err(error)) => self.failures.push(error),
            None => {}
        }
        let mut is_kept = false;
        if let Some(keep) = self.keep.take() {
            let state = if signal.is_some() { RunEnd::Stopped } else { RunEnd::Finished };
            let kept = keep.finish(state, None, session);
            is_kept = kept.is_ok();
            self.failures.extend(kept.err());
        }
        if signal.is_some() {
            output::note(&self.saved_in_words(step, is_kept));
        }
        held
    }

    /// The message about the files that a run saved after a signal ended it.
    fn saved_in_words(&self, step: u64, is_kept: bool) -> String {
        let mut parts: Vec<String> =
            self.saved.iter().map(|(what, path)| format!("{what} ({})", path.display())).collect();
        parts.extend(is_kept.then(|| "the kept run".to_owned()));
        if parts.is_empty() {
            return "nothing was saved; --save, --checkpoint, --log and --keep say what a run saves".to_owned();
        }
        format!("saved after step {}: {}", output::count(step), parts.join(", "))
    }

    /// What the user requests between steps.
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
            let evaluated = HeldOut::new(session.model(), step, &found);
            progress.evaluated(step, &evaluated.text(session.is_maybe_trained()));
            self.with_log(|text| progress.say(text), |log| log.evaluated(step, &found));
            self.keep.iter_mut().for_each(|k| k.evaluated(step, &found));
            self.made.evaluations.push(evaluated);
        }
        if let Some(Err(error)) = self.keep.as_mut().map(|k| k.save_in_time(session)) {
            progress.say(&format!("note: {error}; the run continues"));
        }
        if let (Some(every), Some(path)) = (args.checkpoint_every, &outputs.checkpoint)
            && step.is_multiple_of(every)
        {
            // When a run resumes from the checkpoint, its log contains every step up to it.
            self.with_log(|text| progress.say(text), StepLog::sync);
            // Later checkpoints are tried again; a failure of the last one is a failure of the run.
            if let Err(error) = session.save_checkpoint(path, preset) {
                progress.say(&format!("note: {error}; the run continues"));
            }
        }
        self.with_log(|text| progress.say(text), |log| log.write_in_time(Instant::now()));
        Ok(())
    }
}
