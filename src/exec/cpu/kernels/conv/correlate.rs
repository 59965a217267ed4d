//! Forward convolution and the gradient of its input.
//!
//! Phase 0 rearranges the weight into panels of columns (for the gradient, transposed and in the order of the taps).
//! Phase 1 computes the output stripe by stripe: the stripe's input is copied with its padding, unless there is none,
//! and its pixels are the rows of tiles.

use super::super::gemm::finish;
use super::super::gemm::machine::Machine;
use super::super::gemm::micro::Tile;
use super::super::gemm::pack;
use super::super::gemm::simd::Vector;
use super::pad::{self, Window};
use crate::exec::cpu::call::{Call, Part};
use crate::ops::{ConvGeometry, Epilogue, slot::product as slot};
use crate::select::cpu_conv::{Correlation, class_rows, stripe};
use crate::select::cpu_gemm::{stretch, tile_shape};

/// The number of entries in the table's header, and in each class's header before its segments and taps.
const HEAD: usize = 8;
const CLASS_HEAD: usize = 8;

/// The table of a correlation. Header: classes, in place, first column, columns of a row, stripes, depth, elements of a
/// stripe, unused. Then for each stripe its first input row and number of rows. Then for each class: first row, first
/// column, rows, columns, segments, elements of a segment, first row in the packed weight, taps; the offset of each
/// segment from a pixel, in elements; the weight's tap for each of its taps.
pub fn table(c: &Correlation) -> Box<[i32]> {
    let (first_column, pitch) = c.pitch();
    let stripes = c.stripes();
    let in_g = c.in_c / c.groups;
    let head = [c.classes.len(), usize::from(c.in_place())].map(|v| v as i32);
    let mut out: Vec<i32> = head.to_vec();
    out.extend([first_column as i32, pitch as i32, stripes as i32, c.depth() as i32, c.stripe_len() as i32, 0]);
    for s in 0..stripes {
        let (from, to) = stripe(c.out_dims[0], stripes, s);
        let [lo, hi] = c.stripe_rows(from, to);
        out.extend([lo as i32, (hi - lo) as i32]);
    }
    let mut depth = 0;
    for class in &c.classes {
        // Consecutive taps of a row are one range of the input, if all channels of a pixel are multiplied.
        let mut starts: Vec<(isize, isize)> = Vec::new();
        let mut run = 1;
        let merges = c.groups == 1 && merged(class.taps.iter().map(|t| t.offset), &mut run);
        for tap in class.taps.iter().step_by(if merges { run } else { 1 }) {
            starts.push((tap.offset[0], tap.offset[1] - first_column));
        }
        let len = in_g * if merges { run } else { 1 };
        let numbers = [
            class.first[0],
            class.first[1],
            class.count[0],
            class.count[1],
            starts.len(),
            len,
            depth,
            class.taps.len(),
        ];
        out.extend(numbers.map(|v| v as i32));
        out.extend(starts.iter().map(|(row, column)| ((row * pitch as isize + column) * c.in_c as isize) as i32));
        out.extend(class.taps.iter().map(|t| t.weight as i32));
        depth += class.taps.len() * in_g;
    }
    out.into_boxed_slice()
}

/// Whether the offsets form runs of equal length, each along a row without gaps; `run` receives the length.
fn merged(offsets: impl Iterator<Item = [isize; 2]>, run: &mut usize) -> bool {
    let offsets: Vec<[isize; 2]> = offsets.collect();
    let follows = |i: usize| i > 0 && offsets[i][0] == offsets[i - 1][0] && offsets[i][1] == offsets[i - 1][1] + 1;
    let starts: Vec<usize> = (0..offsets.len()).filter(|&i| !follows(i)).collect();
    let Some(length) = starts.get(1).copied().or(Some(offsets.len())).filter(|&l| l > 0) else { return false };
    *run = length;
    starts.iter().enumerate().all(|(i, &s)| s == i * length) && offsets.len().is_multiple_of(length)
}

/// Sizes that both directions share.
struct Sizes {
    in_dims: [usize; 2],
    out_dims: [usize; 2],
    in_c: usize,
    out_c: usize,
    in_step: [usize; 2],
    out_step: [usize; 2],
}

