//! Losses that are the mean of a function of each output and its target.

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::model::losses::PointFn;
use crate::ops::{self, OpKind};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::PointLoss(ops::PointLoss { func, delta, len }) => {
            use crate::ops::slot::point_loss as slot;
            let (y, target, loss): (Buf<T>, Buf<T>, Buf<T>) =
                (args.buf(slot::Y), args.buf(slot::TARGET), args.buf(slot::LOSS));
            loss.set(0, mean(*func, delta.get(), (y, target), *len));
        }
        OpKind::PointLossGrad(ops::PointLossGrad { func, delta, len }) => {
            use crate::ops::slot::point_loss_grad as slot;
            let (y, target) = (args.buf(slot::Y), args.buf(slot::TARGET));
            gradient::<T>(*func, delta.get(), (y, target), args.buf(slot::DY), *len);
        }
        OpKind::PointLossFused(ops::PointLossFused { func, delta, len }) => {
            use crate::ops::slot::point_loss_fused as slot;
            let (y, target): (Buf<T>, Buf<T>) = (args.buf(slot::Y), args.buf(slot::TARGET));
            let (loss, score): (Buf<T>, Buf<T>) = (args.buf(slot::LOSS), args.buf(slot::ACCURACY));
            loss.put(0, mean(*func, delta.get(), (y, target), *len));
            score.put(0, accuracy(y, target, *len));
            // Written last, because it may share the memory of the outputs.
            let dy: Buf<T> = args.buf(slot::DY);
            if dy.is_bound() {
                gradient(*func, delta.get(), (y, target), dy, *len);
            }
        }
        OpKind::BinaryAccuracy(ops::BinaryAccuracy { len }) => {
            use crate::ops::slot::binary_accuracy as slot;
            let score: Buf<T> = args.buf(slot::ACCURACY);
            score.set(0, accuracy::<T>(args.buf(slot::Y), args.buf(slot::TARGET), *len));
        }
        _ => return false,
    }
    true
}

fn value<T: Real>(func: PointFn, y: T, t: T, delta: f64) -> T {
    match func {
        PointFn::BinaryCrossEntropy => y.larger(T::ZERO) - y * t + y.abs().ln_1p_exp_neg(),
        PointFn::L1 => (y - t).abs(),
        PointFn::Huber => {
            let (distance, half, delta) = ((y - t).abs(), T::of(0.5), T::of(delta));
            if distance <= delta { half * distance * distance } else { delta * (distance - half * delta) }
        }
    }
}

fn slope<T: Real>(func: PointFn, y: T, t: T, delta: f64) -> T {
    match func {
        PointFn::BinaryCrossEntropy => y.sigmoid() - t,
        PointFn::L1 => (y - t).signum_or_zero(),
        PointFn::Huber => (y - t).clamped(delta),
    }
}

fn mean<T: Real>(func: PointFn, delta: f64, (y, target): (Buf<T>, Buf<T>), len: usize) -> T {
    (0..len).fold(T::ZERO, |sum, i| sum + value(func, y.get(i), target.get(i), delta)) / T::of(len as f64)
}

/// `dy` may share the memory of `y`.
fn gradient<T: Real>(func: PointFn, delta: f64, (y, target): (Buf<T>, Buf<T>), dy: Buf<T>, len: usize) {
    for i in 0..len {
        dy.set(i, T::of(1.0 / len as f64) * slope(func, y.get(i), target.get(i), delta));
    }
}

fn accuracy<T: Real>(y: Buf<T>, target: Buf<T>, len: usize) -> T {
    let is_right = |i: &usize| if target.get(*i) > T::of(0.5) { y.get(*i) > T::ZERO } else { y.get(*i) <= T::ZERO };
    T::of((0..len).filter(is_right).count() as f64 / len as f64)
}
