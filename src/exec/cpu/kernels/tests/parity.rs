//! Every fast kernel against its reference: random inputs, odd sizes, all instruction sets, any number of parts,
//! outputs on inputs, unbound outputs.

use super::harness::{How, Kind, Values, assert_close, assert_same, isas, run, slots};
use crate::model::Activation;
use crate::model::losses::PointFn;
use crate::ops::{self, OpKind, PoolGeometry, Scalar, Segment};
use crate::select::Variant;

/// Numbers that look random (a linear congruential generator).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// An f32 in [-2, 2).
    fn real(&mut self) -> f64 {
        f64::from((self.next() as f64 / f64::from(1u32 << 30) * 2.0 - 2.0) as f32)
    }
}

/// Inputs that fit an operation.
fn inputs(op: &OpKind, seed: u64) -> Values {
    let mut random = Random(seed);
    let mut values = Values::new();
    for (name, dir, kind, len) in slots(op) {
        if !dir.is_read() {
            continue;
        }
        let mut draw = || -> f64 {
            match (kind, name) {
                (Kind::I32, _) => match op {
                    OpKind::SoftmaxCe(ops::SoftmaxCe { classes, .. })
                    | OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { classes, .. })
                    | OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { classes, .. })
                    | OpKind::Accuracy(ops::Accuracy { classes, .. }) => random.below(*classes) as f64,
                    _ => unreachable!(),
                },
                (Kind::I64, _) => random.below(1_000) as f64,
                (Kind::U8, "mask") => random.below(256) as f64,
                (_, "v_prev" | "var_prev" | "running_var" | "rstd" | "probs") => random.real().abs(),
                (_, "grad_norm_seg" | "update_max_seg" | "hyper" | "corr") => {
                    f64::from((random.real().abs() * 0.1) as f32)
                }
                (_, "x") if matches!(op, OpKind::MaxPool { .. }) => (random.real() * 4.0).round(),
                _ => random.real(),
            }
        };
        let drawn: Vec<f64> = (0..len).map(|_| draw()).collect();
        values.insert(name, drawn);
    }
    if let OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }) = op {
        let forward = OpKind::MaxPool(ops::MaxPool { geometry: *geometry });
        let chosen = run(&forward, &inputs(&forward, seed), &How::new(Variant::RefF64));
        values.insert("index", chosen["index"].clone());
    }
    values
}

/// Compares an operation's kernels; `aliases` are pairs of an output and the input that it may share the memory of.
fn check(op: &OpKind, tolerance: f64, aliases: &[(&'static str, &'static str)]) {
    let inputs = inputs(op, 7);
    let expected = run(op, &inputs, &How::new(Variant::RefF64));
    assert_close(&format!("{op:?} in f32"), &run(op, &inputs, &How::new(Variant::RefF32)), &expected, 10.0 * tolerance);
    let mut first: Option<Values> = None;
    for isa in isas() {
        let how = How::new(Variant::Fast(isa));
        let what = format!("{op:?} {isa:?}");
        let found = run(op, &inputs, &how);
        assert_close(&what, &found, &expected, tolerance);
        let first = first.get_or_insert_with(|| found.clone());
        assert_same(&what, &found, first);
        for parts in [2, 3, 5] {
            let found = run(op, &inputs, &How { parts, ..how.clone() });
            assert_same(&format!("{what}, {parts} parts"), &found, first);
        }
        for &alias in aliases {
            let found = run(op, &inputs, &How { aliases: vec![alias], parts: 2, ..how.clone() });
            assert_same(&format!("{what}, {} on {}", alias.0, alias.1), &found, first);
        }
    }
}

