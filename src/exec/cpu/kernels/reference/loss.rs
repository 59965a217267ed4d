//! Losses, their gradients and the accuracy.

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{self, OpKind};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing }) => {
            softmax_ce::<T>(args, *rows, *classes, smoothing.get())
        }
        OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }) => {
            softmax_ce_grad::<T>(args, *rows, *classes, smoothing.get());
        }
        OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing, parts }) => {
            softmax_ce_fused::<T>(args, [*rows, *parts], *classes, smoothing.get());
        }
        OpKind::LossMean(ops::LossMean { rows }) => loss_mean::<T>(args, *rows),
        OpKind::Accuracy(ops::Accuracy { rows, classes }) => accuracy::<T>(args, *rows, *classes),
        OpKind::Mse(ops::Mse { len }) => mse::<T>(args, *len),
        OpKind::MseGrad(ops::MseGrad { len }) => mse_grad::<T>(args, *len),
        OpKind::MseFused(ops::MseFused { len }) => mse_fused::<T>(args, *len),
        _ => return false,
    }
    true
}

/// The class of a row, if its label is valid.
pub(super) fn class(labels: Buf<i32>, row: usize, classes: usize) -> Option<usize> {
    usize::try_from(labels.get(row)).ok().filter(|&label| label < classes)
}

/// The target probability of class `col`: `(1 - smoothing) [col is the label] + smoothing / classes`; NaN if the label
/// is not a valid class.
pub(super) fn target<T: Real>(label: Option<usize>, col: usize, classes: usize, smoothing: f64) -> T {
    let own = label.map_or(f64::NAN, |label| if label == col { 1.0 } else { 0.0 });
    T::of((1.0 - smoothing) * own + smoothing / classes as f64)
}

/// The largest of a row and the logarithm of the sum of `exp(logit - largest)`.
pub(super) fn log_sum_exp<T: Real>(logits: Buf<T>, row: usize, classes: usize) -> (T, T) {
    let row_of = |col: usize| logits.get(row * classes + col);
    let max = (1..classes).fold(row_of(0), |max, col| if row_of(col) > max { row_of(col) } else { max });
    // None of the terms is above 1, and one of them is 1.
    let term = |col: usize| (row_of(col) - max).exp().within(0.0, 1.0);
    let sum = (0..classes).fold(T::ZERO, |sum, col| sum + term(col));
    (max, sum.ln().within(0.0, (classes as f64).ln()))
}

/// `- sum over classes of target * log probability` of one row; NaN if the label is not a valid class.
pub(super) fn row_loss<T: Real>(logits: Buf<T>, labels: Buf<i32>, row: usize, classes: usize, smoothing: f64) -> T {
    let (max, log_sum) = log_sum_exp(logits, row, classes);
    let relative = |col: usize| logits.get(row * classes + col) - max;
    let own = class(labels, row, classes).map_or(T::of(f64::NAN), relative);
    let mut loss = log_sum - T::of(1.0 - smoothing) * own;
    if smoothing != 0.0 {
        let sum = (0..classes).fold(T::ZERO, |sum, col| sum + relative(col));
        loss = loss - T::of(smoothing / classes as f64) * sum;
    }
    loss
}

/// Whether the first of the largest scores is at the label. False if a score of the row is NaN.
pub(super) fn is_right<T: Real>(scores: Buf<T>, labels: Buf<i32>, row: usize, classes: usize) -> bool {
    let score = |col: usize| scores.get(row * classes + col);
    class(labels, row, classes).is_some_and(|label| {
        (0..label).all(|col| score(col) < score(label)) && (label..classes).all(|col| score(col) <= score(label))
    })
}

/// `logits`, `probs [rows, classes]` (may be one buffer), `labels`, `row_loss [rows]`.
fn softmax_ce<T: Real>(args: Args, rows: usize, classes: usize, smoothing: f64) {
    use crate::ops::slot::softmax_ce as slot;
    let (logits, labels): (Buf<T>, Buf<i32>) = (args.buf(slot::LOGITS), args.buf(slot::LABELS));
    let (row_losses, probs): (Buf<T>, Buf<T>) = (args.buf(slot::ROW_LOSS), args.buf(slot::PROBS));
    for row in 0..rows {
        row_losses.put(row, row_loss(logits, labels, row, classes, smoothing));
        let (max, log_sum) = log_sum_exp(logits, row, classes);
        for i in row * classes..(row + 1) * classes {
            probs.put(i, (logits.get(i) - max - log_sum).exp().within(0.0, 1.0));
        }
    }
}

