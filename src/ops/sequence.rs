//! Sequences: rows of a table by token, fixed positions, and one position of many.

use super::Operation;
use super::operation::operation;
use super::slots::slots;
use serde::{Deserialize, Serialize};

/// Bytes of a token.
const TOKEN_BYTES: usize = size_of::<i32>();

/// `y [rows, units]`: the row of `weight [vocab, units]` that each of `tokens [rows]` names. A token that names none
/// gives a row of NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Embedding {
    pub rows: usize,
    pub vocab: usize,
    pub units: usize,
}

slots! {
    pub mod embedding(op: Embedding) {
        TOKENS: in [op.rows],
        WEIGHT: in [op.vocab * op.units],
        Y: out activation [op.rows * op.units],
    }
}

operation! {
    Embedding: embedding, "embedding", |op| {
        dims: format!("rows={} vocab={} units={}", op.rows, op.vocab, op.units),
        flops: 0,
        bytes_moved(elem): (op.rows * (2 * op.units * elem + TOKEN_BYTES)) as u64,
        least_bytes(slot, len, elem): {
            let touched = if slot == embedding::WEIGHT { len.min(op.rows * op.units) } else { len };
            (touched * elem) as u64
        },
    }
}

/// Gradient of the table: `dweight [vocab, units]` is the sum of the rows of `dy [rows, units]` whose token names the
/// row, in the order of the tokens. Tokens that name none are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EmbeddingBwd {
    pub rows: usize,
    pub vocab: usize,
    pub units: usize,
    pub accumulate: bool,
}

slots! {
    pub mod embedding_bwd(op: EmbeddingBwd) {
        TOKENS: in [op.rows],
        DY: in activation [op.rows * op.units],
        DWEIGHT_PREV: in [op.vocab * op.units] if op.accumulate,
        DWEIGHT: out [op.vocab * op.units],
    }
}

operation! {
    EmbeddingBwd: embedding_bwd, "embedding_bwd", |op| {
        dims: format!("rows={} vocab={} units={}", op.rows, op.vocab, op.units),
        flops: (op.rows * op.units) as u64,
        bytes_moved(elem): {
            let table = if op.accumulate { 0 } else { op.vocab * op.units };
            ((table + 3 * op.rows * op.units) * elem + op.rows * TOKEN_BYTES) as u64
        },
    }
}

/// `y [n, positions, cols] = x` and, at position `t` in columns `2 i` and `2 i + 1`, the sine and the cosine of
/// `t / 10000^(2 i / cols)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddSinusoids {
    pub n: usize,
    pub positions: usize,
    pub cols: usize,
}

slots! {
    pub mod add_sinusoids(op: AddSinusoids) {
        X: in activation [op.n * op.positions * op.cols],
        Y: out activation [op.n * op.positions * op.cols],
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
    AddSinusoids: add_sinusoids, "add_sinusoids", |op| {
        dims: format!("n={} positions={} cols={}", op.n, op.positions, op.cols),
        flops: ((op.n + 3) * op.positions * op.cols) as u64,
        bytes_moved(elem): (2 * op.n * op.positions * op.cols * elem) as u64,
        in_place: &[(add_sinusoids::X, add_sinusoids::Y)],
        work_ps: op.positions * op.cols * 1_500,
    }
}

/// `y [n, cols]`: position `at` of each sample of `x [n, positions, cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Take {
    pub n: usize,
    pub positions: usize,
    pub cols: usize,
    pub at: usize,
}

slots! {
    pub mod take(op: Take) {
        X: in activation [op.n * op.positions * op.cols],
        Y: out activation [op.n * op.cols],
    }
}

operation! {
    Take: take, "take", |op| {
        dims: format!("n={} positions={} cols={} at={}", op.n, op.positions, op.cols, op.at),
        flops: 0,
        bytes_moved(elem): (2 * op.n * op.cols * elem) as u64,
        least_bytes(_slot, _len, elem): (op.n * op.cols * elem) as u64,
    }
}

/// Gradient of the input of [`Take`]: `dy` at the position that was taken, zero at the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TakeBwd {
    pub n: usize,
    pub positions: usize,
    pub cols: usize,
    pub at: usize,
}

slots! {
    pub mod take_bwd(op: TakeBwd) {
        DY: in activation [op.n * op.cols],
        DX: out activation [op.n * op.positions * op.cols],
    }
}

operation! {
    TakeBwd: take_bwd, "take_bwd", |op| {
        dims: format!("n={} positions={} cols={} at={}", op.n, op.positions, op.cols, op.at),
        flops: 0,
        bytes_moved(elem): (op.n * (op.positions + 1) * op.cols * elem) as u64,
    }
}
