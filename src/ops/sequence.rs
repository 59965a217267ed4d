//! Sequences: rows of a table by token, fixed positions, and one position of many.

use super::Operation;
use super::slots::{slots, table};
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

impl Operation for Embedding {
    table!(embedding);

    fn name(&self) -> &'static str {
        "embedding"
    }

    fn dims(&self) -> String {
        format!("rows={} vocab={} units={}", self.rows, self.vocab, self.units)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.rows * (2 * self.units * elem + TOKEN_BYTES)) as u64
    }

    fn least_bytes(&self, slot: usize, len: usize, elem: usize) -> u64 {
        let touched = if slot == embedding::WEIGHT { len.min(self.rows * self.units) } else { len };
        (touched * elem) as u64
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

impl Operation for EmbeddingBwd {
    table!(embedding_bwd);

    fn name(&self) -> &'static str {
        "embedding_bwd"
    }

    fn dims(&self) -> String {
        format!("rows={} vocab={} units={}", self.rows, self.vocab, self.units)
    }

    fn flops(&self) -> u64 {
        (self.rows * self.units) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let table = if self.accumulate { 0 } else { self.vocab * self.units };
        ((table + 3 * self.rows * self.units) * elem + self.rows * TOKEN_BYTES) as u64
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

impl Operation for AddSinusoids {
    table!(add_sinusoids);

    fn name(&self) -> &'static str {
        "add_sinusoids"
    }

    fn dims(&self) -> String {
        format!("n={} positions={} cols={}", self.n, self.positions, self.cols)
    }

    fn flops(&self) -> u64 {
        ((self.n + 3) * self.positions * self.cols) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.n * self.positions * self.cols * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(add_sinusoids::X, add_sinusoids::Y)]
    }

    fn work_ps(&self) -> usize {
        self.positions * self.cols * 1_500
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

impl Operation for Take {
    table!(take);

    fn name(&self) -> &'static str {
        "take"
    }

    fn dims(&self) -> String {
        format!("n={} positions={} cols={} at={}", self.n, self.positions, self.cols, self.at)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.n * self.cols * elem) as u64
    }

    fn least_bytes(&self, _slot: usize, _len: usize, elem: usize) -> u64 {
        (self.n * self.cols * elem) as u64
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

impl Operation for TakeBwd {
    table!(take_bwd);

    fn name(&self) -> &'static str {
        "take_bwd"
    }

    fn dims(&self) -> String {
        format!("n={} positions={} cols={} at={}", self.n, self.positions, self.cols, self.at)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.n * (self.positions + 1) * self.cols * elem) as u64
    }
}
