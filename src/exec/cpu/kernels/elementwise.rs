//! Operations on each element separately: activations and their derivatives, additions, and the gradient of a bias.
//!
//! Threads share the elements at fixed boundaries. Every result may share the memory of the first argument. `relu(NaN)`
//! is NaN.

use super::columns::{Grid, TILE, Term, column_sums, for_stretches};
use super::lanes::{LANES, Lanes, for_isa};
use super::math;
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::model::Activation;
use crate::ops::{self, OpKind, chunks};
use crate::select::{Isa, cpu_rest};

/// A flat array is divided between threads at multiples of this number of elements.
pub const GRAIN: usize = 1_024;

/// A function that is known only when the kernel runs; functions are numbered by their index in [`Activation::ALL`].
pub const ANY: usize = Activation::ALL.len();

/// No function.
pub const NONE: usize = ANY + 1;

/// The function with number `F`, or `func` if `F` is [`ANY`]. If `F` names a function, the code that uses the result is
/// compiled for it.
#[inline(always)]
pub fn known<const F: usize>(func: Option<Activation>) -> Option<Activation> {
    match F {
        NONE => None,
        ANY => func,
        _ => Some(Activation::ALL[F]),
    }
}

/// The function of each lane.
#[inline(always)]
pub fn activate<V: Lanes>(func: Option<Activation>, x: V) -> V {
    match func {
        None => x,
        Some(Activation::Relu) => V::select(x.lt(V::zero()), V::zero(), x),
        Some(Activation::LeakyRelu) => V::select(V::zero().lt(x), x, V::splat(0.01) * x),
        Some(Activation::Gelu) => x.map(math::gelu::<V>),
        Some(Activation::Silu) => x.map(math::silu::<V>),
        Some(Activation::Sigmoid) => x.map(math::sigmoid::<V>),
        Some(Activation::Tanh) => x.map(math::tanh::<V>),
    }
}

/// `dy` times the function's derivative at the `n` values that it saved; `dy` itself if there is no function.
///
/// # Safety
/// If there is a function, `n` floats can be read at `saved`.
#[inline(always)]
pub unsafe fn deactivate<V: Lanes>(func: Option<Activation>, dy: V, saved: *const f32, n: usize) -> V {
    let Some(func) = func else { return dy };
    // SAFETY: promised by the caller.
    let s = unsafe { V::load_n(saved, n) };
    let one = V::splat(1.0);
    dy * match func {
        Activation::Relu => V::select(s.le(V::zero()), V::zero(), one),
        Activation::LeakyRelu => V::select(s.le(V::zero()), V::splat(0.01), one),
        Activation::Gelu => s.map(math::gelu_grad::<V>),
        Activation::Silu => s.map(math::silu_grad::<V>),
        Activation::Sigmoid => s.map(math::sigmoid_grad),
        Activation::Tanh => s.map(math::tanh_grad),
    }
}

/// [`for_isa!`] with the number of an activation function as a constant parameter.
macro_rules! for_function {
    ($isa:expr, $func:expr, $body:ident) => {
        match $func {
            Activation::Relu => for_isa!($isa, $body, 0),
            Activation::LeakyRelu => for_isa!($isa, $body, 1),
            Activation::Gelu => for_isa!($isa, $body, 2),
            Activation::Silu => for_isa!($isa, $body, 3),
            Activation::Sigmoid => for_isa!($isa, $body, 4),
            Activation::Tanh => for_isa!($isa, $body, 5),
        }
    };
}

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let parallel = cpu_rest::is_parallel(op, threads);
    let (run, phases) = match op {
        OpKind::BiasAdd { .. } => (for_isa!(isa, bias_add), 1),
        OpKind::Act(ops::Act { func, .. }) => (for_function!(isa, *func, act), 1),
        OpKind::ActBwd(ops::ActBwd { func, .. }) => (for_function!(isa, *func, act_bwd), 1),
        OpKind::Add { .. } => (for_isa!(isa, add), 1),
        OpKind::Multiply { .. } => (for_isa!(isa, multiply), 1),
        OpKind::Scale { .. } => (for_isa!(isa, scale), 1),
        OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => {
            (for_isa!(isa, bias_grad), if chunks::row_chunks(*rows, *cols) > 1 { 2 } else { 1 })
        }
        _ => return None,
    };
    Some(KernelImpl { phases, ..KernelImpl::simple(run, parallel) })
}

