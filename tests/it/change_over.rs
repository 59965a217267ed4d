//! Runs that start with general kernels and change over to kernels for their sizes.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use stepgraph::exec::cuda::gpu;
use stepgraph::exec::{Executor, PoolEventKind};
use stepgraph::model::{BUNDLED, Precision, Preset, read_preset};
use stepgraph::select::{Kernels, Target};
use stepgraph::train::{Overrides, Session, SessionSpec, Start, StepReport, compile_for_shared_launches};

fn bundled(name: &str) -> Preset {
    read_preset(BUNDLED.iter().find(|b| b.name == name).unwrap().text).unwrap()
}

/// A run of this many steps.
fn spec(preset: &Preset, machine: &Target, kernels: Kernels, steps: usize) -> SessionSpec {
    let machine = Some(machine.clone().with_kernels(kernels));
    SessionSpec { machine, overrides: Overrides::steps(steps), ..SessionSpec::new(preset.clone(), PathBuf::new()) }
}

/// The results of a step, without times and without the change of kernels.
fn bits(report: &StepReport) -> [u32; 5] {
    let StepReport { loss, accuracy, update_max, grad_norm, lr, .. } = report;
    [loss, accuracy, update_max, grad_norm, lr].map(|v| v.to_bits())
}

/// Makes `count` steps, and returns their reports.
fn made(session: &mut Session, count: u64) -> Vec<StepReport> {
    let mut reports = Vec::new();
    let mut left = count;
    while left > 0 {
        let made = session.steps(left, Duration::from_secs(60), |report| reports.push(*report)).unwrap();
        assert!(made > 0);
        left -= made;
    }
    reports
}

fn state(session: &mut Session) -> Vec<u8> {
    session.step_mut().0.snapshot().unwrap()
}

/// Networks of every kind of step: batches from the device or from the host, several batches in a step, paths, lengths.
fn networks() -> Vec<Preset> {
    let names = "digits-mlp digits-cnn gpt-sums two-inputs stochastic-depth bucketed-text short-batches";
    let mut all: Vec<Preset> = names.split(' ').map(bundled).collect();
    all.push(Preset { precision: Precision::Bf16, ..bundled("digits-residual") });
    let mut accumulates = Preset { precision: Precision::Tf32, ..bundled("digits-mlp") };
    accumulates.train.as_mut().unwrap().accumulate = 3;
    all.push(accumulates);
    all
}

#[test]
fn operations_with_general_kernels_share_launches_that_were_compiled_ahead_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let text = BUNDLED.iter().find(|b| b.name == "moons-deep").unwrap().text.replace("\"units\": 32", "\"units\": 23");
    let general = spec(&read_preset(&text).unwrap(), &machine, Kernels::General, 40);
    let machine = general.machine.clone().unwrap();
    let specialised =
        SessionSpec { machine: Some(machine.clone().with_kernels(Kernels::Interchangeable)), ..general.clone() };
    let least = Session::prepare(&specialised).unwrap().recording().calls;
    let run = || {
        let mut session = Session::prepare(&general).unwrap();
        let reports: Vec<_> = made(&mut session, 40).iter().map(bits).collect();
        (session.recording().calls, reports, state(&mut session))
    };
    let (alone, began) = (run(), Instant::now());
    // Tests that run at the same time may compile what this one noted.
    let shared = loop {
        compile_for_shared_launches(&machine, 8, || true);
        let shared = run();
        if shared.0 <= least + 2 || began.elapsed() > Duration::from_secs(60) {
            break shared;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    println!("{} launches, then {}; {least} for its sizes", alone.0, shared.0);
    // If the cache holds the kernels of an earlier run, the first run shares launches too.
    assert!(alone.0 >= shared.0 && shared.0 <= least + 2, "{} and {} launches, not {least}", alone.0, shared.0);
    assert!((alone.1, alone.2) == (shared.1, shared.2), "shared launches change results");
}

#[test]
fn a_run_changes_over_between_two_steps_without_changing_a_bit_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    for preset in networks() {
        let name = &preset.name;
        let mut kept = Session::prepare(&spec(&preset, &machine, Kernels::General, 200)).unwrap();
        let expected: Vec<_> = made(&mut kept, 60).iter().map(bits).collect();
        let mut run = Session::prepare(&spec(&preset, &machine, Kernels::FirstGeneral, 200)).unwrap();
        let mut found = made(&mut run, 20);
        assert_eq!(run.kernels().unwrap().now(), Kernels::FirstGeneral, "{name}");
        let started = Instant::now();
        assert!(run.specialise().unwrap(), "{name}");
        let took = started.elapsed();
        found.extend(made(&mut run, 40));
        let changed: Vec<u64> = found.iter().filter(|r| r.kernels.is_some()).map(|r| r.step).collect();
        assert_eq!((changed, run.kernels().unwrap().changed_at), (vec![21], Some(21)), "{name}");
        assert_eq!(run.compiled().selection.target.kernels, Kernels::Interchangeable, "{name}");
        assert_eq!(found.iter().map(bits).collect::<Vec<_>>(), expected, "{name}: reports");
        assert!(state(&mut run) == state(&mut kept), "{name}: parameters and state");
        let renewed = run.recordings().events.iter().filter(|event| event.kind == PoolEventKind::Renewed).count();
        println!("{name}: {renewed} recordings made again in {took:.2?}");
        assert!(renewed > usize::from(run.varies()), "{name}");
        assert_eq!(run.streams(), kept.streams(), "{name}");
    }
}

