//! Attention and convolutions by cuDNN against plain loops.

use std::collections::BTreeMap;
use std::sync::Arc;
use stepgraph::compile::{Compiled, Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::{Precision, Preset, check, read_preset};
use stepgraph::ops::OpKind;
use stepgraph::select::cuda::{GpuTimes, real_of};
use stepgraph::select::{Choice, Target};

/// Attention over positions that are no multiple of a tile, causal and not, with two sizes of heads.
const ATTENTION: &str = r#"{"version": 1, "name": "attention", "input": {"type": "tokens", "shape": [150], "vocab": 30,
    "batch": 3}, "layers": [{"type": "embedding", "units": 48}, {"type": "attention", "heads": 3, "causal": true},
    {"type": "dense", "units": 80}, {"type": "attention", "heads": 2}, {"type": "dense", "units": 30}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;

/// Convolutions whose gradients pass a ReLU.
const CONVOLUTIONS: &str = r#"{"version": 1, "name": "convolutions", "input": {"shape": [3, 9, 10], "batch": 5},
    "layers": [{"type": "conv2d", "filters": 16, "kernel": 3, "padding": 1, "activation": "relu"},
    {"type": "conv2d", "filters": 24, "kernel": 3, "stride": 2, "activation": "relu"},
    {"type": "conv2d", "filters": 8, "kernel": 2}, {"type": "flatten"}, {"type": "dense", "units": 5}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;

/// Every plan of cuDNN for attention ends with one of these: with the heuristic's first and its second kernel for one
/// direction.
const PLANS: [&str; 2] = ["_cudnn_v0", "_cudnn_a1_v0"];

/// A step in which the kernels whose names contain `plan` are the fastest for attention, recurrences and gradients of
/// convolutions, with its operations that run one.
pub fn with_kernels(text: &str, target: &Target, precision: Precision, plan: &str) -> (Arc<Compiled>, Vec<usize>) {
    let preset = Preset { precision, ..read_preset(text).unwrap() };
    let model = check(&preset).model.unwrap();
    let options = Options::train(target.clone());
    let first = compile(&model, &options).unwrap().selection;
    let mut times = BTreeMap::new();
    for (op, choice) in first.program.ops.iter().zip(&first.choices) {
        let kernels = choice.candidates.iter().map(|c| &c.kernel);
        let fast: BTreeMap<_, _> = kernels.filter(|k| k.contains(plan)).map(|k| (k.clone(), 1.0)).collect();
        let is_attention = matches!(op.kind, OpKind::Attention(_) | OpKind::AttentionBwd(_));
        let is_recurrence = matches!(op.kind, OpKind::Recurrence(_) | OpKind::RecurrenceBwd(_));
        if is_attention || is_recurrence || matches!(op.kind, OpKind::Conv2dBwdX(_)) {
            times.insert(GpuTimes::key(&op.kind, real_of(&first.program, op, first.real)), fast);
        }
    }
    let gpu_times = Some(Arc::new(GpuTimes { device: String::new(), times }));
    let compiled = compile(&model, &Options { gpu_times, ..options }).unwrap();
    let runs_plan = |c: &Choice| c.kernel.contains(plan);
    let chosen = compiled.selection.choices.iter().enumerate().filter(|(_, c)| runs_plan(c));
    let chosen = chosen.map(|(index, _)| index).collect();
    (Arc::new(compiled), chosen)
}

#[test]
fn attention_runs_the_plan_of_cudnn_that_was_the_fastest() {
    for precision in [Precision::Bf16, Precision::F16] {
        let counts = PLANS.map(|plan| with_kernels(ATTENTION, &Target::h200(), precision, plan).1.len());
        // The gradient has one plan.
        assert_eq!(counts, [4, 2], "{precision:?}");
    }
}

#[test]
fn gradients_that_pass_a_relu_have_a_plan_with_a_kernel_after_it() {
    for precision in Precision::ALL {
        let (_, chosen) = with_kernels(CONVOLUTIONS, &Target::h200(), precision, "_cudnn_plain_v0");
        assert_eq!(chosen.len(), 2, "{precision:?}");
    }
}

/// Compares the operations of a network that run kernels whose names contain `plan`, at least `least` of them, with
/// plain loops. The name of the first call of each, a type of kernels or a library's plan, must start with `runs`.
pub fn compare_on(machine: &Target, text: &str, precision: Precision, (plan, runs): (&str, &str), least: usize) {
    let (compiled, chosen) = with_kernels(text, machine, precision, plan);
    assert!(chosen.len() >= least, "{plan}: {} operations run such a kernel", chosen.len());
    let mut step = Step::new(Arc::clone(&compiled), 1).unwrap();
    for index in chosen {
        let found = step.compare_with_reference(index, 7).unwrap().unwrap();
        println!("{} in {precision:?}: {:.2} of its bound at {}", found.kernel, found.ratio, found.at);
        assert!(found.calls[0].starts_with(runs), "{}: {:?} ran instead", found.kernel, found.calls);
        assert!(found.wrong.is_empty(), "{}: {}", found.kernel, found.wrong);
    }
}

#[test]
fn operations_by_cudnn_equal_plain_loops_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    if !machine.as_cuda().unwrap().has_cudnn {
        return println!("skipped: cuDNN is not installed");
    }
    for precision in [Precision::Bf16, Precision::F16] {
        for plan in PLANS {
            compare_on(&machine, ATTENTION, precision, (plan, "cuDNN "), 2);
        }
    }
    for precision in Precision::ALL {
        compare_on(&machine, CONVOLUTIONS, precision, ("_cudnn_plain_v0", "cuDNN "), 2);
    }
}
