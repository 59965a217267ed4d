//! Checks that a step is correct, with figures.
//!
//! Each check compares two things that share as little as possible: gradients with central differences in f64 on the
//! plain-loop kernels, the fast kernels with those, replay with eager, one run with another, recorded addresses with
//! planned ones.

mod bound;
mod bounds;
mod by_length;
mod divergence;
mod each_recording;
mod evaluation;
mod exact;
mod fast;
mod gradient;
mod gradient_step;
mod graphs;
mod host_batches;
mod loss_scale;
mod names;
mod options;
mod over_paths;
mod proof;
mod random;
mod reference_kernels;
mod replay;
mod resumed;
mod spread;
mod training;
mod update_direction;

pub use bound::ratio_text;
pub use names::{CHECKS, GPU_CHECKS};
pub use options::VerifyOptions;
pub use proof::{Check, Compared, Culprit, Progress, Proof};
pub use random::{Failure, RandomEvent, RandomReport, RandomRun, Tally, verify_random};

use super::{TrainError, needs};
use crate::compile::compile;
use crate::exec::Step;
use crate::model::{Model, Preset, check};
use crate::tensor::{Bytes, counted};
use each_recording::OfEach;
use options::session_spec;
use over_paths::{other_lengths, over_paths, paths_checked, with_lengths};
use replay::{ReplayHarness, or_failed};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A check of the step of a network.
type OfStep = fn(&Model, &VerifyOptions) -> Result<Check, TrainError>;

/// All checks of one preset.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub preset: String,
    pub checks: Vec<Check>,
    pub passed: bool,
}

/// What the checks of a preset take, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Price {
    /// For all of them.
    pub seconds: f64,
    /// What the replays of the endurance check have of it.
    pub replay_seconds: f64,
    /// Memory held at once.
    pub bytes: u64,
}

/// What the checks of a preset take on this machine: nearly all of it is plain loops in f64 and the replays of the
/// endurance check, and memory that two steps hold. Where no number of replays is given, it is the most that they take.
///
/// # Errors
/// Where the preset has mistakes, or a part of it is too large to be planned.
pub fn price(preset: &Preset, options: &VerifyOptions) -> Result<Price, TrainError> {
    let found = check(preset);
    let model = found.model.ok_or(TrainError::Preset(found.diagnostics))?;
    let (seconds, bytes) = gradient::cost(&model)?;
    let step = compile(&model, &options.compiling())?;
    let step_us = step.selection.choices.iter().map(|c| c.cost_us).sum();
    let replay_seconds = replay::endurance_cost(options.replays, step_us);
    let of_path = seconds + reference_kernels::seconds(&step);
    let checked = paths_checked(&model) * (1 + other_lengths(preset, &model, options).len());
    let seconds = of_path * checked as f64 + training::seconds(step_us);
    let bytes = bytes.max(needs(&session_spec(preset, options), &step).bytes());
    Ok(Price { seconds: seconds + replay_seconds, replay_seconds, bytes })
}