#[test]
fn a_long_run_changes_over_by_itself_and_a_checkpoint_tells_its_kernels_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    const STEPS: usize = 3_000_000;
    let preset = bundled("digits-cnn");
    let mut run = Session::prepare(&spec(&preset, &machine, Kernels::FirstGeneral, STEPS)).unwrap();
    let started = Instant::now();
    let mut found = Vec::new();
    while run.kernels().unwrap().changed_at.is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not change over");
        found.extend(made(&mut run, 100));
    }
    found.extend(made(&mut run, 500));
    let at = run.kernels().unwrap().changed_at.unwrap();
    println!("changed over before step {at}, after {:.2?}", started.elapsed());
    let mut kept = Session::prepare(&spec(&preset, &machine, Kernels::General, STEPS)).unwrap();
    let expected = made(&mut kept, found.len() as u64);
    let other = found.iter().zip(&expected).find(|(a, b)| bits(a) != bits(b));
    assert!(at > 1 && other.is_none(), "changed before step {at}: {other:?}");
    assert!(state(&mut run) == state(&mut kept));
    // The checkpoint continues with the same bits, with general or interchangeable kernels; others are reported.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.safetensors");
    run.save_checkpoint(&path, &preset).unwrap();
    let expected: Vec<_> = made(&mut kept, 50).iter().map(bits).collect();
    for kernels in [Kernels::General, Kernels::FirstGeneral, Kernels::Interchangeable, Kernels::Specialised] {
        let start = Start::from_checkpoint(path.clone());
        let mut resumed = Session::prepare(&SessionSpec { start, ..spec(&preset, &machine, kernels, STEPS) }).unwrap();
        let notes = resumed.resumed().unwrap().notes.join("; ");
        let is_other = kernels == Kernels::Specialised;
        let note = "interchangeable kernels, and those of this run are specialised";
        assert_eq!(notes.contains(note), is_other, "{notes}");
        let found: Vec<_> = made(&mut resumed, 50).iter().map(bits).collect();
        assert!(is_other || found == expected, "{kernels:?}");
    }
}

/// Two of these rates are so close to the middle of two floats that one more or one fewer rounding changes them.
#[test]
fn the_rates_of_a_linear_schedule_are_those_of_the_cpu_with_every_kind_of_kernels() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let text = r#"{"version": 1, "name": "rates", "input": {"shape": [64], "batch": 64},
        "layers": [{"type": "dense", "units": 10}], "loss": {"type": "softmax_cross_entropy"}, "optimizer":
        {"type": "adam", "lr": 0.002, "schedule": {"type": "linear", "warmup": 4, "final": 0.1}},
        "data": {"type": "digits"}, "train": {"steps": 12, "seed": 3}}"#;
    let preset = read_preset(text).unwrap();
    let rates = |spec: SessionSpec| -> Vec<u32> {
        made(&mut Session::prepare(&spec).unwrap(), 12).iter().map(|report| report.lr.to_bits()).collect()
    };
    let expected = rates(SessionSpec::new(preset.clone(), PathBuf::new()));
    for kernels in [Kernels::General, Kernels::Interchangeable, Kernels::Specialised] {
        assert_eq!(rates(spec(&preset, &machine, kernels, 12)), expected, "{kernels:?}");
    }
}

#[test]
fn runs_that_cannot_change_over_keep_their_kernels() {
    let preset = bundled("digits-mlp");
    let mut on_cpu = Session::prepare(&SessionSpec::new(preset.clone(), PathBuf::new())).unwrap();
    assert!(!on_cpu.specialise().unwrap() && on_cpu.kernels().is_none());
    assert!(made(&mut on_cpu, 3).iter().all(|report| report.kernels.is_none()));
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("the rest is skipped: no CUDA device: {why}"),
    };
    for kernels in [Kernels::General, Kernels::Interchangeable, Kernels::Specialised] {
        let mut run = Session::prepare(&spec(&preset, &machine, kernels, 5)).unwrap();
        assert!(!run.specialise().unwrap());
        assert_eq!(run.kernels().unwrap().now(), kernels);
    }
    let mut eager = spec(&preset, &machine, Kernels::FirstGeneral, 5);
    eager.executor = Executor::Eager;
    assert!(!Session::prepare(&eager).unwrap().specialise().unwrap());
}
