//! Optimizers over the flat parameter vector, which compute the size of the update and the gradient's norm in the same
//! pass; the step counter, bias corrections and the metrics of a step.
//!
//! The vector is processed in fixed chunks. The intersection of a chunk and a segment is a *piece*: its largest change
//! and its gradient's norm are written to the workspace, and are combined for each segment in the second phase. Norms
//! are stored instead of their squares, because a square may overflow `f32`. Segments are in rising order; the padding
//! between them is not changed.

use super::columns::flat_sums;
use super::lanes::{self, LANES, Lanes, for_isa};
use super::magnitude::{Squares, norm};
use super::pieces::{Piece, Pieces};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, MOST_STATES, Number, OfKind, OpKind, Rates, Rule, Segment, chunks::FLAT_CHUNK, with_rule};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family. Kernels for a few numbers are the same for every instruction set.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let parallel = cpu_rest::is_parallel(op, threads);
    Some(match op {
        OpKind::StepInc { .. } => KernelImpl::simple(step_inc, false),
        OpKind::BiasCorr { .. } => KernelImpl::simple(bias_corr, false),
        OpKind::UpdateMetrics { .. } => KernelImpl::simple(update_metrics, false),
        OpKind::UpdateRates(_) => KernelImpl::simple(update_rates, false),
        OpKind::GradNorms(_) => KernelImpl { phases: 2, ..KernelImpl::simple(for_isa!(isa, grad_norms), parallel) },
        _ => {
            let run = with_rule!(op, R => for_isa!(isa, flat_step, R))?;
            KernelImpl { phases: 2, ..KernelImpl::simple(run, parallel) }
        }
    })
}

/// `prev`, or `own` if the slot is unused.
fn previous<T>(prev: *const T, own: *mut T) -> *const T {
    if prev.is_null() { own } else { prev }
}

/// Slots: counter_prev, counter (seed, step).
unsafe fn step_inc(call: &Call, part: Part) {
    use crate::ops::slot::step_inc as slot;
    if part.index != 0 {
        return;
    }
    let counter = call.arg::<i64>(slot::COUNTER);
    let prev = previous(call.arg::<i64>(slot::COUNTER_PREV), counter);
    // SAFETY: a counter holds two numbers.
    unsafe {
        *counter = *prev;
        *counter.add(1) = (*prev.add(1)).wrapping_add(1);
    }
}

/// Slots: counter, corr. Computed in f64: `1 - beta^t` would lose its digits in f32 while `t` is small.
unsafe fn bias_corr(call: &Call, part: Part) {
    use crate::ops::slot::bias_corr as slot;
    let OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let (counter, corr) = (call.arg::<i64>(slot::COUNTER), call.arg::<f32>(slot::CORR));
    // SAFETY: both hold two numbers.
    unsafe {
        let step = *counter.add(1);
        *corr = (1.0 / (1.0 - power(beta1.get(), step))) as f32;
        *corr.add(1) = (1.0 / (1.0 - power(beta2.get(), step)).sqrt()) as f32;
    }
}

/// `base^exponent` by repeated squaring; 1 if the exponent is not positive.
fn power(mut base: f64, mut exponent: i64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// The contribution of a piece to the metrics: the largest change and the sum of squared gradients.
#[derive(Clone, Copy)]
struct Tally<V> {
    largest: V,
    squares: V,
}

impl<V: Lanes> Tally<V> {
    #[inline(always)]
    fn new() -> Self {
        Self { largest: V::zero(), squares: V::zero() }
    }

    /// Adds the first `n` lanes of an update from `old` to `new` by gradient `grad`.
    #[inline(always)]
    fn count(&mut self, old: V, new: V, grad: V, n: usize) {
        self.largest = self.largest.max_magnitude((new - old).abs().first(n));
        self.squares = self.squares + grad * grad;
    }
}

/// Implements the numbers of the optimizers' formulas for lanes.
macro_rules! number {
    ($Lanes:ty) => {
        impl Number for $Lanes {
            #[inline(always)]
            fn constant(value: f64) -> Self {
                Self::splat(value as f32)
            }

            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn times_square(self, x: Self) -> Self {
                self * (x * x)
            }

            #[inline(always)]
            fn sign(self) -> Self {
                let (zero, one) = (Self::zero(), Self::splat(1.0));
                let unsigned = Self::select(zero.lt(self), one, self);
                Self::select(self.lt(zero), zero - one, unsigned)
            }
        }
    };
}
number!(lanes::Portable);
#[cfg(target_arch = "x86_64")]
number!(lanes::Avx2);
#[cfg(target_arch = "x86_64")]
number!(lanes::Avx512);

/// The vectors that a rule reads and writes; as many states as the rule has.
struct Update<'a, V: Number, R: Rule> {
    grad: *const f32,
    param_prev: *const f32,
    param: *mut f32,
    states_prev: [*const f32; MOST_STATES],
    states: [*mut f32; MOST_STATES],
    /// For parameters with weight decay, and for those without.
    terms: [R::Terms<V>; 2],
    /// The segments without weight decay, in rising order.
    exempt: &'a [usize],
    /// The factor of gradients, if there is one.
    scale: Option<V>,
}

