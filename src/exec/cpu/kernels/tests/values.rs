//! Kernels against known values: written out by hand, or from a recurrence in f64.

use super::harness::{How, Values, isas, run};
use crate::model::{Activation, UpdateRule};
use crate::ops::{self, ConvGeometry, Epilogue, Gemm, OpKind, PoolGeometry, Scalar, Segment, Trans};
use crate::select::Variant;

/// The references and the fast kernels of this machine.
fn variants() -> Vec<Variant> {
    let fast = isas().into_iter().map(Variant::Fast);
    [Variant::RefF32, Variant::RefF64].into_iter().chain(fast).collect()
}

fn values(pairs: &[(&'static str, &[f64])]) -> Values {
    pairs.iter().map(|&(name, values)| (name, values.to_vec())).collect()
}

#[track_caller]
fn assert_near(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= tolerance * b.abs().max(1e-3), "{what}: {found:?}, not {expected:?}");
    }
}

#[test]
fn products_of_each_layout() {
    // [1 2 3; 4 5 6] [1 0; 2 1; 0 3] = [5 11; 14 23].
    let (a, a_t) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let (b, b_t) = ([1.0, 0.0, 2.0, 1.0, 0.0, 3.0], [1.0, 2.0, 0.0, 0.0, 1.0, 3.0]);
    for (trans, a, b) in [(Trans::Nn, a, b), (Trans::Nt, a, b_t), (Trans::Tn, a_t, b)] {
        let plain = Gemm::plain(2, 2, 3, trans);
        for variant in [Variant::RefF32, Variant::RefF64] {
            let found = run(&OpKind::Gemm(plain), &values(&[("a", &a), ("b", &b)]), &How::new(variant));
            assert_eq!(found["c"], [5.0, 11.0, 14.0, 23.0]);
            let epilogue = Epilogue { bias: true, act: Some(Activation::Relu), save_z: true, act_grad: None };
            let op = OpKind::Gemm(Gemm { accumulate: true, epilogue, ..plain });
            let inputs = [("a", &a[..]), ("b", &b), ("bias", &[-10.0, 1.0]), ("c_prev", &[1.0, 2.0, 3.0, -40.0])];
            let found = run(&op, &values(&inputs), &How::new(variant));
            assert_eq!(found["z"], [-4.0, 14.0, 7.0, -16.0]);
            assert_eq!(found["c"], [0.0, 14.0, 7.0, 0.0]);
            let epilogue = Epilogue { act_grad: Some(Activation::LeakyRelu), ..Epilogue::default() };
            let op = OpKind::Gemm(Gemm { epilogue, ..plain });
            let inputs = [("a", &a[..]), ("b", &b), ("saved", &[1.0, -1.0, 0.0, 2.0])];
            let found = run(&op, &values(&inputs), &How::new(variant));
            assert_near("gradient", &found["c"], &[5.0, 0.11, 0.14, 23.0], 1e-6);
        }
    }
}

/// A convolution all of whose dimensions differ, whose gradients are compared with finite differences of a weighted sum
/// of `y`.
#[test]
fn gradients_of_convolutions_agree_with_differences() {
    let images = ConvGeometry { n: 2, h: 5, w: 6, c: 4, f: 6, ho: 3, wo: 8, ..ConvGeometry::UNIT };
    let g = ConvGeometry { kernel: [3, 2], stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 2, ..images };
    let series = |len: usize, seed: f64| -> Vec<f64> { (0..len).map(|i| (seed + i as f64 * 1.7).sin()).collect() };
    let (x, weight) = (series(2 * 5 * 6 * 4, 0.3), series(3 * 2 * 2 * 6, 1.1));
    let dy = series(2 * 3 * 8 * 6, 2.2);
    let how = How::new(Variant::RefF64);
    let forward = |x: &[f64], weight: &[f64]| {
        let op = OpKind::Conv2d(ops::Conv2d { geometry: g, epilogue: Epilogue::default() });
        let y = run(&op, &values(&[("a", x), ("b", weight)]), &how);
        y["c"].iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
    };
    let op = OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, epilogue: Epilogue::default() });
    let dx = run(&op, &values(&[("a", &dy), ("b", &weight)]), &how);
    let op = OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, accumulate: false });
    let dw = run(&op, &values(&[("a", &x), ("b", &dy)]), &how);
    let moved = |v: &[f64], i: usize, by: f64| {
        v.iter().enumerate().map(|(j, v)| v + if i == j { by } else { 0.0 }).collect::<Vec<_>>()
    };
    for i in (0..x.len()).step_by(7) {
        let slope = forward(&moved(&x, i, 0.5), &weight) - forward(&moved(&x, i, -0.5), &weight);
        assert!((slope - dx["c"][i]).abs() < 1e-9, "dx[{i}]: {slope}");
    }
    for (i, dw) in dw["c"].iter().enumerate() {
        let slope = forward(&x, &moved(&weight, i, 0.5)) - forward(&x, &moved(&weight, i, -0.5));
        assert!((slope - dw).abs() < 1e-9, "dw[{i}]: {slope}");
    }
}

