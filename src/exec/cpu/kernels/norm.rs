//! Batch normalisation of `x [rows, channels]`.
//!
//! The mean and squared deviations of each chunk of rows are computed in two passes while it is in the cache; the
//! chunks' results are then combined in order (Chan, Golub and LeVeque, 1979). In `f32`, a mean of 10,000 has a
//! rounding error of up to a two-thousandth, which matters if the deviation is 1: the second pass also sums the
//! deviations themselves, so that a mean has twice the digits of an `f32`, and the combination is in `f64`. Every
//! thread computes the combination, which takes less time than another barrier.

use super::columns::{Grid, TILE, Term, Tile, column_sums, for_stretches};
use super::elementwise::{ANY, NONE, Values, activate, deactivate, known, store_sums};
use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::model::Activation;
use crate::ops::{self, OpKind, chunks};
use crate::select::{Isa, cpu_rest};

/// [`for_isa!`] for no activation function, for relu, and for any other.
macro_rules! for_function {
    ($isa:expr, $func:expr, $body:ident) => {
        match $func {
            None => for_isa!($isa, $body, NONE),
            Some(Activation::Relu) => for_isa!($isa, $body, 0),
            Some(_) => for_isa!($isa, $body, ANY),
        }
    };
}

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let (run, phases) = match op {
        OpKind::BatchNorm(ops::BatchNorm { act, .. }) => (for_function!(isa, *act, batch_norm), 2),
        OpKind::BatchNormEval(ops::BatchNormEval { act, .. }) => (for_function!(isa, *act, batch_norm_eval), 1),
        OpKind::BatchNormBwd(ops::BatchNormBwd { act_grad, .. }) => (for_function!(isa, *act_grad, batch_norm_bwd), 2),
        _ => return None,
    };
    Some(KernelImpl { phases, ..KernelImpl::simple(run, cpu_rest::is_parallel(op, threads)) })
}

/// Element `i` of an optional vector, or `default`.
#[inline(always)]
unsafe fn or(vector: *const f32, i: usize, default: f32) -> f32 {
    // SAFETY: the caller promises that a bound vector holds element `i`.
    if vector.is_null() { default } else { unsafe { *vector.add(i) } }
}

/// Numbers for each chunk and channel that the first phase passes to the second: the rounded mean, its rounding error,
/// and the squared deviations.
const MOMENTS: usize = ops::BATCH_NORM_MOMENTS;

/// Deviations from a mean, and their squares, for each column of the tile's wide row.
struct Deviations<'a> {
    x: *const f32,
    mean: &'a Tile,
}

impl<V: Lanes> Term<V, 2> for Deviations<'_> {
    #[inline(always)]
    unsafe fn at(&self, at: usize, j: usize, n: usize) -> [V; 2] {
        // SAFETY: promised by the caller; a stretch of the tile is within the tile.
        unsafe {
            let deviation = (V::load_n(self.x.add(at), n) - self.mean.lanes::<V>(j)).first(n);
            [deviation, deviation * deviation]
        }
    }
}

/// Slots: x, gamma, beta, mean_prev, var_prev, y, mean, rstd, running_mean, running_var, work
/// `[chunks, 3, channels]`. First phase: mean and squared deviations of each chunk. Second phase: combination and the
/// result.
#[inline(always)]
unsafe fn batch_norm<V: Lanes, const F: usize>(call: &Call, part: Part) {
    use crate::ops::slot::batch_norm as slot;
    let OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act }) = call.op else { return };
    let func = known::<F>(act);
    let (x, gamma, beta) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::GAMMA), call.arg::<f32>(slot::BETA));
    let (y, work) = (call.arg::<f32>(slot::Y), call.arg::<f32>(slot::WORK));
    let grid = Grid::new(channels);
    let (size, chunks) = (chunks::rows_per_chunk(rows, channels), chunks::row_chunks(rows, channels));
    // SAFETY: chunks of rows and tiles of channels stay within the matrix, the vectors and the workspace.
    unsafe {
        if part.phase == 0 {
            chunk_moments::<V>(x, work, rows, grid, part.range(chunks, 1));
            return;
        }
        let (from, to) = part.range(rows, size);
        for tile in (0..channels).step_by(TILE) {
            let width = grid.tile_cols(tile);
            let (mean, var) = combine(work.add(tile), rows, channels, width);
            let mut rstd = [0.0; TILE];
            for i in 0..width {
                rstd[i] = (1.0 / (var[i] + eps.get()).sqrt()) as f32;
            }
            if part.index == 0 {
                let batch = Statistics { mean: &mean[..width], var: &var[..width], rstd: &rstd[..width] };
                store_statistics(call, tile, momentum.get(), rows, batch);
            }
            let scale = grid.spread(tile, |i| or(gamma, tile + i, 1.0) * rstd[i]);
            // The rounding error of the mean is added to the shift.
            let rest = |i: usize| mean[i] - f64::from(mean[i] as f32);
            let shift = |i: usize| f64::from(or(beta, tile + i, 0.0)) - rest(i) * f64::from(scale.0[i]);
            let shift = grid.spread(tile, |i| shift(i) as f32);
            let mean = grid.spread(tile, |i| mean[i] as f32);
            for_stretches!(grid, tile, from, to, |at, j, n| {
                let deviation = V::load_n(x.add(at), n) - mean.lanes::<V>(j);
                let value = deviation * scale.lanes::<V>(j) + shift.lanes::<V>(j);
                activate(func, value).store_n(y.add(at), n);
            });
        }
    }
}

