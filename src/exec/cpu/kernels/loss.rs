//! Softmax with cross entropy, mean squared error, their gradients, and the accuracy.
//!
//! Rows are independent and shared among threads; their losses are stored in a vector that one thread sums in a fixed
//! order. If a label is not a valid class, the loss and the gradient of its row are NaN, and it counts as a wrong
//! answer.

use super::columns::{Term, chunks_of, flat_sums, power_of_two};
use super::elementwise::{Values, for_flat};
use super::lanes::{LANES, Lanes, for_isa};
use super::math;
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind, chunks::FLAT_CHUNK};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let parallel = cpu_rest::is_parallel(op, threads);
    Some(match op {
        OpKind::SoftmaxCe { .. } => KernelImpl::simple(for_isa!(isa, softmax_ce), parallel),
        OpKind::SoftmaxCeGrad { .. } => KernelImpl::simple(for_isa!(isa, softmax_ce_grad), parallel),
        OpKind::SoftmaxCeFused { .. } => {
            KernelImpl { phases: 2, ..KernelImpl::simple(for_isa!(isa, softmax_ce_fused), parallel) }
        }
        OpKind::LossMean { .. } => KernelImpl::simple(for_isa!(isa, loss_mean), false),
        OpKind::Accuracy { .. } => KernelImpl::simple(for_isa!(isa, accuracy), false),
        OpKind::Mse { .. } => KernelImpl { phases: 2, ..KernelImpl::simple(for_isa!(isa, mse), parallel) },
        OpKind::MseGrad { .. } => KernelImpl::simple(for_isa!(isa, mse_grad), parallel),
        OpKind::MseFused { .. } => KernelImpl { phases: 2, ..KernelImpl::simple(for_isa!(isa, mse_fused), parallel) },
        _ => return None,
    })
}

/// The lowest `n` bits.
#[inline(always)]
fn below(n: usize) -> u16 {
    ((1u32 << n.min(LANES)) - 1) as u16
}

/// What a row's probabilities are converted to.
#[derive(Clone, Copy)]
struct Target {
    /// The target probability at the label, and at the other classes.
    on: f32,
    off: f32,
    /// The gradient's factor, one over the number of rows.
    scale: f32,
}

impl Target {
    fn new(rows: usize, classes: usize, smoothing: f64) -> Self {
        let off = smoothing / classes as f64;
        Self { on: (1.0 - smoothing + off) as f32, off: off as f32, scale: (1.0 / rows as f64) as f32 }
    }
}

/// Softmax and cross entropy of rows of logits.
pub(super) struct Softmax {
    /// `[rows, classes]`.
    pub logits: *const f32,
    pub labels: *const i32,
    /// `[rows, classes]`, may share the memory of the logits; null if neither probabilities nor the gradient are
    /// needed.
    pub out: *mut f32,
    /// `[rows]`, or null.
    pub row_loss: *mut f32,
    /// `[rows]`, 1 for a right answer and 0 for a wrong one, or null.
    pub right: *mut f32,
    classes: usize,
    smoothing: f64,
    target: Target,
}

/// For up to 16 rows: the sum of `exp(logit - largest)`, and the number that is added to its logarithm to give the
/// loss.
struct RowSums {
    exps: [f32; LANES],
    rest: [f32; LANES],
}

impl RowSums {
    fn new() -> Self {
        Self { exps: [1.0; LANES], rest: [0.0; LANES] }
    }
}

impl Softmax {
    /// The loss for this total number of rows, with nothing bound.
    pub fn new(rows: usize, classes: usize, smoothing: f64) -> Self {
        Self {
            logits: std::ptr::null(),
            labels: std::ptr::null(),
            out: std::ptr::null_mut(),
            row_loss: std::ptr::null_mut(),
            right: std::ptr::null_mut(),
            classes,
            smoothing,
            target: Target::new(rows, classes, smoothing),
        }
    }