impl<V: Lanes + Number, R: Rule> Update<'_, V, R> {
    /// The terms for a segment.
    #[inline(always)]
    fn terms(&self, segment: usize) -> R::Terms<V> {
        self.terms[usize::from(self.exempt.binary_search(&segment).is_ok())]
    }

    /// Updates the `n` elements (up to 16) from `at` on with these terms; returns their old and new value and the
    /// gradient.
    ///
    /// # Safety
    /// The elements are within the parameter vector.
    #[inline(always)]
    unsafe fn update(&self, terms: &R::Terms<V>, at: usize, n: usize) -> (V, V, V) {
        // SAFETY: promised by the caller; the states that the rule has are bound.
        unsafe {
            let (old, grad) = (V::load_n(self.param_prev.add(at), n), V::load_n(self.grad.add(at), n));
            let mut kept = [V::zero(); MOST_STATES];
            for (kept, before) in kept.iter_mut().zip(&self.states_prev).take(R::STATES) {
                *kept = V::load_n(before.add(at), n);
            }
            let scaled = if let Some(scale) = self.scale { grad * scale } else { grad };
            let new = R::step(terms, old, scaled, &mut kept);
            new.store_n(self.param.add(at), n);
            for (kept, after) in kept.iter().zip(&self.states).take(R::STATES) {
                kept.store_n(after.add(at), n);
            }
            (old, new, grad)
        }
    }
}

/// The destination of an update's metrics.
struct Metrics {
    update_max: *mut f32,
    grad_norm_seg: *mut f32,
    /// The largest change and the gradient's norm of the piece of segment `s` in chunk `c`, at `2 (s + c)`. From one
    /// piece to the next, `s` or `c` or both increase, so that no two pieces have the same place.
    work: *mut f32,
}

impl Metrics {
    fn are_bound(&self) -> bool {
        !self.update_max.is_null() || !self.grad_norm_seg.is_null()
    }
}

/// Runs a rule over this part's chunks in the first phase, and combines metrics in the second.
///
/// # Safety
/// The segments are within `len` elements of the rule's vectors, and the workspace has room for a pair for each segment
/// and chunk.
#[inline(always)]
unsafe fn step<V: Lanes + Number, R: Rule>(
    rule: &Update<'_, V, R>,
    len: usize,
    segments: &[Segment],
    metrics: &Metrics,
    part: Part,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match (part.phase, metrics.are_bound()) {
            (0, true) => update_chunks::<V, R, true>(rule, len, segments, metrics, part),
            (0, false) => update_chunks::<V, R, false>(rule, len, segments, metrics, part),
            (_, true) => combine(segments, metrics, part),
            (_, false) => {}
        }
    }
}

