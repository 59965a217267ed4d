//! Normalisations. Means and variances are computed in two passes.

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::model::Activation;
use crate::ops::{self, OpKind};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act }) => {
            batch_norm::<T>(args, *rows, *channels, eps.get(), momentum.get(), *act);
        }
        OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps, act }) => {
            batch_norm_eval::<T>(args, *rows, *channels, eps.get(), *act);
        }
        OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad, accumulate }) => {
            batch_norm_bwd::<T>(args, *rows, *channels, *act_grad, *accumulate);
        }
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms: true }) => {
            rms_norm::<T>(args, *rows, *cols, eps.get());
        }
        OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate, rms: true, .. }) => {
            rms_norm_bwd::<T>(args, *rows, *cols, *accumulate);
        }
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, .. }) => layer_norm::<T>(args, *rows, *cols, eps.get()),
        OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate, .. }) => {
            layer_norm_bwd::<T>(args, *rows, *cols, *accumulate)
        }
        _ => return false,
    }
    true
}

fn activate<T: Real>(value: T, func: Option<Activation>) -> T {
    func.map_or(value, |f| value.act(f))
}

/// Mean and biased variance of `count` values.
fn moments<T: Real>(count: usize, value: impl Fn(usize) -> T) -> (T, T) {
    let n = T::of(count as f64);
    let mean = (0..count).fold(T::ZERO, |sum, i| sum + value(i)) / n;
    // Kernels may add the mean of the deviations from their first mean, which is zero except for rounding errors.
    let (exact, about) = (|i: usize| value(i).without_error(), mean.without_error());
    let rest = (0..count).fold(T::ZERO, |sum, i| sum + (exact(i) - about)) / n;
    let mean = mean.with_error_of(rest);
    let var = (0..count).fold(T::ZERO, |sum, i| sum + (value(i) - mean) * (value(i) - mean)) / n;
    (mean, var)
}

/// The deviation of `x` from the mean of `count` values, divided by their standard deviation. It is at most the root of
/// `count`, because the variance is the mean of the squares of all deviations; a single value equals its mean.
fn normalised<T: Real>(x: T, mean: T, rstd: T, count: usize) -> T {
    /// The variance is rounded.
    const ROUNDING: f64 = 1.01;
    let most = if count == 1 { 0.0 } else { (count as f64).sqrt() * ROUNDING };
    ((x - mean) * rstd).within(-most, most)
}

/// The gradient `g` times a normalised value: `deviation` divided by the standard deviation. Kernels may multiply by
/// `rstd` only after they have summed the products of gradients and deviations.
fn along<T: Real>(g: T, normalised: T, deviation: T, rstd: T) -> T {
    (g * normalised).with_underflow_of(g * deviation, rstd)
}

/// `x`, `y [rows, channels]`; `gamma`, `beta`, `mean`, `rstd` and the running statistics `[channels]`.
fn batch_norm<T: Real>(args: Args, rows: usize, channels: usize, eps: f64, momentum: f64, act: Option<Activation>) {
    use crate::ops::slot::batch_norm as slot;
    let (x, gamma, beta, y): (Buf<T>, Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::X), args.buf(slot::GAMMA), args.buf(slot::BETA), args.buf(slot::Y));
    let (mean_out, rstd_out): (Buf<T>, Buf<T>) = (args.buf(slot::MEAN), args.buf(slot::RSTD));
    let (running_mean, running_var): (Buf<T>, Buf<T>) = (args.buf(slot::RUNNING_MEAN), args.buf(slot::RUNNING_VAR));
    let (mean_prev, var_prev): (Buf<T>, Buf<T>) = (args.buf(slot::MEAN_PREV), args.buf(slot::VAR_PREV));
    let (keep, take) = (T::of(1.0 - momentum), T::of(momentum));
    for c in 0..channels {
        let (mean, var) = moments(rows, |row| x.get(row * channels + c));
        let rstd = var.rstd(eps);
        mean_out.put(c, mean);
        rstd_out.put(c, rstd);
        if running_mean.is_bound() {
            running_mean.set(c, keep * mean_prev.or(running_mean).get(c) + take * mean);
        }
        if running_var.is_bound() {
            let unbiased = var * T::of(rows as f64 / (rows as f64 - 1.0));
            running_var.set(c, keep * var_prev.or(running_var).get(c) + take * unbiased);
        }
        for row in 0..rows {
            let i = row * channels + c;
            let value = normalised(x.get(i), mean, rstd, rows);
            y.set(i, activate(value * gamma.get_or(c, T::of(1.0)) + beta.get_or(c, T::ZERO), act));
        }
    }
}

