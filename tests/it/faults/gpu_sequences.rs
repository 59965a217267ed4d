//! Faults in the kernels of a GPU for sequences, branches, losses on points, and recipes: each is found where the
//! kernel is compared with its plain-loop reference.

use super::files::{ATTENTION, ELEMENTWISE, JOINED, LOSS, OPTIMIZER, RATES, SEQUENCE};
use super::gpu::{KernelFault, REFERENCES, fault};

/// Tokens, attention over more positions than a tile has, branches, a loss on points, and an update by a schedule with
/// a limit for the gradient and parameters that do not decay.
pub const TOKENS: &str = r#"{"version": 1, "name": "tokens",
    "input": {"type": "tokens", "shape": [70], "vocab": 11, "batch": 3}, "layers": [
    {"type": "embedding", "units": 16}, {"type": "position", "kind": "sinusoidal"},
    {"type": "residual", "layers": [{"type": "rms_norm"},
        {"type": "attention", "heads": 4, "kv_heads": 2, "causal": true, "rotary": true, "dropout": 0.1}]},
    {"type": "residual", "layers": [{"type": "attention", "heads": 2}]}, {"type": "take", "at": "last"},
    {"type": "parallel", "join": "concat", "branches": [{"layers": [{"type": "dense", "units": 6}]},
        {"layers": [{"type": "dense", "units": 8, "activation": "tanh"}]}]},
    {"type": "parallel", "join": "multiply", "branches": [{"layers": [{"type": "dense", "units": 7}]},
        {"layers": [{"type": "dense", "units": 7, "activation": "sigmoid"}]}]},
    {"type": "dense", "units": 3}], "loss": {"type": "huber", "delta": 0.7},
    "optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1, "decay": "matrices", "clip_norm": 0.5,
        "schedule": {"type": "cosine", "warmup": 5, "final": 0.1}}}"#;

const fn by_reference(name: &'static str, text: [&'static str; 3]) -> KernelFault {
    fault(name, text, &[TOKENS], REFERENCES)
}

pub fn table() -> Vec<KernelFault> {
    [attention(), sequences(), branches(), recipes()].into_iter().flatten().collect()
}

fn attention() -> Vec<KernelFault> {
    vec![
        by_reference(
            "positions attend to the next one",
            [
                ATTENTION,
                "key < A::LEN && (!A::CAUSAL || key <= query);",
                "key < A::LEN && (!A::CAUSAL || key <= query + 1);",
            ],
        ),
        by_reference(
            "a softmax is not adjusted from tile to tile",
            [ATTENTION, "sum[i] = sum[i] * fade + row_total(added);", "sum[i] = sum[i] + row_total(added);"],
        ),
        by_reference(
            "pairs of features are turned the wrong way",
            [ATTENTION, "y = v * turn.x + u * turn.y;", "y = v * turn.x - u * turn.y;"],
        ),
        by_reference(
            "the gradient of scores lacks the sum over its row",
            [ATTENTION, "p * (d[i][j] * by[j] - sum) * A::scale()", "p * (d[i][j] * by[j]) * A::scale()"],
        ),
        by_reference(
            "values get the gradient of probabilities that were dropped",
            [ATTENTION, "s[i][j] = p * by[j];", "s[i][j] = p;"],
        ),
        by_reference(
            "keys get the gradient of one head of their group",
            [ATTENTION, "turn < A::GROUP * each; ++turn", "turn < each; ++turn"],
        ),
    ]
}

fn sequences() -> Vec<KernelFault> {
    vec![
        by_reference(
            "a token has the row behind its own",
            [SEQUENCE, "(i64)row * units + unit);", "(i64)((row + 1) % Number<VOCAB, 1>(a)) * units + unit);"],
        ),
        by_reference(
            "the gradient of a token's row lacks its last position",
            [SEQUENCE, "for (int i = lane; i < all; i += LANES)", "for (int i = lane; i + 1 < all; i += LANES)"],
        ),
        by_reference("sines are cosines", [SEQUENCE, "to_float(x[0]) + (float)sine", "to_float(x[0]) + (float)cosine"]),
        by_reference(
            "the position in front is taken",
            [SEQUENCE, "Number<AT, 3>(a)) * cols", "Number<AT, 3>(a) - 1) * cols"],
        ),
        by_reference(
            "every position gets the gradient of one",
            [SEQUENCE, "if (row % positions == Number<AT, 3>(a)) dx", "if (row % positions <= Number<AT, 3>(a)) dx"],
        ),
    ]
}

fn branches() -> Vec<KernelFault> {
    vec![
        by_reference(
            "a branch is repeated in all columns of the next",
            [JOINED, "part<SOURCE + 1, REST...>(a, row, col - WIDTH)", "part<SOURCE + 1, REST...>(a, row, 0)"],
        ),
        by_reference(
            "every branch gets the gradient of the first",
            [JOINED, "const i64 col = Number<FROM, 2>(a) + group", "const i64 col = group"],
        ),
        by_reference(
            "a product of branches is their sum",
            [ELEMENTWISE, "combine(float a, float b) { return a * b; }", "combine(float a, float b) { return a + b; }"],
        ),
        by_reference(
            "Huber's slope grows beyond its limit",
            [LOSS, "return error > delta() ? delta() :", "return error > delta() ? error :"],
        ),
    ]
}

fn recipes() -> Vec<KernelFault> {
    vec![
        by_reference(
            "the schedule is a step late",
            [RATES, "a.at<i64>(Slots::COUNTER)[1], total);", "a.at<i64>(Slots::COUNTER)[1] - 1, total);"],
        ),
        by_reference(
            "gradients are limited by the square of their norm",
            [RATES, "4>(a)) / (sqrt(square) + 1e-6)", "4>(a)) / (square + 1e-6)"],
        ),
        by_reference(
            "the norm of a parameter's gradient lacks its first run",
            [
                RATES,
                "for (u32 i = first + lane; i < past; i += 32)",
                "for (u32 i = first + 1 + lane; i < past; i += 32)",
            ],
        ),
        by_reference("parameters that are exempt decay", [OPTIMIZER, "table.exempt(of) ? 0.0f :", "false ? 0.0f :"]),
    ]
}
