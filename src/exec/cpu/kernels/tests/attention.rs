//! Attention and its derivative against whole rows of scores: sizes around every tile edge, all fields, any number of
//! parts; and the derivative of the plain loops against finite differences.

use super::fast::checked;
use super::harness::{How, Values, assert_close, isas, run};
use crate::exec::cpu::kernels::reference::attention_map;
use crate::model::Rng;
use crate::ops::{self, AttentionGeometry, OpKind, Scalar};
use crate::select::Variant;

fn geometry(batch: usize, positions: usize, heads: [usize; 2], head_dim: usize) -> AttentionGeometry {
    let ([heads, kv_heads], dropout, stream) = (heads, Scalar::new(0.0), 7);
    AttentionGeometry { batch, positions, heads, kv_heads, head_dim, causal: false, rotary: false, dropout, stream }
}

fn forward(geometry: AttentionGeometry) -> OpKind {
    OpKind::Attention(ops::Attention { geometry })
}

fn backward(geometry: AttentionGeometry) -> OpKind {
    OpKind::AttentionBwd(ops::AttentionBwd { geometry })
}

/// How an operation runs: without a counter if there is no dropout.
fn how(g: &AttentionGeometry, variant: Variant) -> How {
    let unbound = if g.has_dropout() { vec![] } else { vec!["counter"] };
    How { unbound, ..How::new(variant) }
}

/// The inputs of both operations; those of the derivative include the results of the forward pass in `f64`.
fn inputs(g: &AttentionGeometry, rng: &mut Rng, size: f64) -> [Values; 2] {
    let mut real = |len: usize| (0..len).map(|_| f64::from(rng.range(-size, size) as f32)).collect::<Vec<f64>>();
    let (qkv, dy) = (real(g.rows() * g.packed()), real(g.rows() * g.width()));
    let mut before = Values::from([("qkv", qkv)]);
    if g.has_dropout() {
        before.insert("counter", vec![3.0, 40.0]);
    }
    let made = run(&forward(*g), &before, &how(g, Variant::RefF64));
    let mut after = before.clone();
    after.extend([("dy", dy), ("y", made["y"].clone()), ("lse", made["lse"].clone())]);
    [before, after]
}

/// Compares the kernels with plain loops, and with their own results for other numbers of parts.
fn check(g: AttentionGeometry, rng: &mut Rng) {
    let [before, after] = inputs(&g, rng, 2.0);
    for (op, values) in [(forward(g), before), (backward(g), after)] {
        let expected = run(&op, &values, &how(&g, Variant::RefF64));
        let plain = run(&op, &values, &how(&g, Variant::RefF32));
        assert_close(&format!("{op:?} in f32"), &plain, &expected, 1e-4);
        for isa in isas() {
            checked(&op, &values, &how(&g, Variant::Fast(isa)), &expected, 1e-5);
        }
    }
}

#[test]
fn attention_of_any_size() {
    let mut rng = Rng::new(21, 0);
    let lengths = [1, 2, 5, 8, 15, 16, 17, 31, 33, 64, 70];
    let dims = [1, 2, 4, 5, 8, 15, 16, 20, 33, 48, 64];
    for round in 0..90 {
        let (positions, head_dim) = (lengths[rng.below(lengths.len())], dims[rng.below(dims.len())]);
        let heads = [[1, 1], [2, 2], [3, 1], [4, 2], [6, 3]][rng.below(5)];
        let mut g = geometry(1 + rng.below(3), positions, heads, head_dim);
        g.causal = round % 2 == 0;
        g.rotary = head_dim % 2 == 0 && rng.below(3) > 0;
        g.dropout = Scalar::new(if rng.below(3) == 0 { 0.3 } else { 0.0 });
        check(g, &mut rng);
    }
}

#[test]
fn attention_over_several_blocks_of_keys() {
    let mut rng = Rng::new(22, 0);
    for (positions, heads, head_dim) in [(129, [2, 1], 16), (200, [1, 1], 10), (300, [4, 2], 8)] {
        for (causal, dropout) in [(false, 0.0), (true, 0.0), (true, 0.5)] {
            let g = geometry(1, positions, heads, head_dim);
            check(AttentionGeometry { causal, dropout: Scalar::new(dropout), rotary: causal, ..g }, &mut rng);
        }
    }
}

/// The largest score is far above the others, and no exponential overflows.
#[test]
fn large_scores_stay_finite() {
    let mut rng = Rng::new(23, 0);
    let g = AttentionGeometry { causal: true, ..geometry(1, 140, [1, 1], 8) };
    let [before, after] = inputs(&g, &mut rng, 40.0);
    for (op, values) in [(forward(g), before), (backward(g), after)] {
        let expected = run(&op, &values, &how(&g, Variant::RefF64));
        for isa in isas() {
            let found = run(&op, &values, &how(&g, Variant::Fast(isa)));
            assert!(found.values().flatten().all(|v| v.is_finite()));
            // Scores of a few hundred have rounding errors of some hundred-thousandths, and their exponentials the same
            // relative errors.
            assert_close(&format!("{op:?} {isa:?}"), &found, &expected, 2e-3);
        }
    }
}

