//! Operations that treat each element alone: activations and their derivatives, additions, and the gradient of a bias.
//!
//! Threads share the elements at fixed boundaries. Every result may lie on the first argument. `relu(NaN)` is NaN.

use super::columns::{Grid, TILE, Term, column_sums, for_stretches};
use super::lanes::{LANES, Lanes, for_isa};
use super::math;
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::lower::OpKind;
use crate::model::Activation;
use crate::select::{Isa, cpu_rest};

/// Elements at whose multiples a flat array is cut between threads.
const GRAIN: usize = 1_024;

/// Stands for no activation where functions are numbered by their place in [`Activation::ALL`].
pub const NO_FUNCTION: usize = Activation::ALL.len();

/// The place of a function in [`Activation::ALL`], or [`NO_FUNCTION`].
#[must_use]
pub fn number(func: Option<Activation>) -> usize {
    Activation::ALL.iter().position(|&f| Some(f) == func).unwrap_or(NO_FUNCTION)
}

/// [`for_isa!`] with the number of an activation function (known only when it runs) as a constant parameter.
macro_rules! for_activation {
    ($isa:expr, $func:expr, $body:ident) => {
        match crate::exec::cpu::kernels::elementwise::number($func) {
            0 => for_isa!($isa, $body, 0),
            1 => for_isa!($isa, $body, 1),
            2 => for_isa!($isa, $body, 2),
            3 => for_isa!($isa, $body, 3),
            4 => for_isa!($isa, $body, 4),
            5 => for_isa!($isa, $body, 5),
            _ => for_isa!($isa, $body, 6),
        }
    };
}
pub(super) use for_activation;

/// The function numbered `F` of each lane.
#[inline(always)]
pub fn activate<V: Lanes, const F: usize>(x: V) -> V {
    if F == NO_FUNCTION {
        return x;
    }
    match Activation::ALL[F] {
        Activation::Relu => V::select(x.lt(V::zero()), V::zero(), x),
        Activation::LeakyRelu => V::select(V::zero().lt(x), x, V::splat(0.01) * x),
        Activation::Gelu => x.map(math::gelu),
        Activation::Silu => x.map(math::silu),
        Activation::Sigmoid => x.map(math::sigmoid),
        Activation::Tanh => x.map(math::tanh),
    }
}

/// `dy` times the derivative of the function numbered `F`, at what it saved; `dy` itself for [`NO_FUNCTION`].
#[inline(always)]
pub fn deactivate<V: Lanes, const F: usize>(dy: V, saved: impl FnOnce() -> V) -> V {
    if F == NO_FUNCTION {
        return dy;
    }
    let s = saved();
    let one = V::splat(1.0);
    dy * match Activation::ALL[F] {
        Activation::Relu => V::select(s.le(V::zero()), V::zero(), one),
        Activation::LeakyRelu => V::select(s.le(V::zero()), V::splat(0.01), one),
        Activation::Gelu => s.map(math::gelu_grad),
        Activation::Silu => s.map(math::silu_grad),
        Activation::Sigmoid => s * (one - s),
        Activation::Tanh => one - s * s,
    }
}

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let parallel = cpu_rest::is_parallel(op, threads);
    let (run, phases) = match op {
        OpKind::BiasAdd { .. } => (for_isa!(isa, bias_add), 1),
        OpKind::Act { func, .. } => (for_activation!(isa, Some(*func), act), 1),
        OpKind::ActBwd { func, .. } => (for_activation!(isa, Some(*func), act_bwd), 1),
        OpKind::Add { .. } => (for_isa!(isa, add), 1),
        OpKind::BiasGrad { rows, cols, .. } => {
            (for_isa!(isa, bias_grad), if cpu_rest::row_chunks(*rows, *cols) > 1 { 2 } else { 1 })
        }
        _ => return None,
    };
    Some(KernelImpl { phases, ..KernelImpl::simple(run, parallel) })
}

