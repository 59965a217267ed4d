//! Matrix products `c [m, n] = a b` with their epilogues.
//!
//! The output is divided into tiles that fit the registers ([`micro`]), of nearly equal height, in panels of columns. A
//! thread computes a range of tiles, panel by panel, so that a panel of `b` stays in its first-level cache. If the
//! layout of `b` does not suit the kernel (see [`crate::select::cpu_gemm`]), the thread that needs a panel rearranges
//! it first. `a` is read in place or, if its rows would map to the same cache sets, rearranged by all threads in a
//! separate phase. Every element is summed in a fixed order, independently of the number of threads.

pub(super) mod finish;
pub(super) mod machine;
pub(super) mod micro;
pub(super) mod pack;
pub(super) mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_x86;

use self::machine::{Machine, for_machine};
use self::micro::Tile;
use self::simd::Vector;
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{Gemm, OpKind, Trans, slot::product as slot};
use crate::select::Isa;
use crate::select::cpu_gemm::{GemmBlocking, PARALLEL_US, cost_us, gemm_blocking, stretch};

/// The kernel of a product for an instruction set; `None` for other operations.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let OpKind::Gemm(g) = op else { return None };
    let run = for_machine!(isa, run);
    let parallel = threads > 1 && cost_us(op, isa) > PARALLEL_US;
    let phases = 1 + usize::from(gemm_blocking(g, isa).pack_a);
    Some(KernelImpl { run, phases, table: Box::default(), parallel })
}

/// Runs one part of a product.
///
/// # Safety
/// As for [`KernelFn`](crate::exec::cpu::call::KernelFn), and the instruction set is available.
#[inline(always)]
unsafe fn run<M: Machine>(call: &Call, part: Part) {
    let OpKind::Gemm(g) = &call.op else { return };
    let plan = gemm_blocking(g, M::ISA);
    // SAFETY: the caller's contract; the workspace is as large as `workspace_bytes` asks.
    unsafe {
        if plan.pack_a && part.phase == 0 {
            pack_a::<M>(g, plan, call, part);
        } else {
            multiply::<M>(g, plan, call, part);
        }
    }
}

/// Rearranges this part's share of `a` into tiles of consecutive rows: reduction block by block, tile by tile.
#[inline(always)]
unsafe fn pack_a<M: Machine>(g: &Gemm, plan: GemmBlocking, call: &Call, part: Part) {
    let (from, to) = part.range(plan.k_blocks * plan.row_tiles, 1);
    for unit in from..to {
        let (k0, k_len) = stretch(g.k, plan.k_blocks, unit / plan.row_tiles);
        let (row0, rows) = stretch(g.m, plan.row_tiles, unit % plan.row_tiles);
        // SAFETY: the stretches are inside `a`; the packed tiles fill `m k` elements of the workspace without overlap.
        unsafe {
            let to = call.arg::<f32>(slot::WORK).add(k0 * g.m + row0 * k_len);
            let a = call.arg::<f32>(slot::A).cast_const();
            match g.trans {
                Trans::Nn | Trans::Nt => {
                    pack::transpose_rows::<M::V>(a.add(row0 * g.k + k0), g.k, rows, k_len, to, rows, rows);
                }
                Trans::Tn => {
                    let mask = M::V::mask(rows);
                    for p in 0..k_len {
                        M::V::load_mask(a.add((k0 + p) * g.m + row0), mask).store_mask(to.add(p * rows), mask);
                    }
                }
            }
        }
    }
}

/// The first tile of share `share`, if the work is divided into `count` equal shares.
fn first_tile(plan: GemmBlocking, last_vectors: usize, share: usize, count: usize) -> usize {
    let full = (plan.panels - 1) * plan.row_tiles;
    let units = 2 * full + last_vectors * plan.row_tiles;
    let unit = units * share / count;
    if unit <= 2 * full { unit / 2 } else { full + (unit - 2 * full) / last_vectors }
}

