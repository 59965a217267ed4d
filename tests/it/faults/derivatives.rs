//! Wrong rules of differentiation, which fast kernels and plain loops share: only finite differences of the loss find
//! them.
//!
//! The networks are so deep that running error bounds exceed their gradients.

use super::{Fault, GRADIENT, Place};
use stepgraph::exec::cpu::plant::{Faulty, Plant};
use stepgraph::ops::{self, OpKind};

/// Two layers of attention.
const DEEP: &str = r#"{"version": 1, "name": "deep",
    "input": {"type": "tokens", "shape": [7], "vocab": 11, "batch": 4}, "layers": [
    {"type": "embedding", "units": 12}, {"type": "position"},
    {"type": "repeat", "times": 4, "layers": [
        {"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "attention", "heads": 2, "causal": true}]},
        {"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "dense", "units": 24, "activation": "gelu"},
            {"type": "dense", "units": 12}]}]},
    {"type": "layer_norm"}, {"type": "dense", "units": 11}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.003}}"#;

/// A recurrence over many positions, with this layer.
macro_rules! long {
    ($layer:literal) => {
        concat!(
            r#"{"version": 1, "name": "long", "input": {"shape": [48, 1], "batch": 4}, "layers": [{"type": ""#,
            $layer,
            r#"", "units": 10, "return": "last"}, {"type": "dense", "units": 3}],
            "loss": {"type": "mse"}, "optimizer": {"type": "adamw", "lr": 0.005}}"#
        )
    };
}

fn rule(name: &'static str, network: &'static str, op: &'static str, spoil: fn(&Faulty<'_>)) -> Fault {
    Fault { name, network, place: Place::Step(Plant::Rule(op, spoil)), check: GRADIENT }
}

/// Makes a gradient a hundredth larger.
fn larger(f: &Faulty<'_>, slot: &str) {
    f.run();
    f.edit_doubles(slot, |values| values.iter_mut().for_each(|v| *v *= 1.01));
}

/// Clears one of the parts that each row of a gradient consists of, of `of` parts of the same size.
fn without_part(f: &Faulty<'_>, slot: &str, part: usize, of: usize, row: usize) {
    f.run();
    f.edit_doubles(slot, |values| {
        let cleared = part * row / of..(part + 1) * row / of;
        values.chunks_exact_mut(row).for_each(|row| row[cleared.clone()].fill(0.0));
    });
}

/// The numbers of a row in the gradient of a recurrence.
fn wide(f: &Faulty<'_>) -> usize {
    match f.op() {
        OpKind::RecurrenceBwd(ops::RecurrenceBwd { geometry }) => geometry.wide(),
        other => panic!("{} is no recurrence", other.name()),
    }
}

fn future_attention(f: &Faulty<'_>) {
    let change = |op: &mut OpKind| {
        if let OpKind::AttentionBwd(ops::AttentionBwd { geometry }) = op {
            geometry.causal = false;
        }
    };
    // SAFETY: the same arguments are read and written.
    unsafe { f.run_as(change) };
}

/// The rules of these networks.
fn rules([deep, lstm, gru]: [&'static str; 3]) -> Vec<Fault> {
    vec![
        rule("every gradient of attention is a hundredth too large", deep, "attention_bwd", |f| larger(f, "dx")),
        rule("attention sends gradients back from later positions", deep, "attention_bwd", future_attention),
        rule("the gradient of a layer normalisation is a hundredth too large", deep, "layer_norm_bwd", |f| {
            larger(f, "dx");
        }),
        rule("the scales of a layer normalisation have too large a gradient", deep, "layer_norm_bwd", |f| {
            larger(f, "dgamma");
        }),
        rule("the derivative of gelu is a hundredth too large", deep, "gelu_bwd", |f| larger(f, "dx")),
        rule("the gradients of weights are a hundredth too large", deep, "gemm_tn", |f| larger(f, "c")),
        rule("the gradients of the embedded tokens are a hundredth too large", deep, "embedding_bwd", |f| {
            larger(f, "dweight");
        }),
        rule("the gradient of the long memory's gates is a hundredth too large", lstm, "lstm_bwd", |f| larger(f, "dx")),
        rule("the forget gate of the long memory has no gradient", lstm, "lstm_bwd", |f| {
            without_part(f, "dx", 1, 4, wide(f));
        }),
        rule("the reset gate of the gated unit has no gradient", gru, "gru_bwd", |f| {
            without_part(f, "dx", 0, 3, wide(f));
        }),
        rule("the gradient of the gated unit's state is a hundredth too large", gru, "gru_bwd", |f| {
            larger(f, "dhidden");
        }),
    ]
}

pub fn table() -> Vec<Fault> {
    rules([DEEP, long!("lstm"), long!("gru")])
}
