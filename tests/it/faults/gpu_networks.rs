//! Networks whose steps together use every kernel of a GPU.

use super::recordings::PATHS;
use super::{CLASSES, IMAGES, VALUES};
use crate::nets::GATHERED;
use stepgraph::compile::{Options, compile};
use stepgraph::model::{check, read_preset};
use stepgraph::select::Target;
use stepgraph::select::cuda::{KernelFile, custom_kernels, real_of};

/// A classifier in TF32 whose weights are updated by the operations that compute their gradients.
pub const TENSOR: &str = r#"{"version": 1, "name": "tensor", "precision": "tf32",
    "input": {"shape": [64], "batch": 64}, "layers": [
    {"type": "dense", "units": 96, "activation": "relu"}, {"type": "dense", "units": 96, "activation": "relu"},
    {"type": "dense", "units": 10}], "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "adamw", "lr": 0.001},
    "data": {"type": "digits", "held_out": 360, "split": "last"}, "train": {"steps": 1000}}"#;

/// More classes than the fused end of a classifier supports: its loss has a separate kernel.
pub const MANY: &str = r#"{"version": 1, "name": "many", "input": {"shape": [12], "batch": 6}, "layers": [
    {"type": "dense", "units": 20, "activation": "gelu"}, {"type": "dense", "units": 40}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.01}}"#;

/// More classes than a warp holds, several groups of them for some threads of a block, in 16 bits, after a GELU and the
/// normalisation of rows that a warp does hold.
pub const CHOICES: &str = r#"{"version": 1, "name": "choices", "precision": "bf16",
    "input": {"shape": [16], "batch": 6}, "layers": [
    {"type": "dense", "units": 640, "activation": "gelu"}, {"type": "layer_norm"}, {"type": "dense", "units": 2504}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.001}}"#;