    /// The class of a label, if it is valid.
    ///
    /// # Safety
    /// The row exists.
    #[inline(always)]
    unsafe fn class(&self, row: usize) -> Option<usize> {
        // SAFETY: promised by the caller.
        let label = unsafe { *self.labels.add(row) };
        (label >= 0 && (label as usize) < self.classes).then_some(label as usize)
    }

    /// Processes the rows `from..to`; `GRADIENT` says whether `out` receives the gradient instead of the probabilities.
    ///
    /// # Safety
    /// The rows exist.
    #[inline(always)]
    pub unsafe fn rows<V: Lanes, const GRADIENT: bool>(&self, from: usize, to: usize) {
        for first in (from..to).step_by(LANES) {
            let n = (to - first).min(LANES);
            // SAFETY: the rows from `first` to `first + n` exist, and so do the bound vectors' elements.
            unsafe {
                if !self.right.is_null() {
                    for row in first..first + n {
                        let logits = self.logits.add(row * self.classes);
                        let right = is_right::<V>(logits, self.class(row), self.classes);
                        *self.right.add(row) = f32::from(u8::from(right));
                    }
                }
                let sums = if self.classes <= LANES {
                    self.short_rows::<V, GRADIENT>(first, n)
                } else {
                    let mut sums = RowSums::new();
                    for i in 0..n {
                        (sums.exps[i], sums.rest[i]) = self.long_row::<V, GRADIENT>(first + i);
                    }
                    sums
                };
                if !self.row_loss.is_null() {
                    let losses = V::from_array(sums.exps).map(math::ln) + V::from_array(sums.rest);
                    losses.store_n(self.row_loss.add(first), n);
                }
            }
        }
    }

    /// The part of the loss in addition to the logarithm, from the label's logit and the sum of all logits, both minus
    /// the largest.
    #[inline(always)]
    fn rest(&self, own: f32, sum: f32) -> f32 {
        let rest = -((1.0 - self.smoothing) as f32) * own;
        if self.smoothing == 0.0 { rest } else { rest - self.target.off * sum }
    }

    /// Up to 16 rows of up to 16 classes. Everything is read before anything is written, because a row's masked store
    /// extends over the next row, whose load would have to wait for it.
    #[inline(always)]
    unsafe fn short_rows<V: Lanes, const GRADIENT: bool>(&self, first: usize, n: usize) -> RowSums {
        let classes = self.classes;
        let valid = V::mask(below(classes));
        let mut exps = [V::zero(); LANES];
        let mut sums = RowSums::new();
        // SAFETY: the caller promises that the rows exist.
        unsafe {
            for (i, exps) in exps.iter_mut().enumerate().take(n) {
                let row = self.logits.add((first + i) * classes);
                let own = self.class(first + i).map_or(f32::NAN, |label| *row.add(label));
                let logits = V::load_n(row, classes);
                let max = V::select(valid, logits, V::splat(f32::NEG_INFINITY)).largest();
                // Zero in the unused lanes, because results that underflow would be slow.
                let relative = (logits - V::splat(max)).first(classes);
                *exps = relative.map(math::exp).first(classes);
                sums.exps[i] = exps.sum();
                let total = if self.smoothing == 0.0 { 0.0 } else { relative.sum() };
                sums.rest[i] = self.rest(own - max, total);
            }
            if self.out.is_null() {
                return sums;
            }
            let Target { on, off, scale } = self.target;
            let inverse = (V::splat(1.0) / V::from_array(sums.exps)).to_array();
            for (i, exps) in exps.into_iter().enumerate().take(n) {
                let mut value = exps * V::splat(inverse[i]);
                if GRADIENT {
                    let target = match self.class(first + i) {
                        Some(label) => V::select(V::mask(1 << label), V::splat(on), V::splat(off)),
                        None => V::splat(f32::NAN),
                    };
                    value = (value - target) * V::splat(scale);
                }
                value.store_n(self.out.add((first + i) * classes), classes);
            }
        }
        sums
    }

