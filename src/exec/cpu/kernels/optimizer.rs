//! Optimizers over the flat parameter vector, with the size of the update and the gradient's norm in the same pass; the
//! step counter, bias corrections and the metrics of a step.
//!
//! The vector is worked on in fixed chunks. Where a chunk meets a segment is a *piece*: its largest change and its
//! gradient's norm go to the workspace, and are combined segment by segment in the second phase. A norm is finite in
//! `f32` wherever the gradient is of a size that it can have, which its square is not. Segments lie in rising order;
//! padding between them is left alone.

use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::lower::{OpKind, Segment};
use crate::ops;
use crate::select::cpu_rest::FLAT_CHUNK;
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family. Those that handle a few numbers are the same for every instruction set.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let parallel = cpu_rest::is_parallel(op, threads);
    Some(match op {
        OpKind::StepInc => KernelImpl::simple(step_inc, false),
        OpKind::BiasCorr { .. } => KernelImpl::simple(bias_corr, false),
        OpKind::AdamStep(ops::AdamStep { decoupled, .. }) => {
            let run = if *decoupled { for_isa!(isa, adam_step, true) } else { for_isa!(isa, adam_step, false) };
            KernelImpl { phases: 2, ..KernelImpl::simple(run, parallel) }
        }
        OpKind::SgdStep(ops::SgdStep { momentum, nesterov, .. }) => {
            let run = match (momentum.get() != 0.0, *nesterov) {
                (false, _) => for_isa!(isa, sgd_step, false, false),
                (true, false) => for_isa!(isa, sgd_step, true, false),
                (true, true) => for_isa!(isa, sgd_step, true, true),
            };
            KernelImpl { phases: 2, ..KernelImpl::simple(run, parallel) }
        }
        OpKind::UpdateMetrics { .. } => KernelImpl::simple(update_metrics, false),
        _ => return None,
    })
}

/// `prev`, or `own` where the slot is unused.
fn previous<T>(prev: *const T, own: *mut T) -> *const T {
    if prev.is_null() { own } else { prev }
}

/// Slots: counter_prev, counter (seed, step).
unsafe fn step_inc(call: &Call, part: Part) {
    if part.index != 0 {
        return;
    }
    let counter = call.arg::<i64>(1);
    let prev = previous(call.arg::<i64>(0), counter);
    // SAFETY: a counter holds two numbers.
    unsafe {
        *counter = *prev;
        *counter.add(1) = (*prev.add(1)).wrapping_add(1);
    }
}

/// Slots: counter, corr. Computed in f64: `1 - beta^t` would lose its digits in f32 while `t` is small.
unsafe fn bias_corr(call: &Call, part: Part) {
    let OpKind::BiasCorr(ops::BiasCorr { beta1, beta2 }) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let (counter, corr) = (call.arg::<i64>(0), call.arg::<f32>(1));
    // SAFETY: both hold two numbers.
    unsafe {
        let step = *counter.add(1);
        *corr = (1.0 / (1.0 - power(beta1.get(), step))) as f32;
        *corr.add(1) = (1.0 / (1.0 - power(beta2.get(), step)).sqrt()) as f32;
    }
}

/// `base^exponent` by repeated squaring; 1 where the exponent is not positive.
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

/// What a piece adds to the metrics: the largest change and the sum of squared gradients.
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

    /// Counts the first `n` lanes of an update from `old` to `new` by gradient `grad`.
    #[inline(always)]
    fn count(&mut self, old: V, new: V, grad: V, n: usize) {
        self.largest = self.largest.max_magnitude((new - old).abs().first(n));
        self.squares = self.squares + grad * grad;
    }
}

/// A rule by which elements are updated.
trait Rule<V: Lanes> {
    /// Updates the `n` elements (up to 16) from `at` on; gives their old and new value and the gradient.
    ///
    /// # Safety
    /// The elements lie within the parameter vector.
    unsafe fn update(&self, at: usize, n: usize) -> (V, V, V);

    /// The gradient, of as many elements as the parameter vector.
    fn grad(&self) -> *const f32;
}

/// The sums of squares that `f32` adds up without squares that are lost above or below its range.
const SOUND_SQUARES: std::ops::RangeInclusive<f32> = 1e-30..=f32::MAX;

/// The square root of the sum of the squares of `len` numbers, whose sum in `f32` was `squares`.
///
/// # Safety
/// `len` numbers can be read at `values`.
#[inline(always)]
unsafe fn norm(squares: f32, values: *const f32, len: usize) -> f32 {
    // SAFETY: promised by the caller.
    if SOUND_SQUARES.contains(&squares) { squares.sqrt() } else { unsafe { wide_norm(values, len) } }
}

