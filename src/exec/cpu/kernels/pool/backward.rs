//! Gradients of pooling: each output's gradient is distributed over the positions of its window.

use super::window::{Index, Span, extent, for_channels, for_window};
use crate::exec::cpu::call::{Call, Part};
use crate::exec::cpu::kernels::lanes::{LANES, Lanes};
use crate::ops::{self, OpKind, PoolGeometry};
use std::ops::Range;

/// The outputs along `axis` whose windows cover input `at`.
#[inline(always)]
fn covering(g: &PoolGeometry, axis: usize, at: usize) -> Range<usize> {
    let (place, outs) = (at + g.padding[axis], [g.ho, g.wo][axis]);
    let from = if place >= g.size[axis] { (place - g.size[axis]) / g.stride[axis] + 1 } else { 0 };
    from..(place / g.stride[axis] + 1).min(outs)
}

/// How an output's gradient is distributed over the positions of its window.
trait Share<V: Lanes> {
    /// The data that are read once for an output.
    type Held: Copy;

    /// Reads `n` channels of the output element `at`.
    ///
    /// # Safety
    /// The output elements exist.
    unsafe fn hold(&self, at: usize, n: usize) -> Self::Held;

    /// The share of the window's position `place`.
    fn of(&self, held: Self::Held, place: usize) -> V;
}

/// The chosen position gets all of it.
struct Chosen {
    dy: *const f32,
    index: Index,
}

impl<V: Lanes> Share<V> for Chosen {
    /// The gradient and the position.
    type Held = (V, V);

    #[inline(always)]
    unsafe fn hold(&self, at: usize, n: usize) -> (V, V) {
        // SAFETY: promised by the caller.
        unsafe { (V::load_n(self.dy.add(at), n), self.index.load::<V>(at, n)) }
    }

    #[inline(always)]
    fn of(&self, (gradient, chosen): (V, V), place: usize) -> V {
        V::select(chosen.same(V::splat(place as f32)), gradient, V::zero())
    }
}

/// Each position gets an equal part.
struct Equal<V> {
    dy: *const f32,
    part: V,
}

impl<V: Lanes> Share<V> for Equal<V> {
    type Held = V;

    #[inline(always)]
    unsafe fn hold(&self, at: usize, n: usize) -> V {
        // SAFETY: promised by the caller.
        unsafe { V::load_n(self.dy.add(at), n) * self.part }
    }

    #[inline(always)]
    fn of(&self, held: V, _place: usize) -> V {
        held
    }
}

/// Whether no two windows overlap.
fn are_apart(g: &PoolGeometry) -> bool {
    g.stride[0] >= g.size[0] && g.stride[1] >= g.size[1]
}

/// Writes `dx` if windows do not overlap: each output writes its window. An output row owns the input rows from the
/// first row of its windows up to the first row of the next ones.
///
/// # Safety
/// `dx [n, h, w, c]` is writable, and the outputs exist.
#[inline(always)]
unsafe fn spread<V: Lanes, S: Share<V>>(share: &S, g: &PoolGeometry, dx: *mut f32, part: Part) {
    let tiles_width = g.size[1] * g.wo == g.w && g.stride[1] == g.size[1] && g.padding[1] == 0;
    let (from, to) = part.range(g.n * g.ho, 1);
    for unit in from..to {
        let (sample, oy) = (unit / g.ho, unit % g.ho);
        let down = Span::new(g, 0, oy);
        let start = |oy: usize| (oy * g.stride[0]).saturating_sub(g.padding[0]).min(g.h);
        let first = if oy == 0 { 0 } else { start(oy) };
        let last = if oy + 1 == g.ho { g.h } else { start(oy + 1) };
        let line = g.w * g.c;
        // SAFETY: the rows `first..last` of the sample belong to this unit, and its windows are in them.
        unsafe {
            if !tiles_width || last - first != down.len {
                dx.add((sample * g.h + first) * line).write_bytes(0, (last - first) * line);
            }
            let rows = dx.add((sample * g.h + down.input) * line);
            for ox in 0..g.wo {
                let across = Span::new(g, 1, ox);
                let (at, to) = ((unit * g.wo + ox) * g.c, rows.add(across.input * g.c));
                for_channels!(g.c, |c, n| {
                    let held = share.hold(at + c, n);
                    let to = to.add(c);
                    for_window!(g, down, across, hand_out::<V, S>(share, held, to, g, [down, across], n));
                });
            }
        }
    }
}

