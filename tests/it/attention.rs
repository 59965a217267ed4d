//! Attention by cuDNN against plain loops.

use std::collections::BTreeMap;
use std::sync::Arc;
use stepgraph::compile::{Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cuda::gpu;
use stepgraph::model::{Precision, check, read_preset};
use stepgraph::ops::OpKind;
use stepgraph::select::cuda::{GpuTimes, real_of};

/// Attention over positions that are no multiple of a tile, causal and not, with two sizes of heads.
const TEXT: &str = r#"{"version": 1, "name": "attention", "input": {"type": "tokens", "shape": [150], "vocab": 30,
    "batch": 3}, "layers": [{"type": "embedding", "units": 48}, {"type": "attention", "heads": 3, "causal": true},
    {"type": "dense", "units": 80}, {"type": "attention", "heads": 2}, {"type": "dense", "units": 30}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;

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
        let preset = stepgraph::model::Preset { precision, ..read_preset(TEXT).unwrap() };
        let model = check(&preset).model.unwrap();
        let options = Options::train(machine.clone());
        // Every plan of cuDNN is the fastest once.
        for plan in ["_cudnn_v0", "_cudnn_a1_v0"] {
            let first = compile(&model, &options).unwrap();
            let mut times = BTreeMap::new();
            for (op, choice) in first.program.ops.iter().zip(&first.selection.choices) {
                if !matches!(op.kind, OpKind::Attention(_) | OpKind::AttentionBwd(_)) {
                    continue;
                }
                let kernels = choice.candidates.iter().map(|c| &c.kernel);
                let fast = kernels.filter(|k| k.ends_with(plan)).map(|k| (k.clone(), 1.0)).collect();
                times.insert(GpuTimes::key(&op.kind, real_of(&first.program, op, first.selection.real)), fast);
            }
            let gpu_times = Some(Arc::new(GpuTimes { device: String::new(), times }));
            let compiled = Arc::new(compile(&model, &Options { gpu_times, ..options.clone() }).unwrap());
            let mut step = Step::new(Arc::clone(&compiled), 1).unwrap();
            let mut count = 0;
            for (index, choice) in compiled.selection.choices.iter().enumerate() {
                if !choice.kernel.contains("_cudnn") || !choice.kernel.starts_with("attention") {
                    continue;
                }
                count += 1;
                assert!(step.library_of(index).is_some(), "{}: another kernel runs instead", choice.kernel);
                let found = step.compare_with_reference(index, 7).unwrap().unwrap();
                println!("{} in {precision:?}: {:.2} of its bound at {}", found.kernel, found.ratio, found.at);
                assert!(found.wrong.is_empty(), "{}: {}", found.kernel, found.wrong);
            }
            assert!(count >= 2, "{plan}: {count} operations run cuDNN");
        }
    }
}