/// Checks that the bound outputs are the same whatever else is bound.
fn check_unbound(op: &OpKind, optional: &[&'static str]) {
    let inputs = inputs(op, 3);
    for variant in isas().into_iter().map(Variant::Fast).chain([Variant::RefF32]) {
        let expected = run(op, &inputs, &How::new(variant));
        for unbound in optional.iter().map(|&name| vec![name]).chain([optional.to_vec()]) {
            let how = How { unbound: unbound.clone(), parts: 3, ..How::new(variant) };
            assert_same(&format!("{op:?} {variant:?} without {unbound:?}"), &run(op, &inputs, &how), &expected);
        }
    }
}

const LENGTHS: [usize; 9] = [1, 7, 15, 16, 17, 63, 1_025, 5_000, 40_001];

#[test]
fn elementwise_operations() {
    for len in LENGTHS {
        for func in Activation::ALL {
            check(&OpKind::Act(ops::Act { func, len }), 1e-6, &[("y", "x")]);
            check(&OpKind::ActBwd(ops::ActBwd { func, len }), 1e-6, &[("dx", "dy")]);
        }
        check(&OpKind::Add(ops::Add { len }), 1e-6, &[("y", "a")]);
        check(&OpKind::Fill(ops::Fill { len }), 0.0, &[]);
    }
}

const MATRICES: [(usize, usize); 19] = [
    (2, 1),
    (2, 2),
    (3, 5),
    (64, 1),
    (65, 1),
    (9_000, 1),
    (17, 3),
    (40_000, 3),
    (33, 6),
    (4_096, 6),
    (5, 10),
    (130, 15),
    (4_100, 16),
    (77, 17),
    (31, 33),
    (700, 63),
    (129, 64),
    (70, 300),
    (2, 1_031),
];

#[test]
fn biases() {
    for (rows, cols) in MATRICES {
        check(&OpKind::BiasAdd(ops::BiasAdd { rows, cols }), 1e-6, &[("y", "x")]);
        check(&OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate: false }), 3e-6, &[]);
        check(&OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate: true }), 3e-6, &[]);
    }
    check(&OpKind::BiasGrad(ops::BiasGrad { rows: 1, cols: 1, accumulate: true }), 1e-6, &[]);
}

#[test]
fn layouts() {
    for (n, rows, cols) in [(1, 1, 1), (2, 3, 64), (3, 17, 15), (1, 33, 16), (2, 16, 48), (5, 1, 100), (4, 100, 1)] {
        check(&OpKind::Transpose(ops::Transpose { n, rows, cols }), 0.0, &[]);
    }
}

#[test]
fn batch_normalisation() {
    let (eps, momentum) = (Scalar::new(1e-5), Scalar::new(0.1));
    for (rows, channels) in MATRICES {
        for act in [None, Some(Activation::Relu), Some(Activation::Tanh), Some(Activation::Gelu)] {
            check(&OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act }), 2e-5, &[("y", "x")]);
            check(&OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps, act }), 2e-5, &[("y", "x")]);
        }
        for func in Activation::ALL {
            let op =
                OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: Some(func), accumulate: false });
            check(&op, 2e-5, &[("dx", "dy")]);
        }
        check(
            &OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: None, accumulate: true }),
            2e-5,
            &[("dx", "dy")],
        );
    }
    let (rows, channels) = (100, 6);
    let op = OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None });
    check_unbound(&op, &["mean", "rstd", "running_mean", "running_var"]);
    let op = OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: None, accumulate: false });
    check_unbound(&op, &["dx", "dgamma", "dbeta"]);
}

#[test]
fn layer_normalisation() {
    let eps = Scalar::new(1e-5);
    for (rows, cols) in [(1, 2), (3, 5), (17, 16), (2, 17), (100, 64), (33, 100), (40, 769)] {
        check(&OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms: false }), 2e-5, &[("y", "x")]);
        for accumulate in [false, true] {
            check(
                &OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate, rms: false }),
                2e-5,
                &[("dx", "dy")],
            );
        }
    }
    let op = OpKind::LayerNormBwd(ops::LayerNormBwd { rows: 50, cols: 20, accumulate: false, rms: false });
    check_unbound(&op, &["dx", "dgamma", "dbeta"]);
}

