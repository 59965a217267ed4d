//! Every fast kernel against its reference: random inputs, odd sizes, all instruction sets, any number of parts,
//! outputs that share memory with inputs, unbound outputs.

use super::fast::checked;
use super::harness::{How, Kind, Values, assert_close, assert_same, isas, run, slots};
use crate::model::losses::PointFn;
use crate::model::{Activation, Schedule, ScheduleKind};
use crate::ops::{self, OpKind, PoolGeometry, Scalar, Segment};
use crate::select::{Isa, Variant};

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

/// Inputs that are valid for an operation.
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
                    // Some of them are not valid rows.
                    OpKind::Embedding(ops::Embedding { vocab, .. })
                    | OpKind::EmbeddingBwd(ops::EmbeddingBwd { vocab, .. }) => random.below(vocab + 2) as f64 - 1.0,
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

/// Whether plain code may round results differently from the other instruction sets, which fuse products and sums of
/// functions that compute in `f64`.
fn plain_code_may_differ(op: &OpKind) -> bool {
    let text = format!("{op:?}");
    ["Gelu", "Silu", "Sigmoid", "Tanh", "BinaryCrossEntropy"].iter().any(|function| text.contains(function))
}

/// Compares an operation's kernels; `aliases` are pairs of an output and the input whose memory it may share.
fn check(op: &OpKind, tolerance: f64, aliases: &[(&'static str, &'static str)]) {
    let inputs = inputs(op, 7);
    let expected = run(op, &inputs, &How::new(Variant::RefF64));
    assert_close(&format!("{op:?} in f32"), &run(op, &inputs, &How::new(Variant::RefF32)), &expected, 10.0 * tolerance);
    let mut first: Option<Values> = None;
    for isa in isas() {
        let how = How::new(Variant::Fast(isa));
        let what = format!("{op:?} {isa:?}");
        let found = checked(op, &inputs, &how, &expected, tolerance);
        if isa == Isa::Avx2 && plain_code_may_differ(op) {
            first = None;
        }
        let first = first.get_or_insert_with(|| found.clone());
        assert_same(&what, &found, first);
        for &alias in aliases {
            let found = run(op, &inputs, &How { aliases: vec![alias], parts: 2, ..how.clone() });
            assert_same(&format!("{what}, {} on {}", alias.0, alias.1), &found, first);
        }
    }
}

/// Checks that the bound outputs do not depend on which other slots are bound.
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
        check(&OpKind::Multiply(ops::Multiply { len }), 1e-6, &[("y", "a")]);
        check(&OpKind::Scale(ops::Scale { len, factor: Scalar::new(1.25) }), 1e-6, &[("y", "x")]);
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
        for zeros in [None, Some([cols / 3, cols.div_ceil(2)])] {
            check(&OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate: false, zeros }), 3e-6, &[]);
            check(&OpKind::BiasGrad(ops::BiasGrad { rows, cols, accumulate: true, zeros }), 3e-6, &[]);
        }
    }
    check(&OpKind::BiasGrad(ops::BiasGrad { rows: 1, cols: 1, accumulate: true, zeros: None }), 1e-6, &[]);
}

#[test]
fn joined_rows() {
    for rows in [1, 2, 33, 1_025] {
        for widths in [vec![1], vec![7], vec![3, 1], vec![16, 5, 64], vec![1, 2, 3, 4, 5, 6, 7, 8], vec![300, 17]] {
            check(&OpKind::Concat(ops::Concat { rows, widths: widths.clone() }), 0.0, &[]);
            let (cols, mut from) = (widths.iter().sum(), 0);
            for width in widths {
                check(&OpKind::Slice(ops::Slice { rows, cols, from, width }), 0.0, &[]);
                from += width;
            }
        }
    }
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

fn norm_gradient([rows, cols]: [usize; 2], accumulate: bool, rms: bool) -> OpKind {
    OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate, rms, part: ops::GradientPart::All })
}

#[test]
fn layer_normalisation() {
    let eps = Scalar::new(1e-5);
    for (rows, cols) in [(1, 2), (3, 5), (17, 16), (2, 17), (100, 64), (33, 100), (40, 769)] {
        check(&OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms: false }), 2e-5, &[("y", "x")]);
        for accumulate in [false, true] {
            check(&norm_gradient([rows, cols], accumulate, false), 2e-5, &[("dx", "dy")]);
        }
    }
    let op = norm_gradient([50, 20], false, false);
    check_unbound(&op, &["dx", "dgamma", "dbeta"]);
}

#[test]
fn root_mean_square_normalisation() {
    let eps = Scalar::new(1e-6);
    for (rows, cols) in [(1, 1), (1, 2), (3, 5), (17, 16), (2, 17), (100, 64), (33, 100), (40, 769), (2, 1_031)] {
        check(&OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms: true }), 2e-5, &[("y", "x")]);
        for accumulate in [false, true] {
            check(&norm_gradient([rows, cols], accumulate, true), 2e-5, &[("dx", "dy")]);
        }
    }
    check_unbound(&OpKind::LayerNorm(ops::LayerNorm { rows: 50, cols: 20, eps, rms: true }), &["rstd"]);
    let op = norm_gradient([50, 20], false, true);
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
    let back = norm_gradient([2, 3], true, true);
    let dy: &[f64] = &[1.0, 1.0, 2.0, 0.0, 0.0, 1.0];
    // The means of g x^: 17 / 6 in the first row, where g is 1, 2, 6; 3 r in the second, where it is 0, 0, 3.
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

