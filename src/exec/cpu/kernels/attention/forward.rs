//! The forward pass: each tile of queries loops once over its keys, with the running maximum of the scores and the
//! running sum.

use super::head::{Own, TO_POWERS, TilePlace, Turn, Vectors, attending, exp2, transpose};
use super::product::Product;
use crate::exec::cpu::call::{Call, Part};
use crate::exec::cpu::kernels::lanes::LANES;
use crate::exec::cpu::kernels::math;
use crate::ops::{self, DROPOUT_GROUP, OpKind};
use crate::select::cpu_attention::{KEYS, Scratch, Tiles, padded};
use std::f32::consts::LN_2;

/// The data of a thread.
struct Forward<'a> {
    qkv: *const f32,
    y: *mut f32,
    lse: *mut f32,
    own: Own<'a>,
}

/// The running maximum of the scores of each query, as a power of two, and the running sum of the exponentials.
#[derive(Clone, Copy)]
struct State<V, const W: usize> {
    max: [V; W],
    sum: [V; W],
}

/// Slots: qkv, counter, y, lse, work. Rows of queries are in `W` vectors.
#[inline(always)]
pub unsafe fn attention<V: Vectors, const W: usize>(call: &Call, part: Part) {
    use crate::ops::slot::attention as slot;
    let OpKind::Attention(ops::Attention { geometry: g }) = call.op else { return };
    let (tiles, at) = (Tiles::new(&g, V::ISA), Scratch::new(&g, V::ISA, false));
    let [from, to] = [part.index, part.index + 1].map(|i| tiles.cut(g.batch * g.heads, i, part.count));
    let mut packed_head = None;
    // SAFETY: the scratch memory has a share for each part; tiles are within the matrices.
    unsafe {
        let f = Forward {
            qkv: call.arg(slot::QKV),
            y: call.arg(slot::Y),
            lse: call.arg(slot::LSE),
            own: Own::new(call, g, at, call.arg::<f32>(slot::WORK).add(part.index * at.len), call.arg(slot::COUNTER)),
        };
        for item in from..to {
            let (sample, head) = (item / tiles.count / g.heads, item / tiles.count % g.heads);
            let kv = (sample, head / g.group());
            if packed_head != Some(kv) {
                packed_head = Some(kv);
                f.pack::<V>(sample, head);
            }
            f.tile::<V, W>(TilePlace { sample, head, first: item % tiles.count * tiles.queries });
        }
    }
}