#[test]
fn root_mean_square_normalisation() {
    let eps = Scalar::new(1e-6);
    for (rows, cols) in [(1, 1), (1, 2), (3, 5), (17, 16), (2, 17), (100, 64), (33, 100), (40, 769), (2, 1_031)] {
        check(&OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms: true }), 2e-5, &[("y", "x")]);
        for accumulate in [false, true] {
            let op = ops::LayerNormBwd { rows, cols, accumulate, rms: true };
            check(&OpKind::LayerNormBwd(op), 2e-5, &[("dx", "dy")]);
        }
    }
    check_unbound(&OpKind::LayerNorm(ops::LayerNorm { rows: 50, cols: 20, eps, rms: true }), &["rstd"]);
    let op = OpKind::LayerNormBwd(ops::LayerNormBwd { rows: 50, cols: 20, accumulate: false, rms: true });
    check_unbound(&op, &["dx", "dgamma"]);
}

/// The mean squares of the rows are 12 and 9; with `eps`, 16 and 13.
#[test]
fn root_mean_square_normalisation_by_hand() {
    let values = |list: &[(&'static str, &[f64])]| list.iter().map(|(name, v)| (*name, v.to_vec())).collect::<Values>();
    let x: &[f64] = &[2.0, 4.0, 4.0, -3.0, 3.0, 3.0];
    let gamma: &[f64] = &[1.0, 2.0, 3.0];
    let rstd: &[f64] = &[1.0 / 4.0, 1.0 / 13f64.sqrt()];
    let op = OpKind::LayerNorm(ops::LayerNorm { rows: 2, cols: 3, eps: Scalar::new(4.0), rms: true });
    let r = rstd[1];
    let y: &[f64] = &[0.5, 2.0, 3.0, -3.0 * r, 6.0 * r, 9.0 * r];
    let forward = (values(&[("x", x), ("gamma", gamma)]), values(&[("y", y), ("rstd", rstd)]));
    let back = OpKind::LayerNormBwd(ops::LayerNormBwd { rows: 2, cols: 3, accumulate: true, rms: true });
    let dy: &[f64] = &[1.0, 1.0, 2.0, 0.0, 0.0, 1.0];
    // Means of g x^: 17 / 6 in the first row, where g is 1, 2, 6; 3 r in the second, where it is 0, 0, 3.
    let second = [9.0 * r * r, -9.0 * r * r, 3.0 - 9.0 * r * r].map(|v| v * r);
    let dx = [&[-5.0 / 48.0, -5.0 / 24.0, 19.0 / 24.0], &second[..]].concat();
    let dgamma: &[f64] = &[10.5, 21.0, 31.0 + 3.0 * r];
    let before: &[f64] = &[10.0, 20.0, 29.0];
    let given = values(&[("dy", dy), ("x", x), ("gamma", gamma), ("rstd", rstd), ("dgamma_prev", before)]);
    let backward = (given, values(&[("dx", &dx), ("dgamma", dgamma)]));
    for (op, (inputs, expected)) in [(op, forward), (back, backward)] {
        for variant in isas().into_iter().map(Variant::Fast).chain([Variant::RefF32, Variant::RefF64]) {
            let found = run(&op, &inputs, &How::new(variant));
            assert_eq!(found.len(), expected.len(), "{op:?}");
            let tolerance = if variant == Variant::RefF64 { 1e-14 } else { 1e-6 };
            assert_close(&format!("{op:?} {variant:?}"), &found, &expected, tolerance);
        }
    }
}

/// What is kept of operations from before rows could go without centring is read, and written as it was.
#[test]
fn centred_rows_are_written_without_saying_so() {
    for text in [
        r#"{"op":"layer_norm","rows":64,"cols":128,"eps":0.00001}"#,
        r#"{"op":"layer_norm_bwd","rows":64,"cols":128,"accumulate":true}"#,
        r#"{"op":"layer_norm","rows":64,"cols":128,"eps":0.00001,"rms":true}"#,
    ] {
        assert_eq!(serde_json::to_string(&serde_json::from_str::<OpKind>(text).unwrap()).unwrap(), text);
    }
}

fn pools() -> Vec<PoolGeometry> {
    let mut pools = Vec::new();
    for c in [1, 3, 8, 16, 33] {
        let windows = [
            ([2, 2], [2, 2], [0, 0]),
            ([3, 3], [2, 2], [1, 1]),
            ([3, 2], [1, 3], [1, 0]),
            ([2, 3], [4, 5], [0, 1]),
            ([5, 5], [1, 1], [2, 2]),
            ([17, 16], [3, 3], [8, 7]),
        ];
        for (size, stride, padding) in windows {
            for (h, w) in [(18, 41), (17, 16)] {
                let out = |axis: usize, len: usize| (len + 2 * padding[axis] - size[axis]) / stride[axis] + 1;
                pools.push(PoolGeometry { n: 2, h, w, c, size, stride, padding, ho: out(0, h), wo: out(1, w) });
            }
        }
    }
    pools
}

#[test]
fn pooling() {
    for geometry in pools() {
        check(&OpKind::MaxPool(ops::MaxPool { geometry }), 0.0, &[]);
        check(&OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }), 2e-6, &[]);
        check(&OpKind::AvgPool(ops::AvgPool { geometry }), 2e-6, &[]);
        check(&OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }), 2e-6, &[]);
    }
    check_unbound(&OpKind::MaxPool(ops::MaxPool { geometry: pools()[0] }), &["index"]);
    for (n, hw, c) in [(1, 1, 1), (3, 49, 5), (2, 64, 16), (4, 7, 300), (2, 100, 33)] {
        check(&OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }), 2e-6, &[]);
        check(&OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }), 2e-6, &[]);
    }
}

