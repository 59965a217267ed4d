//! Faults in products and convolutions.

use super::{CLASSES, Fault, IMAGES, VALUES, kernel, moved, scaled};
use stepgraph::exec::cpu::plant::Faulty;
use stepgraph::model::Activation;
use stepgraph::ops::{self, ConvGeometry, Gemm, OpKind};

fn gemm(op: &OpKind) -> Gemm {
    match op {
        OpKind::Gemm(gemm) => *gemm,
        other => panic!("{} is no product", other.name()),
    }
}

fn geometry(op: &mut OpKind) -> &mut ConvGeometry {
    match op {
        OpKind::Conv2d(ops::Conv2d { geometry, .. })
        | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, .. })
        | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, .. }) => geometry,
        other => panic!("{} is no convolution", other.name()),
    }
}

/// Runs the kernel for smaller or other dimensions.
fn as_other(f: &Faulty<'_>, change: impl FnOnce(&mut Gemm)) {
    let change = |op: &mut OpKind| {
        if let OpKind::Gemm(gemm) = op {
            change(gemm);
        }
    };
    // SAFETY: every fault below leaves sizes as they are or makes them smaller.
    unsafe { f.run_as(change) };
}

/// Runs the kernel of another convolution that accesses no more than the original one.
fn as_other_window(f: &Faulty<'_>, change: impl FnOnce(&mut ConvGeometry)) {
    // SAFETY: every fault below makes strides, dilation or the number of samples smaller: no index grows.
    unsafe { f.run_as(|op| change(geometry(op))) };
}

fn add_bias_again(f: &Faulty<'_>) {
    f.run();
    if f.has("bias") {
        let bias = f.get("bias");
        f.edit("c", |c| c.iter_mut().zip(bias.iter().cycle()).for_each(|(c, b)| *c += b + 0.01));
    }
}

fn transpose(f: &Faulty<'_>) {
    f.run();
    let Gemm { m, n, .. } = gemm(f.op());
    let c = f.get("c");
    let at = |i: usize| c[i % n * n + i / n];
    if m == n {
        f.set("c", &(0..c.len()).map(at).collect::<Vec<f32>>());
    }
}

/// Sums only some of the terms of each product: the last terms of `k` are left out.
fn leave_last_term_out(f: &Faulty<'_>) {
    let Gemm { m, n, k, .. } = gemm(f.op());
    let (a, b, before) = (f.get("a"), f.get("b"), f.get("c_prev"));
    f.run();
    // The factors of a weight's gradient are [k, m] and [k, n].
    f.edit("c", |c| {
        for (i, c) in c.iter_mut().enumerate() {
            *c -= a[(k - 1) * m + i / n] * b[(k - 1) * n + i % n];
        }
    });
    drop(before);
}

pub fn table() -> Vec<Fault> {
    [matrix_products(), convolutions()].into_iter().flatten().collect()
}

fn matrix_products() -> Vec<Fault> {
    vec![
        kernel("a product has the wrong sign", CLASSES, "gemm", |f| scaled(f, "c", -1.0)),
        kernel("a weight's gradient is transposed", CLASSES, "gemm_tn", transpose),
        kernel("a weight's gradient lacks the last sample", VALUES, "gemm_tn", leave_last_term_out),
        kernel("a product lacks its last row", CLASSES, "gemm", |f| as_other(f, |g| g.m -= 1)),
        kernel("an input's gradient lacks its last row", VALUES, "gemm_nt", |f| as_other(f, |g| g.m -= 1)),
        kernel("a product's rows are read one element too short", CLASSES, "gemm", |f| {
            as_other(f, |g| g.k = (g.k - 1).max(1));
        }),
        kernel("a bias is added twice", CLASSES, "gemm", add_bias_again),
        kernel("a bias is left out", VALUES, "gemm", |f| as_other(f, |g| g.epilogue.bias = false)),
        kernel("the derivative of another activation", CLASSES, "gemm_nt", |f| {
            as_other(f, |g| g.epilogue.act_grad = g.epilogue.act_grad.map(|_| Activation::LeakyRelu));
        }),
        kernel("an activation is left out", VALUES, "gemm", |f| as_other(f, |g| g.epilogue.act = None)),
        kernel("a shared weight's gradients are not added up", VALUES, "gemm_tn", |f| {
            as_other(f, |g| g.accumulate = false);
        }),
        kernel("a gradient is added to what was in memory", CLASSES, "gemm_tn", |f| {
            as_other(f, |g| g.accumulate = true);
        }),
        kernel("a product leaves its last column as it was", CLASSES, "gemm", |f| {
            let n = gemm(f.op()).n;
            let before = f.get("c");
            f.run();
            f.edit("c", |c| c.iter_mut().zip(before).skip(n - 1).step_by(n).for_each(|(c, old)| *c = old));
        }),
        kernel("a bias's gradient lacks its last row", CLASSES, "reduce_sum", |f| {
            let fewer = |op: &mut OpKind| {
                if let OpKind::BiasGrad(ops::BiasGrad { rows, .. }) = op {
                    *rows -= 1;
                }
            };
            // SAFETY: fewer rows are read.
            unsafe { f.run_as(fewer) };
        }),
        kernel("a bias's gradient is a mean", VALUES, "reduce_sum", |f| {
            let OpKind::BiasGrad(ops::BiasGrad { rows, .. }) = f.op() else { return };
            scaled(f, "db", 1.0 / *rows as f32);
        }),
    ]
}

fn convolutions() -> Vec<Fault> {
    vec![
        kernel("a convolution's image is a column too far", IMAGES, "conv2d", |f| {
            let mut op = f.op().clone();
            let channels = geometry(&mut op).f;
            moved(f, "c", channels);
        }),
        kernel("dilation is left out", IMAGES, "conv2d", |f| as_other_window(f, |g| g.dilation = [1, 1])),
        kernel("a stride is left out", IMAGES, "conv2d", |f| as_other_window(f, |g| g.stride = [1, 1])),
        kernel("each group has its neighbour's filters", IMAGES, "conv2d", |f| {
            let mut op = f.op().clone();
            let each = geometry(&mut op).f / geometry(&mut op).groups;
            f.run_with("b", |filters| filters.rotate_right(each));
        }),
        kernel("a convolution lacks its last sample", IMAGES, "conv2d", |f| as_other_window(f, |g| g.n -= 1)),
        kernel("an input's gradient has its filter turned round", IMAGES, "conv2d_bwd_x", |f| {
            let mut op = f.op().clone();
            let g = *geometry(&mut op);
            let tap = g.c / g.groups * g.f;
            f.run_with("b", |b| *b = b.chunks(tap).rev().flatten().copied().collect());
        }),
        kernel("an input's gradient leaves dilation out", IMAGES, "conv2d_bwd_x", |f| {
            as_other_window(f, |g| g.dilation = [1, 1]);
        }),
        kernel("a filter's gradient lacks the last sample", IMAGES, "conv2d_bwd_w", |f| {
            as_other_window(f, |g| g.n -= 1)
        }),
        kernel("a filter's gradient lacks a tap", IMAGES, "conv2d_bwd_w", |f| {
            let mut op = f.op().clone();
            let g = *geometry(&mut op);
            f.run();
            let tap = g.c / g.groups * g.f;
            f.edit("c", |c| c.iter_mut().rev().take(tap).for_each(|v| *v = 0.0));
        }),
        kernel("a filter's gradient is scaled by the batch", IMAGES, "conv2d_bwd_w", |f| scaled(f, "c", 0.2)),
    ]
}