#[test]
fn a_convolution_written_out() {
    // Cross-correlation of [[1 2 3] [4 5 6]] with [[1 0] [0 -1]] and a bias of 10.
    let geometry = ConvGeometry { n: 1, h: 2, w: 3, c: 1, f: 1, kernel: [2, 2], ho: 1, wo: 2, ..ConvGeometry::UNIT };
    let op = OpKind::Conv2d(ops::Conv2d { geometry, epilogue: Epilogue { bias: true, ..Epilogue::default() } });
    let inputs = [("a", &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]), ("b", &[1.0, 0.0, 0.0, -1.0]), ("bias", &[10.0])];
    assert_eq!(run(&op, &values(&inputs), &How::new(Variant::RefF32))["c"], [6.0, 6.0]);
}

#[test]
fn nan_passes_through_relu_and_maximum_pooling() {
    let nan = f64::NAN;
    for variant in variants() {
        let op = OpKind::Act(ops::Act { func: Activation::Relu, len: 3 });
        let y = run(&op, &values(&[("x", &[nan, -1.0, 2.0])]), &How::new(variant))["y"].clone();
        assert!(y[0].is_nan() && y[1..] == [0.0, 2.0], "{variant:?}: {y:?}");
        for c in [1, 16] {
            let geometry =
                PoolGeometry { n: 1, h: 1, w: 4, c, size: [1, 4], stride: [4, 4], padding: [0, 0], ho: 1, wo: 1 };
            let x: Vec<f64> = [1.0, nan, 5.0, nan].iter().flat_map(|&v| vec![v; c]).collect();
            let found = run(&OpKind::MaxPool(ops::MaxPool { geometry }), &values(&[("x", &x)]), &How::new(variant));
            assert!(found["y"].iter().all(|y| y.is_nan()) && found["index"].iter().all(|&k| k == 1.0), "{variant:?}");
        }
    }
}