/// Runs `$body` for every group `$at` of `$n` elements of this part's share of `$len` elements.
macro_rules! for_flat {
    ($part:expr, $len:expr, |$at:ident, $n:ident| $body:block) => {{
        let (mut $at, end) = $part.range($len, crate::exec::cpu::kernels::elementwise::GRAIN);
        while $at + LANES <= end {
            let $n = LANES;
            $body
            $at += LANES;
        }
        if $at < end {
            let $n = end - $at;
            $body
        }
    }};
}
pub(super) use for_flat;

#[inline(always)]
unsafe fn act<V: Lanes, const F: usize>(call: &Call, part: Part) {
    use crate::ops::slot::act as slot;
    let OpKind::Act(ops::Act { len, func }) = call.op else { return };
    let (x, y, func) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y), known::<F>(Some(func)));
    // SAFETY: both buffers hold `len` floats, and stretches stay below `len`.
    for_flat!(part, len, |at, n| { unsafe { activate(func, V::load_n(x.add(at), n)).store_n(y.add(at), n) } });
}

#[inline(always)]
unsafe fn act_bwd<V: Lanes, const F: usize>(call: &Call, part: Part) {
    use crate::ops::slot::act_bwd as slot;
    let OpKind::ActBwd(ops::ActBwd { len, func }) = call.op else { return };
    let (dy, saved, dx) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::SAVED), call.arg::<f32>(slot::DX));
    let func = known::<F>(Some(func));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe {
            deactivate(func, V::load_n(dy.add(at), n), saved.add(at), n).store_n(dx.add(at), n);
        }
    });
}

#[inline(always)]
unsafe fn add<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::add as slot;
    let OpKind::Add(ops::Add { len }) = call.op else { return };
    let (a, b, y) = (call.arg::<f32>(slot::A), call.arg::<f32>(slot::B), call.arg::<f32>(slot::Y));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe { (V::load_n(a.add(at), n) + V::load_n(b.add(at), n)).store_n(y.add(at), n) }
    });
}

#[inline(always)]
unsafe fn multiply<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::multiply as slot;
    let OpKind::Multiply(ops::Multiply { len }) = call.op else { return };
    let (a, b, y) = (call.arg::<f32>(slot::A), call.arg::<f32>(slot::B), call.arg::<f32>(slot::Y));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe { (V::load_n(a.add(at), n) * V::load_n(b.add(at), n)).store_n(y.add(at), n) }
    });
}

#[inline(always)]
unsafe fn scale<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::scale as slot;
    let OpKind::Scale(ops::Scale { len, factor }) = call.op else { return };
    let (x, y, factor) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y), V::splat(factor.get() as f32));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe { (V::load_n(x.add(at), n) * factor).store_n(y.add(at), n) }
    });
}

/// `x`, `y [rows, cols]`, `bias [cols]`.
#[inline(always)]
unsafe fn bias_add<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::bias_add as slot;
    let OpKind::BiasAdd(ops::BiasAdd { rows, cols }) = call.op else { return };
    let (x, bias, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::BIAS), call.arg::<f32>(slot::Y));
    let grid = Grid::new(cols);
    let (from, to) = part.range(rows, chunks::rows_per_chunk(rows, cols));
    for tile in (0..cols).step_by(TILE) {
        // SAFETY: the bias has `cols` floats, the others `rows * cols`.
        unsafe {
            let bias = grid.spread(tile, |i| *bias.add(tile + i));
            for_stretches!(grid, tile, from, to, |at, j, n| {
                (V::load_n(x.add(at), n) + bias.lanes::<V>(j)).store_n(y.add(at), n);
            });
        }
    }
}

