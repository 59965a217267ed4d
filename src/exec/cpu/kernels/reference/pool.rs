//! Pooling: `x [n, h, w, c]`, `y [n, ho, wo, c]`.

use crate::exec::cpu::kernels::reference::args::{Args, Buf};
use crate::exec::cpu::kernels::reference::real::Real;
use crate::ops::{self, OpKind, PoolGeometry};

/// Runs an operation of this family, and says whether it is one.
pub(super) fn run<T: Real>(args: Args, op: &OpKind) -> bool {
    match op {
        OpKind::MaxPool(ops::MaxPool { geometry }) => max_pool::<T>(args, geometry),
        OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }) => max_pool_bwd::<T>(args, geometry),
        OpKind::AvgPool(ops::AvgPool { geometry }) => avg_pool::<T>(args, geometry),
        OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }) => avg_pool_bwd::<T>(args, geometry),
        OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }) => global_avg_pool::<T>(args, *n, *hw, *c),
        OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) => global_avg_pool_bwd::<T>(args, *n, *hw, *c),
        _ => return false,
    }
    true
}

/// Positions in a window.
fn window(g: &PoolGeometry) -> usize {
    g.size[0] * g.size[1]
}

/// The pixel `[n, h, w]` of the input at position `k` of the window of output pixel `out` in `[n, ho, wo]`, if it is
/// not padding.
fn pixel(g: &PoolGeometry, out: usize, k: usize) -> Option<usize> {
    let (sample, oy, ox) = (out / (g.ho * g.wo), out / g.wo % g.ho, out % g.wo);
    let row = (oy * g.stride[0] + k / g.size[1]).checked_sub(g.padding[0])?;
    let col = (ox * g.stride[1] + k % g.size[1]).checked_sub(g.padding[1])?;
    (row < g.h && col < g.w).then_some((sample * g.h + row) * g.w + col)
}

/// Pixels of the output.
fn outputs(g: &PoolGeometry) -> usize {
    g.n * g.ho * g.wo
}

/// Reads or writes the index tensor, whose type depends on the size of the window.
#[derive(Clone, Copy)]
struct Index {
    narrow: Buf<u8>,
    wide: Buf<u16>,
    is_wide: bool,
}

impl Index {
    fn new(args: Args, slot: usize, g: &PoolGeometry) -> Self {
        Self { narrow: args.buf(slot), wide: args.buf(slot), is_wide: window(g) > 256 }
    }

    fn get(self, at: usize) -> usize {
        if self.is_wide { self.wide.get(at).into() } else { self.narrow.get(at).into() }
    }

    fn set(self, at: usize, k: usize) {
        if !self.narrow.is_bound() {
            return;
        }
        if self.is_wide {
            self.wide.set(at, k as u16);
        } else {
            self.narrow.set(at, k as u8);
        }
    }
}

/// The maximum and its first position; the first NaN is larger than every number. A window that consists only of
/// padding gives minus infinity and position 0.
fn max_pool<T: Real>(args: Args, g: &PoolGeometry) {
    use crate::ops::slot::max_pool as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    let index = Index::new(args, slot::INDEX, g);
    for out in 0..outputs(g) {
        for c in 0..g.c {
            let mut best: Option<(T, usize)> = None;
            for k in 0..window(g) {
                let Some(pixel) = pixel(g, out, k) else { continue };
                let value = x.get(pixel * g.c + c);
                let better = best.is_none_or(|(b, _)| value.exceeds(b) || (value.f64().is_nan() && !b.f64().is_nan()));
                if better {
                    best = Some((value, k));
                }
            }
            let (value, k) = best.unwrap_or((T::of(f64::NEG_INFINITY), 0));
            y.set(out * g.c + c, value);
            index.set(out * g.c + c, k);
        }
    }
}

/// `dx` is the sum of the `dy` whose windows chose the element.
fn max_pool_bwd<T: Real>(args: Args, g: &PoolGeometry) {
    use crate::ops::slot::max_pool_bwd as slot;
    let (dy, dx): (Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::DX));
    let index = Index::new(args, slot::INDEX, g);
    for i in 0..g.n * g.h * g.w * g.c {
        dx.set(i, T::ZERO);
    }
    for out in 0..outputs(g) {
        for c in 0..g.c {
            let at = out * g.c + c;
            if let Some(pixel) = pixel(g, out, index.get(at)) {
                dx.store(pixel * g.c + c, dy.get(at), true);
            }
        }
    }
}

/// The mean over a window; padding counts as zeros and in the divisor.
fn avg_pool<T: Real>(args: Args, g: &PoolGeometry) {
    use crate::ops::slot::avg_pool as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    let divisor = T::of(window(g) as f64);
    for out in 0..outputs(g) {
        for c in 0..g.c {
            let mut sum = T::ZERO;
            for pixel in (0..window(g)).filter_map(|k| pixel(g, out, k)) {
                sum = sum + x.get(pixel * g.c + c);
            }
            y.set(out * g.c + c, sum / divisor);
        }
    }
}

fn avg_pool_bwd<T: Real>(args: Args, g: &PoolGeometry) {
    use crate::ops::slot::avg_pool_bwd as slot;
    let (dy, dx): (Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::DX));
    let divisor = T::of(window(g) as f64);
    for i in 0..g.n * g.h * g.w * g.c {
        dx.set(i, T::ZERO);
    }
    for out in 0..outputs(g) {
        for pixel in (0..window(g)).filter_map(|k| pixel(g, out, k)) {
            for c in 0..g.c {
                dx.store(pixel * g.c + c, dy.get(out * g.c + c) / divisor, true);
            }
        }
    }
}

/// `x [n, hw, c]`, `y [n, c]`.
fn global_avg_pool<T: Real>(args: Args, n: usize, hw: usize, c: usize) {
    use crate::ops::slot::global_avg_pool as slot;
    let (x, y): (Buf<T>, Buf<T>) = (args.buf(slot::X), args.buf(slot::Y));
    for sample in 0..n {
        for channel in 0..c {
            let sum = (0..hw).fold(T::ZERO, |sum, pixel| sum + x.get((sample * hw + pixel) * c + channel));
            y.set(sample * c + channel, sum / T::of(hw as f64));
        }
    }
}

fn global_avg_pool_bwd<T: Real>(args: Args, n: usize, hw: usize, c: usize) {
    use crate::ops::slot::global_avg_pool_bwd as slot;
    let (dy, dx): (Buf<T>, Buf<T>) = (args.buf(slot::DY), args.buf(slot::DX));
    for i in 0..n * hw * c {
        dx.set(i, dy.get(i / (hw * c) * c + i % c) / T::of(hw as f64));
    }
}
