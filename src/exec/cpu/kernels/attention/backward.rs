//! The derivative: each tile of queries loops over its keys, recomputes its probabilities, completes the gradient of
//! its queries, and adds to the gradients of its head's keys and values.

use super::head::{Own, TO_POWERS, TilePlace, Turn, Vectors, attending, exp2, transpose};
use super::product::Product;
use crate::exec::cpu::call::{Call, Part};
use crate::exec::cpu::kernels::lanes::{LANES, Lanes};
use crate::ops::{self, DROPOUT_GROUP, OpKind};
use crate::select::cpu_attention::{KEYS, Scratch, Tiles, chunks, padded, partial_len};

/// The data of a thread.
struct Backward<'a> {
    dy: *const f32,
    qkv: *const f32,
    y: *const f32,
    lse: *const f32,
    dx: *mut f32,
    own: Own<'a>,
}

/// A tile of queries, with the sums that it adds to.
#[derive(Clone, Copy)]
struct Tile {
    place: TilePlace,
    /// Queries.
    rows: usize,
    /// The gradients of the head's keys and values, `[positions, padded]` each.
    key_gradients: *mut f32,
    value_gradients: *mut f32,
}

/// Slots: dy, qkv, y, lse, counter, dx, work. Rows of queries are in `W` vectors. First phase: the gradients of
/// queries, and each chunk's sums for keys and values; these are the gradients if there is one chunk. Second phase: the
/// chunks are added in order.
#[inline(always)]
pub unsafe fn attention_bwd<V: Vectors, const W: usize>(call: &Call, part: Part) {
    use crate::ops::slot::attention_bwd as slot;
    let OpKind::AttentionBwd(ops::AttentionBwd { geometry: g }) = call.op else { return };
    let (tiles, at) = (Tiles::new(&g, V::ISA), Scratch::new(&g, V::ISA, true));
    let (chunks, len) = (chunks(&g, V::ISA), g.positions * padded(&g));
    let partial = call.arg::<f32>(slot::WORK);
    // SAFETY: the scratch memory has room for all chunks and then a share for each part; tiles are within the matrices.
    unsafe {
        let work = partial.add(partial_len(&g, V::ISA) + part.index * at.len);
        let b = Backward {
            dy: call.arg(slot::DY),
            qkv: call.arg(slot::QKV),
            y: call.arg(slot::Y),
            lse: call.arg(slot::LSE),
            dx: call.arg(slot::DX),
            own: Own::new(call, g, at, work, call.arg(slot::COUNTER)),
        };
        let units = g.batch * g.kv_heads;
        if part.phase == 1 {
            let (from, to) = part.range(units, 1);
            for unit in from..to {
                b.add_chunks::<V>(partial.add(unit * chunks * 2 * len), chunks, len);
                b.store::<V>(unit, partial.add(unit * chunks * 2 * len), partial.add(unit * chunks * 2 * len + len));
            }
            return;
        }
        let (from, to) = part.range(units * chunks, 1);
        let mut packed_unit = None;
        for item in from..to {
            let (unit, chunk) = (item / chunks, item % chunks);
            if packed_unit != Some(unit) {
                packed_unit = Some(unit);
                b.pack::<V>(unit);
            }
            let own = [work.add(at.key_gradients), work.add(at.value_gradients)];
            let shared = [partial.wrapping_add(item * 2 * len), partial.wrapping_add(item * 2 * len + len)];
            let [keys, values] = if chunks == 1 { own } else { shared };
            keys.write_bytes(0, len);
            values.write_bytes(0, len);
            let [first, last] = [chunk, chunk + 1].map(|i| tiles.cut(g.group(), i, chunks));
            for tile in first..last {
                let first = tile % tiles.count * tiles.queries;
                b.tile::<V, W>(Tile {
                    place: TilePlace {
                        sample: unit / g.kv_heads,
                        head: unit % g.kv_heads * g.group() + tile / tiles.count,
                        first,
                    },
                    rows: (g.positions - first).min(tiles.queries),
                    key_gradients: keys,
                    value_gradients: values,
                });
            }
            if chunks == 1 {
                b.store::<V>(unit, keys, values);
            }
        }
    }
}