#[test]
fn maximum_pooling_takes_the_first_of_equals() {
    let geometry = PoolGeometry { n: 1, h: 2, w: 4, c: 1, size: [2, 2], stride: [2, 2], padding: [0, 0], ho: 1, wo: 2 };
    let x = [3.0, 7.0, f64::NEG_INFINITY, f64::NEG_INFINITY, 7.0, 7.0, f64::NEG_INFINITY, f64::NEG_INFINITY];
    for variant in variants() {
        let found = run(&OpKind::MaxPool(ops::MaxPool { geometry }), &values(&[("x", &x)]), &How::new(variant));
        assert_eq!(found["y"], [7.0, f64::NEG_INFINITY]);
        assert_eq!(found["index"], [1.0, 0.0]);
        let inputs = values(&[("dy", &[5.0, 6.0]), ("index", &[1.0, 0.0])]);
        let found = run(&OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }), &inputs, &How::new(variant));
        assert_eq!(found["dx"], [0.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}

#[test]
fn average_pooling_counts_the_padding() {
    let geometry = PoolGeometry { n: 1, h: 2, w: 2, c: 1, size: [2, 2], stride: [2, 2], padding: [1, 1], ho: 2, wo: 2 };
    for variant in variants() {
        let found = run(
            &OpKind::AvgPool(ops::AvgPool { geometry }),
            &values(&[("x", &[4.0, 8.0, 12.0, 16.0])]),
            &How::new(variant),
        );
        assert_eq!(found["y"], [1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn softmax_written_out() {
    // Logits ln 1, ln 2, ln 5: probabilities 1/8, 1/4, 5/8.
    let logits = [0.0, 2f64.ln(), 5f64.ln(), 5f64.ln(), 2f64.ln(), 0.0];
    let (rows, classes) = (2, 3);
    for variant in variants() {
        let op = OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing: Scalar::new(0.0), parts: 1 });
        let found = run(&op, &values(&[("logits", &logits), ("labels", &[2.0, 1.0])]), &How::new(variant));
        assert_near("loss", &found["loss"], &[((8.0f64 / 5.0).ln() + 4f64.ln()) / 2.0], 1e-6);
        assert_eq!(found["accuracy"], [0.5]);
        let expected = [0.0625, 0.125, -0.1875, 0.3125, -0.375, 0.0625];
        assert_near("gradient", &found["dlogits"], &expected, 1e-6);
        // Smoothing by 0.3 gives targets of 0.8 at the label and 0.1 elsewhere.
        let op = OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing: Scalar::new(0.3) });
        let found = run(&op, &values(&[("logits", &logits), ("labels", &[2.0, 1.0])]), &How::new(variant));
        let first = 0.1 * 8f64.ln() + 0.1 * 4f64.ln() + 0.8 * (8.0f64 / 5.0).ln();
        let second = 0.1 * (8.0f64 / 5.0).ln() + 0.8 * 4f64.ln() + 0.1 * 8f64.ln();
        assert_near("smoothed loss", &found["row_loss"], &[first, second], 1e-6);
    }
}

#[test]
fn invalid_labels_make_their_row_nan() {
    for classes in [3, 40] {
        for label in [-1.0, classes as f64, f64::from(i32::MAX), f64::from(i32::MIN)] {
            let logits: Vec<f64> = (0..2 * classes).map(|i| i as f64 * 0.1).collect();
            for variant in variants() {
                let smoothing = Scalar::new(0.0);
                let op = OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows: 2, classes, smoothing, parts: 1 });
                let found = run(&op, &values(&[("logits", &logits), ("labels", &[label, 0.0])]), &How::new(variant));
                assert!(found["loss"][0].is_nan() && found["accuracy"] == [0.0], "{variant:?}");
                assert!(found["dlogits"][..classes].iter().all(|v| v.is_nan()), "{variant:?}");
                assert!(found["dlogits"][classes..].iter().all(|v| v.is_finite()), "{variant:?}");
                let op = OpKind::SoftmaxCe(ops::SoftmaxCe { rows: 2, classes, smoothing });
                let found = run(&op, &values(&[("logits", &logits), ("labels", &[label, 0.0])]), &How::new(variant));
                assert!(found["row_loss"][0].is_nan() && found["row_loss"][1].is_finite(), "{variant:?}");
                let op = OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows: 2, classes, smoothing });
                let found = run(&op, &values(&[("probs", &logits), ("labels", &[label, 0.0])]), &How::new(variant));
                assert!(found["dlogits"][..classes].iter().all(|v| v.is_nan()), "{variant:?}");
            }
        }
    }
}

#[test]
fn accuracy_takes_the_first_of_equals() {
    let op = OpKind::Accuracy(ops::Accuracy { rows: 4, classes: 3 });
    let scores = [1.0, 2.0, 2.0, 1.0, 2.0, 2.0, 5.0, f64::NAN, 0.0, 3.0, 3.0, 3.0];
    for variant in variants() {
        let found = run(&op, &values(&[("scores", &scores), ("labels", &[1.0, 2.0, 0.0, 0.0])]), &How::new(variant));
        assert_eq!(found["accuracy"], [0.5], "{variant:?}");
    }
}