/// Runs `$body` for every stretch `$at` of `$n` elements of this part's share of `$len` elements.
macro_rules! for_flat {
    ($part:expr, $len:expr, |$at:ident, $n:ident| $body:block) => {{
        let (mut $at, end) = $part.range($len, crate::exec::cpu::kernels::elementwise::FLAT_GRAIN);
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

/// [`GRAIN`] under the name that [`for_flat!`] uses.
pub const FLAT_GRAIN: usize = GRAIN;

#[inline(always)]
unsafe fn act<V: Lanes, const F: usize>(call: &Call, part: Part) {
    let OpKind::Act { len, .. } = call.op else { return };
    let (x, y) = (call.arg::<f32>(0), call.arg::<f32>(1));
    // SAFETY: both buffers hold `len` floats, and stretches stay below `len`.
    for_flat!(part, len, |at, n| {
        unsafe { activate::<V, F>(V::load_n(x.add(at), n)).store_n(y.add(at), n) }
    });
}

#[inline(always)]
unsafe fn act_bwd<V: Lanes, const F: usize>(call: &Call, part: Part) {
    let OpKind::ActBwd { len, .. } = call.op else { return };
    let (dy, saved, dx) = (call.arg::<f32>(0), call.arg::<f32>(1), call.arg::<f32>(2));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe {
            let saved = V::load_n(saved.add(at), n);
            deactivate::<V, F>(V::load_n(dy.add(at), n), || saved).store_n(dx.add(at), n);
        }
    });
}

#[inline(always)]
unsafe fn add<V: Lanes>(call: &Call, part: Part) {
    let OpKind::Add { len } = call.op else { return };
    let (a, b, y) = (call.arg::<f32>(0), call.arg::<f32>(1), call.arg::<f32>(2));
    for_flat!(part, len, |at, n| {
        // SAFETY: the buffers hold `len` floats, and stretches stay below `len`.
        unsafe { (V::load_n(a.add(at), n) + V::load_n(b.add(at), n)).store_n(y.add(at), n) }
    });
}

/// `x`, `y [rows, cols]`, `bias [cols]`.
#[inline(always)]
unsafe fn bias_add<V: Lanes>(call: &Call, part: Part) {
    let OpKind::BiasAdd { rows, cols } = call.op else { return };
    let (x, bias, y) = (call.arg::<f32>(0), call.arg::<f32>(1), call.arg::<f32>(2));
    let grid = Grid::new(cols);
    let (from, to) = part.range(rows, cpu_rest::rows_per_chunk(rows, cols));
    for tile in (0..cols).step_by(TILE) {
        // SAFETY: the bias has `cols` floats, the others `rows * cols`.
        unsafe {
            let bias = grid.spread(tile, |i| *bias.add(tile + i));
            for_stretches!(grid, tile, from, to, |at, j, n| {
                (V::load_n(x.add(at), n) + V::load(bias.as_ptr().add(j))).store_n(y.add(at), n);
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

/// `dy [rows, cols]`, `db [cols]`, `work [chunks, cols]`. One chunk of rows: threads share the columns. More: each chunk's sums go to the
/// workspace, and are added in order in the second phase.
#[inline(always)]
unsafe fn bias_grad<V: Lanes>(call: &Call, part: Part) {
    let OpKind::BiasGrad { rows, cols, accumulate } = call.op else { return };
    let (dy, db, work) = (call.arg::<f32>(0), call.arg::<f32>(2), call.arg::<f32>(3));
    let grid = Grid::new(cols);
    let (size, chunks) = (cpu_rest::rows_per_chunk(rows, cols), cpu_rest::row_chunks(rows, cols));
    // SAFETY: rows and columns stay within the matrix, chunks within the workspace.
    unsafe {
        if chunks == 1 {
            let (mut tile, end) = part.range(cols, 64);
            while tile < end {
                let width = (end - tile).min(TILE);
                let [sums] = column_sums::<V, 1, _>(&Values(dy), grid, tile, width, 0, rows);
                store_sums(&sums[..width], db.add(tile), accumulate);
                tile += TILE;
            }
        } else if part.phase == 0 {
            let (from, to) = part.range(chunks, 1);
            for chunk in from..to {
                let (first, last) = (chunk * size, (chunk * size + size).min(rows));
                for tile in (0..cols).step_by(TILE) {
                    let width = grid.tile_cols(tile);
                    let [sums] = column_sums::<V, 1, _>(&Values(dy), grid, tile, width, first, last);
                    store_sums(&sums[..width], work.add(chunk * cols + tile), false);
                }
            }
        } else {
            let (from, to) = part.range(cols, LANES);
            add_chunks::<V>(work, chunks, cols, from, to, db, accumulate);
        }
    }
}

/// Writes sums, or adds them to what is there.
///
/// # Safety
/// `to` has room for as many floats.
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
/// `partials` holds that many floats, and `out` at least `to`.
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
        // SAFETY: the columns from `at` to `at + n` lie in `from..to`.
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
