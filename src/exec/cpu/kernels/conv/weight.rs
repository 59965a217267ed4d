//! The gradient of a convolution's weight.
//!
//! `dw[tap, c, f]` sums, over all output pixels, input pixels at the tap times `dy`: a product with a long reduction
//! and a small result. Small results are summed in chunks of the batch, each with its own memory, which a second phase
//! adds in order; large ones are shared among threads by tiles. The taps along a row, together with their channels, are
//! consecutive in memory, so that they are the rows of one tile.

use super::super::gemm::add_sums;
use super::super::gemm::machine::Machine;
use super::super::gemm::micro::Tile;
use super::super::gemm::simd::Vector;
use super::pad::{self, Window};
use crate::exec::cpu::call::{Call, Part};
use crate::ops::{ConvGeometry, slot::product as slot};
use crate::select::cpu_conv::{WeightPlan, weight_plan};
use crate::select::cpu_gemm::{stretch, tile_shape};

/// The number of phases: one, or two if chunks have separate sums.
pub fn phases(g: &ConvGeometry) -> usize {
    if weight_plan(g).chunks > 1 { 2 } else { 1 }
}

/// The offset of the input of each output row of a group of images, in elements.
pub fn table(g: &ConvGeometry) -> Box<[i32]> {
    let plan = weight_plan(g);
    let starts = (0..plan.images).flat_map(|i| (0..g.ho).map(move |row| (i, row)));
    starts.map(|(i, row)| ((i * plan.padded[0] + row * g.stride[0]) * plan.padded[1] * g.c) as i32).collect()
}

/// The products of one group of images: for each row of taps, its channels (of one tap or of all taps of the row), by
/// panels.
struct Rows {
    /// The number of products: rows of taps, or single taps, times groups.
    products: usize,
    /// Rows of one product, divided into tiles.
    m: usize,
    tiles: usize,
    panels: usize,
}

/// Runs one part.
///
/// # Safety
/// As for [`crate::exec::cpu::call::KernelFn`], and the instruction set is available.
#[inline(always)]
pub unsafe fn run<M: Machine>(g: &ConvGeometry, accumulate: bool, call: &Call, part: Part) {
    let plan = weight_plan(g);
    let c_g = g.c / g.groups;
    let len = g.kernel[0] * g.kernel[1] * c_g * g.f;
    let padded_len = len.next_multiple_of(16);
    // SAFETY: the caller's contract; partial sums and padded images are in the workspace as the plan says.
    unsafe {
        let work = call.arg::<f32>(slot::WORK);
        let dw = call.arg::<f32>(slot::C);
        if part.phase == 1 {
            add_sums::<M::V>(dw, len, accumulate, work.cast_const(), [plan.chunks, padded_len], part);
            return;
        }
        let images = work.add(plan.partials_len(g) + part.index * plan.images_len(g));
        let products = if plan.merged { g.kernel[0] } else { g.kernel[0] * g.kernel[1] * g.groups };
        let m = if plan.merged { g.kernel[1] * c_g } else { c_g };
        let rows = Rows {
            products,
            m,
            tiles: m.div_ceil(tile_shape(M::ISA).rows),
            panels: (g.f / g.groups).div_ceil(2 * M::V::LANES),
        };
        let units = rows.products * rows.panels * rows.tiles;
        let groups = g.n.div_ceil(plan.images);
        if plan.chunks > 1 {
            let (from, to) = part.range(plan.chunks, 1);
            for chunk in from..to {
                let (first, count) = stretch(groups, plan.chunks, chunk);
                let to = work.add(chunk * padded_len);
                for group in first..first + count {
                    sum_group::<M>(g, plan, &rows, call, images, group, to, group > first, 0..units);
                }
            }
        } else {
            let (from, to) = part.range(units, 1);
            if from < to {
                for group in 0..groups {
                    sum_group::<M>(g, plan, &rows, call, images, group, dw, accumulate || group > 0, from..to);
                }
            }
        }
    }
}

/// Adds the products of one group of images, for the tiles `units`, to `to`.
///
/// # Safety
/// As [`run`]; `images` has room for the padded group.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "one call site in each mode; a struct would only rename them")]
unsafe fn sum_group<M: Machine>(
    g: &ConvGeometry,
    plan: WeightPlan,
    rows: &Rows,
    call: &Call,
    images: *mut f32,
    group: usize,
    to: *mut f32,
    add: bool,
    units: std::ops::Range<usize>,
) {
    let lanes = M::V::LANES;
    let (c_g, f_g) = (g.c / g.groups, g.f / g.groups);
    let first = group * plan.images;
    let count = plan.images.min(g.n - first);
    let image_len = g.h * g.w * g.c;
    // SAFETY: the group's images are inside `x`, its rows inside `dy`; tiles are inside the weight.
    unsafe {
        let x = call.arg::<f32>(slot::A).cast_const().add(first * image_len);
        let dy = call.arg::<f32>(slot::B).cast_const().add(first * g.ho * g.wo * g.f);
        let source = if plan.in_place {
            x
        } else {
            let [rows, columns] = plan.padded;
            for i in 0..count {
                let window = Window {
                    h: g.h,
                    w: g.w,
                    c: g.c,
                    row: -(g.padding[0] as isize),
                    column: -(g.padding[1] as isize),
                    rows,
                    columns,
                };
                pad::copy(x.add(i * image_len), images.add(i * rows * columns * g.c), &window);
            }
            images.cast_const()
        };
        let mut t = Tile {
            a_step: g.stride[1] * g.c,
            segments: call.table.as_ptr(),
            segment_count: count * g.ho,
            segment_len: g.wo,
            b_step: g.f,
            add,
            ..Tile::EMPTY
        };
        for unit in units {
            // The tiles of a panel are processed consecutively, so that its columns of `dy` stay in the cache.
            let (tile, panel, product) =
                (unit % rows.tiles, unit / rows.tiles % rows.panels, unit / rows.tiles / rows.panels);
            let (taps, conv_group) =
                if plan.merged { (product * g.kernel[1], 0) } else { (product / g.groups, product % g.groups) };
            let (kh, kw) = (taps / g.kernel[1], taps % g.kernel[1]);
            let (row0, height) = stretch(rows.m, rows.tiles, tile);
            let j0 = panel * 2 * lanes;
            let width = (f_g - j0).min(2 * lanes);
            let vectors = width.div_ceil(lanes);
            let column = conv_group * f_g + j0;
            t.lanes = width - (vectors - 1) * lanes;
            t.a[0] =
                source.add((kh * g.dilation[0] * plan.padded[1] + kw * g.dilation[1]) * g.c + conv_group * c_g + row0);
            t.b = dy.add(column);
            t.c = to.add((taps * c_g + row0) * g.f + column);
            for (i, row) in t.c_row.iter_mut().enumerate() {
                *row = i * g.f;
            }
            M::COLUMN[height - 1][vectors - 1](&t);
        }
    }
}