#[test]
fn batch_statistics_survive_a_large_mean() {
    let (rows, channels) = (10_000, 3);
    let op = OpKind::BatchNorm(ops::BatchNorm {
        rows,
        channels,
        eps: Scalar::new(0.0),
        momentum: Scalar::new(0.25),
        act: None,
    });
    // Each channel alternates between 1,000 - 1/8 and 1,000 + 1/8: variance 1/64 exactly.
    let x: Vec<f64> = (0..rows * channels).map(|i| if i / channels % 2 == 0 { 1_000.125 } else { 999.875 }).collect();
    let one = vec![1.0; channels];
    let inputs =
        values(&[("x", &x), ("gamma", &one), ("beta", &one), ("mean_prev", &[4.0; 3]), ("var_prev", &[8.0; 3])]);
    for variant in variants() {
        let found = run(&op, &inputs, &How::new(variant));
        let tolerance = if variant == Variant::RefF32 { 1e-2 } else { 1e-6 };
        assert_near("rstd", &found["rstd"], &[8.0; 3], tolerance);
        assert_near("running mean", &found["running_mean"], &[0.75 * 4.0 + 0.25 * 1_000.0; 3], 1e-5);
        let unbiased = 1.0 / 64.0 * 10_000.0 / 9_999.0;
        assert_near("running variance", &found["running_var"], &[0.75 * 8.0 + 0.25 * unbiased; 3], 1e-5);
    }
}

/// PyTorch's definitions of AdamW and of Adam with L2 decay, in f64, over ten steps of one parameter and a varying
/// gradient.
#[test]
fn adam_follows_its_recurrence() {
    let (lr, wd, b1, b2, eps) = (0.01, 0.1, 0.9, 0.999, 1e-8);
    for decoupled in [true, false] {
        let (mut p, mut m, mut v) = (0.5f64, 0.0, 0.0);
        let mut expected = Vec::new();
        for t in 1..=10 {
            let mut g = (f64::from(t) * 0.7).sin();
            if decoupled {
                p *= 1.0 - lr * wd;
            } else {
                g += wd * p;
            }
            m = b1 * m + (1.0 - b1) * g;
            v = b2 * v + (1.0 - b2) * g * g;
            let denominator = v.sqrt() / (1.0 - b2.powi(t)).sqrt() + eps;
            p -= lr / (1.0 - b1.powi(t)) * m / denominator;
            expected.push(p);
        }
        let segments = vec![Segment { start: 0, len: 1 }];
        let (beta1, beta2) = (Scalar::new(b1), Scalar::new(b2));
        let rule = UpdateRule::Adam { betas: [b1, b2], eps, decoupled };
        let step = OpKind::flat_step(rule, 64, segments, ops::StepOptions::default());
        for variant in variants() {
            let mut state = values(&[("counter_prev", &[0.0, 0.0]), ("p", &[0.5]), ("m", &[0.0]), ("v", &[0.0])]);
            for (t, expected) in (1..=10).zip(&expected) {
                let counter = run(
                    &OpKind::StepInc(ops::StepInc {}),
                    &values(&[("counter_prev", &state["counter_prev"])]),
                    &How::new(variant),
                );
                let correct = OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 });
                let corr = run(&correct, &values(&[("counter", &counter["counter"])]), &How::new(variant));
                let grad = (f64::from(t) * 0.7).sin();
                let mut inputs = values(&[("grad", &[grad]), ("hyper", &[lr, wd]), ("corr", &corr["corr"])]);
                inputs.extend(values(&[("param_prev", &state["p"]), ("m_prev", &state["m"]), ("v_prev", &state["v"])]));
                let found = run(&step, &inputs, &How::new(variant));
                assert_near("parameter", &found["param"][..1], &[*expected], 3e-6);
                let change = (found["param"][0] - state["p"][0]).abs();
                assert_near("largest change", &found["update_max"], &[change], 1e-4);
                assert_near("gradient norm", &found["grad_norm_seg"], &[grad.abs()], 1e-6);
                let keep = |name: &str| found[name][..1].to_vec();
                state = values(&[
                    ("counter_prev", &counter["counter"]),
                    ("p", &keep("param")),
                    ("m", &keep("m")),
                    ("v", &keep("v")),
                ]);
            }
            assert_eq!(state["counter_prev"], [0.0, 10.0]);
        }
    }
}