#[inline(always)]
unsafe fn update_chunks<V: Lanes + Number, R: Rule, const TALLY: bool>(
    rule: &Update<'_, V, R>,
    len: usize,
    segments: &[Segment],
    metrics: &Metrics,
    part: Part,
) {
    for Piece { segment, chunk, from, to } in Pieces::of(segments, len, part) {
        let mut at = from;
        let mut tally = Tally::<V>::new();
        let terms = rule.terms(segment);
        // SAFETY: the piece is within its segment and thus within the vectors; its pair is within the workspace.
        unsafe {
            while at + LANES <= to {
                let (old, new, grad) = rule.update(&terms, at, LANES);
                if TALLY {
                    tally.count(old, new, grad, LANES);
                }
                at += LANES;
            }
            if at < to {
                let (old, new, grad) = rule.update(&terms, at, to - at);
                if TALLY {
                    tally.count(old, new, grad, to - at);
                }
            }
            if TALLY {
                let pair = metrics.work.add(2 * (segment + chunk));
                *pair = largest_magnitude(tally.largest.to_array());
                *pair.add(1) = norm::<V>(tally.squares.sum(), rule.grad.add(from), to - from);
            }
        }
    }
}

/// The largest of non-negative numbers; NaN if one is NaN.
#[inline(always)]
fn largest_magnitude<const N: usize>(values: [f32; N]) -> f32 {
    f32::from_bits(values.iter().fold(0, |max, value| max.max(value.to_bits())))
}

/// Combines the pieces of each segment of this part's share, in order.
///
/// # Safety
/// As for [`step`].
unsafe fn combine(segments: &[Segment], metrics: &Metrics, part: Part) {
    let (first, last) = part.range(segments.len(), LANES);
    for (s, segment) in segments.iter().enumerate().take(last).skip(first) {
        let (mut largest, mut squares) = (0.0f32, 0.0f64);
        if segment.len > 0 {
            for chunk in segment.start / FLAT_CHUNK..=(segment.start + segment.len - 1) / FLAT_CHUNK {
                // SAFETY: the first phase wrote this pair.
                let (max, norm) = unsafe {
                    let pair = metrics.work.add(2 * (s + chunk));
                    (*pair, *pair.add(1))
                };
                largest = largest_magnitude([largest, max]);
                squares += f64::from(norm) * f64::from(norm);
            }
        }
        // SAFETY: where bound, the outputs hold one number a segment.
        unsafe {
            if !metrics.update_max.is_null() {
                *metrics.update_max.add(s) = largest;
            }
            if !metrics.grad_norm_seg.is_null() {
                *metrics.grad_norm_seg.add(s) = squares.sqrt() as f32;
            }
        }
    }
}

/// An update of the flat parameters by a rule.
#[inline(always)]
unsafe fn flat_step<V: Lanes + Number, R: Rule<Step: OfKind>>(call: &Call, part: Part) {
    let (Some(operation), Some(update)) = (R::Step::of(&call.op), call.op.flat_update()) else { return };
    let slots = update.slots;
    let mut states_prev = [std::ptr::null(); MOST_STATES];
    let mut states = [std::ptr::null_mut(); MOST_STATES];
    for (k, [before, after]) in slots.states.iter().enumerate() {
        states[k] = call.arg(*after);
        states_prev[k] = previous(call.arg(*before), states[k]);
    }
    let metrics = Metrics {
        update_max: call.arg(update.update_max),
        grad_norm_seg: call.arg(update.grad_norm_seg),
        work: call.arg(update.work),
    };
    let hyper = call.arg::<f32>(slots.hyper);
    let [param_prev, param] = slots.param.map(|slot| call.arg::<f32>(slot));
    // SAFETY: rates and corrections hold two numbers each; the vectors hold `len`, in which the segments lie.
    unsafe {
        let mut corr = [V::zero(); 2];
        if let Some(slot) = slots.corr {
            let values = call.arg::<f32>(slot);
            corr = [V::splat(*values), V::splat(*values.add(1))];
        }
        let rates = |wd: f32| Rates { lr: V::splat(*hyper), wd: V::splat(wd), corr };
        let options = update.options;
        let rule = Update::<V, R> {
            grad: call.arg(update.grad),
            param_prev: previous(param_prev, param),
            param,
            states_prev,
            states,
            terms: [R::terms(operation, rates(*hyper.add(1))), R::terms(operation, rates(0.0))],
            exempt: &options.exempt,
            scale: if options.clipped { Some(V::splat(*hyper.add(2))) } else { None },
        };
        step(&rule, update.len, update.segments, &metrics, part);
    }
}