    /// A row of more classes: maximum, exponentials (stored in `out`), result. Returns the row's sum of exponentials
    /// and the other part of its loss.
    #[inline(always)]
    unsafe fn long_row<V: Lanes, const GRADIENT: bool>(&self, row: usize) -> (f32, f32) {
        let (start, classes) = (row * self.classes, self.classes);
        let stretch = |j: usize| (classes - j).min(LANES);
        // SAFETY: the caller promises that the row exists; stretches and label are within it.
        unsafe {
            let (logits, label) = (self.logits.add(start), self.class(row));
            let out = if self.out.is_null() { self.out } else { self.out.add(start) };
            let own = label.map_or(f32::NAN, |label| *logits.add(label));
            let mut max = [V::splat(f32::NEG_INFINITY); 4];
            let mut j = 0;
            while j + 4 * LANES <= classes {
                for (u, max) in max.iter_mut().enumerate() {
                    *max = max.max(V::load(logits.add(j + u * LANES)));
                }
                j += 4 * LANES;
            }
            while j < classes {
                // The last group starts earlier and overlaps elements that were already used, so that it is full.
                max[0] = max[0].max(V::load(logits.add(j.min(classes - LANES))));
                j += LANES;
            }
            let max = (max[0].max(max[1])).max(max[2].max(max[3])).largest();
            let (mut sum, mut total) = (V::zero(), V::zero());
            for j in (0..classes).step_by(LANES) {
                let n = stretch(j);
                let relative = V::load_n(logits.add(j), n) - V::splat(max);
                let exps = relative.map(math::exp);
                sum = sum + exps.first(n);
                total = total + relative.first(n);
                if !out.is_null() {
                    exps.store_n(out.add(j), n);
                }
            }
            let sum = sum.sum();
            if !out.is_null() {
                let inverse = 1.0 / sum;
                let Target { on, off, scale } = self.target;
                let own = label.map_or(f32::NAN, |label| (*out.add(label) * inverse - on) * scale);
                let (inverse, off, scale) = (V::splat(inverse), V::splat(off), V::splat(scale));
                for j in (0..classes).step_by(LANES) {
                    let n = stretch(j);
                    let probs = V::load_n(out.add(j), n) * inverse;
                    let value = if GRADIENT { (probs - off) * scale } else { probs };
                    value.store_n(out.add(j), n);
                }
                if GRADIENT {
                    match label {
                        Some(label) => *out.add(label) = own,
                        None => std::slice::from_raw_parts_mut(out, classes).fill(f32::NAN),
                    }
                }
            }
            (sum, self.rest(own - max, total.sum()))
        }
    }
}

/// Whether the first of the largest scores of a row is at the label; false if a score is NaN.
///
/// # Safety
/// `scores` contains `classes` numbers, and the label is below `classes`.
#[inline(always)]
unsafe fn is_right<V: Lanes>(scores: *const f32, label: Option<usize>, classes: usize) -> bool {
    let Some(label) = label else { return false };
    // SAFETY: promised by the caller.
    let own = V::splat(unsafe { *scores.add(label) });
    let mut right = true;
    for j in (0..classes).step_by(LANES) {
        let n = (classes - j).min(LANES);
        // SAFETY: the stretch is within the row.
        let row = unsafe { V::load_n(scores.add(j), n) };
        let (less, at_most) = (V::bits(row.lt(own)), V::bits(row.le(own)));
        let before = below(label.saturating_sub(j));
        right &= (before & less | !before & at_most) & below(n) == below(n);
    }
    right
}

/// Slots: logits, labels, row_loss, probs.
#[inline(always)]
unsafe fn softmax_ce<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::softmax_ce as slot;
    let OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing }) = call.op else { return };
    let job = Softmax {
        logits: call.arg(slot::LOGITS),
        labels: call.arg(slot::LABELS),
        out: call.arg(slot::PROBS),
        row_loss: call.arg(slot::ROW_LOSS),
        ..Softmax::new(rows, classes, smoothing.get())
    };
    let (from, to) = part.range(rows, LANES);
    // SAFETY: the call's buffers hold all rows.
    unsafe { job.rows::<V, false>(from, to) };
}