#[test]
fn dropout() {
    for len in LENGTHS {
        for rate in [0.0, 0.1, 0.5, 0.99] {
            let rate = Scalar::new(rate);
            check(&OpKind::Dropout(ops::Dropout { len, rate, stream: 5 }), 1e-6, &[("y", "x")]);
            check(&OpKind::DropoutBwd(ops::DropoutBwd { len, rate }), 1e-6, &[("dx", "dy")]);
        }
    }
}

#[test]
fn losses() {
    for (rows, classes) in
        [(1, 1), (1, 2), (3, 10), (64, 10), (65, 16), (5, 17), (33, 31), (4, 64), (7, 100), (3, 1_000)]
    {
        for smoothing in [0.0, 0.1] {
            let smoothing = Scalar::new(smoothing);
            check(&OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing }), 2e-6, &[("probs", "logits")]);
            check(
                &OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }),
                2e-6,
                &[("dlogits", "probs")],
            );
            check(
                &OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing }),
                2e-6,
                &[("dlogits", "logits")],
            );
        }
        check(&OpKind::Accuracy(ops::Accuracy { rows, classes }), 1e-7, &[]);
        check(&OpKind::LossMean(ops::LossMean { rows }), 1e-6, &[]);
    }
    for classes in [10, 100] {
        let op = OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows: 40, classes, smoothing: Scalar::new(0.1) });
        check_unbound(&op, &["dlogits", "loss", "accuracy"]);
        check_unbound(
            &OpKind::SoftmaxCe(ops::SoftmaxCe { rows: 40, classes, smoothing: Scalar::new(0.0) }),
            &["row_loss", "probs"],
        );
    }
    for len in LENGTHS {
        check(&OpKind::Mse(ops::Mse { len }), 2e-6, &[]);
        check(&OpKind::MseGrad(ops::MseGrad { len }), 2e-6, &[("dy", "y")]);
        check(&OpKind::MseFused(ops::MseFused { len }), 2e-6, &[("dy", "y")]);
    }
    check_unbound(&OpKind::MseFused(ops::MseFused { len: 100 }), &["dy", "loss"]);
}

