//! Networks for tests, with their checked models and steps with a batch: shared by property tests on random networks.

use std::sync::Arc;
use stepgraph::compile::{Options, compile};
use stepgraph::exec::Step;
use stepgraph::exec::cpu::Pool;
use stepgraph::model::{Model, ParamId, Preset, Rng, Targets, check, init_values};
use stepgraph::tensor::DType;

/// A network with what the bundled presets do not contain: odd sizes, strides, groups, dilation, momentum, label
/// smoothing.
pub const ODD: &str = r#"{"version": 1, "name": "odd", "input": {"shape": [3, 9, 7], "batch": 5}, "layers": [
    {"type": "conv2d", "filters": 6, "kernel": [3, 2], "stride": [2, 1], "padding": 1, "activation": "gelu"},
    {"type": "conv2d", "filters": 6, "kernel": 3, "padding": "same", "dilation": 2, "groups": 3, "bias": false},
    {"type": "batch_norm"}, {"type": "activation", "function": "tanh"},
    {"type": "max_pool2d", "size": 2, "stride": 1, "padding": 1},
    {"type": "avg_pool2d", "size": [2, 3], "stride": 2, "padding": 1},
    {"type": "residual", "layers": [{"type": "conv2d", "filters": 6, "kernel": 1, "activation": "silu"}]},
    {"type": "flatten"}, {"type": "dropout", "rate": 0.3}, {"type": "batch_norm"},
    {"type": "dense", "units": 17, "activation": "sigmoid"}, {"type": "layer_norm"},
    {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 17, "activation": "leaky_relu"}]},
    {"type": "dense", "units": 7}], "loss": {"type": "softmax_cross_entropy", "label_smoothing": 0.1},
    "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": true, "weight_decay": 0.001}}"#;

/// Root mean square normalisation, of the input and in a repeated block.
pub const RMS: &str = include_str!("../data/golden/mlp-rms.json");

/// Tokens and their positions, branches that are concatenated and multiplied, a loss on points, and an update with a
/// schedule, gradient clipping, and parameters without weight decay, over several batches.
pub const JOINED: &str = r#"{"version": 1, "name": "joined",
    "input": {"type": "tokens", "shape": [6], "vocab": 11, "batch": 5}, "layers": [
    {"type": "embedding", "units": 10}, {"type": "position", "kind": "sinusoidal"}, {"type": "position"},
    {"type": "parallel", "join": "concat", "branches": [{"layers": [{"type": "dense", "units": 6}]},
        {"layers": [{"type": "dense", "units": 8, "activation": "tanh"}]}]},
    {"type": "parallel", "join": "multiply", "branches": [{"layers": [{"type": "dense", "units": 7}]},
        {"layers": [{"type": "dense", "units": 7, "activation": "sigmoid"}]}]},
    {"type": "conv1d", "filters": 12, "kernel": 3, "padding": "same"}, {"type": "take", "at": "last"},
    {"type": "dense", "units": 3}], "loss": {"type": "huber", "delta": 0.7}, "train": {"accumulate": 3},
    "optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1, "decay": "matrices", "clip_norm": 0.5,
        "schedule": {"type": "cosine", "warmup": 5, "final": 0.1}}}"#;

/// Attention over more positions than a tile has, and no multiple of them: causal and rotary with groups of heads and
/// dropout, then in both directions.
pub const ATTENDING: &str = r#"{"version": 1, "name": "attending",
    "input": {"type": "tokens", "shape": [75], "vocab": 128, "batch": 3}, "layers": [
    {"type": "embedding", "units": 96}, {"type": "position", "kind": "sinusoidal"},
    {"type": "residual", "layers": [{"type": "rms_norm"},
        {"type": "attention", "heads": 6, "kv_heads": 2, "causal": true, "rotary": true, "dropout": 0.2}]},
    {"type": "residual", "layers": [{"type": "rms_norm"}, {"type": "attention", "heads": 4, "dropout": 0.5}]},
    {"type": "residual", "layers": [{"type": "rms_norm"}, {"type": "attention", "heads": 8, "causal": true}]},
    {"type": "dense", "units": 128}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001},
    "data": {"type": "source"}}"#;