/// Operations stored before rows could be normalised without centring can be read, and are written unchanged.
#[test]
fn the_default_of_centred_rows_is_not_written() {
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
    for (c, w, size, stride, padding) in [(1, 9, 2, 2, 0), (3, 14, 3, 1, 1), (16, 40, 5, 3, 2), (33, 300, 300, 1, 0)] {
        let wo = (w + 2 * padding - size) / stride + 1;
        let (size, stride, padding) = ([1, size], [1, stride], [0, padding]);
        let geometry = PoolGeometry { n: 3, h: 1, w, c, size, stride, padding, ho: 1, wo };
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
fn tables() {
    for (rows, vocab, units) in [(1, 1, 1), (7, 3, 5), (40, 11, 16), (300, 50, 17), (64, 2, 200), (1_000, 30, 64)] {
        check(&OpKind::Embedding(ops::Embedding { rows, vocab, units, positions: 0 }), 0.0, &[]);
        for accumulate in [false, true] {
            check(&OpKind::EmbeddingBwd(ops::EmbeddingBwd { rows, vocab, units, accumulate }), 3e-6, &[]);
        }
    }
}

#[test]
fn positions() {
    for (n, positions, cols) in [(1, 1, 1), (3, 9, 5), (2, 64, 16), (2, 65, 17), (1, 200, 64), (5, 130, 33)] {
        check(&OpKind::AddSinusoids(ops::AddSinusoids { n, positions, cols }), 1e-6, &[("y", "x")]);
        for at in [0, positions / 2, positions - 1] {
            check(&OpKind::Take(ops::Take { n, positions, cols, at }), 0.0, &[]);
            check(&OpKind::TakeBwd(ops::TakeBwd { n, positions, cols, at }), 0.0, &[]);
        }
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
                &OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing, parts: 1 + rows % 3 }),
                2e-6,
                &[("dlogits", "logits")],
            );
        }
        check(&OpKind::Accuracy(ops::Accuracy { rows, classes }), 1e-7, &[]);
        check(&OpKind::LossMean(ops::LossMean { rows }), 1e-6, &[]);
    }
    for classes in [10, 100] {
        let op =
            OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows: 40, classes, smoothing: Scalar::new(0.1), parts: 1 });
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
        // Errors are up to 4, so that both sides of the delta occur.
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

/// Segments of these lengths, each starting at a multiple of 64, and the length of the vector.
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
        let exempt = (0..segments.len()).step_by(2).collect();
        for options in [ops::StepOptions::default(), ops::StepOptions { clipped: true, exempt }] {
            let of = || (segments.clone(), options.clone());
            // The largest change is the difference of parameters of up to 4, whose rounding error is 2.4e-7. Clipping
            // makes the changes of some layouts as small as 0.005.
            let tolerance = if options.clipped { 5e-5 } else { 3e-6 };
            for decoupled in [false, true] {
                let (segments, options) = of();
                let adam = ops::AdamStep { len, segments, beta1, beta2, eps, decoupled, options };
                check(&OpKind::AdamStep(adam), tolerance, &[]);
            }
            for (momentum, nesterov) in [(0.9, false), (0.9, true), (0.0, false)] {
                let (momentum, (segments, options)) = (Scalar::new(momentum), of());
                check(&OpKind::SgdStep(ops::SgdStep { len, segments, momentum, nesterov, options }), tolerance, &[]);
            }
            // The length of every step is the learning rate, about 0.03, and parameters are up to 4.
            let (segments, options) = of();
            check(&OpKind::LionStep(ops::LionStep { len, segments, beta1, beta2, options }), 1e-5, &[]);
        }
        for batches in [1, 3] {
            check(&OpKind::GradNorms(ops::GradNorms { len, segments: segments.clone(), batches }), 2e-6, &[]);
        }
        for schedule in ScheduleKind::ALL {
            let schedule = Schedule { kind: schedule, warmup: 40, last: 0.25, every: 7, factor: 0.99 };
            for clip_norm in [0.0, 1e-3, 1e9] {
                // If nothing is updated there are no norms.
                let counts = if clip_norm > 0.0 { vec![segments.len(), 0] } else { vec![0] };
                for (batches, count) in [1, 3].into_iter().flat_map(|batches| counts.iter().map(move |c| (batches, *c)))
                {
                    let op = ops::UpdateRates { batches, ..ops::UpdateRates::new(schedule, clip_norm, count) };
                    check(&OpKind::UpdateRates(op), 1e-6, &[]);
                }
            }
        }
        check(&OpKind::UpdateMetrics(ops::UpdateMetrics { segments: segments.len() }), 1e-6, &[]);
    }
    let (segments, len) = segments(&[100, 20_000]);
    let options = ops::StepOptions::default();
    let adam = ops::AdamStep { len, segments: segments.clone(), beta1, beta2, eps, decoupled: true, options };
    let op = OpKind::AdamStep(adam);
    check_unbound(&op, &["update_max", "grad_norm_seg"]);
    let options = ops::StepOptions::default();
    let op = OpKind::LionStep(ops::LionStep { len, segments: segments.clone(), beta1, beta2, options });
    check_unbound(&op, &["update_max", "grad_norm_seg"]);
    let (momentum, options) = (Scalar::new(0.0), ops::StepOptions::default());
    let op = OpKind::SgdStep(ops::SgdStep { len, segments, momentum, nesterov: false, options });
    check_unbound(&op, &["momentum_prev", "momentum", "update_max", "grad_norm_seg"]);
    check_unbound(&OpKind::UpdateMetrics(ops::UpdateMetrics { segments: 5 }), &["update_max", "grad_norm"]);
    check(&OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }), 1e-6, &[]);
    check(&OpKind::StepInc(ops::StepInc {}), 0.0, &[]);
}
