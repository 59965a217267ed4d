//! Matrix products `c [m, n] = a b` with their epilogues.
//!
//! The output is divided into tiles that fit the registers ([`micro`]), of nearly equal height, in panels of columns. A
//! thread computes its tiles panel by panel, so that a panel of `b` stays in its first-level cache. If the layout of
//! `b` does not suit the kernel (see [`crate::select::cpu_gemm`]), each thread that needs a panel rearranges it first.
//! `a` is read in place or, if its rows would map to the same cache sets, rearranged by all threads in a separate
//! phase. If the reduction is over rows, and the output is small beside them, parts of the reduction have separate
//! sums, so that a thread reads its own rows; a last phase adds them. Every element is summed in a fixed order,
//! independently of the number of threads.

pub(super) mod finish;
pub(super) mod machine;
pub(super) mod micro;
pub(super) mod pack;
pub(super) mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_x86;

use self::machine::{Machine, for_machine};
use self::micro::Tile;
use self::simd::{MAX_LANES, Vector};
use crate::exec::cpu::call::{Call, KernelImpl, Part};
use crate::ops::{Gemm, OpKind, Trans, slot::product as slot};
use crate::select::Isa;
use crate::select::cpu_gemm::{GemmBlocking, PARALLEL_US, cost_us, gemm_blocking, stretch};
use std::cmp::Ordering;

/// The kernel of a product for an instruction set; `None` for other operations.
#[must_use]
pub fn resolve(op: &OpKind, isa: Isa, threads: usize) -> Option<KernelImpl> {
    let OpKind::Gemm(g) = op else { return None };
    let run = for_machine!(isa, run);
    let parallel = threads > 1 && cost_us(op, isa) > PARALLEL_US;
    Some(KernelImpl { run, phases: gemm_blocking(g, isa).phases(), table: Box::default(), parallel })
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
        match part.phase.cmp(&usize::from(plan.pack_a)) {
            Ordering::Less => pack_a::<M>(g, plan, call, part),
            Ordering::Equal => multiply::<M>(g, plan, call, part),
            Ordering::Greater if plan.sums > 1 => {
                let sums = call.arg::<f32>(slot::WORK).add(plan.packed_a_len(g)).cast_const();
                let count = [plan.sums, plan.sum_len(g)];
                add_sums::<M::V>(call.arg(slot::C), g.m * g.n, g.accumulate, sums, count, part);
            }
            // The phases were counted for a product of more rows.
            Ordering::Greater => {}
        }
    }
}

