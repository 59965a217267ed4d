//! Pooling of `x [n, h, w, c]` to `y [n, ho, wo, c]`.
//!
//! Lanes run over channels. Threads share the rows of what is written: forward those of the output; backward those of the input, where each
//! element gathers from the windows that cover it, so that windows may overlap and everything is written once. With few channels, backward
//! goes through the outputs of a sample instead and adds to the elements one by one.

use super::columns::{Grid, TILE, column_sums, for_stretches};
use super::elementwise::Values;
use super::lanes::{LANES, Lanes, for_isa};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::lower::{OpKind, PoolGeometry};
use crate::select::{Isa, cpu_rest};
use std::ops::Range;

/// Channels from which on lanes run over channels backward.
const MIN_CHANNELS: usize = 8;

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

/// The positions of output `out`'s window along `axis` that lie in the input, not in the padding.
#[inline(always)]
fn inside(g: &PoolGeometry, axis: usize, out: usize) -> Range<usize> {
    let (start, padding) = (out * g.stride[axis], g.padding[axis]);
    let size = [g.h, g.w][axis];
    padding.saturating_sub(start)..(size + padding).saturating_sub(start).min(g.size[axis])
}

/// The outputs along `axis` whose windows cover input `at`.
#[inline(always)]
fn covering(g: &PoolGeometry, axis: usize, at: usize) -> Range<usize> {
    let (place, outs) = (at + g.padding[axis], [g.ho, g.wo][axis]);
    let from = if place >= g.size[axis] { (place - g.size[axis]) / g.stride[axis] + 1 } else { 0 };
    from..(place / g.stride[axis] + 1).min(outs)
}

/// The input row or column at position `k` of output `out`'s window, which must lie inside.
#[inline(always)]
fn input(g: &PoolGeometry, axis: usize, out: usize, k: usize) -> usize {
    out * g.stride[axis] + k - g.padding[axis]
}

/// The index tensor of a maximum pooling: `u8`, or `u16` for windows of more than 256 positions.
#[derive(Clone, Copy)]
struct Index {
    at: *mut u8,
    wide: bool,
}

impl Index {
    fn new(at: *mut u8, g: &PoolGeometry) -> Self {
        Self { at, wide: g.size[0] * g.size[1] > 256 }
    }

    /// Stores the first `n` lanes, small whole numbers, from element `at` on.
    #[inline(always)]
    unsafe fn store<V: Lanes>(self, at: usize, value: V, n: usize) {
        if self.at.is_null() {
            return;
        }
        // SAFETY: the caller promises the elements, and positions are below 65,536.
        unsafe {
            let value = value.to_array().map(|k| k.to_int_unchecked::<i32>());
            if self.wide {
                let value = value.map(|k| k as u16);
                value.as_ptr().copy_to_nonoverlapping(self.at.cast::<u16>().add(at), n);
            } else {
                let value = value.map(|k| k as u8);
                value.as_ptr().copy_to_nonoverlapping(self.at.add(at), n);
            }
        }
    }

    /// The first `n` lanes from element `at` on, zero in the others.
    #[inline(always)]
    unsafe fn load<V: Lanes>(self, at: usize, n: usize) -> V {
        // SAFETY: the caller promises the elements.
        unsafe {
            if self.wide {
                let mut value = [0u16; LANES];
                self.at.cast::<u16>().add(at).copy_to_nonoverlapping(value.as_mut_ptr(), n);
                V::from_array(value.map(f32::from))
            } else {
                let mut value = [0u8; LANES];
                self.at.add(at).copy_to_nonoverlapping(value.as_mut_ptr(), n);
                V::from_array(value.map(f32::from))
            }
        }
    }

    #[inline(always)]
    unsafe fn get(self, at: usize) -> usize {
        // SAFETY: the caller promises the element.
        unsafe { if self.wide { (*self.at.cast::<u16>().add(at)).into() } else { (*self.at.add(at)).into() } }
    }
}

