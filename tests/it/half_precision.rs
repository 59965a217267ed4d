//! Steps in `f16` on a GPU: loss scaling in steps that overflow, that have several batches, or that update some
//! parameters; and functions where their results are small.

use std::path::PathBuf;
use std::sync::Arc;
use stepgraph::compile::{Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::{Model, Precision, Preset, check, read_preset};
use stepgraph::ops::OpKind;
use stepgraph::select::Target;
use stepgraph::train::{Overrides, Session, SessionSpec};

/// Every second step runs the block.
const CHOOSING: &str = r#"{"version": 1, "name": "choosing", "input": {"shape": [64], "batch": 60}, "layers": [
    {"type": "dense", "units": 20}, {"type": "residual", "choose": {"by": "cycle", "values": [1, 0]}, "layers": [
    {"type": "dense", "units": 20, "activation": "gelu"}]}, {"type": "dense", "units": 10}], "data": {"type": "digits"},
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.005}, "train": {"seed": 4}}"#;

/// The same network with three batches for each step.
fn accumulating(text: &str) -> String {
    text.replace(r#""seed": 4"#, r#""seed": 4, "accumulate": 3"#)
}

/// A run of 60 steps.
fn session(text: &str, machine: &Target, precision: Precision) -> Session {
    let preset = Preset { precision, ..read_preset(text).unwrap() };
    let (machine, overrides) = (Some(machine.clone()), Overrides::steps(60));
    Session::prepare(&SessionSpec { machine, overrides, ..SessionSpec::new(preset, PathBuf::new()) }).unwrap()
}

fn machine() -> Option<Target> {
    let found = gpu(0);
    if let Err(why) = &found {
        println!("skipped: no CUDA device: {why}");
    }
    found.ok().map(|gpu| gpu.target())
}

/// The numbers of a value that survives steps.
fn numbers(run: &mut Session, name: &str) -> Vec<f64> {
    let (step, _) = run.step_mut();
    let id = step.find(name).unwrap();
    match step.stored::<f32>(id) {
        Ok(found) => found.iter().map(|v| f64::from(*v)).collect(),
        Err(_) => step.stored::<i64>(id).unwrap().iter().map(|v| *v as f64).collect(),
    }
}

/// Sets the scale of the next step's loss.
fn scale(run: &mut Session, scale: f32) {
    let skipped = numbers(run, "scaler")[4] as f32;
    let (step, _) = run.step_mut();
    let id = step.find("scaler").unwrap();
    step.write(id, &[scale, 0.0, 1.0 / scale, 0.0, skipped]).unwrap();
}

#[test]
fn a_step_that_overflows_updates_nothing_and_is_not_counted_on_a_gpu() {
    let Some(machine) = machine() else { return };
    overflow(CHOOSING, &machine);
    // The gradients of wider layers are checked by many blocks.
    overflow(&CHOOSING.replace("\"units\": 20", "\"units\": 300"), &machine);
    overflow(&accumulating(CHOOSING), &machine);
}

fn overflow(text: &str, machine: &Target) {
    let mut run = session(text, machine, Precision::F16);
    scale(&mut run, 1e30);
    let before = numbers(&mut run, "params");
    // The first step runs the block, the second one does not.
    for skipped in [1.0, 2.0] {
        run.step().unwrap().unwrap();
        let scaler = numbers(&mut run, "scaler");
        assert_eq!(scaler[3..], [1.0, skipped], "{scaler:?}");
    }
    assert_eq!(numbers(&mut run, "params"), before);
    assert_eq!(numbers(&mut run, "counter")[1], 2.0, "steps are counted, updated or not");
    assert_eq!(numbers(&mut run, "counters")[3], 0.0, "updates of the block");
    scale(&mut run, 1024.0);
    for updates in [1.0, 1.0, 2.0] {
        run.step().unwrap().unwrap();
        assert_eq!(numbers(&mut run, "scaler")[3], 0.0);
        assert_eq!(numbers(&mut run, "counters")[3], updates);
    }
    assert_ne!(numbers(&mut run, "params"), before);
    // Both corrections are those of PyTorch's Adam for this number of updates.
    let of = |updates: i32| [1.0 / (1.0 - 0.9f64.powi(updates)), 1.0 / (1.0 - 0.999f64.powi(updates)).sqrt()];
    let is_near = |found: &[f64], wanted: [f64; 2]| found.iter().zip(wanted).all(|(a, b)| (a / b - 1.0).abs() < 1e-6);
    let (corr, corrs) = (numbers(&mut run, "corr"), numbers(&mut run, "corrs"));
    assert!(is_near(&corr, of(3)) && is_near(&corrs[2..], of(2)), "{corr:?} {corrs:?}");
}

#[test]
fn losses_in_f16_follow_those_in_f32_on_a_gpu() {
    let Some(machine) = machine() else { return };
    let whole = CHOOSING.replace(r#""choose": {"by": "cycle", "values": [1, 0]}, "#, "");
    for text in [CHOOSING, &accumulating(&whole), &accumulating(CHOOSING)] {
        let losses = |precision| {
            let mut run = session(text, &machine, precision);
            let made = std::iter::from_fn(|| run.step().unwrap());
            made.map(|report| report.loss).collect::<Vec<f32>>()
        };
        let (narrow, exact) = (losses(Precision::F16), losses(Precision::F32));
        assert_eq!(narrow.len(), 60);
        assert!(exact[59] < 0.7 * exact[0], "{exact:?}");
        for (step, (a, b)) in narrow.iter().zip(&exact).enumerate() {
            assert!((a - b).abs() < 0.02, "step {step}: {a}, in f32 {b}");
        }
    }
}

#[test]
fn gelu_is_differentiated_exactly_where_the_derivative_crosses_zero_on_a_gpu() {
    let Some(machine) = machine() else { return };
    let model = check(&read_preset(CHOOSING).unwrap()).model.unwrap();
    let compiled = compile(&Model { precision: Precision::F16, ..model }, &Options::train(machine)).unwrap();
    let ops = &compiled.selection.program.ops;
    let derivatives = ops.iter().enumerate().filter(|(_, op)| matches!(op.kind, OpKind::ActBwd(_)));
    let derivatives: Vec<usize> = derivatives.map(|(index, _)| index).collect();
    assert_eq!(derivatives.len(), 1);
    let mut step = Step::new(Arc::new(compiled), 1).unwrap();
    // About half of the draws have an input for which the derivative is smaller than 0.001.
    for seed in 0..100 {
        let found = step.compare_with_reference(derivatives[0], seed).unwrap().unwrap();
        assert!(found.wrong.is_empty(), "{}", found.wrong);
    }
}