/// Momentum, Nesterov's and plain descent with L2 decay, in f64, over ten steps.
#[test]
fn descent_follows_its_recurrence() {
    let (lr, wd) = (0.1, 0.05);
    for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
        let op = OpKind::SgdStep(ops::SgdStep {
            len: 64,
            segments: vec![Segment { start: 0, len: 1 }],
            momentum: Scalar::new(momentum),
            nesterov,
            options: ops::StepOptions::default(),
        });
        for variant in variants() {
            let (mut p, mut buffer) = (0.5f64, 0.0);
            let (mut param, mut moved) = (vec![0.5], vec![0.0]);
            for t in 1..=10 {
                let grad = (f64::from(t) * 0.7).cos();
                let g = grad + wd * p;
                buffer = momentum * buffer + g;
                p -= lr * if nesterov { g + momentum * buffer } else { buffer };
                let mut inputs = values(&[("param_prev", &param), ("grad", &[grad]), ("hyper", &[lr, wd])]);
                let mut how = How::new(variant);
                if momentum == 0.0 {
                    how.unbound = vec!["momentum_prev", "momentum"];
                } else {
                    inputs.insert("momentum_prev", moved);
                }
                let found = run(&op, &inputs, &how);
                assert_near("parameter", &found["param"][..1], &[p], 3e-6);
                param = found["param"][..1].to_vec();
                moved = found.get("momentum").map_or(vec![0.0], |moved| moved[..1].to_vec());
            }
        }
    }
}

/// Lion's definition in f64, over ten steps; if mean and gradient are zero, only the decay changes the parameter.
#[test]
fn lion_follows_its_recurrence() {
    let (lr, wd, b1, b2) = (0.01, 0.1, 0.9, 0.99);
    let segments = vec![Segment { start: 0, len: 2 }];
    let op = OpKind::LionStep(ops::LionStep {
        len: 64,
        segments,
        beta1: Scalar::new(b1),
        beta2: Scalar::new(b2),
        options: ops::StepOptions::default(),
    });
    for variant in variants() {
        let (mut p, mut m) = ([0.5f64, 0.25], 0.0f64);
        let (mut param, mut mean) = (vec![0.5, 0.25], vec![0.0, 0.0]);
        for t in 1..=10 {
            let grad = (f64::from(t) * 0.7).sin();
            p[0] -= lr * ((b1 * m + (1.0 - b1) * grad).signum() + wd * p[0]);
            p[1] -= lr * wd * p[1];
            m = b2 * m + (1.0 - b2) * grad;
            let inputs =
                values(&[("param_prev", &param), ("grad", &[grad, 0.0]), ("m_prev", &mean), ("hyper", &[lr, wd])]);
            let found = run(&op, &inputs, &How::new(variant));
            assert_near("parameters", &found["param"][..2], &p, 3e-6);
            assert_near("mean", &found["m"][..2], &[m, 0.0], 3e-6);
            assert_near("largest change", &found["update_max"], &[(found["param"][0] - param[0]).abs()], 1e-4);
            assert_near("gradient norm", &found["grad_norm_seg"], &[grad.abs()], 1e-6);
            (param, mean) = (found["param"][..2].to_vec(), found["m"][..2].to_vec());
        }
        let nan =
            values(&[("param_prev", &param), ("grad", &[f64::NAN, 0.0]), ("m_prev", &mean), ("hyper", &[lr, wd])]);
        let found = run(&op, &nan, &How::new(variant));
        assert!(found["update_max"][0].is_nan() && found["grad_norm_seg"][0].is_nan(), "{variant:?}");
    }
}

