//! Faults in normalisations, pooling, dropout and sums.

use super::{CLASSES, Fault, IMAGES, kernel, moved, scaled, swapped, with_step};
use stepgraph::exec::cpu::plant::Faulty;
use stepgraph::ops::{self, OpKind, PoolGeometry, Scalar};

fn rows(f: &Faulty<'_>) -> usize {
    match f.op() {
        OpKind::BatchNorm(ops::BatchNorm { rows, .. }) | OpKind::BatchNormBwd(ops::BatchNormBwd { rows, .. }) => *rows,
        other => panic!("{} is no batch normalisation", other.name()),
    }
}

fn pool(f: &Faulty<'_>) -> PoolGeometry {
    match f.op() {
        OpKind::AvgPool(ops::AvgPool { geometry }) | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }) => *geometry,
        other => panic!("{} takes no means", other.name()),
    }
}

/// The running variance of the biased variance of the batch.
fn biased_variance(f: &Faulty<'_>) {
    let OpKind::BatchNorm(ops::BatchNorm { momentum, .. }) = f.op() else { return };
    let (before, rows) = (f.get("var_prev"), rows(f) as f32);
    let keep = 1.0 - momentum.get() as f32;
    f.run();
    f.edit("running_var", |v| {
        for (v, before) in v.iter_mut().zip(before) {
            *v = keep * before + (*v - keep * before) * (rows - 1.0) / rows;
        }
    });
}

/// The batch's deviation from its unbiased variance.
fn unbiased_deviation(f: &Faulty<'_>) {
    let rows = rows(f) as f32;
    scaled(f, "rstd", ((rows - 1.0) / rows).sqrt());
}

/// The statistics for evaluations do not change.
fn stale(f: &Faulty<'_>, slot: &str) {
    let before = f.bytes(slot);
    f.run();
    f.set_bytes(slot, &before);
}

/// The gradient without the part through the batch's mean.
fn without_mean(f: &Faulty<'_>) {
    f.run();
    let OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, .. }) = *f.op() else { return };
    let (gamma, rstd, dbeta) = (f.get("gamma"), f.get("rstd"), f.get("dbeta"));
    f.edit("dx", |dx| {
        for (i, v) in dx.iter_mut().enumerate() {
            let c = i % channels;
            *v += gamma.get(c).copied().unwrap_or(1.0) * rstd[c] * dbeta.get(c).copied().unwrap_or(1.0) / rows as f32;
        }
    });
}

pub fn table() -> Vec<Fault> {
    [normalisations(), pools(), dropout_and_sums()].into_iter().flatten().collect()
}

fn normalisations() -> Vec<Fault> {
    vec![
        kernel("the running variance is of the biased one", CLASSES, "batch_norm", biased_variance),
        kernel("a batch's deviation is of the unbiased variance", CLASSES, "batch_norm", unbiased_deviation),
        kernel("the running mean is stale", CLASSES, "batch_norm", |f| stale(f, "running_mean")),
        kernel("the running variance is stale", IMAGES, "batch_norm", |f| stale(f, "running_var")),
        kernel("the momentum of running statistics is turned round", CLASSES, "batch_norm", |f| {
            let turned = |op: &mut OpKind| {
                if let OpKind::BatchNorm(ops::BatchNorm { momentum, .. }) = op {
                    *momentum = Scalar::new(1.0 - momentum.get());
                }
            };
            // SAFETY: sizes stay as they are.
            unsafe { f.run_as(turned) };
        }),
        kernel("an element of a normalisation's input is off", CLASSES, "batch_norm", |f| {
            f.run_with("x", |x| x[0] += 0.5)
        }),
        kernel("a normalisation's gradient leaves the mean out", CLASSES, "batch_norm_bwd", without_mean),
        kernel("gradients of scale and shift are exchanged", CLASSES, "batch_norm_bwd", |f| {
            swapped(f, "dgamma", "dbeta")
        }),
        kernel("a normalisation's gradient uses another mean", IMAGES, "batch_norm_bwd", |f| {
            f.run_with("mean", |mean| mean.rotate_right(1));
        }),
        kernel("a row's deviation leaves out its last element", CLASSES, "layer_norm", |f| {
            let OpKind::LayerNorm(ops::LayerNorm { cols, .. }) = *f.op() else { return };
            f.run_with("x", |x| x.chunks_mut(cols).for_each(|row| row[cols - 1] = row[cols - 2]));
        }),
        kernel("a layer normalisation's scale is left out of the gradient", CLASSES, "layer_norm_bwd", |f| {
            f.run_with("gamma", |gamma| gamma.iter_mut().for_each(|v| *v *= 1.5));
        }),
        kernel("a layer normalisation's gradient lacks a row", CLASSES, "layer_norm_bwd", |f| {
            let fewer = |op: &mut OpKind| {
                if let OpKind::LayerNormBwd(ops::LayerNormBwd { rows, .. }) = op {
                    *rows -= 1;
                }
            };
            // SAFETY: fewer rows are read and written.
            unsafe { f.run_as(fewer) };
        }),
    ]
}

fn pools() -> Vec<Fault> {
    vec![
        kernel("a maximum's place is off by one", IMAGES, "max_pool", |f| {
            f.run();
            let mut index = f.bytes("index");
            // In the middle of an image, where every position of the window exists.
            let middle = index.len() / 2 + 30;
            index[middle] ^= 1;
            f.set_bytes("index", &index);
        }),
        kernel("a maximum takes its neighbour's window", IMAGES, "max_pool", |f| moved(f, "y", 6)),
        kernel("a maximum's gradient goes to a neighbour", IMAGES, "max_pool_bwd", |f| moved(f, "dx", 6)),
        kernel("a mean at the edge leaves padding out", IMAGES, "avg_pool", |f| {
            let size = pool(f).size;
            f.run();
            f.edit("y", |y| y.iter_mut().take(6).for_each(|v| *v *= (size[0] * size[1]) as f32 / 2.0));
        }),
        kernel("a mean's gradient is a sum's", IMAGES, "avg_pool_bwd", |f| {
            let size = pool(f).size;
            scaled(f, "dx", (size[0] * size[1]) as f32);
        }),
        kernel("the mean over an image is its sum", IMAGES, "global_avg_pool", |f| {
            let OpKind::GlobalAvgPool(ops::GlobalAvgPool { hw, .. }) = *f.op() else { return };
            scaled(f, "y", hw as f32);
        }),
        kernel("the mean's gradient lacks the last pixel", IMAGES, "global_avg_pool_bwd", |f| {
            f.run();
            f.edit("dx", |dx| dx.iter_mut().rev().take(6).for_each(|v| *v = 0.0));
        }),
    ]
}

fn dropout_and_sums() -> Vec<Fault> {
    vec![
        kernel("every step has the mask of the first", CLASSES, "dropout", |f| with_step(f, |_| 0)),
        kernel("a mask is of the step before", CLASSES, "dropout", |f| with_step(f, |step| step - 1)),
        kernel("what dropout keeps is not scaled", CLASSES, "dropout", |f| scaled(f, "y", 0.75)),
        kernel("dropout's gradient is not scaled", CLASSES, "dropout_bwd", |f| scaled(f, "dx", 0.75)),
        kernel("dropout's gradient ignores the mask", CLASSES, "dropout_bwd", |f| {
            let before = f.bytes("mask");
            f.set_bytes("mask", &vec![0xff; before.len()]);
            f.run();
            f.set_bytes("mask", &before);
        }),
        kernel("a residual sum leaves out its second part", CLASSES, "add", |f| {
            let a = f.get("a");
            f.run();
            f.set("y", &a);
        }),
    ]
}