/// Recurrent layers whose weights several blocks hold together: both directions, then the final state; rows and units
/// are no multiples of a tile.
pub const GRIDS: &str = r#"{"version": 1, "name": "grids", "input": {"shape": [9, 6], "batch": 70}, "layers": [
    {"type": "gru", "units": 142, "bidirectional": true}, {"type": "lstm", "units": 150, "return": "last"},
    {"type": "dense", "units": 3}], "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.003},
    "data": {"type": "waves", "samples": 280}}"#;

/// Small layers over many rows, whose gradients are gathered and whose rows are normalised by
/// products, with learned positions and heads of one tile.
pub const GATHERED: &str = r#"{"version": 1, "name": "gathered",
    "input": {"type": "tokens", "shape": [16], "vocab": 11, "batch": 32}, "layers": [
    {"type": "embedding", "units": 32}, {"type": "position"},
    {"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "attention", "heads": 2, "causal": true}]},
    {"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "dense", "units": 40, "activation": "gelu"},
        {"type": "dense", "units": 32}]}, {"type": "rms_norm"}, {"type": "dense", "units": 5}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// Attention whose heads have 64 features and share keys and values; Hopper has its own kernels for it in 16 bits.
pub const WIDE_HEADS: &str = r#"{"version": 1, "name": "wide-heads",
    "input": {"type": "tokens", "shape": [75], "vocab": 128, "batch": 3}, "layers": [
    {"type": "embedding", "units": 128}, {"type": "attention", "heads": 2, "kv_heads": 1, "causal": true},
    {"type": "dense", "units": 128}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001},
    "data": {"type": "source"}}"#;

/// Networks of the trajectories with features that the bundled presets do not use.
pub const GOLDEN: [&str; 12] = [
    "inception",
    "two-inputs",
    "gpt-learned",
    "gpt-rotary-gqa",
    "encoder-sinusoidal",
    "bce-step",
    "huber",
    "conv1d-causal",
    "seq-bilstm",
    "seq-gru-last",
    "seq-rnn-last",
    "accumulate-clip",
];

/// The checked model of a preset without mistakes.
pub fn model(preset: &Preset) -> Model {
    let checked = check(preset);
    checked.model.unwrap_or_else(|| panic!("{}: {:?}", preset.name, checked.diagnostics))
}

/// A compiled step with asymmetric parameters and one random batch, the same for every target and precision.
pub fn prepared(model: &Model, options: &Options, seed: u64) -> (Step, Pool) {
    let threads = options.target.as_cpu().unwrap().threads;
    let compiled = compile(model, options).unwrap_or_else(|e| panic!("{}: {e}", model.name));
    let mut step = Step::new(Arc::new(compiled), threads).unwrap();
    for (index, param) in model.params.iter().enumerate() {
        let mut rng = Rng::new(seed, 0x9000 + index as u64);
        let jitter = |v: f32| if param.kind.is_trained() { v + rng.range(-0.2, 0.2) as f32 } else { v };
        let values: Vec<f32> = init_values(param, index, seed).into_iter().map(jitter).collect();
        write_param(&mut step, ParamId(index as u32), &values);
    }
    let program = step.compiled().plan.program.clone();
    let mut rng = Rng::new(seed, 0xBA7C);
    for (x, input) in program.all_samples().zip(&model.inputs) {
        let count = model.batch * input.shape.len();
        if let Some(vocab) = input.content.vocab() {
            let tokens: Vec<i32> = (0..count).map(|_| rng.below(vocab) as i32).collect();
            step.set_input(x, &tokens).unwrap();
            continue;
        }
        let samples: Vec<f32> = (0..count).map(|_| rng.normal() as f32).collect();
        match program.real {
            DType::F64 => step.set_input(x, &widen(&samples)).unwrap(),
            _ => step.set_input(x, &samples).unwrap(),
        }
    }
    if let Some(y) = program.targets() {
        if model.loss.targets() == Targets::Values {
            let targets: Vec<f32> = (0..model.batch * model.output.len()).map(|_| rng.normal() as f32).collect();
            write_real(&mut step, y, &targets);
        } else if model.loss.targets() == Targets::Binary {
            let targets: Vec<f32> = (0..model.batch * model.output.len()).map(|_| rng.below(2) as f32).collect();
            write_real(&mut step, y, &targets);
        } else {
            let count = model.batch * model.labels().len();
            let labels: Vec<i32> = (0..count).map(|_| rng.below(model.classes()) as i32).collect();
            step.write(y, &labels).unwrap();
        }
    }
    if let Ok(hyper) = step.find("hyper") {
        write_real(&mut step, hyper, &[model.optimizer.lr() as f32, model.optimizer.weight_decay() as f32]);
        if let Ok(steps) = step.find("steps") {
            step.write(steps, &[100i64]).unwrap();
        }
        let counter = step.find("counter").unwrap();
        step.write(counter, &[seed as i64, 0]).unwrap();
    }
    (step, Pool::new(threads).unwrap())
}

