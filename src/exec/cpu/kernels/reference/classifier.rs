//! A classifier with its loss and its gradients, row by row.

use super::loss::{class, is_right, log_sum_exp, row_loss, target};
use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{ClassifierCe, OpKind};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::ClassifierCe(op) => classifier_ce::<T>(args, op),
        _ => return false,
    }
    true
}

/// The operands in the order of the definition, regardless of the chunks: `dx` may share the memory of `a`.
fn classifier_ce<T: Real>(args: Args, op: &ClassifierCe) {
    use crate::ops::slot::classifier_ce as slot;
    let ClassifierCe { rows, features, classes, .. } = *op;
    let (a, b, bias): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::A), args.buf(slot::B), args.buf(slot::BIAS));
    let labels: Buf<i32> = args.buf(slot::LABELS);
    let (dx, dweight, db): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::DX), args.buf(slot::DWEIGHT), args.buf(slot::DB));
    let weight_at = |feature: usize, class: usize| match op.tied {
        true => class * features + feature,
        false => feature * classes + class,
    };
    if !op.accumulate {
        (0..features * classes).for_each(|i| dweight.put(i, T::ZERO));
    }
    if !op.accumulate_bias {
        (0..classes).for_each(|i| db.put(i, T::ZERO));
    }
    let mut scores = vec![T::ZERO; classes];
    let logits = Buf::over(&mut scores);
    let (mut sum, mut right) = (T::ZERO, T::ZERO);
    for row in 0..rows {
        let x = |feature: usize| a.get(row * features + feature);
        for class in 0..classes {
            let score = (0..features).fold(T::ZERO, |sum, i| sum + x(i) * b.get(weight_at(i, class)));
            logits.set(class, if op.bias { score + bias.get(class) } else { score });
        }
        let labels = labels.starting_at(row);
        sum = sum + row_loss(logits, labels, 0, classes, op.smoothing.get());
        right = right + T::of(f64::from(is_right(logits, labels, 0, classes)));
        let (label, (max, log_sum)) = (class(labels, 0, classes), log_sum_exp(logits, 0, classes));
        for class in 0..classes {
            let prob = (logits.get(class) - max - log_sum).exp().within(0.0, 1.0);
            let wanted = target(label, class, classes, op.smoothing.get());
            let grad = (prob - wanted) / T::of(rows as f64);
            logits.set(class, grad);
            db.put(class, db.get_or(class, T::ZERO) + grad);
            (0..features).for_each(|i| dweight.store(weight_at(i, class), x(i) * grad, true));
        }
        for i in (0..features).filter(|_| op.input_grad) {
            let grad = (0..classes).fold(T::ZERO, |sum, j| sum + logits.get(j) * b.get(weight_at(i, j)));
            dx.set(row * features + i, grad);
        }
    }
    let loss: Buf<T> = args.buf(slot::LOSS);
    loss.put(0, sum / T::of(rows as f64));
    let accuracy: Buf<T> = args.buf(slot::ACCURACY);
    accuracy.put(0, right / T::of(rows as f64));
}
