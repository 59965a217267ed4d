//! How the CPU's kernels divide attention: tiles of queries, blocks of keys, chunks of a head's work, and scratch
//! memory. Only the number of scratch memories depends on the number of threads.

use crate::ops::{self, AttentionGeometry, OpKind};
use crate::select::target::Isa;

/// The number of keys whose scores with a tile of queries are in memory at once: scores and their gradients stay in the
/// first-level cache, and dropped probabilities use whole groups of random numbers.
pub const KEYS: usize = ops::DROPOUT_GROUP;

/// Rows begin at multiples of this number of elements, so that they are read and written in whole vectors.
const LINE: usize = 16;

/// The number of pieces of work that threads should have to share, if the work is large enough to be divided.
const PIECES: usize = 16;

/// The smallest number of tiles of queries in a chunk of a head's work.
const TILES_PER_CHUNK: usize = 4;

/// The tiles of queries of heads, in the order in which they are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiles {
    /// Queries in a tile.
    pub queries: usize,
    /// Tiles of a head.
    pub count: usize,
    causal: bool,
}

impl Tiles {
    #[must_use]
    pub const fn new(g: &AttentionGeometry, isa: Isa) -> Self {
        let queries = queries(g, isa);
        Self { queries, count: g.positions.div_ceil(queries), causal: g.causal }
    }

    /// The first tile of share `index` of `of` equal shares of the work on `heads` heads. If positions attend only to
    /// earlier ones, the work of a tile is proportional to the number of tiles up to it.
    #[must_use]
    pub fn cut(&self, heads: usize, index: usize, of: usize) -> usize {
        let before = |tile: usize| if self.causal { tile * (tile + 1) / 2 } else { tile };
        let of_head = before(self.count);
        let target = heads * of_head * index / of;
        let (head, rest) = (target / of_head, target % of_head);
        head * self.count + (0..self.count).find(|tile| before(*tile) >= rest).unwrap_or(self.count)
    }
}

/// Queries in a tile, 16 or 32. More of them read keys and values less often and fill wider vectors; fewer compute
/// fewer masked scores in causal attention.
#[must_use]
pub const fn queries(g: &AttentionGeometry, isa: Isa) -> usize {
    let least = match isa {
        Isa::Avx512 => LINE + 1,
        Isa::Avx2 | Isa::Portable => 128,
    };
    if g.positions < least { LINE } else { 2 * LINE }
}

/// Features of a head, rounded up to whole vectors.
#[must_use]
pub const fn padded(g: &AttentionGeometry) -> usize {
    g.head_dim.next_multiple_of(LINE)
}

/// The number of chunks into which the derivative divides the work on the keys and values of one head: each has
/// separate sums, which are added in order.
#[must_use]
pub fn chunks(g: &AttentionGeometry, isa: Isa) -> usize {
    let tiles = g.group() * Tiles::new(g, isa).count;
    PIECES.div_ceil(g.batch * g.kv_heads).min(tiles / TILES_PER_CHUNK).max(1)
}

/// Floats of the gradients of keys and values of all chunks; 0 if there is one chunk.
#[must_use]
pub fn partial_len(g: &AttentionGeometry, isa: Isa) -> usize {
    let chunks = chunks(g, isa);
    if chunks > 1 { g.batch * g.kv_heads * chunks * 2 * g.positions * padded(g) } else { 0 }
}

/// The offsets of the parts of a thread's scratch memory, in floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// `[positions, padded]`: the keys of a head, rotated.
    pub keys: usize,
    /// `[positions, padded]`
    pub values: usize,
    /// `[queries, padded]`: scaled and rotated.
    pub query_rows: usize,
    /// `[head_dim, queries]`
    pub queries: usize,
    /// `[KEYS, queries]`: scores, then probabilities.
    pub scores: usize,
    /// `[head_dim, queries]`: the output, or the gradient of the queries.
    pub sums: usize,
    /// `[KEYS]` words with a bit for each of 16 queries.
    pub kept: usize,
    /// `[positions, padded]` each: gradients of keys and of values.
    pub key_gradients: usize,
    pub value_gradients: usize,
    /// `[queries, padded]`
    pub output_rows: usize,
    /// `[head_dim, queries]`: gradients of the output.
    pub outputs: usize,
    /// `[KEYS, queries]`: gradients of the scores.
    pub score_gradients: usize,
    /// `[queries]`: products of the output with its gradient.
    pub deltas: usize,
    /// The number of floats of all parts.
    pub len: usize,
}