/// Slots: logits, labels, dlogits, loss, accuracy, work `[2, rows]`. The second phase sums the rows.
#[inline(always)]
unsafe fn softmax_ce_fused<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::softmax_ce_fused as slot;
    let OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing, parts }) = call.op else { return };
    let (loss, accuracy, work) =
        (call.arg::<f32>(slot::LOSS), call.arg::<f32>(slot::ACCURACY), call.arg::<f32>(slot::WORK));
    if part.phase == 0 {
        let job = Softmax {
            logits: call.arg(slot::LOGITS),
            labels: call.arg(slot::LABELS),
            out: call.arg(slot::DLOGITS),
            row_loss: if loss.is_null() { loss } else { work },
            right: if accuracy.is_null() { accuracy } else { work.wrapping_add(rows) },
            ..Softmax::new(rows * parts, classes, smoothing.get())
        };
        let (from, to) = part.range(rows, LANES);
        // SAFETY: the call's buffers hold all rows.
        unsafe { job.rows::<V, true>(from, to) };
    } else if part.index == 0 {
        for (out, start) in [(loss, 0), (accuracy, rows)] {
            if !out.is_null() {
                // SAFETY: the first phase wrote the rows' losses and answers.
                unsafe { *out = mean::<V>(work, start, rows) };
            }
        }
    }
}

/// The mean of the `len` numbers from `at` on.
#[inline(always)]
pub(super) unsafe fn mean<V: Lanes>(values: *const f32, at: usize, len: usize) -> f32 {
    // SAFETY: the caller promises the numbers.
    let [sum] = unsafe { flat_sums::<V, 1, _>(&Values(values), at, len) };
    sum / len as f32
}

/// Slots: probs, labels, dlogits (may share the memory of `probs`).
#[inline(always)]
unsafe fn softmax_ce_grad<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::softmax_ce_grad as slot;
    let OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }) = call.op else { return };
    let (probs, labels, dlogits) =
        (call.arg::<f32>(slot::PROBS), call.arg::<i32>(slot::LABELS), call.arg::<f32>(slot::DLOGITS));
    let Target { on, off, scale } = Target::new(rows, classes, smoothing.get());
    let (from, to) = part.range(rows, LANES);
    for row in from..to {
        // SAFETY: the row exists, and a label is used only where it names a class.
        unsafe {
            let (probs, dlogits, label) = (probs.add(row * classes), dlogits.add(row * classes), *labels.add(row));
            let known = label >= 0 && (label as usize) < classes;
            let own = if known { (*probs.add(label as usize) - on) * scale } else { f32::NAN };
            let off = V::splat(if known { off } else { f32::NAN });
            for j in (0..classes).step_by(LANES) {
                let n = (classes - j).min(LANES);
                ((V::load_n(probs.add(j), n) - off) * V::splat(scale)).store_n(dlogits.add(j), n);
            }
            if known {
                *dlogits.add(label as usize) = own;
            }
        }
    }
}

/// Slots: row_loss, loss.
#[inline(always)]
unsafe fn loss_mean<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::loss_mean as slot;
    let OpKind::LossMean(ops::LossMean { rows }) = call.op else { return };
    if part.index == 0 {
        // SAFETY: `row_loss` holds the rows.
        unsafe { *call.arg::<f32>(slot::LOSS) = mean::<V>(call.arg(slot::ROW_LOSS), 0, rows) };
    }
}

/// Slots: scores, labels, accuracy.
#[inline(always)]
unsafe fn accuracy<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::accuracy as slot;
    let OpKind::Accuracy(ops::Accuracy { rows, classes }) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let (scores, labels) = (call.arg::<f32>(slot::SCORES), call.arg::<i32>(slot::LABELS));
    let mut count = 0usize;
    for row in 0..rows {
        // SAFETY: the row exists, and a label is used only where it names a class.
        unsafe {
            let label = usize::try_from(*labels.add(row)).ok().filter(|&label| label < classes);
            count += usize::from(is_right::<V>(scores.add(row * classes), label, classes));
        }
    }
    // SAFETY: the output holds one number.
    unsafe { *call.arg::<f32>(slot::ACCURACY) = (count as f64 / rows as f64) as f32 };
}