/// The largest so far, and where it stands in the window.
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

    /// Takes `value` at `place` where it is larger, or the first NaN.
    #[inline(always)]
    fn offer(&mut self, value: V, place: usize) {
        // Not at most the best: larger, or one of them is NaN. A best that is NaN already stays.
        let stays = V::bits(value.le(self.value)) | !V::bits(self.value.same(self.value));
        let stays = V::mask(stays);
        self.value = V::select(stays, self.value, value);
        self.place = V::select(stays, self.place, V::splat(place as f32));
    }
}

/// Slots: x, y, index.
#[inline(always)]
unsafe fn max_pool<V: Lanes>(call: &Call, part: Part) {
    let OpKind::MaxPool { geometry: g } = call.op else { return };
    let (x, y, index) = (call.arg::<f32>(0), call.arg::<f32>(1), Index::new(call.arg(2), &g));
    let (from, to) = part.range(g.n * g.ho, 1);
    for unit in from..to {
        let (sample, oy) = (unit / g.ho, unit % g.ho);
        let ks = inside(&g, 0, oy);
        let row_of = |k: usize| (sample * g.h + input(&g, 0, oy, k)) * g.w * g.c;
        let mut ox = 0;
        while ox < g.wo {
            let js = inside(&g, 1, ox);
            let first = if ks.is_empty() || js.is_empty() { 0 } else { ks.start * g.size[1] + js.start };
            let last = ox + LANES - 1;
            // With one channel, lanes run along the row of outputs where all windows lie inside.
            let along = g.c == 1 && last < g.wo && js.len() == g.size[1] && inside(&g, 1, last).len() == g.size[1];
            // SAFETY: positions inside a window lie in the input; stretches end with the channels or, along a row, before its end.
            unsafe {
                if along {
                    let mut best = Best::<V>::none(first);
                    for k in ks.clone() {
                        for j in js.clone() {
                            let row = x.add(row_of(k) + input(&g, 1, ox, j));
                            let mut values = [0.0; LANES];
                            for (lane, value) in values.iter_mut().enumerate() {
                                *value = *row.add(lane * g.stride[1]);
                            }
                            best.offer(V::from_array(values), k * g.size[1] + j);
                        }
                    }
                    let at = unit * g.wo + ox;
                    best.value.store(y.add(at));
                    index.store(at, best.place, LANES);
                    ox += LANES;
                    continue;
                }
                for c in (0..g.c).step_by(LANES) {
                    let n = (g.c - c).min(LANES);
                    let mut best = Best::<V>::none(first);
                    for k in ks.clone() {
                        let row = x.add(row_of(k) + c);
                        for j in js.clone() {
                            best.offer(V::load_n(row.add(input(&g, 1, ox, j) * g.c), n), k * g.size[1] + j);
                        }
                    }
                    let at = (unit * g.wo + ox) * g.c + c;
                    best.value.store_n(y.add(at), n);
                    index.store(at, best.place, n);
                }
            }
            ox += 1;
        }
    }
}

/// What an output gives to an element of the input at a position of its window.
trait Share<V: Lanes> {
    /// The shares of `n` channels, for the output element `at` and the window's position `place`.
    ///
    /// # Safety
    /// The output elements exist.
    unsafe fn of(&self, at: usize, n: usize, place: usize) -> V;
}

/// The gradient of the elements that were chosen.
struct Chosen {
    dy: *const f32,
    index: Index,
}

impl<V: Lanes> Share<V> for Chosen {
    #[inline(always)]
    unsafe fn of(&self, at: usize, n: usize, place: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe {
            let chosen = self.index.load::<V>(at, n).same(V::splat(place as f32));
            V::select(chosen, V::load_n(self.dy.add(at), n), V::zero())
        }
    }
}

/// An equal part of the gradient.
struct Equal<V> {
    dy: *const f32,
    part: V,
}