/// Slots: grad, grad_norm_seg, work. Pieces are the same as those of an update; each has a norm.
#[inline(always)]
unsafe fn grad_norms<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::grad_norms as slot;
    let OpKind::GradNorms(ops::GradNorms { len, segments, batches }) = &call.op else { return };
    let (grad, work) = (call.arg::<f32>(slot::GRAD), call.arg::<f32>(slot::WORK));
    let norms = call.arg::<f32>(slot::GRAD_NORM_SEG);
    let chunks_of = |s: &Segment| s.start / FLAT_CHUNK..=(s.start + s.len.max(1) - 1) / FLAT_CHUNK;
    if part.phase == 0 {
        for Piece { segment, chunk, from, to } in Pieces::of(segments, *len, part) {
            // SAFETY: the piece is within the gradient, and its number within the workspace.
            unsafe {
                let gradient = Squares { values: grad, factor: V::splat(1.0) };
                let [squares] = flat_sums::<V, 1, _>(&gradient, from, to - from);
                *work.add(segment + chunk) = norm::<V>(squares, grad.add(from), to - from);
            }
        }
    } else {
        let (first, last) = part.range(segments.len(), LANES);
        for (s, segment) in segments.iter().enumerate().take(last).skip(first).filter(|(_, s)| s.len > 0) {
            let square = |chunk: usize| {
                // SAFETY: the first phase wrote this number.
                let norm = f64::from(unsafe { *work.add(s + chunk) });
                norm * norm
            };
            let norm = chunks_of(segment).map(square).sum::<f64>().sqrt() / *batches as f64;
            // SAFETY: the output holds one number a segment.
            unsafe { *norms.add(s) = norm as f32 };
        }
    }
}

/// Slots: hyper, counter, steps, grad_norm_seg, rates. Computed in f64 and rounded.
unsafe fn update_rates(call: &Call, part: Part) {
    use crate::ops::slot::update_rates as slot;
    let OpKind::UpdateRates(op) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let (hyper, rates) = (call.arg::<f32>(slot::HYPER), call.arg::<f32>(slot::RATES));
    let (counter, steps) = (call.arg::<i64>(slot::COUNTER), call.arg::<i64>(slot::STEPS));
    let norms = call.arg::<f32>(slot::GRAD_NORM_SEG);
    // SAFETY: the bound inputs and the output hold as many numbers as the operation says.
    unsafe {
        let total = if steps.is_null() { 0 } else { *steps };
        let rate = |counter: *const i64| op.schedule().rate(f64::from(*hyper), *counter.add(1), total) as f32;
        *rates = if counter.is_null() { *hyper } else { rate(counter) };
        *rates.add(1) = *hyper.add(1);
        if op.scales() {
            let square = |s: usize| f64::from(*norms.add(s)) * f64::from(*norms.add(s));
            let norm = (0..op.segments).map(square).sum::<f64>().sqrt();
            *rates.add(2) = op.scale(norm) as f32;
        }
    }
}

/// Slots: update_max_seg, grad_norm_seg, update_max, grad_norm; either pair may be unused.
unsafe fn update_metrics(call: &Call, part: Part) {
    use crate::ops::slot::update_metrics as slot;
    let OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let (max_seg, norm_seg) = (call.arg::<f32>(slot::UPDATE_MAX_SEG), call.arg::<f32>(slot::GRAD_NORM_SEG));
    let (update_max, grad_norm) = (call.arg::<f32>(slot::UPDATE_MAX), call.arg::<f32>(slot::GRAD_NORM));
    // SAFETY: the bound inputs hold one number a segment, the outputs one.
    unsafe {
        if !max_seg.is_null() && !update_max.is_null() {
            *update_max = (0..segments).fold(0.0, |max, s| largest_magnitude([max, *max_seg.add(s)]));
        }
        if !norm_seg.is_null() && !grad_norm.is_null() {
            let square = |s: usize| f64::from(*norm_seg.add(s)) * f64::from(*norm_seg.add(s));
            *grad_norm = (0..segments).fold(0.0, |sum, s| sum + square(s)).sqrt() as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_by_squaring_agree_with_the_standard_library() {
        for (base, exponent) in [(0.9f64, 1), (0.999, 1_000), (0.9, 0), (0.999, 7_777)] {
            let expected = base.powi(exponent);
            assert!((power(base, exponent.into()) - expected).abs() <= 1e-13 * expected);
        }
    }
}