/// The elements themselves.
pub struct Values(pub *const f32);

impl<V: Lanes> Term<V, 1> for Values {
    #[inline(always)]
    unsafe fn at(&self, at: usize, _j: usize, n: usize) -> [V; 1] {
        // SAFETY: promised by the caller.
        [unsafe { V::load_n(self.0.add(at), n) }]
    }
}

/// `dy [rows, cols]`, `db [cols]`, `work [chunks, cols]`. With one chunk of rows, threads share the columns. With more,
/// each chunk's sums are written to the workspace, and are added in order in the second phase.
#[inline(always)]
unsafe fn bias_grad<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::bias_grad as slot;
    let OpKind::BiasGrad(op @ ops::BiasGrad { rows, cols, accumulate, .. }) = call.op else { return };
    let (dy, db, work) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::DB), call.arg::<f32>(slot::WORK));
    let grid = Grid::new(cols);
    let (size, chunks) = (chunks::rows_per_chunk(rows, cols), chunks::row_chunks(rows, cols));
    // SAFETY: rows and columns stay within the matrix, chunks within the workspace.
    unsafe {
        if chunks == 1 {
            let (mut tile, end) = part.range(cols, 64);
            while tile < end {
                let width = (end - tile).min(TILE);
                let [mut sums] = column_sums::<V, 1, _>(&Values(dy), grid, tile, width, 0, rows);
                with_zeros(&op, tile, &mut sums.0[..width]);
                store_sums(&sums.0[..width], db.add(tile), accumulate);
                tile += TILE;
            }
        } else if part.phase == 0 {
            let (from, to) = part.range(chunks, 1);
            for chunk in from..to {
                let (first, last) = (chunk * size, (chunk * size + size).min(rows));
                for tile in (0..cols).step_by(TILE) {
                    let width = grid.tile_cols(tile);
                    let [mut sums] = column_sums::<V, 1, _>(&Values(dy), grid, tile, width, first, last);
                    with_zeros(&op, tile, &mut sums.0[..width]);
                    store_sums(&sums.0[..width], work.add(chunk * cols + tile), false);
                }
            }
        } else {
            let (from, to) = part.range(cols, LANES);
            add_chunks::<V>(work, chunks, cols, from, to, db, accumulate);
        }
    }
}

/// Sets the sums of those columns from `tile` on to zero whose sum is zero in exact arithmetic.
#[inline(always)]
fn with_zeros(op: &ops::BiasGrad, tile: usize, sums: &mut [f32]) {
    if op.zeros.is_some() {
        sums.iter_mut().enumerate().filter(|(i, _)| op.is_zero(tile + i)).for_each(|(_, sum)| *sum = 0.0);
    }
}

/// Writes sums, or adds them to the previous values.
///
/// # Safety
/// `to` has room for the same number of floats.
#[inline(always)]
pub unsafe fn store_sums(sums: &[f32], to: *mut f32, accumulate: bool) {
    for (i, &sum) in sums.iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe { *to.add(i) = if accumulate { *to.add(i) + sum } else { sum } };
    }
}

/// Adds the rows of `partials [chunks, stride]` in order, in the columns `from..to`, into `out`.
///
/// # Safety
/// `partials` contains that many floats, and `out` at least `to`.
#[inline(always)]
pub unsafe fn add_chunks<V: Lanes>(
    partials: *const f32,
    chunks: usize,
    stride: usize,
    from: usize,
    to: usize,
    out: *mut f32,
    accumulate: bool,
) {
    let mut at = from;
    while at < to {
        let n = (to - at).min(LANES);
        // SAFETY: the columns from `at` to `at + n` are in `from..to`.
        unsafe {
            let mut sum = V::zero();
            for chunk in 0..chunks {
                sum = sum + V::load_n(partials.add(chunk * stride + at), n);
            }
            let sum = if accumulate { V::load_n(out.add(at), n) + sum } else { sum };
            sum.store_n(out.add(at), n);
        }
        at += n;
    }
}
