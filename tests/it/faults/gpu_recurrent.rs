//! Faults in the kernels of a GPU for recurrent layers and causal convolutions: each is found where the kernel is
//! compared with its plain-loop reference.

use super::files::RECURRENT_LAYERS;
use super::gpu::{KernelFault, REFERENCES, fault};

/// Small layers of every cell, whose weights threads hold, behind a causal convolution.
pub const RECURRENT: &str = r#"{"version": 1, "name": "recurrent", "input": {"shape": [7, 5], "batch": 6}, "layers": [
    {"type": "conv1d", "filters": 6, "kernel": 3, "padding": "causal", "dilation": 2, "activation": "relu"},
    {"type": "gru", "units": 9, "bidirectional": true}, {"type": "lstm", "units": 8},
    {"type": "rnn", "units": 7, "nonlinearity": "relu"}, {"type": "rnn", "units": 11, "return": "last"},
    {"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A layer whose weight threads hold, of which each has the sums of two units on the way back.
pub const PAIRS: &str = r#"{"version": 1, "name": "pairs", "input": {"shape": [5, 4], "batch": 3}, "layers": [
    {"type": "gru", "units": 128}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.01}}"#;

/// Layers whose weights blocks hold together.
pub const WIDE: &str = r#"{"version": 1, "name": "wide", "input": {"shape": [4, 6], "batch": 20}, "layers": [
    {"type": "lstm", "units": 160}, {"type": "gru", "units": 190, "return": "last"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.01}}"#;

/// The same in half precision, by the units for matrices.
pub const WIDE_HALF: &str = r#"{"version": 1, "name": "wide-half", "precision": "bf16",
    "input": {"shape": [4, 6], "batch": 20}, "layers": [
    {"type": "lstm", "units": 160}, {"type": "gru", "units": 190, "return": "last"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

/// A layer whose weight no registers and no shared memory hold.
pub const STREAMED: &str = r#"{"version": 1, "name": "streamed", "input": {"shape": [3, 4], "batch": 2}, "layers": [
    {"type": "rnn", "units": 2200, "return": "last"}, {"type": "dense", "units": 3}],
    "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.01}}"#;

const fn by_reference(
    name: &'static str,
    [before, after]: [&'static str; 2],
    network: &'static [&'static str],
) -> KernelFault {
    fault(name, [RECURRENT_LAYERS, before, after], network, REFERENCES)
}

pub fn table() -> Vec<KernelFault> {
    [cells(), cells_back(), ways()].into_iter().flatten().collect()
}

fn cells() -> Vec<KernelFault> {
    vec![
        by_reference(
            "a recurrent layer leaves out a bias",
            ["full[g] = x[g] + (product[g] + bias[g]);", "full[g] = x[g] + product[g];"],
            &[RECURRENT],
        ),
        by_reference(
            "a GRU keeps what it should replace",
            ["now = (1.0f - z) * n + z * carried.state;", "now = z * n + (1.0f - z) * carried.state;"],
            &[RECURRENT],
        ),
        by_reference(
            "a GRU resets a state without its bias",
            [
                "narrow<T>(inner);\n            const float n = gate<TANH>(gates, 2, x[2] + r * inner);",
                "narrow<T>(inner);\n            const float n = gate<TANH>(gates, 2, x[2] + r * product[2]);",
            ],
            &[RECURRENT],
        ),
        by_reference(
            "an LSTM's gates change places",
            ["i * g : f * carried.inner + i * g;", "i * g : i * carried.inner + f * g;"],
            &[RECURRENT, WIDE],
        ),
        by_reference(
            "the other direction's output is not beside the own one",
            ["if constexpr (JOINS) y[u] =", "if constexpr (JOINS && UNITS < 0) y[u] ="],
            &[RECURRENT],
        ),
        by_reference(
            "the second direction goes forward",
            ["(REVERSE ? LEN - 1 - step : step)", "(REVERSE ? step : step)"],
            &[RECURRENT],
        ),
        by_reference(
            "there is a state before the first position",
            [
                "if (step == 0) before[at * UNITS + u] = narrow<T>(0.0f);",
                "if (step == 0) before[at * UNITS + u] = stored;",
            ],
            &[RECURRENT, WIDE],
        ),
    ]
}

fn cells_back() -> Vec<KernelFault> {
    vec![
        by_reference(
            "an update gate's gradient has the wrong sign",
            ["dh * (s.before - n) *", "dh * (n - s.before) *"],
            &[RECURRENT],
        ),
        by_reference(
            "the product's gradient lacks the reset gate",
            ["if (g == 2) hidden[g] *= s.gate[0];", "if (g == 3) hidden[g] *= s.gate[0];"],
            &[RECURRENT],
        ),
        by_reference(
            "a forget gate's gradient is taken at the new cell",
            ["dc * s.previous * activate_grad", "dc * s.inner * activate_grad"],
            &[RECURRENT],
        ),
        by_reference(
            "the gradient of a cell passes on whole",
            ["carried.inner = dc * f;", "carried.inner = dc;"],
            &[RECURRENT, WIDE],
        ),
        by_reference(
            "the gradient of the output is that of the first unit",
            ["(BOTH ? 2 * UNITS : UNITS) + OWN + u]", "(BOTH ? 2 * UNITS : UNITS) + OWN]"],
            &[RECURRENT],
        ),
    ]
}

fn ways() -> Vec<KernelFault> {
    vec![
        by_reference(
            "threads that hold a weight read states of two positions before",
            ["now = states + step % 2 * EACH * STATES;", "now = states + (step + 1) % 2 * EACH * STATES;"],
            &[RECURRENT],
        ),
        by_reference(
            "sums of threads that hold a weight are not spread",
            ["spread_reduce<Sum, UT, SLICES / 2>(sum[e]);", "warp_reduce<Sum, SLICES>(sum[e][0]);"],
            &[PAIRS],
        ),
        // One block is late and the others are not early: on the way back they then read what it sent two positions
        // before, which is in the same memory.
        by_reference(
            "blocks do not wait for each other",
            [
                "while (counted_in(counter) < count) {}",
                "const long long from = clock64();\n\
                 while (clock64() - from < (blockIdx.x == 1 ? 400000 : 20000)) counted_in(counter);",
            ],
            &[WIDE],
        ),
        by_reference(
            "the part of a gradient of the last block is left out",
            ["other < B::SHARES; ++other", "other < B::SHARES - 1; ++other"],
            &[WIDE, WIDE_HALF],
        ),
        by_reference(
            "a product of a grid lacks a stretch",
            [
                "for (int part = 0; part < PARTS && step > 0; ++part)",
                "for (int part = 1; part < PARTS && step > 0; ++part)",
            ],
            &[WIDE, WIDE_HALF],
        ),
        by_reference(
            "matrix instructions take the same half of a sum twice",
            ["__float_as_uint(column[ALONG ? 4 : 4 * PITCH_B])", "__float_as_uint(column[0])"],
            &[WIDE_HALF],
        ),
        by_reference(
            "a weight that is read from memory lacks its last row",
            ["k < S::UNITS; ++k) {\n            float w[G];", "k < S::UNITS - 1; ++k) {\n            float w[G];"],
            &[STREAMED],
        ),
        by_reference(
            "gradients by a weight that is read from memory have the wrong sign",
            ["carried[(i64)e * S::UNITS + k].state += sum[e];", "carried[(i64)e * S::UNITS + k].state -= sum[e];"],
            &[STREAMED],
        ),
    ]
}