/// Verifies a preset; `progress` sees each check as it is done.
///
/// # Errors
/// Where the preset, its data or the given files are wrong, or the machine cannot run the step. A failed check is no
/// error: it is in the report.
pub fn verify(
    preset: &Preset,
    options: &VerifyOptions,
    mut progress: impl FnMut(&Check),
) -> Result<Report, TrainError> {
    let listen = |p: Progress<'_>| {
        if let Progress::Done(_, check) = p {
            progress(check);
        }
    };
    verify_with(preset, options, &Proof::ALL, &AtomicBool::new(false), listen, |_| {})
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
        if !proofs.contains(&proof) || options.only.as_ref().is_some_and(|only| !name.starts_with(only)) {
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
    // Where layers choose, each path is a step of its own.
    let lengths = other_lengths(preset, &model, options);
    for (proof, name, check, lengths) in of_paths(options, &lengths) {
        run(proof, name, &mut || {
            let check = |model: &Model| {
                if cancel.load(Ordering::Relaxed) { Err(TrainError::Cancelled) } else { check(model, options) }
            };
            with_lengths(over_paths(&model, check)?, lengths, &model, check)
        })?;
    }
    if proofs.iter().any(|p| !matches!(p, Plan | Gradients)) {
        let mut harness = ReplayHarness::new(preset, &model, options, cancel)?;
        spoil(harness.step_mut());
        run(EagerAgainstReplay, names::WARM_UP, &mut || harness.warm_up())?;
        let [fault, endurance] = [names::FAULT, names::ENDURANCE];
        let of = OfEach::EAGER_AGAINST_REPLAY;
        run(EagerAgainstReplay, of.name, &mut || harness.each_recording(&of, preset, options))?;
        run(Determinism, names::THREADS, &mut || harness.threads(&model, options))?;
        let of = OfEach::LEDGER;
        run(PointerLedger, of.name, &mut || harness.each_recording(&of, preset, options))?;
        if options.machine().as_cuda().is_some() {
            let nodes = names::GRAPH_NODES;
            run(PointerLedger, nodes, &mut || harness.recorded(nodes, ReplayHarness::graph_nodes))?;
        }
        run(PointerLedger, fault, &mut || harness.recorded(fault, ReplayHarness::injected_faults))?;
        run(Determinism, endurance, &mut || harness.recorded(endurance, |harness| harness.endurance(options.replays)))?;
        run(TrainingRun, training::NAME, &mut || harness.logged_steps(preset, options))?;
        run(TrainingRun, evaluation::NAME, &mut || harness.evaluation())?;
        run(TrainingRun, resumed::NAME, &mut || harness.resumed_run(preset, options))?;
    }
    let passed = checks.iter().all(|c| c.passed != Some(false)) && (options.only.is_none() || !checks.is_empty());
    Ok(Report { preset: preset.name.clone(), checks, passed })
}

/// A check of the step of each path, and the lengths of whose steps it is made too.
type OfPaths<'a> = (Proof, &'static str, OfStep, &'a [usize]);

/// The checks of the steps of all paths, some of them of other `lengths` as well.
fn of_paths<'a>(options: &VerifyOptions, lengths: &'a [usize]) -> [OfPaths<'a>; 6] {
    use Proof::{Gradients, Plan};
    let of_kernels = check_of_kernels(options);
    [
        (Plan, names::PLAN, plan_check, lengths),
        (Gradients, names::GRADIENT, gradient::against_differences, &[]),
        (Gradients, names::FAST, fast::fast_against_reference, lengths),
        (Gradients, names::LOSS_SCALE, loss_scale::loss_scale, &[]),
        (Gradients, names::UPDATE, update_direction::update_direction, &[]),
        (Gradients, of_kernels.0, of_kernels.1, lengths),
    ]
}

/// The name of the check of each kernel, and the check.
fn check_of_kernels(options: &VerifyOptions) -> (&'static str, OfStep) {
    match options.machine().as_cuda() {
        None => (names::EACH_KERNEL, bounds::each_kernel),
        Some(_) => (names::GPU_KERNELS, reference_kernels::compare),
    }
}

