//! Pooling of `x [n, h, w, c]` to `y [n, ho, wo, c]`.
//!
//! Lanes run over channels (in the forward pass with one channel, over neighbouring outputs). Threads share rows of
//! outputs; in the backward pass of overlapping windows they share rows of the input, whose elements are gathered from
//! the windows that cover them. Every element is written once, by one thread.

mod backward;
mod window;

use self::backward::{avg_pool_bwd, max_pool_bwd};
use self::window::{Index, Span, extent, for_channels, for_window};
use super::columns::{Grid, TILE, column_sums, for_stretches};
use super::elementwise::Values;
use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{self, OpKind, PoolGeometry};
use crate::select::{Isa, cpu_rest};

/// The fast kernel of an operation of this family.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let run = match op {
        OpKind::MaxPool { .. } => for_isa!(isa, max_pool),
        OpKind::MaxPoolBwd { .. } => for_isa!(isa, max_pool_bwd),
        OpKind::AvgPool { .. } => for_isa!(isa, avg_pool),
        OpKind::AvgPoolBwd { .. } => for_isa!(isa, avg_pool_bwd),
        OpKind::GlobalAvgPool { .. } => for_isa!(isa, global_avg_pool),
        OpKind::GlobalAvgPoolBwd { .. } => for_isa!(isa, global_avg_pool_bwd),
        _ => return None,
    };
    Some(KernelImpl::simple(run, cpu_rest::is_parallel(op, threads)))
}

/// The largest value so far, and its position in the window.
#[derive(Clone, Copy)]
struct Best<V> {
    value: V,
    place: V,
}

impl<V: Lanes> Best<V> {
    /// Minus infinity at `place`.
    #[inline(always)]
    fn none(place: usize) -> Self {
        Self { value: V::splat(f32::NEG_INFINITY), place: V::splat(place as f32) }
    }

    /// Takes `value` at `place` if it is larger, or the first NaN.
    #[inline(always)]
    fn offer(&mut self, value: V, place: usize) {
        let better = value.beats(self.value);
        self.value = V::select(better, value, self.value);
        self.place = V::select(better, V::splat(place as f32), self.place);
    }
}

/// The rows of outputs of a part: the number of each, its range of input rows, and the first element of these rows.
#[inline(always)]
fn output_rows(g: &PoolGeometry, part: Part) -> impl Iterator<Item = (usize, Span, usize)> {
    let (from, to) = part.range(g.n * g.ho, 1);
    (from..to).map(move |unit| {
        let down = Span::new(g, 0, unit % g.ho);
        (unit, down, (unit / g.ho * g.h + down.input) * g.w * g.c)
    })
}

/// Slots: x, y, index.
#[inline(always)]
unsafe fn max_pool<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::max_pool as slot;
    let OpKind::MaxPool(ops::MaxPool { geometry }) = call.op else { return };
    let g = &geometry;
    let (x, y, index) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y), Index::new(call.arg(slot::INDEX), g));
    for (unit, down, input) in output_rows(g, part) {
        let rows = x.wrapping_add(input);
        let mut ox = 0;
        while ox < g.wo {
            let across = Span::new(g, 1, ox);
            let at = (unit * g.wo + ox) * g.c;
            let beside = windows_beside(g, ox);
            // SAFETY: positions inside a window are in the input; stretches end with the channels or, along a row,
            // before its end.
            unsafe {
                let source = rows.add(across.input * g.c);
                if beside > 0 {
                    let outputs = Strided { x: source, stride: g.stride[1] };
                    let best = for_window!(g, down, across, largest_of::<V, _>(&outputs, g, [down, across], beside));
                    best.value.store_n(y.add(at), beside);
                    index.store(at, best.place, beside);
                    ox += beside;
                    continue;
                }
                for_channels!(g.c, |c, n| {
                    let channels = Channels { x: source.add(c) };
                    let best = for_window!(g, down, across, largest_of::<V, _>(&channels, g, [down, across], n));
                    best.value.store_n(y.add(at + c), n);
                    index.store(at + c, best.place, n);
                });
            }
            ox += 1;
        }
    }
}

/// The number of outputs from `ox` on, up to 16, that lanes can process together: with one channel, those whose windows
/// are horizontally inside the image. Zero if there are none, or if there are more channels.
#[inline(always)]
fn windows_beside(g: &PoolGeometry, ox: usize) -> usize {
    let n = (g.wo - ox).min(LANES);
    let whole = |ox: usize| Span::new(g, 1, ox).len == g.size[1];
    if g.c == 1 && whole(ox) && whole(ox + n - 1) { n } else { 0 }
}

/// The values of the lanes at an offset from the first position of a window.
trait Source<V: Lanes> {
    /// # Safety
    /// The elements exist.
    unsafe fn at(&self, offset: usize, n: usize) -> V;
}

/// Neighbouring channels.
struct Channels {
    x: *const f32,
}

impl<V: Lanes> Source<V> for Channels {
    #[inline(always)]
    unsafe fn at(&self, offset: usize, n: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe { V::load_n(self.x.add(offset), n) }
    }
}

/// The same position of neighbouring windows of one channel.
struct Strided {
    x: *const f32,
    stride: usize,
}