/// Writes the shares of a window that starts at `to`, in `n` lanes.
///
/// # Safety
/// The window is in the input.
#[inline(always)]
unsafe fn hand_out<V: Lanes, S: Share<V>, const K: usize>(
    share: &S,
    held: S::Held,
    to: *mut f32,
    g: &PoolGeometry,
    window: [Span; 2],
    n: usize,
) {
    let first = window[0].place * g.size[1] + window[1].place;
    let (height, width) = extent::<K>(window);
    for k in 0..height {
        for j in 0..width {
            // SAFETY: promised by the caller.
            unsafe { share.of(held, first + k * g.size[1] + j).store_n(to.add((k * g.w + j) * g.c), n) };
        }
    }
}

/// Writes `dx` if windows overlap: each element of the input sums its shares in the outputs that cover it.
///
/// # Safety
/// As for [`spread`].
#[inline(always)]
unsafe fn gather<V: Lanes, S: Share<V>>(share: &S, g: &PoolGeometry, dx: *mut f32, part: Part) {
    let (from, to) = part.range(g.n * g.h, 1);
    for unit in from..to {
        let (sample, iy) = (unit / g.h, unit % g.h);
        let rows = covering(g, 0, iy);
        let mut cols = 0..0;
        for ix in 0..g.w {
            // The same as `covering`, without its divisions.
            let across = ix + g.padding[1];
            while cols.start * g.stride[1] + g.size[1] <= across {
                cols.start += 1;
            }
            while cols.end < g.wo && cols.end * g.stride[1] <= across {
                cols.end += 1;
            }
            for_channels!(g.c, |c, n| {
                let mut sum = V::zero();
                for oy in rows.clone() {
                    let k = iy + g.padding[0] - oy * g.stride[0];
                    for ox in cols.clone() {
                        let place = k * g.size[1] + across - ox * g.stride[1];
                        let at = ((sample * g.ho + oy) * g.wo + ox) * g.c + c;
                        // SAFETY: the outputs that cover an input exist, and the stretch ends with the channels.
                        sum = sum + unsafe { share.of(share.hold(at, n), place) };
                    }
                }
                // SAFETY: as above, for the element of the input.
                unsafe { sum.store_n(dx.add((unit * g.w + ix) * g.c + c), n) };
            });
        }
    }
}

/// Slots: dy, index, dx.
///
/// # Safety
/// As for [`KernelFn`](crate::exec::cpu::call::KernelFn).
#[inline(always)]
pub unsafe fn max_pool_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::max_pool_bwd as slot;
    let OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }) = call.op else { return };
    let g = &geometry;
    let (dy, index, dx) = (call.arg::<f32>(slot::DY), Index::new(call.arg(slot::INDEX), g), call.arg::<f32>(slot::DX));
    let share = Chosen { dy, index };
    // SAFETY: the call's buffers are as the operation says.
    unsafe {
        if are_apart(g) {
            spread::<V, _>(&share, g, dx, part);
        } else {
            gather::<V, _>(&share, g, dx, part);
        }
    }
}

/// Slots: dy, dx.
///
/// # Safety
/// As for [`KernelFn`](crate::exec::cpu::call::KernelFn).
#[inline(always)]
pub unsafe fn avg_pool_bwd<V: Lanes>(call: &Call, part: Part) {
    use crate::ops::slot::avg_pool_bwd as slot;
    let OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }) = call.op else { return };
    let g = &geometry;
    let (dy, dx) = (call.arg::<f32>(slot::DY), call.arg::<f32>(slot::DX));
    let share = Equal { dy, part: V::splat(1.0 / (g.size[0] * g.size[1]) as f32) };
    // SAFETY: the call's buffers are as the operation says.
    unsafe {
        if are_apart(g) {
            spread::<V, _>(&share, g, dx, part);
        } else {
            gather::<V, _>(&share, g, dx, part);
        }
    }
}