pub fn widen(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

fn write_param(step: &mut Step, id: ParamId, values: &[f32]) {
    match step.compiled().plan.program.real {
        DType::F64 => step.set_param(id, &widen(values)).unwrap(),
        _ => step.set_param(id, values).unwrap(),
    }
}

fn write_real(step: &mut Step, id: stepgraph::lower::LValueId, values: &[f32]) {
    match step.compiled().plan.program.real {
        DType::F64 => step.write(id, &widen(values)).unwrap(),
        _ => step.write(id, values).unwrap(),
    }
}

/// A parameter's gradient in f64, for any precision of the step.
pub fn grad(step: &Step, id: ParamId) -> Vec<f64> {
    match step.compiled().plan.program.real {
        DType::F64 => step.grad::<f64>(id).unwrap(),
        _ => widen(&step.grad::<f32>(id).unwrap()),
    }
}

/// The trained parameters of a model.
pub fn trained(model: &Model) -> impl Iterator<Item = ParamId> + '_ {
    (0..model.params.len()).filter(|&i| model.params[i].kind.is_trained()).map(|i| ParamId(i as u32))
}

/// Networks with optimizers and constants that no bundled one has.
pub const RULES: [&str; 3] = [
    r#"{"version": 1, "name": "other-betas", "input": {"shape": [24], "batch": 16}, "layers": [
    {"type": "dense", "units": 40, "activation": "tanh"}, {"type": "dense", "units": 3}], "loss": {"type": "mse"},
    "optimizer": {"type": "adam", "lr": 0.003, "betas": [0.83, 0.97], "eps": 1e-5, "weight_decay": 0.02},
    "data": {"type": "regression", "samples": 64}}"#,
    r#"{"version": 1, "name": "nesterov", "input": {"shape": [24], "batch": 16}, "layers": [
    {"type": "dense", "units": 40, "activation": "tanh"}, {"type": "dense", "units": 3}], "loss": {"type": "mse"},
    "optimizer": {"type": "sgd", "lr": 0.03, "momentum": 0.87, "nesterov": true, "clip_norm": 0.5},
    "data": {"type": "regression", "samples": 64}}"#,
    r#"{"version": 1, "name": "lion", "input": {"shape": [24], "batch": 16}, "layers": [
    {"type": "dense", "units": 40, "activation": "tanh"}, {"type": "dense", "units": 3}], "loss": {"type": "mse"},
    "optimizer": {"type": "lion", "lr": 0.002, "betas": [0.85, 0.96], "weight_decay": 0.1, "decay": "matrices"},
    "data": {"type": "regression", "samples": 64}}"#,
];

/// Networks whose convolutions have few channels: of one channel with rows that no number of units divides, with
/// strides, and of three channels.
pub const FEW_CHANNELS: [&str; 3] = [
    r#"{"version": 1, "name": "one channel", "input": {"shape": [1, 23, 29], "batch": 7}, "layers": [
        {"type": "conv2d", "filters": 32, "kernel": 3, "padding": "same", "activation": "relu"},
        {"type": "flatten"}, {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001}}"#,
    r#"{"version": 1, "name": "one channel, strides", "input": {"shape": [1, 45, 30], "batch": 11}, "layers": [
        {"type": "conv2d", "filters": 64, "kernel": 5, "stride": 2, "activation": "gelu"},
        {"type": "flatten"}, {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001}}"#,
    r#"{"version": 1, "name": "three channels", "input": {"shape": [3, 16, 16], "batch": 97}, "layers": [
        {"type": "conv2d", "filters": 64, "kernel": 3, "padding": "same", "bias": false},
        {"type": "batch_norm"}, {"type": "activation", "function": "relu"},
        {"type": "flatten"}, {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001}}"#,
];