impl Forward<'_> {
    /// Copies the keys and values of a head; keys are rotated.
    #[inline(always)]
    unsafe fn pack<V: Vectors>(&self, sample: usize, head: usize) {
        let (g, [_, keys, values]) = (&self.own.g, self.own.g.columns(head));
        for position in 0..g.positions {
            // SAFETY: the row is within the packed values and the copies.
            unsafe {
                let from = self.qkv.add((sample * g.positions + position) * g.packed());
                let to = self.own.work.add(position * padded(g));
                Turn::at(g, self.own.angles, position).copy::<V>(from.add(keys), to.add(self.own.at.keys), g.head_dim);
                Turn::NONE.copy::<V>(from.add(values), to.add(self.own.at.values), g.head_dim);
            }
        }
    }

    /// One tile of queries.
    #[inline(always)]
    unsafe fn tile<V: Vectors, const W: usize>(&self, tile: TilePlace) {
        let (g, at, n) = (&self.own.g, &self.own.at, W * LANES);
        let rows = (g.positions - tile.first).min(n);
        let keys = g.keys(tile.first + rows - 1);
        let [column, ..] = g.columns(tile.head);
        // SAFETY: rows of queries are within the packed values, everything else within the scratch memory.
        unsafe {
            for row in 0..rows {
                let from = self.qkv.add((tile.sample * g.positions + tile.first + row) * g.packed() + column);
                let turn =
                    Turn { scale: g.scale() as f32 * TO_POWERS, ..Turn::at(g, self.own.angles, tile.first + row) };
                turn.copy::<V>(from, self.own.work.add(at.query_rows + row * padded(g)), g.head_dim);
            }
            let queries = self.own.work.add(at.queries);
            let query_rows = self.own.work.add(at.query_rows).cast_const();
            transpose::<V::Wide>((query_rows, padded(g)), (rows, g.head_dim), (queries, n));
            let mut state = State { max: [V::splat(f32::NEG_INFINITY); W], sum: [V::zero(); W] };
            for key in (0..keys).step_by(KEYS) {
                self.block::<V, W>(tile, [key, (keys - key).min(KEYS)], &mut state);
            }
            self.finish::<V, W>(tile, rows, state);
        }
    }

    /// Processes a block of keys, given by its first key and their number: scores, probabilities, and their
    /// contribution to the output.
    #[inline(always)]
    unsafe fn block<V: Vectors, const W: usize>(
        &self,
        tile: TilePlace,
        [key, count]: [usize; 2],
        state: &mut State<V, W>,
    ) {
        let (g, at, n, width) = (&self.own.g, &self.own.at, W * LANES, padded(&self.own.g));
        // SAFETY: the keys are among the copied ones; scores have room for them.
        unsafe {
            let (scores, sums) = (self.own.work.add(at.scores), self.own.work.add(at.sums));
            let of_scores = Product {
                a: self.own.work.add(at.keys + key * width),
                a_steps: [width, 1],
                b: self.own.work.add(at.queries),
                b_step: n,
                c: scores,
                c_step: n,
                depth: g.head_dim,
                add: false,
            };
            of_scores.run::<V::Wide>(count, n);
            let before = state.max;
            for (w, &before) in before.iter().enumerate() {
                let (scores, first) = (scores.add(w * LANES), tile.first + w * LANES);
                let mut max = before;
                for j in 0..count {
                    max = max.max(masked::<V>(scores.add(j * n), attending(g.causal, key + j, first)));
                }
                state.max[w] = max;
                if key > 0 {
                    let rescale = (before - max).map(exp2);
                    state.sum[w] = state.sum[w] * rescale;
                    scale_rows(sums.add(w * LANES), [g.head_dim, n], rescale);
                }
                let kept = self.kept(tile, key, w);
                let mut sum = state.sum[w];
                for j in 0..count {
                    let p = (V::load(scores.add(j * n)) - max).map(exp2);
                    sum = sum + p;
                    let p = if kept.is_null() { p } else { V::select(V::mask(*kept.add(j)), p, V::zero()) };
                    p.store(scores.add(j * n));
                }
                state.sum[w] = sum;
            }
            let of_output = Product {
                a: self.own.work.add(at.values + key * width),
                a_steps: [1, width],
                b: scores,
                b_step: n,
                c: sums,
                c_step: n,
                depth: count,
                add: key > 0,
            };
            of_output.run::<V::Wide>(g.head_dim, n);
        }
    }

    /// Which probabilities of a block are kept, for vector `w` of the queries; null if all are kept.
    #[inline(always)]
    unsafe fn kept(&self, tile: TilePlace, key: usize, w: usize) -> *const u16 {
        let Some(random) = &self.own.random else { return std::ptr::null() };
        let row = (tile.sample * self.own.g.heads + tile.head) * self.own.g.positions + tile.first + w * LANES;
        // SAFETY: the scratch memory has a word for each key of a block.
        unsafe {
            let kept = self.own.work.add(self.own.at.kept).cast::<u16>();
            random.kept(row, key / DROPOUT_GROUP, kept);
            kept
        }
    }

    /// Divides the sums and writes the rows of the output.
    #[inline(always)]
    unsafe fn finish<V: Vectors, const W: usize>(&self, tile: TilePlace, rows: usize, state: State<V, W>) {
        let (g, n) = (&self.own.g, W * LANES);
        let scale = V::splat(self.own.random.map_or(1.0, |random| random.scale));
        // SAFETY: the rows are within the output.
        unsafe {
            let sums = self.own.work.add(self.own.at.sums);
            let lse = self.lse.add((tile.sample * g.heads + tile.head) * g.positions + tile.first);
            for w in 0..W {
                let share = scale / state.sum[w];
                scale_rows(sums.add(w * LANES), [g.head_dim, n], share);
                let here = rows.saturating_sub(w * LANES).min(LANES);
                if here > 0 {
                    (state.max[w] * V::splat(LN_2) + state.sum[w].map(math::ln)).store_n(lse.add(w * LANES), here);
                }
            }
            let row = tile.sample * g.positions + tile.first;
            let y = self.y.add(row * g.width() + tile.head * g.head_dim);
            transpose::<V::Wide>((sums.cast_const(), n), (g.head_dim, rows), (y, g.width()));
        }
    }
}

/// Multiplies a vector of each of `rows` rows, which are `step` elements apart, by `factor`.
///
/// # Safety
/// The rows are valid for reads and writes.
#[inline(always)]
unsafe fn scale_rows<V: Vectors>(first: *mut f32, [rows, step]: [usize; 2], factor: V) {
    for row in 0..rows {
        // SAFETY: the caller promises the rows.
        unsafe {
            let at = first.add(row * step);
            (V::load(at) * factor).store(at);
        }
    }
}

/// Loads a vector of scores; masked ones become negative infinity, in memory too.
#[inline(always)]
unsafe fn masked<V: Vectors>(scores: *mut f32, mask: u16) -> V {
    // SAFETY: the caller has a vector of scores there.
    unsafe {
        let all = V::load(scores);
        if mask == u16::MAX {
            return all;
        }
        let seen = V::select(V::mask(mask), all, V::splat(f32::NEG_INFINITY));
        seen.store(scores);
        seen
    }
}