/// As [`batch_norm`] with the running statistics.
fn batch_norm_eval<T: Real>(args: Args, rows: usize, channels: usize, eps: f64, act: Option<Activation>) {
    use crate::ops::slot::batch_norm_eval as slot;
    let (x, gamma, beta): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::GAMMA), args.buf(slot::BETA));
    let (mean, var, y): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::RUNNING_MEAN), args.buf(slot::RUNNING_VAR), args.buf(slot::Y));
    for i in 0..rows * channels {
        let c = i % channels;
        let normalised = (x.get(i) - mean.get(c)) / (var.get(c) + T::of(eps)).sqrt();
        y.set(i, activate(normalised * gamma.get_or(c, T::of(1.0)) + beta.get_or(c, T::ZERO), act));
    }
}

/// With `g = dy f'(saved)` and `x^ = (x - mean) rstd`: `dbeta = sum g`, `dgamma = sum g x^`,
/// `dx = gamma rstd (g - dbeta / rows - x^ dgamma / rows)`, with the sums of this batch alone. `dx` may be in
/// the memory of `dy`.
fn batch_norm_bwd<T: Real>(args: Args, rows: usize, channels: usize, act_grad: Option<Activation>, accumulate: bool) {
    use crate::ops::slot::batch_norm_bwd as slot;
    let (dy, x, gamma): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::X), args.buf(slot::GAMMA));
    let (mean, rstd, saved): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::MEAN), args.buf(slot::RSTD), args.buf(slot::SAVED));
    let (dx, dgamma, dbeta): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::DX), args.buf(slot::DGAMMA), args.buf(slot::DBETA));
    let n = T::of(rows as f64);
    for c in 0..channels {
        let at = |row: usize| row * channels + c;
        let g = |row: usize| act_grad.map_or(dy.get(at(row)), |f| dy.get(at(row)) * saved.get(at(row)).act_grad(f));
        let normalised = |row: usize| normalised(x.get(at(row)), mean.get(c), rstd.get(c), rows);
        let sum_g = (0..rows).fold(T::ZERO, |sum, row| sum + g(row));
        let term = |row: usize| along(g(row), normalised(row), x.get(at(row)) - mean.get(c), rstd.get(c));
        let sum_gx = (0..rows).fold(T::ZERO, |sum, row| sum + term(row));
        for row in 0..rows {
            let inner = g(row) - sum_g / n - normalised(row) * (sum_gx / n);
            dx.put(at(row), gamma.get_or(c, T::of(1.0)) * rstd.get(c) * inner);
        }
        dgamma.store(c, sum_gx, accumulate);
        dbeta.store(c, sum_g, accumulate);
    }
}

/// `x`, `y [rows, cols]`; `gamma`, `beta [cols]`; `mean`, `rstd [rows]`.
fn layer_norm<T: Real>(args: Args, rows: usize, cols: usize, eps: f64) {
    use crate::ops::slot::layer_norm as slot;
    let (x, gamma, beta): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::GAMMA), args.buf(slot::BETA));
    let (y, mean_out, rstd_out): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::Y), args.buf(slot::MEAN), args.buf(slot::RSTD));
    for row in 0..rows {
        let (mean, var) = moments(cols, |col| x.get(row * cols + col));
        let rstd = var.rstd(eps);
        mean_out.put(row, mean);
        rstd_out.put(row, rstd);
        for col in 0..cols {
            let value = normalised(x.get(row * cols + col), mean, rstd, cols);
            let value = value * gamma.get_or(col, T::of(1.0)) + beta.get_or(col, T::ZERO);
            y.set(row * cols + col, value);
        }
    }
}

