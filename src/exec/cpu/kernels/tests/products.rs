//! Matrix products and convolutions against their references: sizes around every tile edge, all epilogues, any number
//! of parts.

use super::fast::checked;
use super::harness::{How, Values, assert_same, isas, run, slots};
use crate::model::{Activation, Rng};
use crate::ops::{self, ConvGeometry, Epilogue, Gemm, OpKind, Trans};
use crate::select::Variant;

fn inputs(op: &OpKind, rng: &mut Rng) -> Values {
    let mut values = Values::new();
    for (name, dir, _, len) in slots(op) {
        if dir.is_read() {
            values.insert(name, (0..len).map(|_| f64::from(rng.range(-1.0, 1.0) as f32)).collect());
        }
    }
    values
}

fn unbound(epilogue: &Epilogue, accumulate: bool) -> Vec<&'static str> {
    let slots = [
        ("bias", epilogue.bias),
        ("saved", epilogue.act_grad.is_some()),
        ("z", epilogue.save_z),
        ("c_prev", accumulate),
    ];
    slots.into_iter().filter(|(_, used)| !used).map(|(name, _)| name).collect()
}

fn check(op: &OpKind, epilogue: &Epilogue, accumulate: bool, rng: &mut Rng) {
    let unbound = unbound(epilogue, accumulate);
    let mut values = inputs(op, rng);
    for name in &unbound {
        values.remove(name);
    }
    let how = |variant| How { unbound: unbound.clone(), ..How::new(variant) };
    let expected = run(op, &values, &how(Variant::RefF64));
    for isa in isas() {
        checked(op, &values, &how(Variant::Fast(isa)), &expected, 1e-5);
    }
}

fn any<T: Copy>(rng: &mut Rng, options: &[T]) -> T {
    options[rng.below(options.len())]
}

fn epilogue(rng: &mut Rng, forward: bool) -> Epilogue {
    let func = any(rng, &Activation::ALL);
    match (forward, rng.below(4)) {
        (true, 0) => Epilogue { bias: true, ..Epilogue::default() },
        (true, 1) => Epilogue { bias: true, act: Some(func), save_z: !func.saves_output(), act_grad: None },
        (true, 2) => Epilogue { act: Some(func), ..Epilogue::default() },
        (false, 0 | 1) => Epilogue { act_grad: Some(func), ..Epilogue::default() },
        _ => Epilogue::default(),
    }
}

/// More parts than separate sums, and more than tiles.
#[test]
fn sums_over_rows_do_not_depend_on_the_number_of_parts() {
    let mut rng = Rng::new(12, 0);
    for (m, n, k, accumulate) in [(33, 40, 2_600, true), (100, 64, 1_100, false), (256, 17, 520, false)] {
        let op = OpKind::Gemm(Gemm { accumulate, ..Gemm::plain(m, n, k, Trans::Tn) });
        let mut values = inputs(&op, &mut rng);
        let unbound = unbound(&Epilogue::default(), accumulate);
        values.retain(|name, _| !unbound.contains(name));
        for isa in isas() {
            let of_parts = |parts| How { unbound: unbound.clone(), parts, ..How::new(Variant::Fast(isa)) };
            let alone = run(&op, &values, &of_parts(1));
            for parts in [7, 17, 64] {
                assert_same(&format!("{op:?} {isa:?}, {parts} parts"), &run(&op, &values, &of_parts(parts)), &alone);
            }
        }
    }
}

#[test]
fn products_of_any_size() {
    const SIZES: [usize; 17] = [1, 2, 3, 5, 7, 13, 14, 15, 16, 17, 28, 31, 33, 48, 64, 100, 130];
    let mut rng = Rng::new(11, 0);
    for round in 0..220 {
        let [m, n, mut k] = [0; 3].map(|_| any(&mut rng, &SIZES));
        if round % 20 == 0 {
            k = any(&mut rng, &[255, 256, 257, 600, 2_600]);
        }
        for trans in [Trans::Nn, Trans::Nt, Trans::Tn] {
            let epilogue = match trans {
                Trans::Nn => epilogue(&mut rng, true),
                Trans::Nt => epilogue(&mut rng, false),
                Trans::Tn => Epilogue::default(),
            };
            let accumulate = epilogue.is_empty() && rng.below(3) == 0;
            let gemm = Gemm { accumulate, epilogue, ..Gemm::plain(m, n, k, trans) };
            check(&OpKind::Gemm(gemm), &epilogue, accumulate, &mut rng);
        }
    }
}

#[test]
fn large_products_with_rearranged_operands() {
    let mut rng = Rng::new(12, 0);
    for (m, n, k) in [(64, 160, 300), (256, 200, 70), (90, 1000, 257), (33, 512, 513)] {
        for trans in [Trans::Nn, Trans::Nt, Trans::Tn] {
            let epilogue = if trans == Trans::Nn {
                Epilogue { bias: true, act: Some(Activation::Relu), ..Epilogue::default() }
            } else {
                Epilogue::default()
            };
            let accumulate = trans == Trans::Tn;
            let gemm = Gemm { accumulate, epilogue, ..Gemm::plain(m, n, k, trans) };
            check(&OpKind::Gemm(gemm), &epilogue, accumulate, &mut rng);
        }
    }
}

