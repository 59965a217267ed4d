//! Normalisation of each row of `x [rows, cols]`.
//!
//! In `f32`, a mean of 10,000 has a rounding error of up to a two-thousandth, which matters if the deviation is 1: the
//! pass over the deviations also sums the deviations themselves and corrects the error. Without centring, the mean is 0
//! and exact.
//!
//! Threads share the rows. The gradients of gamma and beta are summed over fixed chunks of rows, then over the chunks
//! in order.

use super::columns::{Term, flat_sums};
use super::elementwise::{Values, add_chunks};
use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind, chunks};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let (run, phases) = match op {
        OpKind::LayerNorm { .. } => (for_isa!(isa, layer_norm), 1),
        OpKind::LayerNormBwd { .. } => (for_isa!(isa, layer_norm_bwd), 2),
        _ => return None,
    };
    Some(KernelImpl { phases, ..KernelImpl::simple(run, cpu_rest::is_parallel(op, threads)) })
}

/// The first `n` elements from `at` on of an optional vector, or `default`.
#[inline(always)]
unsafe fn load_or<V: Lanes>(vector: *const f32, at: usize, n: usize, default: f32) -> V {
    // SAFETY: the caller promises that a bound vector holds these elements.
    if vector.is_null() { V::splat(default) } else { unsafe { V::load_n(vector.add(at), n) } }
}

/// Adds `value` to the first `n` elements of a sum, or initialises it.
#[inline(always)]
unsafe fn add_or_set<V: Lanes>(value: V, sum: *mut f32, n: usize, is_first: bool) {
    // SAFETY: the caller promises that the sum holds these elements.
    unsafe {
        let value = if is_first { value } else { V::load_n(sum, n) + value };
        value.store_n(sum, n);
    }
}

/// Deviations from a mean, and their squares.
struct Deviations {
    x: *const f32,
    mean: f32,
}

impl<V: Lanes> Term<V, 2> for Deviations {
    #[inline(always)]
    unsafe fn at(&self, at: usize, _j: usize, n: usize) -> [V; 2] {
        // SAFETY: promised by the caller.
        let deviation = (unsafe { V::load_n(self.x.add(at), n) } - V::splat(self.mean)).first(n);
        [deviation, deviation * deviation]
    }
}

/// Slots: x, gamma, beta, y, mean, rstd. If `rms`, `beta` and `mean` are not bound.
#[inline(always)]
unsafe fn layer_norm<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::layer_norm as slot;
    let OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms }) = call.op else { return };
    let (x, gamma, beta) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::GAMMA), call.arg::<f32>(slot::BETA));
    let (y, mean_out, rstd_out) = (call.arg::<f32>(slot::Y), call.arg::<f32>(slot::MEAN), call.arg::<f32>(slot::RSTD));
    let inverse = 1.0 / cols as f32;
    let (from, to) = part.range(rows, 1);
    for row in from..to {
        let start = row * cols;
        // SAFETY: the row is within the matrices, and the vectors hold the row or the columns.
        unsafe {
            let mean = if rms { 0.0 } else { flat_sums::<V, 1, _>(&Values(x), start, cols)[0] * inverse };
            let [deviations, squares] = flat_sums::<V, 2, _>(&Deviations { x, mean }, start, cols);
            let rest = if rms { 0.0 } else { deviations * inverse };
            // Squares about the mean itself; rounding must not make the result negative.
            let about_mean = if rms { squares } else { squares - deviations * rest };
            let var = f64::from(if about_mean < 0.0 { 0.0 } else { about_mean }) / cols as f64;
            let rstd = (1.0 / (var + eps.get()).sqrt()) as f32;
            if !mean_out.is_null() {
                *mean_out.add(row) = mean + rest;
            }
            if !rstd_out.is_null() {
                *rstd_out.add(row) = rstd;
            }
            let (mean, rest, rstd) = (V::splat(mean), V::splat(rest), V::splat(rstd));
            for j in (0..cols).step_by(LANES) {
                let n = (cols - j).min(LANES);
                let normalised = ((V::load_n(x.add(start + j), n) - mean) - rest) * rstd;
                let value = normalised * load_or(gamma, j, n, 1.0) + load_or(beta, j, n, 0.0);
                value.store_n(y.add(start + j), n);
            }
        }
    }
}