/// Stores mean and squared deviations of the chunks `first..last` of rows at `work [chunks, 3, channels]`.
///
/// # Safety
/// `x` contains the rows, and `work` has room for every chunk.
#[inline(always)]
unsafe fn chunk_moments<V: Lanes>(
    x: *const f32,
    work: *mut f32,
    rows: usize,
    grid: Grid,
    (first, last): (usize, usize),
) {
    let size = chunks::rows_per_chunk(rows, grid.cols);
    // SAFETY: chunks of rows and tiles of channels stay within the matrix and the workspace.
    unsafe {
        for chunk in first..last {
            let (from, to) = (chunk * size, (chunk * size + size).min(rows));
            for tile in (0..grid.cols).step_by(TILE) {
                let width = grid.tile_cols(tile);
                let [mut sums] = column_sums::<V, 1, _>(&Values(x), grid, tile, width, from, to);
                let count = (to - from) as f32;
                let inverse = 1.0 / count;
                for sum in &mut sums.0[..width] {
                    *sum *= inverse;
                }
                let mean = grid.spread(tile, |i| sums.0[i]);
                let term = Deviations { x, mean: &mean };
                let [mut rest, mut squares] = column_sums::<V, 2, _>(&term, grid, tile, width, from, to);
                for (rest, square) in rest.0[..width].iter_mut().zip(&mut squares.0) {
                    let sum = *rest;
                    *rest *= inverse;
                    // Squares about the mean itself; rounding must not make the result negative.
                    let about_mean = *square - sum * *rest;
                    *square = if about_mean < 0.0 { 0.0 } else { about_mean };
                }
                let out = work.add(MOMENTS * chunk * grid.cols + tile);
                store_sums(&mean.0[..width], out, false);
                store_sums(&rest.0[..width], out.add(grid.cols), false);
                store_sums(&squares.0[..width], out.add(2 * grid.cols), false);
            }
        }
    }
}

/// Mean and biased variance of `width` channels from the results of the first phase at `partials [chunks, 3,
/// channels]`.
///
/// # Safety
/// `partials` contains the first phase's results from the first of these channels on.
#[inline(always)]
unsafe fn combine(partials: *const f32, rows: usize, channels: usize, width: usize) -> ([f64; TILE], [f64; TILE]) {
    let (size, chunks) = (chunks::rows_per_chunk(rows, channels), chunks::row_chunks(rows, channels));
    let (mut mean, mut var) = ([0.0; TILE], [0.0; TILE]);
    let weight = |chunk: usize| (rows - chunk * size).min(size) as f64 / rows as f64;
    let inverse = 1.0 / rows as f64;
    // SAFETY: chunks and channels stay within the partial results.
    unsafe {
        for chunk in 0..chunks {
            let (row, weight) = (partials.add(MOMENTS * chunk * channels), weight(chunk));
            for (i, mean) in mean[..width].iter_mut().enumerate() {
                *mean += weight * (f64::from(*row.add(i)) + f64::from(*row.add(channels + i)));
            }
        }
        for chunk in 0..chunks {
            let (row, weight) = (partials.add(MOMENTS * chunk * channels), weight(chunk));
            for i in 0..width {
                let shift = (f64::from(*row.add(i)) - mean[i]) + f64::from(*row.add(channels + i));
                var[i] += f64::from(*row.add(2 * channels + i)) * inverse + weight * (shift * shift);
            }
        }
    }
    (mean, var)
}