impl<V: Lanes> Source<V> for Strided {
    #[inline(always)]
    unsafe fn at(&self, offset: usize, n: usize) -> V {
        let mut values = [0.0; LANES];
        for (lane, value) in values.iter_mut().enumerate().take(n) {
            // SAFETY: promised by the caller.
            *value = unsafe { *self.x.add(offset + lane * self.stride) };
        }
        V::from_array(values)
    }
}

/// The maximum of a window in `n` lanes.
///
/// # Safety
/// The source contains the window.
#[inline(always)]
unsafe fn largest_of<V: Lanes, S: Source<V>, const K: usize>(
    source: &S,
    g: &PoolGeometry,
    window: [Span; 2],
    n: usize,
) -> Best<V> {
    let [down, across] = window;
    let first = down.place * g.size[1] + across.place;
    let mut best = Best::none(if down.len == 0 || across.len == 0 { 0 } else { first });
    let (height, width) = extent::<K>(window);
    for k in 0..height {
        for j in 0..width {
            // SAFETY: promised by the caller.
            let value = unsafe { source.at((k * g.w + j) * g.c, n) };
            best.offer(value, first + k * g.size[1] + j);
        }
    }
    best
}

/// Slots: x, y, work.
#[inline(always)]
unsafe fn avg_pool<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::avg_pool as slot;
    let OpKind::AvgPool(ops::AvgPool { geometry }) = call.op else { return };
    let g = &geometry;
    let (x, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y));
    let inverse = V::splat(1.0 / (g.size[0] * g.size[1]) as f32);
    for (unit, down, input) in output_rows(g, part) {
        let rows = x.wrapping_add(input);
        let mut ox = 0;
        while ox < g.wo {
            let across = Span::new(g, 1, ox);
            let source = rows.wrapping_add(across.input * g.c);
            let at = (unit * g.wo + ox) * g.c;
            let beside = windows_beside(g, ox);
            if beside > 0 {
                let outputs = Strided { x: source, stride: g.stride[1] };
                // SAFETY: these windows are in the input along the row, and their outputs before its end.
                unsafe {
                    let sum = for_window!(g, down, across, sum_of::<V, _>(&outputs, g, [down, across], beside));
                    (sum * inverse).store_n(y.add(at), beside);
                }
                ox += beside;
                continue;
            }
            for_channels!(g.c, |c, n| {
                // SAFETY: positions inside a window are in the input; stretches end with the channels.
                unsafe {
                    let channels = Channels { x: source.add(c) };
                    let sum = for_window!(g, down, across, sum_of::<V, _>(&channels, g, [down, across], n));
                    (sum * inverse).store_n(y.add(at + c), n);
                }
            });
            ox += 1;
        }
    }
}

/// The sum of a window in `n` lanes.
///
/// # Safety
/// The source contains the window.
#[inline(always)]
unsafe fn sum_of<V: Lanes, S: Source<V>, const K: usize>(
    source: &S,
    g: &PoolGeometry,
    window: [Span; 2],
    n: usize,
) -> V {
    let mut sum = V::zero();
    let (height, width) = extent::<K>(window);
    for k in 0..height {
        for j in 0..width {
            // SAFETY: promised by the caller.
            sum = sum + unsafe { source.at((k * g.w + j) * g.c, n) };
        }
    }
    sum
}

/// The grid of the channels, and a part's samples out of `n`, each with its tiles of channels, given by their first
/// channel.
#[inline(always)]
fn tiles_of_samples(n: usize, c: usize, part: Part) -> impl Iterator<Item = (Grid, usize, usize)> {
    let (grid, (from, to)) = (Grid::new(c), part.range(n, 1));
    (from..to).flat_map(move |sample| (0..c).step_by(TILE).map(move |tile| (grid, sample, tile)))
}

/// Slots: x `[n, hw, c]`, y `[n, c]`, work.
#[inline(always)]
unsafe fn global_avg_pool<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::global_avg_pool as slot;
    let OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }) = call.op else { return };
    let (x, y) = (call.arg::<f32>(slot::X), call.arg::<f32>(slot::Y));
    for (grid, sample, tile) in tiles_of_samples(n, c, part) {
        let width = grid.tile_cols(tile);
        // SAFETY: the sample's pixels are in `x`, its channels in `y`.
        unsafe {
            let rows = (sample * hw, (sample + 1) * hw);
            let [sums] = column_sums::<V, 1, _>(&Values(x), grid, tile, width, rows.0, rows.1);
            for (i, sum) in sums.0[..width].iter().enumerate() {
                *y.add(sample * c + tile + i) = sum / hw as f32;
            }
        }
    }
}

/// Slots: dy `[n, c]`, dx `[n, hw, c]`.
#[inline(always)]
unsafe fn global_avg_pool_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::global_avg_pool_bwd as slot;
    let OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }) = call.op else { return };
    let (dy, dx) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::DX));
    for (grid, sample, tile) in tiles_of_samples(n, c, part) {
        // SAFETY: the sample's channels are in `dy`, its pixels in `dx`.
        unsafe {
            let share = grid.spread(tile, |i| *dy.add(sample * c + tile + i) / hw as f32);
            for_stretches!(grid, tile, sample * hw, (sample + 1) * hw, |at, j, n| {
                share.lanes::<V>(j).store_n(dx.add(at), n);
            });
        }
    }
}
