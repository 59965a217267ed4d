//! Faults in the kernels of a GPU that bring batches, keep the log, step parameters, measure steps and evaluate.

use super::{CLASSES, EVALUATION, FAST, LOG, REPLAY, VALUES};
use stepgraph::exec::cuda::plant::TextFault;

pub const TWINS: &str = "kernels against their twins";

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

const FEED: &str = "feed.cu";
const OPTIMIZER: &str = "optimizer.cu";
const PRELUDE: &str = "prelude.cuh";
const SCALARS: &str = "elementwise.cu";

pub fn table() -> Vec<KernelFault> {
    vec![
        fault(
            "the log's values go to the step before",
            [FEED, "(step + RING - 1) % RING * 16", "(step + RING - 2) % RING * 16"],
            &[CLASSES, TENSOR],
            LOG,
        ),
        fault(
            "the log leaves out the values that belong into it",
            [FEED, "(LEFT >> threadIdx.x & 1) == 0)", "(LEFT >> threadIdx.x & 1) != 0)"],
            &[CLASSES, TENSOR],
            LOG,
        ),
        fault(
            "every value of the log is the loss",
            [FEED, "a.at<u32>(7 + threadIdx.x)[0]", "a.at<u32>(7)[0]"],
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
        fault(
            "a batch is that of the next step",
            [FEED, "a.at<u32>(2) + step % RING * 16", "a.at<u32>(2) + (step + 1) % RING * 16"],
            &[CLASSES, TENSOR],
            LOG,
        ),
        fault(
            "every target is the first of its sample",
            [FEED, "[sample * WY + first];", "[sample * WY];"],
            &[VALUES],
            LOG,
        ),
        fault(
            "a batch's last sample is not brought",
            [FEED, "at < BATCH * (WX / V)", "at < (BATCH - 1) * (WX / V)"],
            &[CLASSES, VALUES],
            LOG,
        ),
        fault(
            "targets are those of the next sample",
            [
                FEED,
                "if (first < WY) to[first] = Fed<Y>::of(target);",
                "if (first < WY) to[(first + 1) % WY] = Fed<Y>::of(target);",
            ],
            &[VALUES],
            LOG,
        ),
        fault(
            "the logged update magnitude is the gradient's norm",
            [OPTIMIZER, "closed[MAX] = a.at<u32>(3)[0];", "closed[MAX] = a.at<u32>(4)[0];"],
            &[TENSOR],
            LOG,
        ),
        fault(
            "metrics that close a step go to the step before",
            [OPTIMIZER, "a.at<i64>(5)[1] + RING - 1) % RING", "a.at<i64>(5)[1] + RING - 2) % RING"],
            &[TENSOR],
            LOG,
        ),
        fault(
            "the gradient's norm of a step's parts is its square",
            [
                OPTIMIZER,
                "if (a.has(4)) *a.at<float>(4) = root_of_sum(total.square);",
                "if (a.has(4)) *a.at<float>(4) = total.square;",
            ],
            &[TENSOR],
            TWINS,
        ),
        fault(
            "padding behind a parameter is written",
            [OPTIMIZER, "valid[e] = max_i(min_i(rest, V), 0);", "valid[e] = rest > 0 ? V : 0;"],
            &[CLASSES, VALUES],
            TWINS,
        ),
        fault(
            "a segment's metrics lack their first part",
            [OPTIMIZER, "const int i = from + share + k * SHARE;", "const int i = from + share + 1 + k * SHARE;"],
            &[CLASSES, VALUES],
            TWINS,
        ),
        fault(
            "the metrics of a segment of many parts lack the first",
            [
                OPTIMIZER,
                "for (int i = from + share; i < to; i += SHARE)",
                "for (int i = from + share + 1; i < to; i += SHARE)",
            ],
            &[SEGMENTS],
            TWINS,
        ),
        fault(
            "the gradient's norm is its square",
            [
                OPTIMIZER,
                "*a.at<float>(Rule::GRAD_NORM) = root_of_sum(total.square);",
                "*a.at<float>(Rule::GRAD_NORM) = total.square;",
            ],
            &[CLASSES, VALUES],
            TWINS,
        ),
        fault(
            "decay in the gradient has the wrong sign",
            [PRELUDE, "DECOUPLED ? grad : grad + wd * old;", "DECOUPLED ? grad : grad - wd * old;"],
            &[VALUES],
            TWINS,
        ),
        fault(
            "decay beside the gradient is left out",
            [PRELUDE, "DECOUPLED ? old - lr * wd * old : old;", "old;"],
            &[CLASSES],
            TWINS,
        ),
        fault(
            "the first moment keeps as much as the second",
            [PRELUDE, "m = optimizer_constant(BETA1) * m", "m = optimizer_constant(BETA2) * m"],
            &[CLASSES, TENSOR],
            TWINS,
        ),
        fault(
            "the second moment is of the gradient, not of its square",
            [PRELUDE, "optimizer_rest(BETA2) * g * g;", "optimizer_rest(BETA2) * g;"],
            &[CLASSES],
            TWINS,
        ),
        fault(
            "an update goes the other way",
            [PRELUDE, "return decayed - __fdividef(", "return decayed + __fdividef("],
            &[CLASSES, TENSOR],
            TWINS,
        ),
        fault(
            "the momentum is not Nesterov's",
            [PRELUDE, "g = NESTEROV ? g + optimizer_constant(MOMENTUM) * buffer : buffer;", "g = buffer;"],
            &[super::IMAGES],
            TWINS,
        ),
        fault(
            "decay of plain descent is left out",
            [PRELUDE, "float g = grad + wd * old;", "float g = grad;"],
            &[super::IMAGES],
            TWINS,
        ),
        fault(
            "the sum of squares is its last term",
            [PRELUDE, "square += other.square;", "square = other.square;"],
            &[CLASSES, TENSOR],
            TWINS,
        ),
        fault(
            "the largest change is the last",
            [PRELUDE, "max = max > other.max ? max : other.max;", "max = other.max;"],
            &[CLASSES, VALUES],
            TWINS,
        ),
        fault(
            "the step counter goes in twos",
            [SCALARS, "(i64)((u64)step + 1)", "(i64)((u64)step + 2)"],
            &[CLASSES],
            TWINS,
        ),
        fault(
            "the second moment's correction has no root",
            [SCALARS, "threadIdx.x == 0 ? rest : sqrt(rest)", "rest"],
            &[CLASSES],
            TWINS,
        ),
        fault(
            "the mean loss is divided by one row less",
            [SCALARS, "[0] = sum / (float)ROWS;", "[0] = sum / (float)(ROWS - 1);"],
            &[TENSOR],
            TWINS,
        ),
        fault(
            "sums over a block leave out its second warp",
            [
                PRELUDE,
                "for (int i = 1; i < WARPS; ++i) out = R::of(out, scratch[i]);",
                "for (int i = 2; i < WARPS; ++i) out = R::of(out, scratch[i]);",
            ],
            &[TENSOR],
            TWINS,
        ),
        fault(
            "an evaluation leaves out the running mean",
            [
                "norm.cu",
                "activate<ACT, T>((v[i] - mean[i]) * scale[i] + beta[i])",
                "activate<ACT, T>(v[i] * scale[i] + beta[i])",
            ],
            &[CLASSES],
            EVALUATION,
        ),
        fault(
            "an evaluation takes the running mean for the variance",
            ["norm.cu", "norms::floats(a, 4, t.channel, 1.0f, var);", "norms::floats(a, 3, t.channel, 1.0f, var);"],
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
            ["loss.cu", "(float)(2.0 / LEN)", "(float)(4.0 / LEN)"],
            &[VALUES],
            FAST,
        ),
    ]
}