/// Computes this part's tiles.
#[inline(always)]
unsafe fn multiply<M: Machine>(g: &Gemm, plan: GemmBlocking, call: &Call, part: Part) {
    let lanes = M::V::LANES;
    let columns = 2 * lanes;
    let last_vectors = (g.n - (plan.panels - 1) * columns).div_ceil(lanes);
    let from = first_tile(plan, last_vectors, part.index, part.count);
    let to = first_tile(plan, last_vectors, part.index + 1, part.count);
    let (finish, rest) = finish::split(&g.epilogue);
    let segment = [0i32];
    let mut t = Tile { segments: segment.as_ptr(), segment_count: 1, ..Tile::EMPTY };
    // SAFETY: tiles are inside the operands; packed panels of a thread are in its own share of the workspace.
    unsafe {
        let (a, b) = (call.arg::<f32>(slot::A).cast_const(), call.arg::<f32>(slot::B).cast_const());
        let work = call.arg::<f32>(slot::WORK);
        let packed_b = work.add(plan.packed_a_len(g) + part.index * plan.panel_len(g, M::ISA));
        for k_block in 0..plan.k_blocks {
            let (k0, k_len) = stretch(g.k, plan.k_blocks, k_block);
            t.segment_len = k_len;
            t.add = g.accumulate || k_block > 0;
            let last = k_block + 1 == plan.k_blocks;
            let mut panel = usize::MAX;
            let mut vectors = 2;
            for tile in from..to {
                if tile / plan.row_tiles != panel {
                    panel = tile / plan.row_tiles;
                    let j0 = panel * columns;
                    let width = (g.n - j0).min(columns);
                    vectors = width.div_ceil(lanes);
                    t.lanes = width - (vectors - 1) * lanes;
                    t.c = call.arg::<f32>(slot::C).add(j0);
                    if last {
                        t.finish = finish;
                        t.saved = call.arg::<f32>(slot::SAVED).cast_const().wrapping_add(j0);
                        if g.epilogue.bias && !call.ptr[slot::BIAS].is_null() {
                            t.bias = call.arg::<f32>(slot::BIAS).add(j0);
                        }
                        if g.epilogue.save_z && !call.ptr[slot::Z].is_null() {
                            t.z = call.arg::<f32>(slot::Z).add(j0);
                        }
                    }
                    if plan.pack_b {
                        t.b = packed_b;
                        t.b_step = vectors * lanes;
                        if g.trans == Trans::Nt {
                            for v in 0..vectors {
                                let j = j0 + v * lanes;
                                let rows = (g.n - j).min(lanes);
                                pack::transpose_rows::<M::V>(
                                    b.add(j * g.k + k0),
                                    g.k,
                                    rows,
                                    k_len,
                                    packed_b.add(v * lanes),
                                    t.b_step,
                                    lanes,
                                );
                            }
                        } else {
                            pack::copy_rows::<M::V>(b.add(k0 * g.n + j0), g.n, k_len, width, vectors, packed_b);
                        }
                    } else {
                        t.b = b.add(k0 * g.n + j0);
                        t.b_step = g.n;
                    }
                }
                let (row0, rows) = stretch(g.m, plan.row_tiles, tile % plan.row_tiles);
                for (i, row) in t.c_row.iter_mut().enumerate() {
                    *row = (row0 + i) * g.n;
                }
                if plan.pack_a {
                    t.a[0] = work.add(k0 * g.m + row0 * k_len).cast_const();
                    t.a_step = rows;
                    M::COLUMN[rows - 1][vectors - 1](&t);
                } else if g.trans == Trans::Tn {
                    t.a[0] = a.add(k0 * g.m + row0);
                    t.a_step = g.m;
                    M::COLUMN[rows - 1][vectors - 1](&t);
                } else {
                    for (i, row) in t.a.iter_mut().enumerate().take(rows) {
                        *row = a.add((row0 + i) * g.k + k0);
                    }
                    t.a_step = 1;
                    M::ROWS[rows - 1][vectors - 1](&t);
                }
                if last && let Some(rest) = rest {
                    rest.apply::<M::V>(&t, rows, vectors);
                }
            }
        }
    }
}