#[test]
fn losses_of_single_values() {
    for func in PointFn::ALL {
        // Errors are up to 4, so that either side of the delta is met.
        let delta = Scalar::new(if func == PointFn::Huber { 0.75 } else { 0.0 });
        for len in LENGTHS {
            check(&OpKind::PointLoss(ops::PointLoss { func, delta, len }), 2e-6, &[]);
            check(&OpKind::PointLossGrad(ops::PointLossGrad { func, delta, len }), 2e-6, &[("dy", "y")]);
            check(&OpKind::PointLossFused(ops::PointLossFused { func, delta, len }), 2e-6, &[("dy", "y")]);
        }
        let fused = OpKind::PointLossFused(ops::PointLossFused { func, delta, len: 40_000 });
        check_unbound(&fused, &["dy", "loss", "accuracy"]);
    }
    for len in LENGTHS {
        check(&OpKind::BinaryAccuracy(ops::BinaryAccuracy { len }), 1e-7, &[]);
    }
}

/// Segments of these lengths, each from a multiple of 64 on, and the length of the vector.
fn segments(lengths: &[usize]) -> (Vec<Segment>, usize) {
    let mut end = 0usize;
    let mut segments = Vec::new();
    for &len in lengths {
        segments.push(Segment { start: end, len });
        end = (end + len).next_multiple_of(64);
    }
    (segments, end)
}

#[test]
fn optimizers() {
    let long: Vec<usize> = (0..300).map(|i| 1 + i * 37 % 190).collect();
    let layouts =
        [vec![1], vec![64], vec![17, 100, 1], vec![8_192, 128, 1_280, 10], vec![16_384, 5, 40_000, 16_300, 90], long];
    let (beta1, beta2, eps) = (Scalar::new(0.9), Scalar::new(0.999), Scalar::new(1e-8));
    for lengths in &layouts {
        let (segments, len) = segments(lengths);
        for decoupled in [false, true] {
            check(
                &OpKind::AdamStep(ops::AdamStep { len, segments: segments.clone(), beta1, beta2, eps, decoupled }),
                3e-6,
                &[],
            );
        }
        for (momentum, nesterov) in [(0.9, false), (0.9, true), (0.0, false)] {
            let momentum = Scalar::new(momentum);
            check(&OpKind::SgdStep(ops::SgdStep { len, segments: segments.clone(), momentum, nesterov }), 3e-6, &[]);
        }
        // Every step is as long as the learning rate, about 0.03, and the parameters that it is taken from are up to 4.
        check(&OpKind::LionStep(ops::LionStep { len, segments: segments.clone(), beta1, beta2 }), 1e-5, &[]);
        check(&OpKind::UpdateMetrics(ops::UpdateMetrics { segments: segments.len() }), 1e-6, &[]);
    }
    let (segments, len) = segments(&[100, 20_000]);
    let op = OpKind::AdamStep(ops::AdamStep { len, segments: segments.clone(), beta1, beta2, eps, decoupled: true });
    check_unbound(&op, &["update_max", "grad_norm_seg"]);
    let op = OpKind::LionStep(ops::LionStep { len, segments: segments.clone(), beta1, beta2 });
    check_unbound(&op, &["update_max", "grad_norm_seg"]);
    let op = OpKind::SgdStep(ops::SgdStep { len, segments, momentum: Scalar::new(0.0), nesterov: false });
    check_unbound(&op, &["momentum_prev", "momentum", "update_max", "grad_norm_seg"]);
    check_unbound(&OpKind::UpdateMetrics(ops::UpdateMetrics { segments: 5 }), &["update_max", "grad_norm"]);
    check(&OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }), 1e-6, &[]);
    check(&OpKind::StepInc(ops::StepInc {}), 0.0, &[]);
}