/// As [`norm`], in `f64`, which no square of an `f32` leaves.
///
/// # Safety
/// As for [`norm`].
#[cold]
unsafe fn wide_norm(values: *const f32, len: usize) -> f32 {
    // SAFETY: promised by the caller.
    let values = unsafe { std::slice::from_raw_parts(values, len) };
    let mut lanes = [0.0f64; LANES];
    for stretch in values.chunks(LANES) {
        for (lane, value) in lanes.iter_mut().zip(stretch) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    lanes.iter().sum::<f64>().sqrt() as f32
}

/// Where the metrics of an update go.
struct Metrics {
    update_max: *mut f32,
    grad_norm_seg: *mut f32,
    /// The largest change and the gradient's norm of the piece of segment `s` in chunk `c`, at `2 (s + c)`. From piece to piece, `s` or `c`
    /// or both move on, so no two pieces meet.
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
/// The segments lie within `len` elements of the rule's vectors, the workspace holds a pair for each segment and chunk.
#[inline(always)]
unsafe fn step<V: Lanes, R: Rule<V>>(rule: &R, len: usize, segments: &[Segment], metrics: &Metrics, part: Part) {
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
unsafe fn update_chunks<V: Lanes, R: Rule<V>, const TALLY: bool>(
    rule: &R,
    len: usize,
    segments: &[Segment],
    metrics: &Metrics,
    part: Part,
) {
    let (first, last) = part.range(len.div_ceil(FLAT_CHUNK), 1);
    let mut s = segments.partition_point(|segment| segment.start + segment.len <= first * FLAT_CHUNK);
    for chunk in first..last {
        let (begin, end) = (chunk * FLAT_CHUNK, chunk * FLAT_CHUNK + FLAT_CHUNK);
        while let Some(segment) = segments.get(s).filter(|segment| segment.start < end) {
            let stop = segment.start + segment.len;
            let (from, to) = (segment.start.max(begin), stop.min(end));
            let mut at = from;
            let mut tally = Tally::<V>::new();
            // SAFETY: the piece lies within its segment and thus within the vectors; its pair lies within the workspace.
            unsafe {
                while at + LANES <= to {
                    let (old, new, grad) = rule.update(at, LANES);
                    if TALLY {
                        tally.count(old, new, grad, LANES);
                    }
                    at += LANES;
                }
                if at < to {
                    let (old, new, grad) = rule.update(at, to - at);
                    if TALLY {
                        tally.count(old, new, grad, to - at);
                    }
                }
                if TALLY {
                    let pair = metrics.work.add(2 * (s + chunk));
                    *pair = largest_magnitude(tally.largest.to_array());
                    *pair.add(1) = norm(tally.squares.sum(), rule.grad().add(from), to - from);
                }
            }
            if stop > end {
                break;
            }
            s += 1;
        }
    }
}

/// The largest of numbers that are not negative; NaN where one is NaN.
#[inline(always)]
fn largest_magnitude<const N: usize>(values: [f32; N]) -> f32 {
    f32::from_bits(values.iter().fold(0, |max, value| max.max(value.to_bits())))
}

/// Adds up the pieces of each segment of this part's share, in order.
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

/// Adam's rule with its constants in every lane.
struct Adam<V, const DECOUPLED: bool> {
    prev: [*const f32; 3],
    grad: *const f32,
    next: [*mut f32; 3],
    beta1: V,
    rest1: V,
    beta2: V,
    rest2: V,
    eps: V,
    /// Weight decay; times the learning rate where it is decoupled.
    decay: V,
    /// Learning rate over the first moment's correction.
    rate: V,
    /// The second moment's correction of `sqrt(v)`.
    corr: V,
}

impl<V: Lanes, const DECOUPLED: bool> Rule<V> for Adam<V, DECOUPLED> {
    #[inline(always)]
    fn grad(&self) -> *const f32 {
        self.grad
    }

    #[inline(always)]
    unsafe fn update(&self, at: usize, n: usize) -> (V, V, V) {
        // SAFETY: promised by the caller.
        unsafe {
            let old = V::load_n(self.prev[0].add(at), n);
            let (m, v) = (V::load_n(self.prev[1].add(at), n), V::load_n(self.prev[2].add(at), n));
            let grad = V::load_n(self.grad.add(at), n);
            let (g, decayed) = if DECOUPLED { (grad, old - self.decay * old) } else { (grad + self.decay * old, old) };
            let m = self.beta1 * m + self.rest1 * g;
            let v = self.beta2 * v + self.rest2 * (g * g);
            let new = decayed - self.rate * m / (v.sqrt() * self.corr + self.eps);
            new.store_n(self.next[0].add(at), n);
            m.store_n(self.next[1].add(at), n);
            v.store_n(self.next[2].add(at), n);
            (old, new, grad)
        }
    }
}

/// Slots: param_prev, grad, m_prev, v_prev, hyper, corr, param, m, v, update_max, grad_norm_seg, work.
#[inline(always)]
unsafe fn adam_step<V: Lanes, const DECOUPLED: bool>(call: &Call, part: Part) {
    let OpKind::AdamStep(ops::AdamStep { len, ref segments, beta1, beta2, eps, .. }) = call.op else { return };
    let (hyper, corr) = (call.arg::<f32>(4), call.arg::<f32>(5));
    let next = [6, 7, 8].map(|slot| call.arg::<f32>(slot));
    let prev = [0, 2, 3].map(|slot| call.arg::<f32>(slot).cast_const());
    let metrics = Metrics { update_max: call.arg(9), grad_norm_seg: call.arg(10), work: call.arg(11) };
    // SAFETY: hyperparameters and corrections hold two numbers each; the vectors hold `len`, in which the segments lie.
    unsafe {
        let (lr, wd) = (*hyper, *hyper.add(1));
        let rule = Adam::<V, DECOUPLED> {
            prev: [0, 1, 2].map(|i| previous(prev[i], next[i])),
            grad: call.arg(1),
            next,
            beta1: V::splat(beta1.get() as f32),
            rest1: V::splat((1.0 - beta1.get()) as f32),
            beta2: V::splat(beta2.get() as f32),
            rest2: V::splat((1.0 - beta2.get()) as f32),
            eps: V::splat(eps.get() as f32),
            decay: V::splat(if DECOUPLED { lr * wd } else { wd }),
            rate: V::splat(lr * *corr),
            corr: V::splat(*corr.add(1)),
        };
        step(&rule, len, segments, &metrics, part);
    }
}

/// The rule of gradient descent.
struct Sgd<V, const MOMENTUM: bool, const NESTEROV: bool> {
    param_prev: *const f32,
    grad: *const f32,
    buffer_prev: *const f32,
    param: *mut f32,
    buffer: *mut f32,
    lr: V,
    wd: V,
    momentum: V,
}

impl<V: Lanes, const MOMENTUM: bool, const NESTEROV: bool> Rule<V> for Sgd<V, MOMENTUM, NESTEROV> {
    #[inline(always)]
    fn grad(&self) -> *const f32 {
        self.grad
    }

    #[inline(always)]
    unsafe fn update(&self, at: usize, n: usize) -> (V, V, V) {
        // SAFETY: promised by the caller; the buffer is bound where there is momentum.
        unsafe {
            let (old, grad) = (V::load_n(self.param_prev.add(at), n), V::load_n(self.grad.add(at), n));
            let mut g = grad + self.wd * old;
            if MOMENTUM {
                let moved = self.momentum * V::load_n(self.buffer_prev.add(at), n) + g;
                moved.store_n(self.buffer.add(at), n);
                g = if NESTEROV { g + self.momentum * moved } else { moved };
            }
            let new = old - self.lr * g;
            new.store_n(self.param.add(at), n);
            (old, new, grad)
        }
    }
}

/// Slots: param_prev, grad, momentum_prev, hyper, param, momentum, update_max, grad_norm_seg, work.
#[inline(always)]
unsafe fn sgd_step<V: Lanes, const MOMENTUM: bool, const NESTEROV: bool>(call: &Call, part: Part) {
    let OpKind::SgdStep(ops::SgdStep { len, ref segments, momentum, .. }) = call.op else { return };
    let (hyper, param, buffer) = (call.arg::<f32>(3), call.arg::<f32>(4), call.arg::<f32>(5));
    let metrics = Metrics { update_max: call.arg(6), grad_norm_seg: call.arg(7), work: call.arg(8) };
    // SAFETY: the hyperparameters hold two numbers; the vectors hold `len`, in which the segments lie.
    unsafe {
        let rule = Sgd::<V, MOMENTUM, NESTEROV> {
            param_prev: previous(call.arg(0), param),
            grad: call.arg(1),
            buffer_prev: previous(call.arg(2), buffer),
            param,
            buffer,
            lr: V::splat(*hyper),
            wd: V::splat(*hyper.add(1)),
            momentum: V::splat(momentum.get() as f32),
        };
        step(&rule, len, segments, &metrics, part);
    }
}

/// Slots: update_max_seg, grad_norm_seg, update_max, grad_norm; either pair may be unused.
unsafe fn update_metrics(call: &Call, part: Part) {
    let OpKind::UpdateMetrics(ops::UpdateMetrics { segments }) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let (max_seg, norm_seg) = (call.arg::<f32>(0), call.arg::<f32>(1));
    let (update_max, grad_norm) = (call.arg::<f32>(2), call.arg::<f32>(3));
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