/// Many short parameters beside a long one: the blocks that update them form a cluster, and few threads combine the
/// metrics of each parameter.
pub const SEGMENTS: &str = r#"{"version": 1, "name": "segments", "input": {"shape": [46], "batch": 4}, "layers": [
    {"type": "dense", "units": 46, "activation": "tanh"}, {"type": "layer_norm"}, {"type": "layer_norm"},
    {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"},
    {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// Attention on tensor cores with all its features: several tiles, shared heads, rotary embedding, and dropout.
pub const HEADS: &str = r#"{"version": 1, "name": "heads", "precision": "tf32",
    "input": {"shape": [70, 32], "batch": 2}, "layers": [
    {"type": "attention", "heads": 4, "kv_heads": 2, "causal": true, "rotary": true, "dropout": 0.25},
    {"type": "dense", "units": 3}], "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// The same with factors of 16 bits, without rotary embedding and dropout.
pub const HALF_HEADS: &str = r#"{"version": 1, "name": "half-heads", "precision": "bf16",
    "input": {"shape": [140, 48], "batch": 4}, "layers": [
    {"type": "attention", "heads": 2, "causal": true}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// Attention by the matrix instructions of warpgroups, which only Hopper has: several tiles, the last of which is not
/// whole, and shared heads.
pub const WARPGROUPS: &str = r#"{"version": 1, "name": "warpgroups", "precision": "bf16",
    "input": {"shape": [370, 128], "batch": 1}, "layers": [
    {"type": "attention", "heads": 2, "kv_heads": 1, "causal": true}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A head with so many features that a tile has 16 positions; the last tile has one.
pub const TALL: &str = r#"{"version": 1, "name": "tall", "input": {"shape": [17, 160], "batch": 2}, "layers": [
    {"type": "attention", "heads": 1, "causal": true}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A product whose reduction is divided into several slabs.
pub const LONG: &str = r#"{"version": 1, "name": "long", "input": {"shape": [300], "batch": 6}, "layers": [
    {"type": "dense", "units": 20}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A residual block whose sums are fused into a product and into the gradient of a normalisation.
pub const BLOCK: &str = r#"{"version": 1, "name": "block", "input": {"shape": [24], "batch": 12}, "layers": [
    {"type": "dense", "units": 24}, {"type": "residual", "layers": [
    {"type": "layer_norm"}, {"type": "dense", "units": 24}]}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A vocabulary so large that a block has several rows of its table.
pub const WORDS: &str = r#"{"version": 1, "name": "words",
    "input": {"type": "tokens", "shape": [6], "vocab": 5000, "batch": 4}, "layers": [
    {"type": "embedding", "units": 8}, {"type": "flatten"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// Small layers of every cell, whose weights are held by threads, after a causal convolution.
pub const RECURRENT: &str = r#"{"version": 1, "name": "recurrent", "input": {"shape": [7, 5], "batch": 6}, "layers": [
    {"type": "conv1d", "filters": 6, "kernel": 3, "padding": "causal", "dilation": 2, "activation": "relu"},
    {"type": "gru", "units": 9, "bidirectional": true}, {"type": "lstm", "units": 8},
    {"type": "rnn", "units": 7, "nonlinearity": "relu"}, {"type": "rnn", "units": 11, "return": "last"},
    {"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A layer whose weight is held by threads, each of which has the sums of two units in the backward pass.
pub const PAIRS: &str = r#"{"version": 1, "name": "pairs", "input": {"shape": [5, 4], "batch": 3}, "layers": [
    {"type": "gru", "units": 128}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.01}}"#;

/// Layers whose weights are held by several blocks together.
pub const WIDE: &str = r#"{"version": 1, "name": "wide", "input": {"shape": [4, 6], "batch": 20}, "layers": [
    {"type": "lstm", "units": 160}, {"type": "gru", "units": 190, "return": "last"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.01}}"#;

/// The same in half precision, with matrix instructions.
pub const WIDE_HALF: &str = r#"{"version": 1, "name": "wide-half", "precision": "bf16",
    "input": {"shape": [4, 6], "batch": 20}, "layers": [
    {"type": "lstm", "units": 160}, {"type": "gru", "units": 190, "return": "last"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A layer whose weight fits neither registers nor shared memory.
pub const STREAMED: &str = r#"{"version": 1, "name": "streamed", "input": {"shape": [3, 4], "batch": 2}, "layers": [
    {"type": "rnn", "units": 2200, "return": "last"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.01}}"#;

/// Tokens, attention over more positions than a tile has, branches, a loss on points, and an update with a schedule,
/// gradient clipping, and parameters without weight decay.
pub const TOKENS: &str = concat!(
    r#"{"version": 1, "name": "tokens",
    "input": {"type": "tokens", "shape": [70], "vocab": 11, "batch": 3}, "layers": [
    {"type": "embedding", "units": 16}, {"type": "position", "kind": "sinusoidal"},
    {"type": "residual", "layers": [{"type": "rms_norm"},
        {"type": "attention", "heads": 4, "kv_heads": 2, "causal": true, "rotary": true, "dropout": 0.1}]},
    {"type": "residual", "layers": [{"type": "attention", "heads": 2}]}, {"type": "take", "at": "last"},
    {"type": "parallel", "join": "concat", "branches": [{"layers": [{"type": "dense", "units": 6}]},
        {"layers": [{"type": "dense", "units": 8, "activation": "tanh"}]}]},"#,
    product_and_loss!(),
    r#"
    "optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1, "decay": "matrices", "clip_norm": 0.5,
        "schedule": {"type": "cosine", "warmup": 5, "final": 0.1}}}"#
);

/// A step with loss scaling that updates two groups of parameters.
pub const SCALED: &str = r#"{"version": 1, "name": "scaled", "precision": "f16", "input": {"shape": [12], "batch": 16},
    "layers": [{"type": "dense", "units": 20}, {"type": "residual", "choose": {"by": "cycle", "values": [1, 0]},
    "layers": [{"type": "dense", "units": 20, "activation": "gelu"}]}, {"type": "dense", "units": 5}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// All of them.
pub const NETWORKS: [&str; 23] = [
    CLASSES, IMAGES, VALUES, TENSOR, MANY, CHOICES, SEGMENTS, TOKENS, RECURRENT, PAIRS, WIDE, WIDE_HALF, STREAMED,
    HEADS, HALF_HEADS, WARPGROUPS, TALL, LONG, WORDS, BLOCK, GATHERED, PATHS, SCALED,
];

/// Families of kernels that only some networks have.
pub const FAMILIES: [KernelFile; 8] = [
    KernelFile::Conv,
    KernelFile::Norm,
    KernelFile::Pool,
    KernelFile::Sequence,
    KernelFile::Attention,
    KernelFile::AttentionMma,
    KernelFile::AttentionWgmma,
    KernelFile::Recurrent,
];

/// Whether the step of a network may use a kernel of a file: one of all candidates of its operations on a machine.
pub fn may_have(network: &str, file: &str, machine: &Target) -> bool {
    if FAMILIES.iter().all(|family| family.name() != file) {
        return true;
    }
    let model = check(&read_preset(network).unwrap()).model.unwrap();
    let compiled = compile(&model, &Options::train(machine.clone())).unwrap();
    let (selection, facts) = (&compiled.selection, machine.as_cuda().unwrap());
    selection.program.ops.iter().any(|op| {
        let kernels = custom_kernels(&op.kind, real_of(&selection.program, op, selection.real), &facts);
        let mut files = kernels.iter().flat_map(|kernel| [Some(kernel.spec.file), kernel.spec.file.base()]).flatten();
        files.any(|has| has.name() == file)
    })
}