#[test]
fn a_nan_value_reaches_the_positions_that_attend_to_it() {
    let g = AttentionGeometry { causal: true, ..geometry(1, 40, [1, 1], 4) };
    let [mut before, _] = inputs(&g, &mut Rng::new(24, 0), 1.0);
    before.get_mut("qkv").unwrap()[20 * g.packed() + 4] = f64::NAN;
    for variant in isas().into_iter().map(Variant::Fast).chain([Variant::RefF32]) {
        let y = run(&forward(g), &before, &how(&g, variant))["y"].clone();
        let is_nan = |position: usize| y[position * 4..][..4].iter().all(|v| v.is_nan());
        let is_number = |position: usize| y[position * 4..][..4].iter().all(|v| v.is_finite());
        assert!((0..20).all(is_number) && (20..40).all(is_nan), "{variant:?}");
    }
}

/// The sum of the output's elements, weighted by `dy`.
fn weighted(g: &AttentionGeometry, values: &Values) -> f64 {
    let y = run(
        &forward(*g),
        &Values::from_iter(values.clone().into_iter().filter(|v| v.0 == "qkv" || v.0 == "counter")),
        &how(g, Variant::RefF64),
    );
    y["y"].iter().zip(&values["dy"]).map(|(a, b)| a * b).sum()
}

#[test]
fn the_derivative_agrees_with_differences() {
    for (index, heads) in [[2, 2], [4, 2], [3, 1]].into_iter().enumerate() {
        for (causal, rotary, dropout) in
            [(false, false, 0.0), (true, false, 0.4), (true, true, 0.0), (false, true, 0.2)]
        {
            let g = AttentionGeometry { causal, rotary, dropout: Scalar::new(dropout), ..geometry(2, 5, heads, 4) };
            let [_, values] = inputs(&g, &mut Rng::new(25, index as u64), 1.0);
            let dx = run(&backward(g), &values, &how(&g, Variant::RefF64))["dx"].clone();
            for at in (0..dx.len()).step_by(3) {
                let moved = |by: f64| {
                    let mut values = values.clone();
                    values.get_mut("qkv").unwrap()[at] += by;
                    weighted(&g, &values)
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                assert!((slope - dx[at]).abs() < 1e-8, "{g:?} {at}: {slope}, not {}", dx[at]);
            }
        }
    }
}

/// The kept probabilities are drawn again at every step, and are a fixed share of all.
#[test]
fn dropout_has_a_new_mask_every_step() {
    let mut g = AttentionGeometry { dropout: Scalar::new(0.25), ..geometry(2, 40, [2, 2], 16) };
    // With equal scores and values of one, an output is the share of kept probabilities, scaled.
    let mut qkv = vec![0.0; g.rows() * g.packed()];
    qkv.chunks_mut(g.packed()).for_each(|row| row[2 * g.width()..].fill(1.0));
    for variant in isas().into_iter().map(Variant::Fast).chain([Variant::RefF64]) {
        let of = |g: &AttentionGeometry, step: f64| {
            let values = Values::from([("qkv", qkv.clone()), ("counter", vec![5.0, step])]);
            run(&forward(*g), &values, &how(g, variant))["y"].clone()
        };
        let (first, second) = (of(&g, 0.0), of(&g, 1.0));
        let mean = first.iter().sum::<f64>() / first.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "{variant:?}: {mean}");
        assert_ne!(first, second);
        assert_eq!(first, of(&g, 0.0));
        g.stream += 1;
        assert_ne!(first, of(&g, 0.0));
        g.stream -= 1;
    }
}

/// The probabilities of a head applied to its values give the output.
#[test]
fn the_probabilities_of_a_head_applied_to_its_values_give_its_output() {
    let g = AttentionGeometry { causal: true, rotary: true, ..geometry(2, 21, [4, 2], 6) };
    let [before, after] = inputs(&g, &mut Rng::new(26, 0), 2.0);
    let packed: Vec<f32> = before["qkv"].iter().map(|v| *v as f32).collect();
    let (sample, head) = (1, 3);
    let map = attention_map(&g, &packed, sample, head);
    let value = |key: usize, feature: usize| {
        before["qkv"][(sample * g.positions + key) * g.packed() + g.columns(head)[2] + feature]
    };
    for (position, row) in map.chunks(g.positions).enumerate() {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6 && row[position + 1..].iter().all(|p| *p == 0.0));
        for feature in 0..g.head_dim {
            let sum: f64 = row.iter().enumerate().map(|(key, p)| f64::from(*p) * value(key, feature)).sum();
            let y = after["y"][(sample * g.positions + position) * g.width() + head * g.head_dim + feature];
            assert!((sum - y).abs() < 1e-6, "{sum}, not {y}");
        }
    }
}
