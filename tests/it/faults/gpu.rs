//! Faults in the kernels of a GPU that bring batches, keep the log, step parameters, measure steps and evaluate.

use super::files::{ELEMENTWISE, FEED, LOSS, NORM, OPTIMIZER, PRELUDE};
use super::{CLASSES, EVALUATION, FAST, LOG, REPLAY, VALUES};
use stepgraph::exec::cuda::plant::TextFault;

pub const REFERENCES: &str = "kernels against their references";

/// A classifier in TF32 whose weights are stepped where their gradients are made.
pub const TENSOR: &str = r#"{"version": 1, "name": "tensor", "precision": "tf32",
    "input": {"shape": [64], "batch": 64}, "layers": [
    {"type": "dense", "units": 96, "activation": "relu"}, {"type": "dense", "units": 96, "activation": "relu"},
    {"type": "dense", "units": 10}], "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "adamw", "lr": 0.001},
    "data": {"type": "digits", "held_out": 360, "split": "last"}, "train": {"steps": 1000}}"#;

/// More classes than the end of a classifier is joined for: its loss has a kernel of its own.
pub const MANY: &str = r#"{"version": 1, "name": "many", "input": {"shape": [12], "batch": 6}, "layers": [
    {"type": "dense", "units": 20, "activation": "gelu"}, {"type": "dense", "units": 40}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.01}}"#;

