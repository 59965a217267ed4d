//! The classifier in chunks, compared with plain loops in f64 that share no code with the reference.

use super::fast::checked;
use super::harness::{How, Values, assert_close, assert_same, isas, run};
use crate::model::Rng;
use crate::ops::{ClassifierCe, OpKind, Scalar};
use crate::select::Variant;

/// A classifier of this shape; the bits of `case` determine its options.
fn classifier([rows, features, classes, chunk]: [usize; 4], case: usize) -> ClassifierCe {
    let is_set = |bit: usize| case >> bit & 1 == 1;
    let (tied, bias, input_grad) = (is_set(0), is_set(1), is_set(2));
    let (accumulate, accumulate_bias) = (is_set(3), is_set(4) && bias);
    let smoothing = Scalar::new(if is_set(5) { 0.1 } else { 0.0 });
    ClassifierCe { rows, features, classes, smoothing, tied, bias, input_grad, accumulate, accumulate_bias, chunk }
}

fn inputs(op: &ClassifierCe, rng: &mut Rng) -> Values {
    let ClassifierCe { rows, features, classes, .. } = *op;
    let mut draw = |len: usize| (0..len).map(|_| f64::from(rng.range(-1.0, 1.0) as f32)).collect::<Vec<f64>>();
    let mut values = Values::from([("a", draw(rows * features)), ("b", draw(features * classes))]);
    let others = [
        ("bias", op.bias, classes),
        ("dweight_prev", op.accumulate, features * classes),
        ("db_prev", op.accumulate_bias, classes),
    ];
    values.extend(others.into_iter().filter(|(_, used, _)| *used).map(|(name, _, len)| (name, draw(len))));
    values.insert("labels", (0..rows).map(|_| rng.below(classes) as f64).collect());
    values
}

/// The definition, one sum at a time.
fn expected(op: &ClassifierCe, given: &Values) -> Values {
    let ClassifierCe { rows, features, classes, tied, .. } = *op;
    let smoothing = op.smoothing.get();
    let (a, labels) = (&given["a"], &given["labels"]);
    let at = |i: usize, j: usize| if tied { j * features + i } else { i * classes + j };
    let weight = |i: usize, j: usize| given["b"][at(i, j)];
    let mut grads = vec![vec![0.0f64; classes]; rows];
    let (mut loss, mut right) = (0.0f64, 0.0);
    for (row, grads) in grads.iter_mut().enumerate() {
        let score = |j: usize| {
            let sum: f64 = (0..features).map(|i| a[row * features + i] * weight(i, j)).sum();
            sum + if op.bias { given["bias"][j] } else { 0.0 }
        };
        let scores: Vec<f64> = (0..classes).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = most + scores.iter().map(|s| (s - most).exp()).sum::<f64>().ln();
        let label = labels[row] as usize;
        let best = (0..classes).fold(0, |best, j| if scores[j] > scores[best] { j } else { best });
        right += f64::from(u8::from(best == label));
        for j in 0..classes {
            let wanted = smoothing / classes as f64 + if j == label { 1.0 - smoothing } else { 0.0 };
            loss += wanted * (log_sum - scores[j]);
            grads[j] = ((scores[j] - log_sum).exp() - wanted) / rows as f64;
        }
    }
    let mut dweight = given.get("dweight_prev").cloned().unwrap_or_else(|| vec![0.0; features * classes]);
    let mut db = given.get("db_prev").cloned().unwrap_or_else(|| vec![0.0; classes]);
    let mut dx = vec![0.0; rows * features];
    for (row, grads) in grads.iter().enumerate() {
        for (j, grad) in grads.iter().enumerate() {
            db[j] += grad;
            for i in 0..features {
                dweight[at(i, j)] += a[row * features + i] * grad;
                dx[row * features + i] += weight(i, j) * grad;
            }
        }
    }
    let (loss, accuracy) = (vec![loss / rows as f64], vec![right / rows as f64]);
    let all = [("loss", loss), ("accuracy", accuracy), ("dweight", dweight), ("db", db), ("dx", dx)];
    let is_made = |name: &str| (name != "db" || op.bias) && (name != "dx" || op.input_grad);
    all.into_iter().filter(|(name, _)| is_made(name)).collect()
}

/// Sizes around the lanes, the tiles and the chunks: rows, features, classes, rows of a chunk.
const SIZES: [[usize; 4]; 11] = [
    [1, 1, 1, 1],
    [2, 3, 2, 16],
    [5, 7, 16, 2],
    [17, 5, 17, 16],
    [33, 16, 63, 16],
    [40, 33, 300, 7],
    [19, 70, 129, 16],
    [35, 260, 131, 16],
    [50, 12, 1_031, 48],
    [70, 300, 515, 64],
    // The gradient of the weight has separate sums for parts of the first chunk, but not of the second.
    [700, 12, 33, 600],
];

#[test]
fn classifiers_in_chunks_agree_with_plain_loops() {
    let mut rng = Rng::new(5, 2);
    for (number, size) in SIZES.into_iter().enumerate() {
        for case in (number % 5..64).step_by(5) {
            let op = classifier(size, case);
            let given = inputs(&op, &mut rng);
            let expected = expected(&op, &given);
            let kind = OpKind::ClassifierCe(op);
            let reference = run(&kind, &given, &How::new(Variant::RefF64));
            assert_eq!(reference.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            assert_close(&format!("{op:?} in f64"), &reference, &expected, 1e-12);
            let single = run(&kind, &given, &How::new(Variant::RefF32));
            assert_close(&format!("{op:?} in f32"), &single, &expected, 1e-4);
            for isa in isas() {
                let how = How::new(Variant::Fast(isa));
                let what = format!("{op:?} {isa:?}");
                let found = checked(&kind, &given, &how, &expected, 1e-5);
                let unbound = How { unbound: vec!["accuracy"], parts: 3, ..how.clone() };
                assert_same(&format!("{what} without accuracy"), &run(&kind, &given, &unbound), &found);
                if op.input_grad {
                    let on_input = How { aliases: vec![("dx", "a")], parts: 2, ..how };
                    assert_same(&format!("{what}, dx on a"), &run(&kind, &given, &on_input), &found);
                }
            }
        }
    }
}

/// An invalid label makes the loss and every gradient that depends on it NaN, and counts as a wrong answer.
#[test]
fn an_invalid_label_gives_nan() {
    let op = classifier([20, 5, 40, 16], 0b110);
    let mut given = inputs(&op, &mut Rng::new(1, 1));
    given.get_mut("labels").unwrap()[18] = 40.0;
    for variant in isas().into_iter().map(Variant::Fast).chain([Variant::RefF32, Variant::RefF64]) {
        let found = run(&OpKind::ClassifierCe(op), &given, &How::new(variant));
        assert!(found["loss"][0].is_nan() && found["accuracy"][0].is_finite());
        assert!(found["dweight"].iter().chain(&found["db"]).all(|v| v.is_nan()), "{variant:?}");
        let (row, others) = (18 * 5..19 * 5, 0..18 * 5);
        assert!(found["dx"][row].iter().all(|v| v.is_nan()) && found["dx"][others].iter().all(|v| v.is_finite()));
    }
}