impl<V: Lanes> Share<V> for Equal<V> {
    #[inline(always)]
    unsafe fn of(&self, at: usize, n: usize, _place: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe { V::load_n(self.dy.add(at), n) * self.part }
    }
}

/// Writes to each element of this part's rows of `dx` the sum of its shares in the outputs that cover it.
///
/// # Safety
/// `dx [n, h, w, c]` is writable, and the outputs exist.
#[inline(always)]
unsafe fn gather<V: Lanes, S: Share<V>>(share: &S, g: &PoolGeometry, dx: *mut f32, part: Part) {
    let (from, to) = part.range(g.n * g.h, 1);
    for unit in from..to {
        let (sample, iy) = (unit / g.h, unit % g.h);
        let rows = covering(g, 0, iy);
        for ix in 0..g.w {
            let cols = covering(g, 1, ix);
            for c in (0..g.c).step_by(LANES) {
                let n = (g.c - c).min(LANES);
                let mut sum = V::zero();
                for oy in rows.clone() {
                    let k = iy + g.padding[0] - oy * g.stride[0];
                    for ox in cols.clone() {
                        let place = k * g.size[1] + ix + g.padding[1] - ox * g.stride[1];
                        let at = ((sample * g.ho + oy) * g.wo + ox) * g.c + c;
                        // SAFETY: the outputs that cover an input exist, and the stretch ends with the channels.
                        sum = sum + unsafe { share.of(at, n, place) };
                    }
                }
                // SAFETY: as above, for the element of the input.
                unsafe { sum.store_n(dx.add((unit * g.w + ix) * g.c + c), n) };
            }
        }
    }
}

/// Slots: dy, index, dx.
#[inline(always)]
unsafe fn max_pool_bwd<V: Lanes>(call: &Call, part: Part) {
    let OpKind::MaxPoolBwd { geometry: g } = call.op else { return };
    let (dy, index, dx) = (call.arg::<f32>(0), Index::new(call.arg(1), &g), call.arg::<f32>(2));
    if g.c >= MIN_CHANNELS {
        // SAFETY: the call's buffers are as the operation says.
        return unsafe { gather::<V, _>(&Chosen { dy, index }, &g, dx, part) };
    }
    let (from, to) = part.range(g.n, 1);
    let sample_len = g.h * g.w * g.c;
    // SAFETY: the samples lie in the buffers.
    unsafe { dx.add(from * sample_len).write_bytes(0, (to - from) * sample_len) };
    for unit in from * g.ho..to * g.ho {
        let (sample, oy) = (unit / g.ho, unit % g.ho);
        let ks = inside(&g, 0, oy);
        for ox in 0..g.wo {
            let js = inside(&g, 1, ox);
            for c in 0..g.c {
                let at = (unit * g.wo + ox) * g.c + c;
                // SAFETY: the output exists; a place outside the window's inside is passed over.
                unsafe {
                    let place = index.get(at);
                    let (k, j) = (place / g.size[1], place % g.size[1]);
                    if ks.contains(&k) && js.contains(&j) {
                        let pixel = (sample * g.h + input(&g, 0, oy, k)) * g.w + input(&g, 1, ox, j);
                        *dx.add(pixel * g.c + c) += *dy.add(at);
                    }
                }
            }
        }
    }
}

/// Slots: x, y, work.
#[inline(always)]
unsafe fn avg_pool<V: Lanes>(call: &Call, part: Part) {
    let OpKind::AvgPool { geometry: g } = call.op else { return };
    let (x, y) = (call.arg::<f32>(0), call.arg::<f32>(1));
    let inverse = V::splat(1.0 / (g.size[0] * g.size[1]) as f32);
    let (from, to) = part.range(g.n * g.ho, 1);
    for unit in from..to {
        let (sample, oy) = (unit / g.ho, unit % g.ho);
        for ox in 0..g.wo {
            for c in (0..g.c).step_by(LANES) {
                let n = (g.c - c).min(LANES);
                // SAFETY: positions inside a window lie in the input; stretches end with the channels.
                unsafe {
                    let mut sum = V::zero();
                    for k in inside(&g, 0, oy) {
                        let row = x.add((sample * g.h + input(&g, 0, oy, k)) * g.w * g.c + c);
                        for j in inside(&g, 1, ox) {
                            sum = sum + V::load_n(row.add(input(&g, 1, ox, j) * g.c), n);
                        }
                    }
                    (sum * inverse).store_n(y.add((unit * g.wo + ox) * g.c + c), n);
                }
            }
        }
    }
}