impl Backward<'_> {
    /// Copies the keys and values of a head; keys are rotated. `unit` counts heads of keys of all samples.
    #[inline(always)]
    unsafe fn pack<V: Vectors>(&self, unit: usize) {
        let g = &self.own.g;
        let [_, keys, values] = g.columns(unit % g.kv_heads * g.group());
        for position in 0..g.positions {
            // SAFETY: the row is within the packed values and the copies.
            unsafe {
                let from = self.qkv.add((unit / g.kv_heads * g.positions + position) * g.packed());
                let to = self.own.work.add(position * padded(g));
                Turn::at(g, self.own.angles, position).copy::<V>(from.add(keys), to.add(self.own.at.keys), g.head_dim);
                Turn::NONE.copy::<V>(from.add(values), to.add(self.own.at.values), g.head_dim);
            }
        }
    }

    /// Adds the later chunks of a head to the first.
    #[inline(always)]
    unsafe fn add_chunks<V: Lanes>(&self, partial: *mut f32, chunks: usize, len: usize) {
        for i in (0..2 * len).step_by(LANES) {
            // SAFETY: the head's chunks follow each other.
            unsafe {
                let sum =
                    (1..chunks).fold(V::load(partial.add(i)), |sum, c| sum + V::load(partial.add(c * 2 * len + i)));
                sum.store(partial.add(i));
            }
        }
    }

    /// Writes the gradients of a head's keys and values; those of keys are rotated back.
    #[inline(always)]
    unsafe fn store<V: Vectors>(&self, unit: usize, key_gradients: *const f32, value_gradients: *const f32) {
        let g = &self.own.g;
        let [_, keys, values] = g.columns(unit % g.kv_heads * g.group());
        for position in 0..g.positions {
            // SAFETY: the row is within the gradients.
            unsafe {
                let to = self.dx.add((unit / g.kv_heads * g.positions + position) * g.packed());
                let turn = Turn { is_back: true, ..Turn::at(g, self.own.angles, position) };
                turn.copy::<V>(key_gradients.add(position * padded(g)), to.add(keys), g.head_dim);
                Turn::NONE.copy::<V>(value_gradients.add(position * padded(g)), to.add(values), g.head_dim);
            }
        }
    }

    /// One tile of queries.
    #[inline(always)]
    unsafe fn tile<V: Vectors, const W: usize>(&self, tile: Tile) {
        let (g, at, n) = (&self.own.g, &self.own.at, W * LANES);
        let Tile { place: TilePlace { first, .. }, rows, .. } = tile;
        let keys = g.keys(first + rows - 1);
        // SAFETY: rows of queries are within the matrices, everything else within the scratch memory.
        unsafe {
            self.rows::<V>(tile);
            for (from, to) in [(at.query_rows, at.queries), (at.output_rows, at.outputs)] {
                let from = (self.own.work.add(from).cast_const(), padded(g));
                transpose::<V::Wide>(from, (rows, g.head_dim), (self.own.work.add(to), n));
            }
            for key in (0..keys).step_by(KEYS) {
                let block = [key, (keys - key).min(KEYS)];
                self.products_before::<V, W>(block);
                self.probabilities::<V, W>(tile, block);
                self.products_after::<V, W>(tile, block);
            }
            // The gradients of the queries, as rows again, in the place of those of the output.
            let (sums, gradients) = (self.own.work.add(at.sums).cast_const(), self.own.work.add(at.output_rows));
            transpose::<V::Wide>((sums, n), (g.head_dim, rows), (gradients, padded(g)));
            let [column, ..] = g.columns(tile.place.head);
            for row in 0..rows {
                let to = self.dx.add((tile.place.sample * g.positions + first + row) * g.packed() + column);
                let turn = Turn { is_back: true, scale: g.scale() as f32, ..Turn::at(g, self.own.angles, first + row) };
                turn.copy::<V>(gradients.add(row * padded(g)), to, g.head_dim);
            }
        }
    }

    /// Copies a tile's rows of queries, scaled and rotated, and of the output's gradient, and multiplies the latter
    /// with the output.
    #[inline(always)]
    unsafe fn rows<V: Vectors>(&self, tile: Tile) {
        let (g, at) = (&self.own.g, &self.own.at);
        let ([column, ..], width) = (g.columns(tile.place.head), padded(g));
        for row in 0..tile.rows {
            let position = tile.place.first + row;
            let at_row = tile.place.sample * g.positions + position;
            // SAFETY: the row is within the matrices and the copies.
            unsafe {
                let turn = Turn { scale: g.scale() as f32, ..Turn::at(g, self.own.angles, position) };
                let to = self.own.work.add(at.query_rows + row * width);
                turn.copy::<V>(self.qkv.add(at_row * g.packed() + column), to, g.head_dim);
                let output = at_row * g.width() + tile.place.head * g.head_dim;
                Turn::NONE.copy::<V>(self.dy.add(output), self.own.work.add(at.output_rows + row * width), g.head_dim);
                let mut sum = V::zero();
                for j in (0..g.head_dim).step_by(LANES) {
                    let n = (g.head_dim - j).min(LANES);
                    sum = sum + V::load_n(self.dy.add(output + j), n) * V::load_n(self.y.add(output + j), n);
                }
                *self.own.work.add(at.deltas + row) = sum.sum();
            }
        }
    }

    /// The scores of a block of keys, and the gradients of its weights.
    #[inline(always)]
    unsafe fn products_before<V: Vectors, const W: usize>(&self, [key, count]: [usize; 2]) {
        let (g, at, n, width) = (&self.own.g, &self.own.at, W * LANES, padded(&self.own.g));
        let products = [(at.keys, at.queries, at.scores), (at.values, at.outputs, at.score_gradients)];
        for (a, b, c) in products {
            // SAFETY: the keys are among the copied ones; scores have room for them.
            unsafe {
                let product = Product {
                    a: self.own.work.add(a + key * width),
                    a_steps: [width, 1],
                    b: self.own.work.add(b),
                    b_step: n,
                    c: self.own.work.add(c),
                    c_step: n,
                    depth: g.head_dim,
                    add: false,
                };
                product.run::<V::Wide>(count, n);
            }
        }
    }

    /// Converts scores to weights, with dropped ones set to zero, and the gradients of weights to those of scores.
    #[inline(always)]
    unsafe fn probabilities<V: Vectors, const W: usize>(&self, tile: Tile, [key, count]: [usize; 2]) {
        let (g, at, n) = (&self.own.g, &self.own.at, W * LANES);
        let row = (tile.place.sample * g.heads + tile.place.head) * g.positions + tile.place.first;
        for w in 0..W {
            let here = tile.rows.saturating_sub(w * LANES).min(LANES);
            // SAFETY: scores have room for the keys of a block, and the rows are within `lse`.
            unsafe {
                let scores = self.own.work.add(at.scores + w * LANES);
                let gradients = self.own.work.add(at.score_gradients + w * LANES);
                let lse = V::load_n(self.lse.wrapping_add(row + w * LANES), here) * V::splat(TO_POWERS);
                let delta = V::load(self.own.work.add(at.deltas + w * LANES));
                let kept = self.own.work.add(at.kept).cast::<u16>();
                if let Some(random) = &self.own.random {
                    random.kept(row + w * LANES, key / DROPOUT_GROUP, kept);
                }
                let scale = self.own.random.map(|random| V::splat(random.scale));
                for j in 0..count {
                    let mut p = (V::load(scores.add(j * n)) * V::splat(TO_POWERS) - lse).map(exp2);
                    let mask = attending(g.causal, key + j, tile.place.first + w * LANES);
                    if mask != u16::MAX {
                        p = V::select(V::mask(mask), p, V::zero());
                    }
                    let (mut weight, mut of_weight) = (p, V::load(gradients.add(j * n)));
                    if let Some(scale) = scale {
                        let mask = V::mask(*kept.add(j));
                        weight = V::select(mask, weight * scale, V::zero());
                        of_weight = V::select(mask, of_weight * scale, V::zero());
                    }
                    weight.store(scores.add(j * n));
                    (p * (of_weight - delta)).store(gradients.add(j * n));
                }
            }
        }
    }

    /// Adds the contribution of a block of keys to the gradients of the tile's queries, and that of the tile to the
    /// gradients of keys and values.
    #[inline(always)]
    unsafe fn products_after<V: Vectors, const W: usize>(&self, tile: Tile, [key, count]: [usize; 2]) {
        let (g, at, n, width) = (&self.own.g, &self.own.at, W * LANES, padded(&self.own.g));
        // SAFETY: the keys are among the copied ones; scores have room for them.
        unsafe {
            let of_queries = Product {
                a: self.own.work.add(at.keys + key * width),
                a_steps: [1, width],
                b: self.own.work.add(at.score_gradients),
                b_step: n,
                c: self.own.work.add(at.sums),
                c_step: n,
                depth: count,
                add: key > 0,
            };
            of_queries.run::<V::Wide>(g.head_dim, n);
            let products = [
                (at.scores, at.output_rows, tile.value_gradients),
                (at.score_gradients, at.query_rows, tile.key_gradients),
            ];
            for (a, b, c) in products {
                let product = Product {
                    a: self.own.work.add(a),
                    a_steps: [n, 1],
                    b: self.own.work.add(b),
                    b_step: width,
                    c: c.add(key * width),
                    c_step: width,
                    depth: tile.rows,
                    add: true,
                };
                product.run::<V::Wide>(count, width);
            }
        }
    }
}