/// Squared errors; also writes the gradient if it is bound.
///
/// Errors are multiplied by a power of two before they are squared, so that the sum of squares does not overflow `f32`
/// if their mean does not.
struct Errors<V> {
    y: *const f32,
    target: *const f32,
    /// May share the memory of `y`; null if no gradient is needed.
    dy: *mut f32,
    /// `2 / len`.
    scale: V,
    /// The factor of errors before they are squared.
    shrink: V,
}

/// The factor of errors: its square is at most `1 / len`, and more than a quarter of that or 1.
fn shrinking(len: usize) -> f32 {
    power_of_two(len, 4)
}

impl<V: Lanes> Term<V, 1> for Errors<V> {
    #[inline(always)]
    unsafe fn at(&self, at: usize, _j: usize, n: usize) -> [V; 1] {
        // SAFETY: promised by the caller.
        unsafe {
            let error = V::load_n(self.y.add(at), n) - V::load_n(self.target.add(at), n);
            if !self.dy.is_null() {
                (self.scale * error).store_n(self.dy.add(at), n);
            }
            let shrunk = self.shrink * error;
            [shrunk * shrunk]
        }
    }
}

/// Sums over fixed chunks in the first phase, and over the chunks' sums `work [chunks]` in the second.
#[inline(always)]
unsafe fn mean_square<V: Lanes>(errors: &Errors<V>, len: usize, loss: *mut f32, work: *mut f32, part: Part) {
    let chunks = len.div_ceil(FLAT_CHUNK);
    // SAFETY: the caller promises buffers of `len` numbers and a workspace of one number a chunk.
    unsafe {
        if part.phase == 0 {
            for (chunk, at, n) in chunks_of(len, part) {
                [*work.add(chunk)] = flat_sums::<V, 1, _>(errors, at, n);
            }
        } else if part.index == 0 && !loss.is_null() {
            let sum = (0..chunks).fold(0.0, |sum, chunk| sum + f64::from(*work.add(chunk)));
            let shrink = f64::from(shrinking(len));
            *loss = (sum / (len as f64 * shrink * shrink)) as f32;
        }
    }
}

/// Slots: y, target, loss, work.
#[inline(always)]
unsafe fn mse<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::mse as slot;
    let OpKind::Mse(ops::Mse { len }) = call.op else { return };
    let (scale, shrink) = (V::zero(), V::splat(shrinking(len)));
    let errors =
        Errors { y: call.arg(slot::Y), target: call.arg(slot::TARGET), dy: std::ptr::null_mut(), scale, shrink };
    // SAFETY: the call's buffers are as the operation says.
    unsafe { mean_square(&errors, len, call.arg(slot::LOSS), call.arg(slot::WORK), part) };
}

/// Slots: y, target, dy, loss, work.
#[inline(always)]
unsafe fn mse_fused<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::mse_fused as slot;
    let OpKind::MseFused(ops::MseFused { len }) = call.op else { return };
    let scale = V::splat((2.0 / len as f64) as f32);
    let shrink = V::splat(shrinking(len));
    let errors = Errors { y: call.arg(slot::Y), target: call.arg(slot::TARGET), dy: call.arg(slot::DY), scale, shrink };
    // SAFETY: the call's buffers are as the operation says.
    unsafe { mean_square(&errors, len, call.arg(slot::LOSS), call.arg(slot::WORK), part) };
}

/// Slots: y, target, dy (may share the memory of `y`).
#[inline(always)]
unsafe fn mse_grad<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::mse_grad as slot;
    let OpKind::MseGrad(ops::MseGrad { len }) = call.op else { return };
    let (y, target, dy) = (call.arg::<f32>(slot::Y), call.arg::<f32>(slot::TARGET), call.arg::<f32>(slot::DY));
    let scale = V::splat((2.0 / len as f64) as f32);
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe { (scale * (V::load_n(y.add(at), n) - V::load_n(target.add(at), n))).store_n(dy.add(at), n) }
    });
}