/// Compiles the preset; every verifier and referee has run when this returns.
fn plan_check(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let compiled = compile(model, &options.compiling())?;
    let plan = &compiled.plan;
    let figures = format!(
        "{}, {}, arena {} at {:.4} of the lower bound, {} unshared, planned in {:.1} ms",
        counted(plan.program.ops.len() as u64, "operation"),
        counted(plan.buffers.len() as u64, "buffer"),
        Bytes(plan.arena_bytes),
        plan.ratio(),
        Bytes(plan.unshared_bytes),
        compiled.times.total().as_secs_f64() * 1e3
    );
    Ok(Check::new(names::PLAN, plan.arena_bytes >= plan.lower_bound_bytes, figures))
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

    /// A step that trains nothing has the rate of its schedule and no gradient to be clipped; and the network on the
    /// path of its evaluations may leave out what every step runs.
    #[test]
    fn runs_of_paths_that_train_nothing_or_always_exit_are_right() {
        let text = |layers: &str, train: &str, optimizer: &str| {
            format!(
                r#"{{"name": "n", "input": {{"shape": [2], "batch": 1}}, "layers": [{layers}],
                "loss": {{"type": "mse"}}, "optimizer": {{{optimizer}}}, "train": {{{train}}},
                "data": {{"type": "regression", "samples": 24, "held_out": 0.25, "noise": 0.1}}}}"#
            )
        };
        const EXIT: &str = r#""type": "early_exit", "layers": [{"type": "dense", "units": 2}]"#;
        let by_chance = format!(r#"{{{EXIT}, "choose": {{"by": "random", "weights": [0.5, 0.1]}}}}"#);
        let always = format!(
            r#"{{"type": "dense", "units": 2}}, {{{EXIT}, "choose": {{"by": "schedule", "at": [[0, 1], [1, 1]]}}}}"#
        );
        let only = format!(r#"{{{EXIT}, "choose": {{"by": "cycle", "values": [1]}}}}"#);
        const CLIPPED: &str = r#""type": "adamw", "lr": 0.01, "clip_norm": 0.5, "schedule": {"type": "cosine"}"#;
        const PLAIN: &str = r#""type": "sgd", "lr": 0.1, "momentum": 0.5"#;
        for (layers, train, optimizer) in [
            (&by_chance, r#""steps": 40"#, CLIPPED),
            (&by_chance, r#""steps": 40, "accumulate": 3"#, PLAIN),
            (&always, r#""steps": 8, "accumulate": 2"#, PLAIN),
            (&always, r#""steps": 8, "accumulate": 3"#, CLIPPED),
            // No parameter is on the path of evaluations.
            (&only, r#""steps": 40"#, PLAIN),
            (&only, r#""steps": 40, "accumulate": 2"#, CLIPPED),
        ] {
            let preset = crate::model::read_preset(&text(layers, train, optimizer)).unwrap();
            let options = VerifyOptions { threads: 1, replays: Some(10), ..VerifyOptions::default() };
            let report = verify(&preset, &options, |_| {}).unwrap();
            assert!(report.passed, "{layers} {train}: {:#?}", report.checks);
            let resumed = report.checks.iter().find(|check| check.name == resumed::NAME).unwrap();
            assert_eq!(resumed.passed, Some(true), "{resumed:#?}");
        }
    }

    #[test]
    fn checks_of_a_run_take_the_path_of_each_step() {
        let text = r#"{"name": "n", "input": {"shape": [64], "batch": 32}, "layers": [{"type": "dense", "units": 12},
            {"type": "branch", "paths": [[{"type": "dense", "units": 12}], [], [{"type": "activation",
            "function": "tanh"}]], "choose": {"by": "cycle", "values": [0, 1, 2]}}, {"type": "batch_norm"},
            {"type": "dense", "units": 10}], "loss": {"type": "softmax_cross_entropy"},
            "optimizer": {"type": "adam", "lr": 0.01}, "data": {"type": "digits", "last_batch": "short"},
            "train": {"steps": 60, "accumulate": 2}}"#;
        let preset = crate::model::read_preset(text).unwrap();
        let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
        let cancel = Arc::new(AtomicBool::new(false));
        let report = verify_some(&preset, &options, &[Proof::TrainingRun], &cancel, |_| {}).unwrap();
        assert!(report.passed, "{:#?}", report.checks);
        let figures = |name: &str| {
            let check = report.checks.iter().find(|check| check.name == name).unwrap();
            assert_eq!(check.passed, Some(true), "{check:#?}");
            check.figures.clone()
        };
        assert!(figures(training::NAME).contains("steps on 3 paths"), "{}", figures(training::NAME));
        assert!(figures(resumed::NAME).contains("steps more on 3 paths"), "{}", figures(resumed::NAME));
    }
}