/// Slots: dy, dx.
#[inline(always)]
unsafe fn avg_pool_bwd<V: Lanes>(call: &Call, part: Part) {
    let OpKind::AvgPoolBwd { geometry: g } = call.op else { return };
    let (dy, dx) = (call.arg::<f32>(0), call.arg::<f32>(1));
    let share = 1.0 / (g.size[0] * g.size[1]) as f32;
    if g.c >= MIN_CHANNELS {
        // SAFETY: the call's buffers are as the operation says.
        return unsafe { gather::<V, _>(&Equal { dy, part: V::splat(share) }, &g, dx, part) };
    }
    let (from, to) = part.range(g.n, 1);
    let sample_len = g.h * g.w * g.c;
    // SAFETY: the samples lie in the buffers.
    unsafe { dx.add(from * sample_len).write_bytes(0, (to - from) * sample_len) };
    for unit in from * g.ho..to * g.ho {
        let (sample, oy) = (unit / g.ho, unit % g.ho);
        for ox in 0..g.wo {
            for k in inside(&g, 0, oy) {
                for j in inside(&g, 1, ox) {
                    let pixel = (sample * g.h + input(&g, 0, oy, k)) * g.w + input(&g, 1, ox, j);
                    for c in 0..g.c {
                        // SAFETY: the output exists, and positions inside a window lie in the input.
                        unsafe { *dx.add(pixel * g.c + c) += *dy.add((unit * g.wo + ox) * g.c + c) * share };
                    }
                }
            }
        }
    }
}

/// Slots: x `[n, hw, c]`, y `[n, c]`, work.
#[inline(always)]
unsafe fn global_avg_pool<V: Lanes>(call: &Call, part: Part) {
    let OpKind::GlobalAvgPool { n, hw, c } = call.op else { return };
    let (x, y) = (call.arg::<f32>(0), call.arg::<f32>(1));
    let grid = Grid::new(c);
    let (from, to) = part.range(n, 1);
    for sample in from..to {
        for tile in (0..c).step_by(TILE) {
            let width = grid.tile_cols(tile);
            // SAFETY: the sample's pixels lie in `x`, its channels in `y`.
            unsafe {
                let rows = (sample * hw, (sample + 1) * hw);
                let [sums] = column_sums::<V, 1, _>(&Values(x), grid, tile, width, rows.0, rows.1);
                for (i, sum) in sums[..width].iter().enumerate() {
                    *y.add(sample * c + tile + i) = sum / hw as f32;
                }
            }
        }
    }
}

/// Slots: dy `[n, c]`, dx `[n, hw, c]`.
#[inline(always)]
unsafe fn global_avg_pool_bwd<V: Lanes>(call: &Call, part: Part) {
    let OpKind::GlobalAvgPoolBwd { n, hw, c } = call.op else { return };
    let (dy, dx) = (call.arg::<f32>(0), call.arg::<f32>(1));
    let grid = Grid::new(c);
    let (from, to) = part.range(n, 1);
    for sample in from..to {
        for tile in (0..c).step_by(TILE) {
            // SAFETY: the sample's channels lie in `dy`, its pixels in `dx`.
            unsafe {
                let share = grid.spread(tile, |i| *dy.add(sample * c + tile + i) / hw as f32);
                for_stretches!(grid, tile, sample * hw, (sample + 1) * hw, |at, j, n| {
                    V::load(share.as_ptr().add(j)).store_n(dx.add(at), n);
                });
            }
        }
    }
}
