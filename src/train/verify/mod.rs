//! Proofs that a step is right, with figures.
//!
//! Each check compares two things that share as little as possible: gradients with central differences in f64 on the plain-loop kernels, the fast kernels
//! with those, replay with eager, one run with another, recorded addresses with planned ones.

mod bounds;
mod by_length;
mod diverges;
mod evaluation;
mod fast;
mod gradient;
mod graphs;
mod proof;
mod random;
mod replay;
mod resumed;
mod rules;
mod training;
mod twins;

pub use proof::{Check, Compared, Culprit, Progress, Proof};
pub use random::{Failure, RandomEvent, RandomReport, RandomRun, Tally, verify_random};

use super::feed::{Feed, write_real};
use super::{DataChoice, Purpose, SessionSpec, TrainError, needs};
use crate::compile::{Options, compile};
use crate::exec::cpu::{Pool, host_target};
use crate::exec::{ExecError, Step};
use crate::model::{Model, ParamId, Preset, check, init_values};
use crate::select::{Target, Tuning};
use replay::Rig;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to verify with.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Replays of the endurance check; by default 10,000 for small networks, fewer where a step is long.
    pub replays: Option<u64>,
    pub threads: usize,
    /// The machine whose step is verified; this one's CPU where none is given.
    pub machine: Option<Target>,
    pub seed: u64,
    /// The folder that relative paths in the preset are taken from.
    pub base: PathBuf,
    pub batches: Option<PathBuf>,
    pub init: Option<PathBuf>,
    /// Kernel times remembered from this machine, so that what is verified is what is trained.
    pub tuning: Option<Arc<Tuning>>,
    /// Does without the memory that the proofs of the recording are said to take: the person knows better.
    pub anyway: bool,
}

impl VerifyOptions {
    /// How the training step is compiled.
    fn compiling(&self) -> Options {
        let machine = self.machine();
        let gpu_times = super::known_gpu_times(&machine);
        Options { tuning: self.tuning.clone(), gpu_times, ..Options::train(machine) }
    }
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            replays: None,
            threads: crate::exec::cpu::default_threads(),
            machine: None,
            seed: 0,
            base: PathBuf::from("."),
            batches: None,
            init: None,
            tuning: None,
            anyway: false,
        }
    }
}

impl VerifyOptions {
    /// The machine whose step is verified.
    #[must_use]
    pub fn machine(&self) -> Target {
        self.machine.clone().unwrap_or_else(|| host_target(self.threads))
    }
}

/// All checks of one preset.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub preset: String,
    pub checks: Vec<Check>,
    pub passed: bool,
}

/// What the proofs of a preset take, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Price {
    /// For all of them.
    pub seconds: f64,
    /// What the replays of the endurance check have of it.
    pub replay_seconds: f64,
    /// Memory held at once.
    pub bytes: u64,
}

/// What the proofs of a preset take on this machine: nearly all of it is plain loops in f64 and the replays of the endurance check, and memory that two steps
/// hold. Where no number of replays is given, it is the most that they take.
///
/// # Errors
/// Where the preset has mistakes, or a part of it is too large to be planned.
pub fn price(preset: &Preset, options: &VerifyOptions) -> Result<Price, TrainError> {
    let checked = check(preset);
    let model = checked.model.ok_or(TrainError::Preset(checked.diagnostics))?;
    let (seconds, bytes) = gradient::cost(&model)?;
    let step = compile(&model, &options.compiling())?;
    let step_us = step.selection.choices.iter().map(|c| c.cost_us).sum();
    let replay_seconds = replay::endurance_cost(options.replays, step_us);
    let seconds = seconds + training::seconds(step_us) + twins::seconds(&step);
    let bytes = bytes.max(needs(&session_spec(preset, options), &step).bytes());
    Ok(Price { seconds: seconds + replay_seconds, replay_seconds, bytes })
}

