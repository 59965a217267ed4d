//! Losses that are the mean of a function of each output and its target, with their gradients and the accuracy of
//! yes-or-no answers.
//!
//! Sums are computed over fixed chunks, whose results one thread adds in order.

use super::columns::{Term, chunks_of, flat_sums, power_of_two};
use super::elementwise::for_flat;
use super::lanes::{LANES, Lanes, for_isa};
use super::math;
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::model::losses::PointFn;
use crate::ops::{self, OpKind, chunks::FLAT_CHUNK};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    /// The kernel for each function; the function is a compile-time constant.
    macro_rules! by_func {
        ($func:expr, $kernel:ident) => {
            match $func {
                PointFn::BinaryCrossEntropy => for_isa!(isa, $kernel, BinaryCrossEntropy),
                PointFn::L1 => for_isa!(isa, $kernel, Absolute),
                PointFn::Huber => for_isa!(isa, $kernel, Huber),
            }
        };
    }
    let parallel = cpu_rest::is_parallel(op, threads);
    let two_phases = |kernel| KernelImpl { phases: 2, ..KernelImpl::simple(kernel, parallel) };
    Some(match op {
        OpKind::PointLoss(ops::PointLoss { func, .. }) => two_phases(by_func!(func, point_loss)),
        OpKind::PointLossGrad(ops::PointLossGrad { func, .. }) => {
            KernelImpl::simple(by_func!(func, point_loss_grad), parallel)
        }
        OpKind::PointLossFused(ops::PointLossFused { func, .. }) => two_phases(by_func!(func, point_loss_fused)),
        OpKind::BinaryAccuracy(_) => KernelImpl::simple(for_isa!(isa, binary_accuracy), false),
        _ => return None,
    })
}

/// A function of an output `y` and its target `t`.
trait Point {
    fn value<V: Lanes>(y: V, t: V, delta: V) -> V;
    /// Its derivative by `y`.
    fn slope<V: Lanes>(y: V, t: V, delta: V) -> V;
}

struct BinaryCrossEntropy;
struct Absolute;
struct Huber;

impl Point for BinaryCrossEntropy {
    #[inline(always)]
    fn value<V: Lanes>(y: V, t: V, _delta: V) -> V {
        V::select(y.lt(V::zero()), V::zero(), y) - y * t + y.abs().map(math::ln_1p_exp_neg)
    }

    #[inline(always)]
    fn slope<V: Lanes>(y: V, t: V, _delta: V) -> V {
        y.map(math::sigmoid::<V>) - t
    }
}

impl Point for Absolute {
    #[inline(always)]
    fn value<V: Lanes>(y: V, t: V, _delta: V) -> V {
        (y - t).abs()
    }

    #[inline(always)]
    fn slope<V: Lanes>(y: V, t: V, _delta: V) -> V {
        let (error, zero, one) = (y - t, V::zero(), V::splat(1.0));
        // A value that is neither above nor below zero is zero or NaN.
        V::select(error.lt(zero), zero - one, V::select(zero.lt(error), one, error))
    }
}

impl Point for Huber {
    #[inline(always)]
    fn value<V: Lanes>(y: V, t: V, delta: V) -> V {
        let (distance, half) = ((y - t).abs(), V::splat(0.5));
        let far = delta * (distance - half * delta);
        V::select(distance.le(delta), half * distance * distance, far)
    }

    #[inline(always)]
    fn slope<V: Lanes>(y: V, t: V, delta: V) -> V {
        let (error, least) = (y - t, V::zero() - delta);
        let error = V::select(delta.lt(error), delta, error);
        V::select(error.lt(least), least, error)
    }
}

/// The summands of each element: its loss, and whether the answer is right.
struct Points<V, P> {
    y: *const f32,
    target: *const f32,
    /// May share the memory of `y`; null if no gradient is needed.
    dy: *mut f32,
    delta: V,
    /// `1 / len`.
    scale: V,
    /// A power of two that losses are multiplied by, so that their sum is in the range of `f32` if their mean is.
    shrink: V,
    counts: bool,
    func: std::marker::PhantomData<P>,
}

/// The factor of losses: at most `1 / len`, and more than half of it.
fn shrinking(len: usize) -> f32 {
    power_of_two(len, 2)
}

/// One for each of the first `n` answers that is right.
#[inline(always)]
fn right<V: Lanes>(y: V, t: V, n: usize) -> V {
    let (zero, one) = (V::zero(), V::splat(1.0));
    let (above, not_above) = (V::select(zero.lt(y), one, zero), V::select(y.le(zero), one, zero));
    V::select(V::splat(0.5).lt(t), above, not_above).first(n)
}

impl<V: Lanes, P: Point> Points<V, P> {
    /// # Safety
    /// The buffers have `len` floats each if they are bound.
    #[inline(always)]
    unsafe fn new([y, target, dy]: [*mut f32; 3], delta: f64, len: usize, counts: bool) -> Self {
        let (delta, shrink) = (V::splat(delta as f32), V::splat(shrinking(len)));
        let scale = V::splat((1.0 / len as f64) as f32);
        Self { y, target, dy, delta, scale, shrink, counts, func: std::marker::PhantomData }
    }
}