/// Runs one part.
///
/// # Safety
/// As for [`crate::exec::cpu::call::KernelFn`], and the instruction set is available.
#[inline(always)]
pub unsafe fn run<M: Machine>(g: &ConvGeometry, epilogue: &Epilogue, backward: bool, call: &Call, part: Part) {
    let s = if backward {
        Sizes {
            in_dims: [g.ho, g.wo],
            out_dims: [g.h, g.w],
            in_c: g.f,
            out_c: g.c,
            in_step: [1, 1],
            out_step: g.stride,
        }
    } else {
        Sizes {
            in_dims: [g.h, g.w],
            out_dims: [g.ho, g.wo],
            in_c: g.c,
            out_c: g.f,
            in_step: g.stride,
            out_step: [1, 1],
        }
    };
    // SAFETY: the caller's contract.
    unsafe {
        if part.phase == 0 {
            pack_weight::<M>(g, &s, backward, call, part);
        } else {
            multiply::<M>(g, &s, epilogue, call, part);
        }
    }
}

/// The classes of a table: heads, segments, taps.
fn classes(table: &[i32]) -> impl Iterator<Item = (&[i32], &[i32], &[i32])> {
    let mut at = HEAD + 2 * table[4] as usize;
    (0..table[0]).map(move |_| {
        let head = &table[at..at + CLASS_HEAD];
        let segments = &table[at + CLASS_HEAD..][..head[4] as usize];
        let taps = &table[at + CLASS_HEAD + segments.len()..][..head[7] as usize];
        at += CLASS_HEAD + segments.len() + taps.len();
        (head, segments, taps)
    })
}

/// Rearranges this part's share of the weight: group by group, panel by panel, each `depth` rows of whole vectors.
#[inline(always)]
unsafe fn pack_weight<M: Machine>(g: &ConvGeometry, s: &Sizes, backward: bool, call: &Call, part: Part) {
    let lanes = M::V::LANES;
    let (in_g, out_g) = (s.in_c / g.groups, s.out_c / g.groups);
    let depth = call.table[5] as usize;
    let panels = out_g.div_ceil(2 * lanes);
    let row_len = out_g.next_multiple_of(lanes);
    let (from, to) = part.range(g.groups * panels, 1);
    let (c_g, f) = (g.c / g.groups, g.f);
    // SAFETY: the weight and the workspace are as large as the geometry and the plan say.
    unsafe {
        let weight = call.arg::<f32>(slot::B).cast_const();
        for unit in from..to {
            let (group, panel) = (unit / panels, unit % panels);
            let j0 = panel * 2 * lanes;
            let width = (out_g - j0).min(2 * lanes);
            let vectors = width.div_ceil(lanes);
            let panel_start = call.arg::<f32>(slot::WORK).add(group * depth * row_len + depth * j0);
            for (head, _, taps) in classes(&call.table) {
                for (i, &tap) in taps.iter().enumerate() {
                    let to = panel_start.add((head[6] as usize + i * in_g) * vectors * lanes);
                    let tap = weight.add(tap as usize * c_g * f + group * (f / g.groups));
                    if backward {
                        // Rows of the packed weight are filters, its columns input channels.
                        for v in 0..vectors {
                            let rows = (width - v * lanes).min(lanes);
                            let from = tap.add((j0 + v * lanes) * f);
                            pack::transpose_rows::<M::V>(
                                from,
                                f,
                                rows,
                                in_g,
                                to.add(v * lanes),
                                vectors * lanes,
                                lanes,
                            );
                        }
                    } else {
                        pack::copy_rows::<M::V>(tap.add(j0), f, in_g, width, vectors, to);
                    }
                }
            }
        }
    }
}