/// `dlogits = (probs - target) / rows`; `dlogits` may share the memory of `probs`.
fn softmax_ce_grad<T: Real>(args: Args, rows: usize, classes: usize, smoothing: f64) {
    use crate::ops::slot::softmax_ce_grad as slot;
    let (probs, labels, dlogits): (Buf<T>, Buf<i32>, Buf<T>) =
        (args.buf(slot::PROBS), args.buf(slot::LABELS), args.buf(slot::DLOGITS));
    for row in 0..rows {
        let label = class(labels, row, classes);
        for col in 0..classes {
            let i = row * classes + col;
            dlogits.set(i, (probs.get(i) - target(label, col, classes, smoothing)) / T::of(rows as f64));
        }
    }
}

/// Mean loss, accuracy and gradient of `logits [rows, classes]`; `dlogits` may share the memory of `logits`.
fn softmax_ce_fused<T: Real>(args: Args, [rows, parts]: [usize; 2], classes: usize, smoothing: f64) {
    use crate::ops::slot::softmax_ce_fused as slot;
    let (logits, labels, dlogits): (Buf<T>, Buf<i32>, Buf<T>) =
        (args.buf(slot::LOGITS), args.buf(slot::LABELS), args.buf(slot::DLOGITS));
    let (loss, accuracy): (Buf<T>, Buf<T>) = (args.buf(slot::LOSS), args.buf(slot::ACCURACY));
    let (mut sum, mut right) = (T::ZERO, T::ZERO);
    for row in 0..rows {
        sum = sum + row_loss(logits, labels, row, classes, smoothing);
        right = right + T::of(f64::from(is_right(logits, labels, row, classes)));
        if dlogits.is_bound() {
            let label = class(labels, row, classes);
            let (max, log_sum) = log_sum_exp(logits, row, classes);
            for col in 0..classes {
                let i = row * classes + col;
                let prob = (logits.get(i) - max - log_sum).exp().within(0.0, 1.0);
                let all = (rows * parts) as f64;
                dlogits.set(i, (prob - target(label, col, classes, smoothing)) / T::of(all));
            }
        }
    }
    loss.put(0, sum / T::of(rows as f64));
    accuracy.put(0, right / T::of(rows as f64));
}

fn loss_mean<T: Real>(args: Args, rows: usize) {
    use crate::ops::slot::loss_mean as slot;
    let (row_losses, loss): (Buf<T>, Buf<T>) = (args.buf(slot::ROW_LOSS), args.buf(slot::LOSS));
    let sum = (0..rows).fold(T::ZERO, |sum, row| sum + row_losses.get(row));
    loss.set(0, sum / T::of(rows as f64));
}

fn accuracy<T: Real>(args: Args, rows: usize, classes: usize) {
    use crate::ops::slot::accuracy as slot;
    let (scores, labels, accuracy): (Buf<T>, Buf<i32>, Buf<T>) =
        (args.buf(slot::SCORES), args.buf(slot::LABELS), args.buf(slot::ACCURACY));
    let right = (0..rows).filter(|&row| is_right(scores, labels, row, classes)).count();
    accuracy.set(0, T::of(right as f64 / rows as f64));
}

fn mse<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::mse as slot;
    let (y, target, loss): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::Y), args.buf(slot::TARGET), args.buf(slot::LOSS));
    loss.set(0, mean_square(y, target, len));
}

fn mean_square<T: Real>(y: Buf<T>, target: Buf<T>, len: usize) -> T {
    let error = |i: usize| y.get(i) - target.get(i);
    (0..len).fold(T::ZERO, |sum, i| sum + error(i) * error(i)) / T::of(len as f64)
}

/// `dy` may share the memory of `y`.
fn mse_grad<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::mse_grad as slot;
    let (y, target, dy): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::Y), args.buf(slot::TARGET), args.buf(slot::DY));
    for i in 0..len {
        dy.set(i, T::of(2.0 / len as f64) * (y.get(i) - target.get(i)));
    }
}

/// [`mse`] and [`mse_grad`]; `dy` may share the memory of `y`.
fn mse_fused<T: Real>(args: Args, len: usize) {
    use crate::ops::slot::mse_fused as slot;
    let (y, target, dy, loss): (Buf<T>, Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::Y), args.buf(slot::TARGET), args.buf(slot::DY), args.buf(slot::LOSS));
    loss.put(0, mean_square(y, target, len));
    if dy.is_bound() {
        mse_grad::<T>(args, len);
    }
}
