//! Attention by cuDNN against plain loops.

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
const TEXT: &str = r#"{"version": 1, "name": "attention", "input": {"type": "tokens", "shape": [150], "vocab": 30,
    "batch": 3}, "layers": [{"type": "embedding", "units": 48}, {"type": "attention", "heads": 3, "causal": true},
    {"type": "dense", "units": 80}, {"type": "attention", "heads": 2}, {"type": "dense", "units": 30}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;

/// Every plan of cuDNN ends with one of these: with the heuristic's first and its second kernel for one direction.
const PLANS: [&str; 2] = ["_cudnn_v0", "_cudnn_a1_v0"];

/// The network's step in which these plans of cuDNN are the fastest, with its operations that run one.
fn with_plans_of_cudnn(target: &Target, precision: Precision, plan: &str) -> (Arc<Compiled>, Vec<usize>) {
    let preset = Preset { precision, ..read_preset(TEXT).unwrap() };
    let model = check(&preset).model.unwrap();
    let options = Options::train(target.clone());
    let first = compile(&model, &options).unwrap().selection;
    let mut times = BTreeMap::new();
    for (op, choice) in first.program.ops.iter().zip(&first.choices) {
        if matches!(op.kind, OpKind::Attention(_) | OpKind::AttentionBwd(_)) {
            let kernels = choice.candidates.iter().map(|c| &c.kernel);
            let fast = kernels.filter(|k| k.ends_with(plan)).map(|k| (k.clone(), 1.0)).collect();
            times.insert(GpuTimes::key(&op.kind, real_of(&first.program, op, first.real)), fast);
        }
    }
    let gpu_times = Some(Arc::new(GpuTimes { device: String::new(), times }));
    let compiled = compile(&model, &Options { gpu_times, ..options }).unwrap();
    let runs_plan = |c: &Choice| c.kernel.starts_with("attention") && c.kernel.ends_with(plan);
    let chosen = compiled.selection.choices.iter().enumerate().filter(|(_, c)| runs_plan(c));
    let chosen = chosen.map(|(index, _)| index).collect();
    (Arc::new(compiled), chosen)
}

#[test]
fn attention_runs_the_plan_of_cudnn_that_was_the_fastest() {
    for precision in [Precision::Bf16, Precision::F16] {
        let counts = PLANS.map(|plan| with_plans_of_cudnn(&Target::h200(), precision, plan).1.len());
        // The gradient has one plan.
        assert_eq!(counts, [4, 2], "{precision:?}");
    }
}

#[test]
fn attention_by_cudnn_equals_plain_loops_on_a_gpu() {
    let machine = match gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    if !machine.as_cuda().unwrap().has_cudnn {
        return println!("skipped: cuDNN is not installed");
    }
    for precision in [Precision::Bf16, Precision::F16] {
        for plan in PLANS {
            let (compiled, chosen) = with_plans_of_cudnn(&machine, precision, plan);
            assert!(chosen.len() >= 2, "{plan}: {} operations run cuDNN", chosen.len());
            let mut step = Step::new(Arc::clone(&compiled), 1).unwrap();
            for index in chosen {
                let kernel = &compiled.selection.choices[index].kernel;
                assert!(step.library_of(index).is_some(), "{kernel}: another kernel runs instead");
                let found = step.compare_with_reference(index, 7).unwrap().unwrap();
                println!("{} in {precision:?}: {:.2} of its bound at {}", found.kernel, found.ratio, found.at);
                assert!(found.wrong.is_empty(), "{}: {}", found.kernel, found.wrong);
            }
        }
    }
}