/// Adds separate sums in order to zero, or to the contents of the output: each part some of its `len` elements. There
/// are `count` sums, one every `stride` elements.
///
/// # Safety
/// Runs only if `V` may be used; output and sums are valid.
#[inline(always)]
pub(super) unsafe fn add_sums<V: Vector>(
    out: *mut f32,
    len: usize,
    accumulate: bool,
    sums: *const f32,
    [count, stride]: [usize; 2],
    part: Part,
) {
    let (mut at, to) = part.range(len, MAX_LANES);
    while at < to {
        let lanes = (to - at).min(V::LANES);
        // SAFETY: the elements are inside the output and the sums.
        unsafe {
            let mask = V::mask(lanes);
            let mut total = if accumulate { V::load_mask(out.add(at), mask) } else { V::splat(0.0) };
            for i in 0..count {
                total = total.add(V::load_mask(sums.add(i * stride + at), mask));
            }
            total.store_mask(out.add(at), mask);
        }
        at += lanes;
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

/// The fewest rows for each part with which parts are rows of a product. Each part then rearranges all panels of `b`
/// for itself, which takes a small share of the time of so many rows.
const ROWS_OF_PART: usize = 256;

/// The first tile of share `share`, if the work is divided into `count` equal shares. Tiles are counted through all
/// separate sums.
fn first_tile(plan: GemmBlocking, last_vectors: usize, share: usize, count: usize) -> usize {
    let full = (plan.panels - 1) * plan.row_tiles;
    let units = 2 * full + last_vectors * plan.row_tiles;
    let unit = plan.sums * units * share / count;
    let (sum, unit) = (unit / units, unit % units);
    sum * (full + plan.row_tiles) + if unit <= 2 * full { unit / 2 } else { full + (unit - 2 * full) / last_vectors }
}

/// The tiles of each sum and panel that one part computes, as a range of the numbers of all tiles of the sum. If there
/// are many rows, and `a` is larger than `b`, a part has all columns of its rows: only `b` is read by all threads, and
/// most operations divide rows, so that a thread finds its rows in its caches. Otherwise it has a range of the tiles,
/// sum by sum and panel by panel.
fn own_tiles<M: Machine>(g: &Gemm, plan: GemmBlocking, part: Part) -> impl Fn(usize, usize) -> [usize; 2] {
    let (lanes, rows) = (M::V::LANES, plan.row_tiles);
    let last_vectors = (g.n - (plan.panels - 1) * 2 * lanes).div_ceil(lanes);
    let by_rows = g.trans != Trans::Tn && g.m >= g.n && g.m >= ROWS_OF_PART * part.count;
    let shares = [part.index, part.index + 1];
    let own_rows = shares.map(|share| rows * share / part.count);
    let own = shares.map(|share| first_tile(plan, last_vectors, share, part.count));
    move |sum, panel| {
        if by_rows {
            return own_rows.map(|row| panel * rows + row);
        }
        let before = sum * plan.panels * rows;
        let first = before + panel * rows;
        own.map(|tile| tile.clamp(first, first + rows) - before)
    }
}

/// Computes this part's tiles.
#[inline(always)]
unsafe fn multiply<M: Machine>(g: &Gemm, plan: GemmBlocking, call: &Call, part: Part) {
    let tiles = own_tiles::<M>(g, plan, part);
    let (finish, rest) = finish::split(&g.epilogue);
    let segment = [0i32];
    let mut t = Tile { segments: segment.as_ptr(), segment_count: 1, ..Tile::EMPTY };
    // SAFETY: tiles are inside the operands; separate sums are in the workspace, and packed panels of a part are in its
    // own share of it.
    unsafe {
        let (a, work) = (call.arg::<f32>(slot::A).cast_const(), call.arg::<f32>(slot::WORK));
        let sums = work.add(plan.packed_a_len(g));
        let packed_b = sums.add(plan.sums * plan.sum_len(g) + part.index * plan.panel_len(g, M::ISA));
        for k_block in 0..plan.k_blocks {
            let (k0, k_len) = stretch(g.k, plan.k_blocks, k_block);
            let sum = k_block * plan.sums / plan.k_blocks;
            let c = if plan.sums > 1 { sums.add(sum * plan.sum_len(g)) } else { call.arg::<f32>(slot::C) };
            t.segment_len = k_len;
            let first = k_block == (sum * plan.k_blocks).div_ceil(plan.sums);
            t.add = !first || (g.accumulate && plan.sums == 1);
            let last = k_block + 1 == plan.k_blocks;
            for panel in 0..plan.panels {
                let [from, to] = tiles(sum, panel);
                if from >= to {
                    continue;
                }
                let j0 = panel * 2 * M::V::LANES;
                t.c = c.add(j0);
                if last {
                    t.finish = finish;
                    place_epilogue(&mut t, g, call, j0);
                }
                let vectors = place_panel::<M>(&mut t, g, plan, call, [k0, j0], packed_b);
                for tile in from..to {
                    let (row0, rows) = stretch(g.m, plan.row_tiles, tile - panel * plan.row_tiles);
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
                        M::ROWS[rows - 1][vectors - 1](&t);
                    }
                    if last && let Some(rest) = rest {
                        rest.apply::<M::V, M::L>(&t, rows, vectors);
                    }
                }
            }
        }
    }
}

/// Sets what the epilogue reads and writes in the panel from column `j0` on.
///
/// # Safety
/// The operands of the call are valid.
#[inline(always)]
unsafe fn place_epilogue(t: &mut Tile, g: &Gemm, call: &Call, j0: usize) {
    // SAFETY: the column is inside the operands.
    unsafe {
        t.saved = call.arg::<f32>(slot::SAVED).cast_const().wrapping_add(j0);
        if g.epilogue.bias && !call.ptr[slot::BIAS].is_null() {
            t.bias = call.arg::<f32>(slot::BIAS).add(j0);
        }
        if g.epilogue.save_z && !call.ptr[slot::Z].is_null() {
            t.z = call.arg::<f32>(slot::Z).add(j0);
        }
    }
}

/// Sets the second factor of the panel from column `j0` on and from index `k0` of the sum on; rearranges it to
/// `packed_b` if the plan says so. Returns the number of vectors in a row of the panel.
///
/// # Safety
/// The operands of the call are valid, `packed_b` has room for a panel, and the instruction set is available.
#[inline(always)]
unsafe fn place_panel<M: Machine>(
    t: &mut Tile,
    g: &Gemm,
    plan: GemmBlocking,
    call: &Call,
    [k0, j0]: [usize; 2],
    packed_b: *mut f32,
) -> usize {
    let (lanes, k_len) = (M::V::LANES, t.segment_len);
    let width = (g.n - j0).min(2 * lanes);
    let vectors = width.div_ceil(lanes);
    t.lanes = width - (vectors - 1) * lanes;
    // SAFETY: the panel is inside the operands.
    unsafe {
        let b = call.arg::<f32>(slot::B).cast_const();
        if !plan.pack_b {
            (t.b, t.b_step) = (b.add(k0 * g.n + j0), g.n);
            return vectors;
        }
        (t.b, t.b_step) = (packed_b, vectors * lanes);
        if g.trans != Trans::Nt {
            pack::copy_rows::<M::V>(b.add(k0 * g.n + j0), g.n, k_len, width, vectors, packed_b);
            return vectors;
        }
        for v in 0..vectors {
            let j = j0 + v * lanes;
            let (from, to) = (b.add(j * g.k + k0), packed_b.add(v * lanes));
            pack::transpose_rows::<M::V>(from, g.k, (g.n - j).min(lanes), k_len, to, t.b_step, lanes);
        }
    }
    vectors
}