/// Statistics of a batch, of some channels.
#[derive(Clone, Copy)]
struct Statistics<'a> {
    mean: &'a [f64],
    var: &'a [f64],
    rstd: &'a [f32],
}

/// Writes the statistics of the channels from `tile` on, and updates the running ones.
///
/// # Safety
/// The call's vectors contain the channels.
#[inline(always)]
unsafe fn store_statistics(call: &Call, tile: usize, momentum: f64, rows: usize, batch: Statistics<'_>) {
    use crate::ops::slot::batch_norm as slot;
    let Statistics { mean, var, rstd } = batch;
    let unbias = rows as f64 / (rows as f64 - 1.0);
    let store = |at: usize, value: &dyn Fn(usize) -> f32| {
        let to = call.arg::<f32>(at);
        if !to.is_null() {
            for i in 0..mean.len() {
                // SAFETY: promised by the caller.
                unsafe { *to.add(tile + i) = value(i) };
            }
        }
    };
    store(slot::MEAN, &|i| mean[i] as f32);
    store(slot::RSTD, &|i| rstd[i]);
    for (prev, out, batch, factor) in
        [(slot::MEAN_PREV, slot::RUNNING_MEAN, mean, 1.0), (slot::VAR_PREV, slot::RUNNING_VAR, var, unbias)]
    {
        let out = call.arg::<f32>(out);
        let prev = if call.ptr[prev].is_null() { out } else { call.arg::<f32>(prev) };
        if !out.is_null() {
            for (i, value) in batch.iter().enumerate() {
                // SAFETY: promised by the caller.
                let before = f64::from(unsafe { *prev.add(tile + i) });
                // SAFETY: as above.
                unsafe { *out.add(tile + i) = ((1.0 - momentum) * before + momentum * (value * factor)) as f32 };
            }
        }
    }
}

/// Slots: x, gamma, beta, running_mean, running_var, y.
#[inline(always)]
unsafe fn batch_norm_eval<V: Lanes, const F: usize>(call: &Call, part: Part) {
    use crate::ops::slot::batch_norm_eval as slot;
    let OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps, act }) = call.op else { return };
    let func = known::<F>(act);
    let (x, gamma, beta) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::GAMMA), call.arg::<f32>(slot::BETA));
    let (mean, var, y) =
        (call.arg::<f32>(slot::RUNNING_MEAN), call.arg::<f32>(slot::RUNNING_VAR), call.arg::<f32>(slot::Y));
    let grid = Grid::new(channels);
    let (from, to) = part.range(rows, chunks::rows_per_chunk(rows, channels));
    for tile in (0..channels).step_by(TILE) {
        // SAFETY: rows and channels stay within the matrices and vectors.
        unsafe {
            let rstd = |i: usize| 1.0 / (*var.add(tile + i) + eps.get() as f32).sqrt();
            let scale = grid.spread(tile, |i| or(gamma, tile + i, 1.0) * rstd(i));
            let shift = grid.spread(tile, |i| or(beta, tile + i, 0.0));
            let mean = grid.spread(tile, |i| *mean.add(tile + i));
            for_stretches!(grid, tile, from, to, |at, j, n| {
                let deviation = V::load_n(x.add(at), n) - mean.lanes::<V>(j);
                let value = deviation * scale.lanes::<V>(j) + shift.lanes::<V>(j);
                activate(func, value).store_n(y.add(at), n);
            });
        }
    }
}

/// `g = dy f'(saved)` and `g (x - mean)`.
struct Gradients<'a, const F: usize> {
    func: Option<Activation>,
    dy: *const f32,
    x: *const f32,
    saved: *const f32,
    mean: &'a Tile,
}

impl<V: Lanes, const F: usize> Term<V, 2> for Gradients<'_, F> {
    #[inline(always)]
    unsafe fn at(&self, at: usize, j: usize, n: usize) -> [V; 2] {
        // SAFETY: promised by the caller; a stretch of the tile is within the tile.
        unsafe {
            let dy = V::load_n(self.dy.add(at), n);
            let g = deactivate(known::<F>(self.func), dy, self.saved.wrapping_add(at), n);
            let deviation = V::load_n(self.x.add(at), n) - self.mean.lanes::<V>(j);
            [g, (g * deviation).first(n)]
        }
    }
}