/// Computes this part's stripes.
#[inline(always)]
unsafe fn multiply<M: Machine>(g: &ConvGeometry, s: &Sizes, epilogue: &Epilogue, call: &Call, part: Part) {
    let table = &call.table[..];
    let (in_place, first_column, pitch) = (table[1] != 0, table[2] as isize, table[3] as usize);
    let (stripes, depth) = (table[4] as usize, table[5] as usize);
    let lanes = M::V::LANES;
    let (in_g, out_g) = (s.in_c / g.groups, s.out_c / g.groups);
    let row_len = out_g.next_multiple_of(lanes);
    let packed_len = (g.groups * depth * row_len).next_multiple_of(16);
    let (fast, rest) = finish::split(epilogue);
    let (from, to) = part.range(g.n * stripes, 1);
    // SAFETY: stripes are inside the images, panels and padded stripes in the workspace; parts write disjoint stripes
    // of the output.
    unsafe {
        let x = call.arg::<f32>(slot::A).cast_const();
        let work = call.arg::<f32>(slot::WORK);
        let padded = work.add(packed_len + part.index * table[6] as usize);
        for unit in from..to {
            let (image, index) = (unit / stripes, unit % stripes);
            let (row_from, row_to) = stripe(s.out_dims[0], stripes, index);
            let x = x.add(image * s.in_dims[0] * s.in_dims[1] * s.in_c);
            // The address of input row 0, column `first_column`, even if it is outside the copied rows.
            let origin = if in_place {
                x
            } else {
                let (row, rows) = (table[HEAD + 2 * index] as isize, table[HEAD + 2 * index + 1] as usize);
                let window = Window {
                    h: s.in_dims[0],
                    w: s.in_dims[1],
                    c: s.in_c,
                    row,
                    column: first_column,
                    rows,
                    columns: pitch,
                };
                pad::copy(x, padded, &window);
                padded.cast_const().wrapping_offset(-row * (pitch * s.in_c) as isize)
            };
            let out_start = image * s.out_dims[0] * s.out_dims[1] * s.out_c;
            for (head, segments, _) in classes(table) {
                let (r0, r1) = class_rows(head[0] as usize, s.out_step[0], head[2] as usize, row_from, row_to);
                let pixels = (r1.saturating_sub(r0)) * head[3] as usize;
                if pixels == 0 {
                    continue;
                }
                let mut t = Tile {
                    segments: segments.as_ptr(),
                    segment_count: segments.len(),
                    segment_len: head[5] as usize,
                    finish: fast,
                    ..Tile::EMPTY
                };
                let tiles = pixels.div_ceil(tile_shape(M::ISA).rows);
                for group in 0..g.groups {
                    let mut j0 = 0;
                    while j0 < out_g {
                        let width = (out_g - j0).min(2 * lanes);
                        let vectors = width.div_ceil(lanes);
                        let column = out_start + group * out_g + j0;
                        t.b = work
                            .add(group * depth * row_len + depth * j0 + head[6] as usize * vectors * lanes)
                            .cast_const();
                        t.b_step = vectors * lanes;
                        t.lanes = width - (vectors - 1) * lanes;
                        t.c = call.arg::<f32>(slot::C).add(column);
                        t.saved = call.arg::<f32>(slot::SAVED).cast_const().wrapping_add(column);
                        if epilogue.bias && !call.ptr[slot::BIAS].is_null() {
                            t.bias = call.arg::<f32>(slot::BIAS).add(group * out_g + j0);
                        }
                        if epilogue.save_z && !call.ptr[slot::Z].is_null() {
                            t.z = call.arg::<f32>(slot::Z).add(column);
                        }
                        let base = origin.wrapping_add(group * in_g);
                        for tile in 0..tiles {
                            let (first, rows) = stretch(pixels, tiles, tile);
                            let columns = head[3] as usize;
                            let (mut i, mut j) = (r0 + first / columns, first % columns);
                            for row in 0..rows {
                                t.a[row] = base.wrapping_add((i * s.in_step[0] * pitch + j * s.in_step[1]) * s.in_c);
                                let out = [head[0] as usize + i * s.out_step[0], head[1] as usize + j * s.out_step[1]];
                                t.c_row[row] = (out[0] * s.out_dims[1] + out[1]) * s.out_c;
                                j += 1;
                                if j == columns {
                                    (i, j) = (i + 1, 0);
                                }
                            }
                            M::ROWS[rows - 1][vectors - 1](&t);
                            if let Some(rest) = rest {
                                rest.apply::<M::V, M::L>(&t, rows, vectors);
                            }
                        }
                        j0 += 2 * lanes;
                    }
                }
            }
        }
    }
}