/// With `g = gamma dy`: `g` and `g (x - mean)` of one row.
struct Gradients {
    dy: *const f32,
    x: *const f32,
    gamma: *const f32,
    mean: f32,
}

impl<V: Lanes> Term<V, 2> for Gradients {
    #[inline(always)]
    unsafe fn at(&self, at: usize, j: usize, n: usize) -> [V; 2] {
        // SAFETY: promised by the caller; gamma holds the columns.
        unsafe {
            let g = V::load_n(self.dy.add(at), n) * load_or(self.gamma, j, n, 1.0);
            [g.first(n), (g * (V::load_n(self.x.add(at), n) - V::splat(self.mean))).first(n)]
        }
    }
}

/// Slots: dy, x, gamma, mean, rstd, dgamma_prev, dbeta_prev, dx, dgamma, dbeta, work `[chunks, 2, cols]`. `dx` may
/// share the memory of `dy`. If `rms`, `mean`, `dbeta_prev` and `dbeta` are not bound, and work is `[chunks, 1, cols]`.
/// First phase: `dx`, and each chunk's sums of `dy x^` and `dy`. Second phase: the chunks are added in order.
#[inline(always)]
unsafe fn layer_norm_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::layer_norm_bwd as slot;
    let OpKind::LayerNormBwd(op) = call.op else { return };
    let ops::LayerNormBwd { rows, cols, accumulate, rms, .. } = op;
    let (dy, x, gamma) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::X), call.arg::<f32>(slot::GAMMA));
    let (mean, rstd, dx) = (call.arg::<f32>(slot::MEAN), call.arg::<f32>(slot::RSTD), call.arg::<f32>(slot::DX));
    let (dgamma, dbeta, work) =
        (call.arg::<f32>(slot::DGAMMA), call.arg::<f32>(slot::DBETA), call.arg::<f32>(slot::WORK));
    let (size, chunks) = (chunks::rows_per_chunk(rows, cols), chunks::row_chunks(rows, cols));
    let stride = op.parameters() * cols;
    if part.phase == 1 {
        let (from, to) = part.range(cols, LANES);
        for (sums, out) in [(work, dgamma), (work.wrapping_add(cols), dbeta)].into_iter().take(op.parameters()) {
            if !out.is_null() {
                // SAFETY: the workspace holds the first phase's sums.
                unsafe { add_chunks::<V>(sums, chunks, stride, from, to, out, accumulate) };
            }
        }
        return;
    }
    let inverse = 1.0 / cols as f32;
    let (first, last) = part.range(chunks, 1);
    for chunk in first..last {
        for row in chunk * size..(chunk * size + size).min(rows) {
            let start = row * cols;
            // SAFETY: the row is within the matrices, the chunk within the workspace.
            unsafe {
                let row_mean = if rms { 0.0 } else { *mean.add(row) };
                let (sums, row_rstd) = (work.add(chunk * stride), *rstd.add(row));
                let term = Gradients { dy, x, gamma, mean: row_mean };
                let [sum_g, sum_gx] = flat_sums::<V, 2, _>(&term, start, cols);
                let mean_g = V::splat(if rms { 0.0 } else { sum_g * inverse });
                let slope = V::splat(sum_gx * row_rstd * inverse);
                let (row_mean, row_rstd) = (V::splat(row_mean), V::splat(row_rstd));
                for j in (0..cols).step_by(LANES) {
                    let n = (cols - j).min(LANES);
                    let dy = V::load_n(dy.add(start + j), n);
                    let normalised = (V::load_n(x.add(start + j), n) - row_mean) * row_rstd;
                    let is_first = row == chunk * size;
                    add_or_set(dy * normalised, sums.add(j), n, is_first);
                    if !rms {
                        add_or_set(dy, sums.add(cols + j), n, is_first);
                    }
                    if !dx.is_null() {
                        let g = dy * load_or(gamma, j, n, 1.0);
                        (row_rstd * (g - mean_g - normalised * slope)).store_n(dx.add(start + j), n);
                    }
                }
            }
        }
    }
}