impl<V: Lanes, P: Point> Term<V, 2> for Points<V, P> {
    #[inline(always)]
    unsafe fn at(&self, at: usize, _j: usize, n: usize) -> [V; 2] {
        // SAFETY: promised by the caller.
        unsafe {
            let (y, t) = (V::load_n(self.y.add(at), n), V::load_n(self.target.add(at), n));
            let value = (self.shrink * P::value(y, t, self.delta)).first(n);
            if !self.dy.is_null() {
                (self.scale * P::slope(y, t, self.delta)).store_n(self.dy.add(at), n);
            }
            [value, if self.counts { right(y, t, n) } else { V::zero() }]
        }
    }
}

/// The first phase writes the pair of sums of each chunk to `work`; the second phase adds them.
///
/// # Safety
/// The buffers of `points` have `len` floats, and `work` a number for each chunk, or two if answers are counted.
#[inline(always)]
unsafe fn run<V: Lanes, P: Point>(
    points: &Points<V, P>,
    len: usize,
    [loss, accuracy, work]: [*mut f32; 3],
    part: Part,
) {
    let chunks = len.div_ceil(FLAT_CHUNK);
    // SAFETY: promised by the caller.
    unsafe {
        if part.phase == 0 {
            for (chunk, at, n) in chunks_of(len, part) {
                let [sum, count] = flat_sums::<V, 2, _>(points, at, n);
                *work.add(chunk) = sum;
                if points.counts {
                    *work.add(chunks + chunk) = count;
                }
            }
        } else if part.index == 0 {
            let sum = |from: usize| (from..from + chunks).fold(0.0, |sum, i| sum + f64::from(*work.add(i)));
            if !loss.is_null() {
                *loss = (sum(0) / (len as f64 * f64::from(shrinking(len)))) as f32;
            }
            if points.counts {
                *accuracy = (sum(chunks) / len as f64) as f32;
            }
        }
    }
}

/// Slots: y, target, loss, work.
#[inline(always)]
unsafe fn point_loss<V: Lanes, P: Point>(call: &Call, part: Part) {
    use crate::ops::slot::point_loss as slot;
    let OpKind::PointLoss(ops::PointLoss { delta, len, .. }) = call.op else { return };
    let none = std::ptr::null_mut();
    // SAFETY: the call's buffers are as the operation says.
    unsafe {
        let buffers = [call.arg(slot::Y), call.arg(slot::TARGET), none];
        let points = Points::<V, P>::new(buffers, delta.get(), len, false);
        run(&points, len, [call.arg(slot::LOSS), none, call.arg(slot::WORK)], part);
    }
}

/// Slots: y, target, dy (may share the memory of `y`), loss, accuracy, work.
#[inline(always)]
unsafe fn point_loss_fused<V: Lanes, P: Point>(call: &Call, part: Part) {
    use crate::ops::slot::point_loss_fused as slot;
    let OpKind::PointLossFused(ops::PointLossFused { delta, len, .. }) = call.op else { return };
    let accuracy = call.arg::<f32>(slot::ACCURACY);
    // SAFETY: the call's buffers are as the operation says.
    unsafe {
        let buffers = [call.arg(slot::Y), call.arg(slot::TARGET), call.arg(slot::DY)];
        let points = Points::<V, P>::new(buffers, delta.get(), len, !accuracy.is_null());
        run(&points, len, [call.arg(slot::LOSS), accuracy, call.arg(slot::WORK)], part);
    }
}

/// Slots: y, target, dy (may share the memory of `y`).
#[inline(always)]
unsafe fn point_loss_grad<V: Lanes, P: Point>(call: &Call, part: Part) {
    use crate::ops::slot::point_loss_grad as slot;
    let OpKind::PointLossGrad(ops::PointLossGrad { delta, len, .. }) = call.op else { return };
    let (y, target, dy) = (call.arg::<f32>(slot::Y), call.arg::<f32>(slot::TARGET), call.arg::<f32>(slot::DY));
    let (delta, scale) = (V::splat(delta.get() as f32), V::splat((1.0 / len as f64) as f32));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe {
            let slope = P::slope(V::load_n(y.add(at), n), V::load_n(target.add(at), n), delta);
            (scale * slope).store_n(dy.add(at), n);
        }
    });
}

/// The number of right answers.
struct Right {
    y: *const f32,
    target: *const f32,
}

impl<V: Lanes> Term<V, 1> for Right {
    #[inline(always)]
    unsafe fn at(&self, at: usize, _j: usize, n: usize) -> [V; 1] {
        // SAFETY: promised by the caller.
        unsafe { [right(V::load_n(self.y.add(at), n), V::load_n(self.target.add(at), n), n)] }
    }
}

/// Slots: y, target, accuracy.
#[inline(always)]
unsafe fn binary_accuracy<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::binary_accuracy as slot;
    let OpKind::BinaryAccuracy(ops::BinaryAccuracy { len }) = call.op else { return };
    if part.index != 0 {
        return;
    }
    let answers = Right { y: call.arg(slot::Y), target: call.arg(slot::TARGET) };
    let mut count = 0.0f64;
    for at in (0..len).step_by(FLAT_CHUNK) {
        // SAFETY: the buffers hold `len` floats. A chunk's count is exact in `f32`.
        let [right] = unsafe { flat_sums::<V, 1, _>(&answers, at, (len - at).min(FLAT_CHUNK)) };
        count += f64::from(right);
    }
    // SAFETY: the output holds one number.
    unsafe { *call.arg::<f32>(slot::ACCURACY) = (count / len as f64) as f32 };
}