/// Many short parameters beside a long one: the blocks that update them form a cluster, and few threads add up the
/// metrics of each parameter.
pub const SEGMENTS: &str = r#"{"version": 1, "name": "segments", "input": {"shape": [46], "batch": 4}, "layers": [
    {"type": "dense", "units": 46, "activation": "tanh"}, {"type": "layer_norm"}, {"type": "layer_norm"},
    {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"},
    {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"}, {"type": "layer_norm"}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// Attention on tensor cores with everything that it has: several tiles, shared heads, turned pairs, and dropout.
pub const HEADS: &str = r#"{"version": 1, "name": "heads", "precision": "tf32",
    "input": {"shape": [70, 32], "batch": 2}, "layers": [
    {"type": "attention", "heads": 4, "kv_heads": 2, "causal": true, "rotary": true, "dropout": 0.25},
    {"type": "dense", "units": 3}], "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// The same with factors of 16 bits, without what turns and drops.
pub const HALF_HEADS: &str = r#"{"version": 1, "name": "half-heads", "precision": "bf16",
    "input": {"shape": [70, 48], "batch": 2}, "layers": [
    {"type": "attention", "heads": 2, "causal": true}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A residual block whose sums are parts of a product and of the gradient of a normalisation.
pub const BLOCK: &str = r#"{"version": 1, "name": "block", "input": {"shape": [24], "batch": 12}, "layers": [
    {"type": "dense", "units": 24}, {"type": "residual", "layers": [
    {"type": "layer_norm"}, {"type": "dense", "units": 24}]}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A vocabulary so large that a block has several rows of its table.
pub const WORDS: &str = r#"{"version": 1, "name": "words",
    "input": {"type": "tokens", "shape": [6], "vocab": 5000, "batch": 4}, "layers": [
    {"type": "embedding", "units": 8}, {"type": "flatten"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A mistake in the text of the kernels, networks in which it counts, and the check that must find it in one of them.
pub struct KernelFault {
    pub name: &'static str,
    pub text: TextFault,
    pub networks: &'static [&'static str],
    pub check: &'static str,
}

pub const fn fault(
    name: &'static str,
    [file, before, after]: [&'static str; 3],
    networks: &'static [&'static str],
    check: &'static str,
) -> KernelFault {
    KernelFault { name, text: TextFault { file, before, after }, networks, check }
}

pub fn table() -> Vec<KernelFault> {
    [feed(), batches(), logged_metrics(), updates(), metrics(), whole_steps()].into_iter().flatten().collect()
}

fn feed() -> Vec<KernelFault> {
    vec![
        fault(
            "the log's values go to the step before",
            [FEED, "(step + RING - 1) % RING * 16", "(step + RING - 2) % RING * 16"],
            &[CLASSES, TENSOR],
            LOG,
        ),
        fault(
            "the log leaves out the values that belong into it",
            [FEED, "(left >> threadIdx.x & 1) == 0)", "(left >> threadIdx.x & 1) != 0)"],
            &[CLASSES, TENSOR],
            LOG,
        ),
        fault(
            "every value of the log is the loss",
            [FEED, "a.at<u32>(FIRST_WATCHED + threadIdx.x)[0]", "a.at<u32>(FIRST_WATCHED)[0]"],
            &[CLASSES],
            LOG,
        ),
        fault(
            "the samples of a batch change places",
            [FEED, "sample = place[12] + row;", "sample = place[12] + (row ^ 1);"],
            &[CLASSES, VALUES],
            LOG,
        ),
        fault(
            "the shuffle is another",
            [FEED, "mixed = (mixed ^ mixed >> 16)", "mixed = (mixed ^ mixed >> 15)"],
            &[CLASSES],
            LOG,
        ),
        fault(
            "the shuffle has a round less",
            [FEED, "for (int i = 0; i < 12; i += 2)", "for (int i = 0; i < 10; i += 2)"],
            &[CLASSES],
            LOG,
        ),
    ]
}

fn batches() -> Vec<KernelFault> {
    vec![
        fault(
            "a batch is that of the next step",
            [FEED, "a.at<u32>(PLACES) + step % RING * 16", "a.at<u32>(PLACES) + (step + 1) % RING * 16"],
            &[CLASSES, TENSOR],
            LOG,
        ),
        fault(
            "every target is the first of its sample",
            [FEED, "[sample * wy + first];", "[sample * wy];"],
            &[VALUES],
            LOG,
        ),
        fault(
            "a batch's last sample is not brought",
            [FEED, "at < (int)half_number<BATCH, 1, false>(a) *", "at < (int)(half_number<BATCH, 1, false>(a) - 1) *"],
            &[CLASSES, VALUES],
            LOG,
        ),
        fault(
            "targets are those of the next sample",
            [
                FEED,
                "if (first < wy) to[first] = Fed<Y>::of(target);",
                "if (first < wy) to[(first + 1) % wy] = Fed<Y>::of(target);",
            ],
            &[VALUES],
            LOG,
        ),
    ]
}

fn logged_metrics() -> Vec<KernelFault> {
    vec![
        fault(
            "the logged update magnitude is the gradient's norm",
            [
                OPTIMIZER,
                "closed[MAX] = a.at<u32>(Slots::UPDATE_MAX)[0];",
                "closed[MAX] = a.at<u32>(Slots::GRAD_NORM)[0];",
            ],
            &[TENSOR],
            LOG,
        ),
        fault(
            "metrics that close a step go to the step before",
            [OPTIMIZER, "a.at<i64>(COUNTER)[1] + RING - 1) % RING", "a.at<i64>(COUNTER)[1] + RING - 2) % RING"],
            &[TENSOR],
            LOG,
        ),
        fault(
            "the gradient's norm of a step's parts is its square",
            [
                OPTIMIZER,
                "if (a.has(Slots::GRAD_NORM)) *a.at<float>(Slots::GRAD_NORM) = total.norm();",
                "if (a.has(Slots::GRAD_NORM)) *a.at<float>(Slots::GRAD_NORM) = total.norm() * total.norm();",
            ],
            &[TENSOR],
            REFERENCES,
        ),
        fault(
            "padding behind a parameter is written",
            [OPTIMIZER, "valid[e] = max_i(min_i(rest, V), 0);", "valid[e] = rest > 0 ? V : 0;"],
            &[CLASSES, VALUES],
            REFERENCES,
        ),
        fault(
            "a segment's metrics lack their first part",
            [OPTIMIZER, "const int i = from + share + k * SHARE;", "const int i = from + share + 1 + k * SHARE;"],
            &[CLASSES, VALUES],
            REFERENCES,
        ),
        fault(
            "the metrics of a segment of many parts lack the first",
            [
                OPTIMIZER,
                "for (int i = from + share; i < to; i += SHARE)",
                "for (int i = from + share + 1; i < to; i += SHARE)",
            ],
            &[SEGMENTS],
            REFERENCES,
        ),
        fault(
            "the gradient's norm is its square",
            [
                OPTIMIZER,
                "*a.at<float>(Rule::GRAD_NORM) = total.norm();",
                "*a.at<float>(Rule::GRAD_NORM) = total.norm() * total.norm();",
            ],
            &[CLASSES, VALUES],
            REFERENCES,
        ),
    ]
}

fn updates() -> Vec<KernelFault> {
    vec![
        fault(
            "decay in the gradient has the wrong sign",
            [PRELUDE, "DECOUPLED ? grad : grad + wd * old;", "DECOUPLED ? grad : grad - wd * old;"],
            &[VALUES],
            REFERENCES,
        ),
        fault(
            "decay beside the gradient is left out",
            [PRELUDE, "DECOUPLED ? old - lr * wd * old : old;", "old;"],
            &[CLASSES],
            REFERENCES,
        ),
        fault(
            "the first moment keeps as much as the second",
            [PRELUDE, "m = optimizer_constant(BETA1) * m", "m = optimizer_constant(BETA2) * m"],
            &[CLASSES, TENSOR],
            REFERENCES,
        ),
        fault(
            "the second moment is of the gradient, not of its square",
            [PRELUDE, "optimizer_rest(BETA2) * g * g;", "optimizer_rest(BETA2) * g;"],
            &[CLASSES],
            REFERENCES,
        ),
        fault(
            "an update goes the other way",
            [PRELUDE, "return decayed - __fdividef(", "return decayed + __fdividef("],
            &[CLASSES, TENSOR],
            REFERENCES,
        ),
        fault(
            "the momentum is not Nesterov's",
            [PRELUDE, "g = NESTEROV ? g + optimizer_constant(FACTOR) * buffer : buffer;", "g = buffer;"],
            &[super::IMAGES],
            REFERENCES,
        ),
        fault(
            "the momentum of plain descent is lost",
            [PRELUDE, "buffer = optimizer_constant(FACTOR) * buffer + g;", "buffer = g;"],
            &[super::IMAGES],
            REFERENCES,
        ),
        fault(
            "decay of plain descent is left out",
            [PRELUDE, "float g = grad + wd * old;", "float g = grad;"],
            &[super::IMAGES],
            REFERENCES,
        ),
    ]
}

fn metrics() -> Vec<KernelFault> {
    vec![
        fault(
            "the sum of squares is that of one lane",
            [PRELUDE, "sum.up = warp_reduce<Sum, LANES>(up);", "sum.up = up;"],
            &[CLASSES, TENSOR],
            REFERENCES,
        ),
        fault(
            "values that are spread over lanes lack those of half the lanes",
            [PRELUDE, "kept[i] = R::of(upper ? high : low,", "kept[i] = R::of(R::of(0, 0),"],
            &[TENSOR],
            REFERENCES,
        ),
        fault(
            "the largest change is the last",
            [PRELUDE, "max = max > size ? max : size;", "max = size;"],
            &[CLASSES, VALUES],
            REFERENCES,
        ),
        fault(
            "the step counter goes in twos",
            [ELEMENTWISE, "(i64)((u64)step + 1)", "(i64)((u64)step + 2)"],
            &[CLASSES],
            REFERENCES,
        ),
        fault(
            "the second moment's correction has no root",
            [ELEMENTWISE, "threadIdx.x == 0 ? rest : sqrt(rest)", "rest"],
            &[CLASSES],
            REFERENCES,
        ),
        fault(
            "the mean loss is divided by one row less",
            [ELEMENTWISE, "[0] = sum / (float)count;", "[0] = sum / (float)(count - 1);"],
            &[TENSOR],
            REFERENCES,
        ),
        fault(
            "sums over a block leave out its second warp",
            [
                PRELUDE,
                "for (int i = 1; i < WARPS; ++i) out = R::of(out, scratch[i]);",
                "for (int i = 2; i < WARPS; ++i) out = R::of(out, scratch[i]);",
            ],
            &[TENSOR],
            REFERENCES,
        ),
    ]
}

fn whole_steps() -> Vec<KernelFault> {
    vec![
        fault(
            "an evaluation leaves out the running mean",
            [
                NORM,
                "activate<ACT, T>((v[i] - mean[i]) * scale[i] + beta[i])",
                "activate<ACT, T>(v[i] * scale[i] + beta[i])",
            ],
            &[CLASSES],
            EVALUATION,
        ),
        fault(
            "an evaluation takes the running mean for the variance",
            [
                NORM,
                "norms::floats(a, Slots::RUNNING_VAR, t.channel, 1.0f, var);",
                "norms::floats(a, Slots::RUNNING_MEAN, t.channel, 1.0f, var);",
            ],
            &[CLASSES],
            EVALUATION,
        ),
        fault(
            "kernels do not wait for the launch in front",
            [PRELUDE, "asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");", ";"],
            &[TENSOR, CLASSES, VALUES],
            REPLAY,
        ),
        fault(
            "a gradient's scale of the loss is doubled",
            [LOSS, "(float)(2.0 / errors.len)", "(float)(4.0 / errors.len)"],
            &[VALUES],
            FAST,
        ),
    ]
}
