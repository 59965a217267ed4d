//! Optimizers over the flat parameter vector, the step counter and the metrics of an update.

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{self, MOST_STATES, OfKind, OpKind, Rates, Rule, with_rule};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::StepInc { .. } => step_inc::<T>(args),
        OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }) => bias_corr::<T>(args, beta1.get(), beta2.get()),
        OpKind::GradNorms(op) => grad_norms::<T>(args, op),
        OpKind::UpdateRates(op) => update_rates::<T>(args, op),
        OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) => update_metrics::<T>(args, *segments),
        _ => return with_rule!(op, R => flat_step::<T, R>(args, op)).is_some(),
    }
    true
}

/// `counter` is seed, step. A step that overflowed is not counted if `scaler` is bound.
fn step_inc<T: Real>(args: Args) {
    use crate::ops::slot::step_inc as slot;
    let counter: Buf<i64> = args.buf(slot::COUNTER);
    let prev = args.buf(slot::COUNTER_PREV).or(counter);
    let scaler: Buf<T> = args.buf(slot::SCALER);
    let is_skipped = scaler.get_or(3, T::ZERO).f64() == 1.0;
    counter.set(0, prev.get(0));
    counter.set(1, prev.get(1).wrapping_add(i64::from(!is_skipped)));
}

/// `corr = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)`, computed in f64; `t` does not count skipped steps.
fn bias_corr<T: Real>(args: Args, beta1: f64, beta2: f64) {
    use crate::ops::slot::bias_corr as slot;
    let (counter, corr): (Buf<i64>, Buf<T>) = (args.buf(slot::COUNTER), args.buf(slot::CORR));
    let skipped: Buf<T> = args.buf(slot::SKIPPED);
    let t = counter.get(1) as f64 - skipped.get_or(0, T::of(0.0)).f64();
    corr.set(0, T::of(1.0 / (1.0 - beta1.powf(t))));
    corr.set(1, T::of(1.0 / (1.0 - beta2.powf(t)).sqrt()));
}

/// The norm of each segment of the flat gradient, divided by the number of batches that it sums.
fn grad_norms<T: Real>(args: Args, op: &ops::GradNorms) {
    use crate::ops::slot::grad_norms as slot;
    let (grad, norms): (Buf<T>, Buf<T>) = (args.buf(slot::GRAD), args.buf(slot::GRAD_NORM_SEG));
    for (s, segment) in op.segments.iter().enumerate() {
        let elements = segment.start..segment.start + segment.len;
        let norm = elements.fold(T::ZERO, |sum, i| sum + grad.get(i) * grad.get(i)).sqrt();
        norms.set(s, if op.batches > 1 { norm / T::of(op.batches as f64) } else { norm });
    }
}

/// The rate of the step, the decay, and the factor of gradients; computed in f64 and rounded.
fn update_rates<T: Real>(args: Args, op: &ops::UpdateRates) {
    use crate::ops::slot::update_rates as slot;
    let (hyper, rates): (Buf<T>, Buf<T>) = (args.buf(slot::HYPER), args.buf(slot::RATES));
    let (counter, steps): (Buf<i64>, Buf<i64>) = (args.buf(slot::COUNTER), args.buf(slot::STEPS));
    let (schedule, base) = (op.schedule(), hyper.get(0));
    let total = if steps.is_bound() { steps.get(0) } else { 0 };
    let rate = if counter.is_bound() {
        T::of(schedule.rate(base.f64(), counter.get(1), total)).with_error_of(base)
    } else {
        base
    };
    rates.set(0, rate);
    rates.set(1, hyper.get(1));
    let mut scale = T::of(1.0);
    if op.clips() {
        let norms: Buf<T> = args.buf(slot::GRAD_NORM_SEG);
        let squares = (0..op.segments).fold(T::ZERO, |sum, s| sum + norms.get(s) * norms.get(s));
        let norm = squares.sqrt();
        let limit = T::of(op.clip_norm.get()) / (norm + T::of(1e-6));
        // NaN is returned unchanged.
        scale = if limit > scale { scale } else { limit };
    }
    if op.scales() {
        rates.set(2, if op.batches > 1 { scale / T::of(op.batches as f64) } else { scale });
    }
}

/// An update of the flat parameters by a rule. Elements outside the segments are not changed.
fn flat_step<T: Real, R: Rule<Step: OfKind>>(args: Args, op: &OpKind) {
    let (Some(step), Some(update)) = (R::Step::of(op), op.flat_update()) else { return };
    let slots = update.slots;
    let vector = |[before, after]: [usize; 2]| -> [Buf<T>; 2] {
        let after = args.buf(after);
        [args.buf(before).or(after), after]
    };
    let ([param_prev, param], grad): ([Buf<T>; 2], Buf<T>) = (vector(slots.param), args.buf(update.grad));
    let states: [Option<[Buf<T>; 2]>; MOST_STATES] = std::array::from_fn(|k| slots.states.get(k).copied().map(vector));
    let states = || states.iter().flatten();
    let hyper: Buf<T> = args.buf(slots.hyper);
    let corr = slots.corr.map_or([T::ZERO; 2], |corr| [0, 1].map(|i| args.buf::<T>(corr).get(i)));
    let terms = [hyper.get(1), T::ZERO].map(|wd| R::terms(step, Rates { lr: hyper.get(0), wd, corr }));
    let scale = update.options.clipped.then(|| hyper.get(2));
    let (update_max, grad_norm_seg): (Buf<T>, Buf<T>) = (args.buf(update.update_max), args.buf(update.grad_norm_seg));
    for (s, segment) in update.segments.iter().enumerate() {
        let (mut largest, mut square) = (T::ZERO, T::ZERO);
        let terms = &terms[usize::from(update.options.exempt.contains(&s))];
        for i in segment.start..segment.start + segment.len {
            let (old, g) = (param_prev.get(i), grad.get(i));
            square = square + g * g;
            let mut kept = [T::ZERO; MOST_STATES];
            kept.iter_mut().zip(states()).for_each(|(kept, [before, _])| *kept = before.get(i));
            let new = R::step(terms, old, scale.map_or(g, |scale| g * scale), &mut kept);
            kept.iter().zip(states()).for_each(|(kept, [_, after])| after.set(i, *kept));
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