/// Verifies a preset; `progress` sees each check as it is done.
///
/// # Errors
/// Where the preset, its data or the given files are wrong, or the machine cannot run the step. A failed check is no error: it is in the report.
pub fn verify(
    preset: &Preset,
    options: &VerifyOptions,
    mut progress: impl FnMut(&Check),
) -> Result<Report, TrainError> {
    let tell = |p: Progress<'_>| {
        if let Progress::Done(_, check) = p {
            progress(check);
        }
    };
    verify_with(preset, options, &Proof::ALL, &AtomicBool::new(false), tell, |_| {})
}

/// As [`verify`], with the checks of these proofs only; `cancel` ends it between two checks, and between two replays.
///
/// # Errors
/// As [`verify`], and [`TrainError::Cancelled`] where it was cancelled.
pub fn verify_some(
    preset: &Preset,
    options: &VerifyOptions,
    proofs: &[Proof],
    cancel: &Arc<AtomicBool>,
    progress: impl FnMut(Progress<'_>),
) -> Result<Report, TrainError> {
    verify_with(preset, options, proofs, cancel, progress, |_| {})
}

/// As [`verify_some`]; `spoil` gets hold of the recording before it is checked, so that a test can see the checks fail.
fn verify_with(
    preset: &Preset,
    options: &VerifyOptions,
    proofs: &[Proof],
    cancel: &AtomicBool,
    mut progress: impl FnMut(Progress<'_>),
    spoil: impl FnOnce(&mut Step),
) -> Result<Report, TrainError> {
    use Proof::{Determinism, EagerAgainstReplay, Gradients, Plan, PointerLedger, TrainingRun};
    let checked = check(preset);
    let model = checked.model.ok_or(TrainError::Preset(checked.diagnostics))?;
    let mut checks = Vec::new();
    let mut run = |proof: Proof, name: &'static str, check: &mut dyn FnMut() -> Result<Check, TrainError>| {
        if !proofs.contains(&proof) {
            return Ok(());
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(TrainError::Cancelled);
        }
        progress(Progress::Begins(proof, name));
        let check = or_failed(name, check())?;
        progress(Progress::Done(proof, &check));
        checks.push(check);
        Ok(())
    };
    run(Plan, "plan", &mut || plan_check(&model, options))?;
    run(Gradients, "gradient against central differences", &mut || gradient::against_differences(&model, options))?;
    run(Gradients, "fast kernels against reference", &mut || fast::fast_against_reference(&model, options))?;
    run(Gradients, "loss scale", &mut || rules::loss_scale(&model, options))?;
    run(Gradients, "update direction", &mut || rules::update_direction(&model, options))?;
    if options.machine().as_cuda().is_none() {
        run(Gradients, "each kernel against its reference", &mut || bounds::each_kernel(&model, options))?;
    } else {
        run(Gradients, "kernels against their twins", &mut || twins::twins(&model, options))?;
    }
    if proofs.iter().any(|p| !matches!(p, Plan | Gradients)) {
        let mut rig = Rig::new(preset, &model, options, cancel)?;
        spoil(rig.step_mut());
        run(EagerAgainstReplay, "warm-up leaves no trace", &mut || rig.warm_up())?;
        let [against, ledger, fault, endurance] =
            ["eager against replay", "pointer ledger", "an injected fault is caught", "endurance and determinism"];
        run(EagerAgainstReplay, against, &mut || rig.recorded(against, Rig::eager_against_replay))?;
        run(Determinism, "threads do not change results", &mut || rig.threads(&model, options))?;
        run(PointerLedger, ledger, &mut || rig.recorded(ledger, Rig::ledger))?;
        if options.machine().as_cuda().is_some() {
            run(PointerLedger, "graph nodes", &mut || rig.recorded("graph nodes", Rig::graph_nodes))?;
        }
        run(PointerLedger, fault, &mut || rig.recorded(fault, Rig::injected_faults))?;
        run(Determinism, endurance, &mut || rig.recorded(endurance, |rig| rig.endurance(options.replays)))?;
        run(TrainingRun, training::NAME, &mut || rig.logged_steps())?;
        run(TrainingRun, evaluation::NAME, &mut || rig.evaluation())?;
        run(TrainingRun, resumed::NAME, &mut || rig.resumed_run(preset, options))?;
    }
    let passed = checks.iter().all(|c| c.passed != Some(false));
    Ok(Report { preset: preset.name.clone(), checks, passed })
}

/// A check that the ledger stopped has failed: a spoilt recording belongs in the report, with the call that the ledger names, and is no error.
fn or_failed(name: &str, outcome: Result<Check, TrainError>) -> Result<Check, TrainError> {
    match outcome {
        Err(TrainError::Exec(
            error @ (ExecError::Ledger { .. } | ExecError::ArenaMoved { .. } | ExecError::Graph { .. }),
        )) => {
            let culprit = if let ExecError::Ledger { op, .. } = &error { Some(Culprit::Op(*op)) } else { None };
            let lines = vec![(error.to_string(), culprit)];
            Ok(Check::new(name, false, "the recording is not the planned one".into()).detail(lines))
        }
        other => other,
    }
}

/// Compiles the preset; every verifier and referee has run when this returns.
fn plan_check(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let compiled = compile(model, &options.compiling())?;
    let plan = &compiled.plan;
    let figures = format!(
        "{} ops, {} buffers, arena {} at {:.4} of the lower bound, {} unshared, planned in {:.1} ms",
        plan.program.ops.len(),
        plan.buffers.len(),
        crate::tensor::Bytes(plan.arena_bytes),
        plan.ratio(),
        crate::tensor::Bytes(plan.unshared_bytes),
        compiled.times.total().as_secs_f64() * 1e3
    );
    Ok(Check::new("plan", plan.arena_bytes >= plan.lower_bound_bytes, figures))
}

/// A step with initial parameters and one batch, in the precision of `compiling`.
pub(super) fn prepared(model: &Model, compiling: &Options, seed: u64) -> Result<(Step, Pool), TrainError> {
    let threads = compiling.target.as_cpu().map_or(1, |c| c.threads);
    let mut step = Step::new(Arc::new(compile(model, compiling)?), threads)?;
    set_initial(&mut step, model, seed)?;
    Feed::resident(&mut step, model, seed)?;
    Ok((step, Pool::new(threads)?))
}

/// Initial parameters, learning rate and counters, in the step's own precision. Biases and the like start away from zero, so that their gradients count.
fn set_initial(step: &mut Step, model: &Model, seed: u64) -> Result<(), TrainError> {
    let program = &step.compiled().plan.program;
    let (real, hyper) = (program.real, step.find("hyper")?);
    for (index, param) in model.params.iter().enumerate() {
        let id = ParamId(index as u32);
        let mut values: Vec<f64> = init_values(param, index, seed).into_iter().map(f64::from).collect();
        if matches!(param.init, crate::model::Init::Constant { .. }) && param.kind.is_trained() {
            let mut rng = crate::model::Rng::new(seed, 0x7000 + index as u64);
            values.iter_mut().for_each(|v| *v = f64::from((*v + rng.range(-0.1, 0.1)) as f32));
        }
        if real == crate::tensor::DType::F64 {
            step.set_param(id, &values)?;
        } else {
            let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            step.set_param(id, &narrow)?;
        }
    }
    write_real(step, hyper, real, &[model.optimizer.lr(), model.optimizer.weight_decay()])?;
    let counter = step.find("counter")?;
    step.write(counter, &[seed as i64, 0])?;
    // Small, so that no gradient of the checks overflows: that the step recovers from one is another matter.
    super::bring_up::start_loss_scale(step, 64.0)
}

/// The session and feed of a preset's own data, or a random batch where it names none.
fn session_spec(preset: &Preset, options: &VerifyOptions) -> SessionSpec {
    let data = match (&options.batches, &preset.data) {
        (Some(path), _) => DataChoice::Batches(path.clone()),
        (None, Some(_)) => DataChoice::Preset,
        (None, None) => DataChoice::Resident,
    };
    SessionSpec {
        threads: options.threads,
        machine: options.machine.clone(),
        seed: Some(options.seed),
        init: options.init.clone(),
        tuning: options.tuning.clone(),
        purpose: if options.anyway { Purpose::Train } else { Purpose::Verify },
        data,
        ..SessionSpec::new(preset.clone(), options.base.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Fault;

    const RECORDED: [&str; 9] = [
        "warm-up leaves no trace",
        "eager against replay",
        "threads do not change results",
        "pointer ledger",
        "an injected fault is caught",
        "endurance and determinism",
        "a run's batches and log",
        "an evaluation against plain loops (f64)",
        "a resumed run",
    ];

    #[test]
    fn a_recording_that_stays_spoilt_fails_every_check_that_replays_it() {
        let bundled = crate::model::BUNDLED.iter().find(|b| b.name == "xor").unwrap();
        let preset = crate::model::read_preset(bundled.text).unwrap();
        let options = VerifyOptions { replays: Some(30), threads: 2, ..VerifyOptions::default() };
        let sound = verify(&preset, &options, |_| {}).unwrap();
        let names: Vec<&str> = sound.checks.iter().map(|c| c.name.as_str()).collect();
        assert!(sound.passed && names.ends_with(&RECORDED), "{:#?}", sound.checks);
        let mut layer = String::new();
        let spoilt = verify_with(
            &preset,
            &options,
            &Proof::ALL,
            &AtomicBool::new(false),
            |_| {},
            |step| {
                let compiled = Arc::clone(step.compiled());
                let op = compiled.plan.program.ops.iter().position(|o| o.layer.is_some()).unwrap();
                layer = compiled.plan.program.ops[op].layer.map(|l| compiled.model.layer(l).label()).unwrap();
                assert!(step.inject(Fault::Argument { graph: 0, op, slot: 0 }).unwrap().is_some());
            },
        );
        let spoilt = spoilt.unwrap();
        let failed: Vec<&Check> = spoilt.checks.iter().filter(|c| c.passed == Some(false)).collect();
        let names: Vec<&str> = failed.iter().map(|c| c.name.as_str()).collect();
        assert!(!spoilt.passed && names == RECORDED, "{names:?}");
        for check in failed {
            let text = check.detail.join("\n");
            assert!(text.contains(&layer) && text.contains("nothing was run"), "{}: {text}", check.name);
            // The same place as a number, for those who show it.
            assert!(matches!(check.culprits[..], [Some(Culprit::Op(op)), ..] if text.contains(&format!("op {op}"))));
        }
    }

    #[test]
    fn some_proofs_are_run_alone_and_can_be_cancelled() {
        let bundled = crate::model::BUNDLED.iter().find(|b| b.name == "xor").unwrap();
        let preset = crate::model::read_preset(bundled.text).unwrap();
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let cancel = Arc::new(AtomicBool::new(false));
        let mut begun = Vec::new();
        let report = verify_some(&preset, &options, &[Proof::EagerAgainstReplay], &cancel, |p| {
            if let Progress::Begins(_, name) = p {
                begun.push(name);
            }
        })
        .unwrap();
        assert_eq!(begun, RECORDED[..2]);
        let compared = &report.checks[1].compared;
        assert!(!compared.is_empty() && compared.iter().all(|c| c.different == 0 && c.bytes > 0), "{compared:?}");
        // A stress that would take hours ends as soon as it is asked to.
        let stop = Arc::clone(&cancel);
        let endless = VerifyOptions { replays: Some(u64::MAX / 4), ..options };
        let ended = verify_some(&preset, &endless, &[Proof::Determinism], &cancel, |p| {
            if matches!(p, Progress::Begins(_, "endurance and determinism")) {
                stop.store(true, Ordering::Relaxed);
            }
        });
        assert!(matches!(ended, Err(TrainError::Cancelled)));
    }
}