#[test]
fn threads_divide_the_rows_of_tall_products() {
    let mut rng = Rng::new(13, 0);
    let kept = Epilogue { bias: true, act: Some(Activation::Gelu), save_z: true, ..Epilogue::default() };
    let derived = Epilogue { act_grad: Some(Activation::Relu), ..Epilogue::default() };
    // Each of five parts has at least 256 rows. Both operands of the second one are rearranged, and its sum has two
    // ranges.
    for (m, n, k) in [(1_290, 40, 33), (1_290, 130, 300)] {
        for (trans, epilogue) in [(Trans::Nn, kept), (Trans::Nt, derived), (Trans::Nt, Epilogue::default())] {
            let accumulate = epilogue.is_empty();
            let gemm = Gemm { accumulate, epilogue, ..Gemm::plain(m, n, k, trans) };
            check(&OpKind::Gemm(gemm), &epilogue, accumulate, &mut rng);
        }
    }
}

/// A random geometry whose window fits the image.
fn geometry(rng: &mut Rng) -> ConvGeometry {
    loop {
        let groups = any(rng, &[1, 1, 1, 2, 3]);
        let (c, f) = (groups * any(rng, &[1, 2, 3, 6, 8, 16, 17]), groups * any(rng, &[1, 2, 5, 8, 16, 33, 40]));
        let [h, w] = [0; 2].map(|_| 1 + rng.below(12));
        let kernel = [0; 2].map(|_| any(rng, &[1, 2, 3, 3, 5]));
        let stride = [0; 2].map(|_| any(rng, &[1, 1, 2, 3]));
        let padding = [0; 2].map(|_| any(rng, &[0, 0, 1, 2, 3]));
        let dilation = [0; 2].map(|_| any(rng, &[1, 1, 2]));
        let out = |size: usize, a: usize| {
            (size + 2 * padding[a]).checked_sub(dilation[a] * (kernel[a] - 1) + 1).map(|v| v / stride[a] + 1)
        };
        if let (Some(ho), Some(wo)) = (out(h, 0), out(w, 1)) {
            return ConvGeometry { n: 1 + rng.below(5), h, w, c, f, kernel, stride, padding, dilation, groups, ho, wo };
        }
    }
}

fn check_convolutions(geometry: ConvGeometry, rng: &mut Rng) {
    let forward = epilogue(rng, true);
    check(&OpKind::Conv2d(ops::Conv2d { geometry, epilogue: forward }), &forward, false, rng);
    let backward = epilogue(rng, false);
    check(&OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue: backward }), &backward, false, rng);
    let accumulate = rng.below(3) == 0;
    check(&OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate }), &Epilogue::default(), accumulate, rng);
}

#[test]
fn convolutions_of_any_geometry() {
    let mut rng = Rng::new(13, 0);
    for _ in 0..160 {
        let geometry = geometry(&mut rng);
        check_convolutions(geometry, &mut rng);
    }
}

#[test]
fn convolutions_of_common_networks() {
    let mut rng = Rng::new(14, 0);
    let same = |n, side, c, f, k: usize| ConvGeometry {
        n,
        h: side,
        w: side,
        c,
        f,
        kernel: [k, k],
        stride: [1, 1],
        padding: [k / 2, k / 2],
        dilation: [1, 1],
        groups: 1,
        ho: side,
        wo: side,
    };
    for geometry in [
        same(8, 8, 1, 16, 3),
        same(8, 4, 16, 32, 3),
        same(2, 28, 1, 32, 3),
        same(2, 14, 32, 64, 3),
        same(1, 40, 3, 8, 5),
    ] {
        check_convolutions(geometry, &mut rng);
    }
    // Depthwise and strided, as in mobile networks; and one whose weight is too large for separate sums in each chunk.
    let depthwise = ConvGeometry { stride: [2, 2], groups: 24, ho: 6, wo: 6, ..same(3, 12, 24, 24, 3) };
    check_convolutions(depthwise, &mut rng);
    check_convolutions(same(3, 5, 160, 170, 5), &mut rng);
}

/// Sequences are images of one row; causal padding is only before the first position.
#[test]
fn convolutions_over_positions() {
    let mut rng = Rng::new(15, 0);
    for round in 0..120 {
        let groups = any(&mut rng, &[1, 1, 2, 3]);
        let (c, f) = (groups * any(&mut rng, &[1, 2, 3, 8, 16]), groups * any(&mut rng, &[1, 3, 8, 17, 40]));
        let [k, stride, dilation] = [&[1, 2, 3, 5][..], &[1, 1, 2, 3], &[1, 1, 2, 4]].map(|list| any(&mut rng, list));
        let (w, reach) = (1 + rng.below(60), dilation * (k - 1));
        let (before, behind) = if round % 2 == 0 { (reach, 0) } else { (rng.below(4), rng.below(9)) };
        if w + before + behind <= reach {
            continue;
        }
        let wo = (w + before + behind - reach - 1) / stride + 1;
        let (kernel, stride, padding, dilation) = ([1, k], [1, stride], [0, before], [1, dilation]);
        let n = 1 + rng.below(5);
        let geometry = ConvGeometry { n, h: 1, w, c, f, kernel, stride, padding, dilation, groups, ho: 1, wo };
        check_convolutions(geometry, &mut rng);
    }
}
