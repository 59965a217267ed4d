//! Sequences: rows of a table by token, fixed positions, and the selection of one position.

use super::Operation;
use super::operation::{dims, is_zero, operation};

/// Bytes of a token.
const TOKEN_BYTES: usize = size_of::<i32>();

operation! {
    /// `y [rows, units]`: the row of `weight [vocab, units]` that each of `tokens [rows]` names. A token that names
    /// none gives a row of NaN. Where there are `positions`, which only plans for GPUs have, the row of
    /// `position [positions, units]` is added that the place of the token in its sample names.
    pub struct Embedding {
        pub rows: usize,
        pub vocab: usize,
        pub units: usize,
        #[serde(default, skip_serializing_if = "is_zero")]
        pub positions: usize,
    }
    slots embedding(op) {
        TOKENS: in [op.rows],
        WEIGHT: in [op.vocab * op.units],
        Y: out activation [op.rows * op.units],
        POSITION: in [op.positions * op.units] if op.positions > 0,
    }
    "embedding" => {
        dims: dims!(op: rows vocab units),
        flops: (op.rows * op.units * usize::from(op.positions > 0)) as u64,
        is_for_gpus: op.positions > 0,
        bytes_moved(elem): {
            let positions = op.positions * op.units * elem;
            (op.rows * (2 * op.units * elem + TOKEN_BYTES) + positions) as u64
        },
        least_bytes(slot, len, elem): {
            let touched = if slot == embedding::WEIGHT { len.min(op.rows * op.units) } else { len };
            (touched * elem) as u64
        },
    }
}

operation! {
    /// Gradient of the table: `dweight [vocab, units]` is the sum of the rows of `dy [rows, units]` whose token selects
    /// the row, in the order of the tokens. Invalid tokens are left out.
    pub struct EmbeddingBwd { pub rows: usize, pub vocab: usize, pub units: usize, pub accumulate: bool }
    slots embedding_bwd(op) {
        TOKENS: in [op.rows],
        DY: in activation [op.rows * op.units],
        DWEIGHT_PREV: in [op.vocab * op.units] if op.accumulate,
        DWEIGHT: out [op.vocab * op.units],
    }
    "embedding_bwd" => {
        dims: dims!(op: rows vocab units),
        flops: (op.rows * op.units) as u64,
        bytes_moved(elem): {
            let table = if op.accumulate { 0 } else { op.vocab * op.units };
            ((table + 3 * op.rows * op.units) * elem + op.rows * TOKEN_BYTES) as u64
        },
    }
}

operation! {
    /// `y [n, positions, cols] = x` and, at position `t` in columns `2 i` and `2 i + 1`, the sine and the cosine of
    /// `t / 10000^(2 i / cols)`.
    pub struct AddSinusoids { pub n: usize, pub positions: usize, pub cols: usize }
    slots add_sinusoids(op) {
        X: in activation [op.n * op.positions * op.cols],
        Y: out activation [op.n * op.positions * op.cols],
    }
    "add_sinusoids" => {
        dims: dims!(op: n positions cols),
        flops: ((op.n + 3) * op.positions * op.cols) as u64,
        in_place: &[(add_sinusoids::X, add_sinusoids::Y)],
        work_ps: op.positions * op.cols * 1_500,
    }
}

impl AddSinusoids {
    /// The angle from one position to the next in columns `2 pair` and `2 pair + 1`, in radians.
    #[must_use]
    pub fn angle(&self, pair: usize) -> f64 {
        10_000f64.powf(-((2 * pair) as f64) / self.cols as f64)
    }
}

operation! {
    /// `y [n, cols]`: position `at` of each sample of `x [n, positions, cols]`.
    pub struct Take { pub n: usize, pub positions: usize, pub cols: usize, pub at: usize }
    slots take(op) { X: in activation [op.n * op.positions * op.cols], Y: out activation [op.n * op.cols] }
    "take" => {
        dims: dims!(op: n positions cols at),
        flops: 0,
        bytes_moved(elem): (2 * op.n * op.cols * elem) as u64,
        least_bytes(_slot, _len, elem): (op.n * op.cols * elem) as u64,
    }
}

operation! {
    /// Gradient of the input of [`Take`]: `dy` at the selected position, zero at the others.
    pub struct TakeBwd { pub n: usize, pub positions: usize, pub cols: usize, pub at: usize }
    slots take_bwd(op) { DY: in activation [op.n * op.cols], DX: out activation [op.n * op.positions * op.cols] }
    "take_bwd" => {
        dims: dims!(op: n positions cols at),
        flops: 0,
    }
}