impl Scratch {
    /// The scratch memory of the operation, or of its derivative.
    #[must_use]
    pub fn new(g: &AttentionGeometry, isa: Isa, is_derivative: bool) -> Self {
        let (n, d, width) = (queries(g, isa), g.head_dim, padded(g));
        let mut at = Self::default();
        let mut take = |floats: usize| {
            let start = at.len;
            at.len += floats.next_multiple_of(LINE);
            start
        };
        let [keys, values] = [(); 2].map(|()| take(g.positions * width));
        let [query_rows, queries, scores, sums] = [n * width, d * n, KEYS * n, d * n].map(&mut take);
        let kept = take(KEYS / 2);
        let mut out = Self { keys, values, query_rows, queries, scores, sums, kept, ..Self::default() };
        if is_derivative {
            [out.key_gradients, out.value_gradients] = [(); 2].map(|()| take(g.positions * width));
            [out.output_rows, out.outputs, out.score_gradients, out.deltas] =
                [n * width, d * n, KEYS * n, n].map(&mut take);
        }
        Self { len: at.len, ..out }
    }
}

/// Bytes of scratch memory of an operation of this family with up to `threads` threads; `None` for others.
#[must_use]
pub fn workspace_bytes(op: &OpKind, isa: Isa, threads: usize) -> Option<usize> {
    let floats = match op {
        OpKind::Attention(ops::Attention { geometry: g }) => threads * Scratch::new(g, isa, false).len,
        OpKind::AttentionBwd(ops::AttentionBwd { geometry: g }) => {
            partial_len(g, isa) + threads * Scratch::new(g, isa, true).len
        }
        _ => return None,
    };
    Some(floats * size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Scalar;

    fn geometry(batch: usize, positions: usize, causal: bool) -> AttentionGeometry {
        let (dropout, stream) = (Scalar::new(0.0), 0);
        AttentionGeometry {
            batch,
            positions,
            heads: 4,
            kv_heads: 2,
            head_dim: 20,
            causal,
            rotary: false,
            dropout,
            stream,
        }
    }

    #[test]
    fn shares_cover_all_tiles_once_and_are_nearly_equal() {
        for causal in [false, true] {
            for (positions, heads, of) in [(1, 1, 5), (40, 3, 2), (1_000, 1, 7), (1_000, 8, 16), (64, 64, 2)] {
                let tiles = Tiles::new(&geometry(1, positions, causal), Isa::Avx2);
                let cuts: Vec<usize> = (0..=of).map(|i| tiles.cut(heads, i, of)).collect();
                assert!(cuts.is_sorted() && cuts[0] == 0 && cuts[of] == heads * tiles.count, "{cuts:?}");
                let work = |tile: usize| if causal { tile % tiles.count + 1 } else { 1 };
                let shares: Vec<usize> = cuts.windows(2).map(|c| (c[0]..c[1]).map(work).sum()).collect();
                let (most, all) = (shares.iter().max().unwrap(), shares.iter().sum::<usize>());
                assert!(*most <= all / of + 2 * work(tiles.count - 1), "{shares:?}");
            }
        }
    }

    #[test]
    fn few_heads_of_many_positions_are_cut_and_memory_grows_with_the_positions() {
        assert_eq!(chunks(&geometry(16, 64, true), Isa::Avx2), 1);
        assert_eq!(chunks(&geometry(1, 16, true), Isa::Avx2), 1);
        assert_eq!(chunks(&geometry(1, 1_024, true), Isa::Avx2), 8);
        assert_eq!(chunks(&geometry(1, 64, false), Isa::Avx2), 2);
        let bytes = |positions| {
            let op = OpKind::AttentionBwd(ops::AttentionBwd { geometry: geometry(1, positions, true) });
            workspace_bytes(&op, Isa::Avx2, 2).unwrap()
        };
        assert!(bytes(8_192) < 9 * bytes(1_024));
    }
}