/// With `x^ = (x - mean) rstd` and `g = gamma dy`: `dx = rstd (g - mean of g - x^ mean of g x^)`, the means over a row;
/// `dgamma = sum dy x^`, `dbeta = sum dy` over the rows. `dx` may be in the memory of `dy`.
fn layer_norm_bwd<T: Real>(args: Args, rows: usize, cols: usize, accumulate: bool) {
    use crate::ops::slot::layer_norm_bwd as slot;
    let (dy, x, gamma): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::X), args.buf(slot::GAMMA));
    let (mean, rstd): (Buf<T>, Buf<T>) = (args.buf(slot::MEAN), args.buf(slot::RSTD));
    let (dx, dgamma, dbeta): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::DX), args.buf(slot::DGAMMA), args.buf(slot::DBETA));
    let normalised = |row: usize, col: usize| normalised(x.get(row * cols + col), mean.get(row), rstd.get(row), cols);
    let term = |g: T, row: usize, col: usize| {
        along(g, normalised(row, col), x.get(row * cols + col) - mean.get(row), rstd.get(row))
    };
    for col in 0..cols {
        let sum_gx = (0..rows).fold(T::ZERO, |sum, row| sum + term(dy.get(row * cols + col), row, col));
        dgamma.store(col, sum_gx, accumulate);
        let sum_g = (0..rows).fold(T::ZERO, |sum, row| sum + dy.get(row * cols + col));
        dbeta.store(col, sum_g, accumulate);
    }
    let n = T::of(cols as f64);
    for row in 0..rows {
        let g = |col: usize| gamma.get_or(col, T::of(1.0)) * dy.get(row * cols + col);
        let mean_g = (0..cols).fold(T::ZERO, |sum, col| sum + g(col)) / n;
        let mean_gx = (0..cols).fold(T::ZERO, |sum, col| sum + term(g(col), row, col)) / n;
        for col in 0..cols {
            dx.put(row * cols + col, rstd.get(row) * (g(col) - mean_g - normalised(row, col) * mean_gx));
        }
    }
}

/// `x` divided by the root mean square of `count` values, which is at most the root of `count`.
fn scaled<T: Real>(x: T, rstd: T, count: usize) -> T {
    /// The mean square is rounded.
    const ROUNDING: f64 = 1.01;
    let most = (count as f64).sqrt() * ROUNDING;
    (x * rstd).within(-most, most)
}

/// `x`, `y [rows, cols]`; `gamma [cols]`; `rstd [rows]`: one over the root of the mean square and `eps`.
fn rms_norm<T: Real>(args: Args, rows: usize, cols: usize, eps: f64) {
    use crate::ops::slot::layer_norm as slot;
    let (x, gamma): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::GAMMA));
    let (y, rstd_out): (Buf<T>, Buf<T>) = (args.buf(slot::Y), args.buf(slot::RSTD));
    for row in 0..rows {
        let at = |col: usize| row * cols + col;
        let squares = (0..cols).fold(T::ZERO, |sum, col| sum + x.get(at(col)) * x.get(at(col)));
        let rstd = (squares / T::of(cols as f64)).rstd(eps);
        rstd_out.put(row, rstd);
        for col in 0..cols {
            y.set(at(col), scaled(x.get(at(col)), rstd, cols) * gamma.get_or(col, T::of(1.0)));
        }
    }
}

/// With `x^ = x rstd` and `g = gamma dy`: `dx = rstd (g - x^ mean of g x^)`, the mean over a row; `dgamma = sum dy x^`
/// over the rows. `dx` may be in the memory of `dy`.
fn rms_norm_bwd<T: Real>(args: Args, rows: usize, cols: usize, accumulate: bool) {
    use crate::ops::slot::layer_norm_bwd as slot;
    let (dy, x, gamma): (Buf<T>, Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::X), args.buf(slot::GAMMA));
    let (rstd, dx, dgamma): (Buf<T>, Buf<T>, Buf<T>) =
        (args.buf(slot::RSTD), args.buf(slot::DX), args.buf(slot::DGAMMA));
    let normalised = |row: usize, col: usize| scaled(x.get(row * cols + col), rstd.get(row), cols);
    let term = |g: T, row: usize, col: usize| along(g, normalised(row, col), x.get(row * cols + col), rstd.get(row));
    for col in 0..cols {
        let sum = (0..rows).fold(T::ZERO, |sum, row| sum + term(dy.get(row * cols + col), row, col));
        dgamma.store(col, sum, accumulate);
    }
    for row in 0..rows {
        let g = |col: usize| gamma.get_or(col, T::of(1.0)) * dy.get(row * cols + col);
        let mean = (0..cols).fold(T::ZERO, |sum, col| sum + term(g(col), row, col)) / T::of(cols as f64);
        for col in 0..cols {
            dx.put(row * cols + col, rstd.get(row) * (g(col) - normalised(row, col) * mean));
        }
    }
}