/// Slots: dy, x, gamma, mean, rstd, saved, dgamma_prev, dbeta_prev, dx, dgamma, dbeta, work `[chunks, 2, channels]`.
/// `dx` may be in the memory of `dy`. First phase: the sums of `g` and `g x^` of each chunk. Second phase: their
/// combination, `dx = gamma rstd (g - mean of g - x^ mean of g x^)`.
#[inline(always)]
unsafe fn batch_norm_bwd<V: Lanes, const F: usize>(call: &Call, part: Part) {
    use crate::ops::slot::batch_norm_bwd as slot;
    let OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, accumulate, act_grad }) = call.op else { return };
    let func = known::<F>(act_grad);
    let (dy, x, gamma) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::X), call.arg::<f32>(slot::GAMMA));
    let (mean, rstd, saved) = (call.arg::<f32>(slot::MEAN), call.arg::<f32>(slot::RSTD), call.arg::<f32>(slot::SAVED));
    let (dx, dgamma, dbeta) = (call.arg::<f32>(slot::DX), call.arg::<f32>(slot::DGAMMA), call.arg::<f32>(slot::DBETA));
    let work = call.arg::<f32>(slot::WORK);
    let grid = Grid::new(channels);
    let (size, chunks) = (chunks::rows_per_chunk(rows, channels), chunks::row_chunks(rows, channels));
    let (first_chunk, last_chunk) = part.range(chunks, 1);
    let (from, to) = part.range(rows, size);
    for tile in (0..channels).step_by(TILE) {
        let width = grid.tile_cols(tile);
        // SAFETY: chunks of rows and tiles of channels stay within the matrices, the vectors and the workspace.
        unsafe {
            let means = grid.spread(tile, |i| *mean.add(tile + i));
            let term = Gradients::<F> { func, dy, x, saved, mean: &means };
            if part.phase == 0 {
                for chunk in first_chunk..last_chunk {
                    let (from, to) = (chunk * size, (chunk * size + size).min(rows));
                    let [sum_g, mut sum_gx] = column_sums::<V, 2, _>(&term, grid, tile, width, from, to);
                    for (i, sum) in sum_gx.0[..width].iter_mut().enumerate() {
                        *sum *= *rstd.add(tile + i);
                    }
                    let out = work.add(2 * chunk * channels + tile);
                    store_sums(&sum_g.0[..width], out, false);
                    store_sums(&sum_gx.0[..width], out.add(channels), false);
                }
                continue;
            }
            let (sum_g, sum_gx) = add_gradients(work.add(tile), chunks, channels, width);
            if part.index == 0 {
                for (to, sums) in [(dgamma, &sum_gx), (dbeta, &sum_g)] {
                    if !to.is_null() {
                        store_sums(&sums[..width], to.add(tile), accumulate);
                    }
                }
            }
            if dx.is_null() {
                continue;
            }
            let inverse = 1.0 / rows as f32;
            let scale = grid.spread(tile, |i| or(gamma, tile + i, 1.0) * *rstd.add(tile + i));
            let mean_g = grid.spread(tile, |i| sum_g[i] * inverse);
            let slope = grid.spread(tile, |i| sum_gx[i] * inverse * *rstd.add(tile + i));
            for_stretches!(grid, tile, from, to, |at, j, n| {
                let g = deactivate(func, V::load_n(dy.add(at), n), saved.wrapping_add(at), n);
                let deviation = V::load_n(x.add(at), n) - means.lanes::<V>(j);
                let inner = g - mean_g.lanes::<V>(j) - deviation * slope.lanes::<V>(j);
                (scale.lanes::<V>(j) * inner).store_n(dx.add(at), n);
            });
        }
    }
}

/// The sums of `g` and of `g x^` over all chunks, of `width` channels, from the results of the first phase at `work
/// [chunks, 2, channels]`.
///
/// # Safety
/// `work` contains the first phase's results from the first of these channels on.
#[inline(always)]
unsafe fn add_gradients(work: *const f32, chunks: usize, channels: usize, width: usize) -> ([f32; TILE], [f32; TILE]) {
    let (mut sum_g, mut sum_gx) = ([0.0; TILE], [0.0; TILE]);
    for chunk in 0..chunks {
        // SAFETY: chunks and channels stay within the workspace.
        unsafe {
            let row = work.add(2 * chunk * channels);
            for i in 0..width {
                sum_g[i] += *row.add(i);
                sum_gx[i] += *row.add(channels + i);
            }
        }
    }
    (sum_g, sum_gx)
}