#[test]
fn a_nan_gradient_makes_the_metrics_nan() {
    let segments = vec![Segment { start: 0, len: 40 }, Segment { start: 64, len: 40 }];
    let mut grad = vec![0.1; 128];
    grad[77] = f64::NAN;
    let op = OpKind::flat_step(ADAMW, 128, segments, ops::StepOptions::default());
    let zeros = vec![0.0; 128];
    let mut inputs = values(&[("grad", &grad), ("hyper", &[0.01, 0.0]), ("corr", &[10.0, 31.6])]);
    inputs.extend(values(&[("param_prev", &zeros), ("m_prev", &zeros), ("v_prev", &zeros)]));
    for variant in variants() {
        let found = run(&op, &inputs, &How::new(variant));
        assert!(found["update_max"][0].is_finite() && found["update_max"][1].is_nan(), "{variant:?}");
        let metrics = values(&[("update_max_seg", &found["update_max"]), ("grad_norm_seg", &found["grad_norm_seg"])]);
        let found = run(&OpKind::UpdateMetrics(ops::UpdateMetrics { segments: 2 }), &metrics, &How::new(variant));
        assert!(found["update_max"][0].is_nan() && found["grad_norm"][0].is_nan(), "{variant:?}");
    }
}

const ADAMW: UpdateRule = UpdateRule::Adam { betas: [0.9, 0.999], eps: 1e-8, decoupled: true };
const SGD: UpdateRule = UpdateRule::Sgd { momentum: 0.0, nesterov: false };

/// Squares of these gradients overflow or underflow `f32`; their norms do not.
#[test]
fn norms_of_very_large_and_very_small_gradients_are_finite() {
    let segments = vec![Segment { start: 0, len: 40 }, Segment { start: 64, len: 20_000 }];
    let len = 64 + 20_032;
    let adam = OpKind::flat_step(ADAMW, len, segments.clone(), ops::StepOptions::default());
    let sgd = OpKind::flat_step(SGD, len, segments, ops::StepOptions::default());
    let zeros = vec![0.0; len];
    for size in [1e25, 1e-25] {
        let grad = vec![size; len];
        let descent = values(&[("grad", &grad), ("hyper", &[1e-30, 0.0]), ("param_prev", &zeros)]);
        let mut moments = descent.clone();
        moments.extend(values(&[("m_prev", &zeros), ("v_prev", &zeros), ("corr", &[10.0, 31.6])]));
        let expected = [size * 40f64.sqrt(), size * 20_000f64.sqrt()];
        for variant in isas().into_iter().map(Variant::Fast) {
            for (op, inputs) in [(&adam, &moments), (&sgd, &descent)] {
                let how = How { unbound: vec!["momentum_prev", "momentum"], ..How::new(variant) };
                let norms = &run(op, inputs, &how)["grad_norm_seg"];
                let relative: Vec<f64> = norms.iter().zip(&expected).map(|(n, e)| n / e).collect();
                assert_near("relative norms", &relative, &[1.0, 1.0], 1e-6);
                let metrics = values(&[("update_max_seg", &[0.0, 0.0]), ("grad_norm_seg", norms)]);
                let total = run(
                    &OpKind::UpdateMetrics(ops::UpdateMetrics { segments: 2 }),
                    &metrics,
                    &How::new(variant),
                )["grad_norm"][0];
                assert_near("relative norm", &[total / (size * 20_040f64.sqrt())], &[1.0], 1e-6);
            }
        }
    }
}

#[test]
fn dropped_elements_are_zero_and_the_mask_says_which() {
    for variant in variants() {
        let op = OpKind::Dropout(ops::Dropout { len: 1_003, rate: Scalar::new(0.25), stream: 9 });
        let inputs = values(&[("x", &[3.0; 1_003]), ("counter", &[5.0, 17.0])]);
        let found = run(&op, &inputs, &How::new(variant));
        for (i, &y) in found["y"].iter().enumerate() {
            let kept = found["mask"][i / 8] as u8 >> (i % 8) & 1 == 1;
            assert_eq!(y, if kept { 4.0 } else { 0.0 }, "{variant:?}");
        }
        assert_eq!(found["mask"][125] as u8 >> 3, 0, "unused bits");
        let other = run(&op, &values(&[("x", &[3.0; 1_003]), ("counter", &[5.0, 18.0])]), &How::new(variant));
        assert_ne!(found["mask"], other["mask"]);
    }
}
