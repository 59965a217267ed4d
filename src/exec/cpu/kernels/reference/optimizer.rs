//! Optimizers over the flat parameter vector, the step counter and the metrics of an update.

use super::{Args, Buf, Real};
use crate::ops::{self, OpKind, Segment};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::StepInc { .. } => step_inc(args),
        OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }) => bias_corr::<T>(args, beta1.get(), beta2.get()),
        OpKind::AdamStep(ops::AdamStep { segments, beta1, beta2, eps, decoupled, .. }) => {
            let betas = [beta1.get(), beta2.get()];
            adam_step::<T>(args, segments, betas, eps.get(), *decoupled);
        }
        OpKind::SgdStep(ops::SgdStep { segments, momentum, nesterov, .. }) => {
            sgd_step::<T>(args, segments, momentum.get(), *nesterov);
        }
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => update_metrics::<T>(args, *segments),
        _ => return false,
    }
    true
}

/// `counter` is seed, step.
fn step_inc(args: Args) {
    use crate::ops::slot::step_inc as slot;
    let counter: Buf<i64> = args.buf(slot::COUNTER);
    let prev = args.buf(slot::COUNTER_PREV).or(counter);
    counter.set(0, prev.get(0));
    counter.set(1, prev.get(1).wrapping_add(1));
}

/// `corr = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)`, computed in f64; `t` leaves out steps that were skipped.
fn bias_corr<T: Real>(args: Args, beta1: f64, beta2: f64) {
    use crate::ops::slot::bias_corr as slot;
    let (counter, corr): (Buf<i64>, Buf<T>) = (args.buf(slot::COUNTER), args.buf(slot::CORR));
    let skipped: Buf<T> = args.buf(slot::SKIPPED);
    let t = counter.get(1) as f64 - skipped.get_or(0, T::of(0.0)).f64();
    corr.set(0, T::of(1.0 / (1.0 - beta1.powf(t))));
    corr.set(1, T::of(1.0 / (1.0 - beta2.powf(t)).sqrt()));
}

/// Elements outside the segments are left alone.
fn adam_step<T: Real>(args: Args, segments: &[Segment], betas: [f64; 2], eps: f64, decoupled: bool) {
    use crate::ops::slot::adam_step as slot;
    let (param, grad, m, v): (Buf<T>, Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::PARAM), args.buf(slot::GRAD), args.buf(slot::M), args.buf(slot::V));
    let (hyper, corr): (Buf<T>, Buf<T>) = (args.buf(slot::HYPER), args.buf(slot::CORR));
    let (param_prev, m_prev, v_prev) =
        (args.buf(slot::PARAM_PREV).or(param), args.buf(slot::M_PREV).or(m), args.buf(slot::V_PREV).or(v));
    let (update_max, grad_norm_seg): (Buf<T>, Buf<T>) = (args.buf(slot::UPDATE_MAX), args.buf(slot::GRAD_NORM_SEG));
    let (lr, wd) = (hyper.get(0), hyper.get(1));
    let [b1, b2] = betas.map(T::of);
    let [rest1, rest2] = betas.map(|beta| T::of(1.0 - beta));
    for (s, segment) in segments.iter().enumerate() {
        let (mut largest, mut square) = (T::ZERO, T::ZERO);
        for i in segment.start..segment.start + segment.len {
            let old = param_prev.get(i);
            square = square + grad.get(i) * grad.get(i);
            let g = if decoupled { grad.get(i) } else { grad.get(i) + wd * old };
            let decayed = if decoupled { old - lr * wd * old } else { old };
            let m_new = b1 * m_prev.get(i) + rest1 * g;
            let v_new = b2 * v_prev.get(i) + rest2 * g * g;
            let new = decayed - lr * corr.get(0) * m_new / (v_new.sqrt() * corr.get(1) + T::of(eps));
            m.set(i, m_new);
            v.set(i, v_new);
            param.set(i, new);
            largest = largest.larger((new - old).abs());
        }
        update_max.put(s, largest);
        grad_norm_seg.put(s, square.sqrt());
    }
}

/// The momentum buffer is bound where `momentum` is not zero. Elements outside the segments are left alone.
fn sgd_step<T: Real>(args: Args, segments: &[Segment], momentum: f64, nesterov: bool) {
    use crate::ops::slot::sgd_step as slot;
    let (param, grad, hyper): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::PARAM), args.buf(slot::GRAD), args.buf(slot::HYPER));
    let buffer: Buf<T> = args.buf(slot::MOMENTUM);
    let (param_prev, buffer_prev) = (args.buf(slot::PARAM_PREV).or(param), args.buf(slot::MOMENTUM_PREV).or(buffer));
    let (update_max, grad_norm_seg): (Buf<T>, Buf<T>) = (args.buf(slot::UPDATE_MAX), args.buf(slot::GRAD_NORM_SEG));
    let (lr, wd) = (hyper.get(0), hyper.get(1));
    for (s, segment) in segments.iter().enumerate() {
        let (mut largest, mut square) = (T::ZERO, T::ZERO);
        for i in segment.start..segment.start + segment.len {
            let old = param_prev.get(i);
            square = square + grad.get(i) * grad.get(i);
            let mut g = grad.get(i) + wd * old;
            if momentum != 0.0 {
                let moved = T::of(momentum) * buffer_prev.get(i) + g;
                buffer.set(i, moved);
                g = if nesterov { g + T::of(momentum) * moved } else { moved };
            }
            let new = old - lr * g;
            param.set(i, new);
            largest = largest.larger((new - old).abs());
        }
        update_max.put(s, largest);
        grad_norm_seg.put(s, square.sqrt());
    }
}

fn update_metrics<T: Real>(args: Args, segments: usize) {
    use crate::ops::slot::update_metrics as slot;
    let (update_max_seg, grad_norm_seg): (Buf<T>, Buf<T>) =
        (args.buf(slot::UPDATE_MAX_SEG), args.buf(slot::GRAD_NORM_SEG));
    let (update_max, grad_norm): (Buf<T>, Buf<T>) = (args.buf(slot::UPDATE_MAX), args.buf(slot::GRAD_NORM));
    if update_max_seg.is_bound() && update_max.is_bound() {
        update_max.set(0, (0..segments).fold(T::ZERO, |max, s| max.larger(update_max_seg.get(s))));
    }
    if grad_norm_seg.is_bound() && grad_norm.is_bound() {
        let square = |s: usize| grad_norm_seg.get(s) * grad_norm_seg.get(s);
        grad_norm.set(0, (0..segments).fold(T::ZERO, |sum, s| sum + square(s)).sqrt());
    }
}
