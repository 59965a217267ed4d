//! Operations that put values beside each other, take parts of them, and multiply them element by element.

use super::Operation;
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// `y [rows, widths[0] + widths[1] + ..] = x0 [rows, widths[0]], x1 [rows, widths[1]], ..`, each behind the one before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Concat {
    pub rows: usize,
    /// From one to [`Concat::MOST`] values.
    pub widths: Vec<usize>,
}

impl Concat {
    /// Values that one operation puts beside each other, at most.
    pub const MOST: usize = 8;
    /// The slots of the values, in order.
    pub const SOURCES: [usize; Self::MOST] =
        [concat::X0, concat::X1, concat::X2, concat::X3, concat::X4, concat::X5, concat::X6, concat::X7];

    /// The columns of `y`.
    #[must_use]
    pub fn cols(&self) -> usize {
        self.widths.iter().sum()
    }

    fn elements(&self, source: usize) -> usize {
        self.rows * self.widths.get(source).copied().unwrap_or(0)
    }

    fn has(&self, source: usize) -> bool {
        source < self.widths.len()
    }
}

slots! {
    pub mod concat(op: Concat) {
        X0: in activation [op.elements(0)] if op.has(0),
        X1: in activation [op.elements(1)] if op.has(1),
        X2: in activation [op.elements(2)] if op.has(2),
        X3: in activation [op.elements(3)] if op.has(3),
        X4: in activation [op.elements(4)] if op.has(4),
        X5: in activation [op.elements(5)] if op.has(5),
        X6: in activation [op.elements(6)] if op.has(6),
        X7: in activation [op.elements(7)] if op.has(7),
        Y: out activation [op.rows * op.cols()],
    }
}

impl Operation for Concat {
    table!(concat);

    fn name(&self) -> &'static str {
        "concat"
    }

    fn dims(&self) -> String {
        let widths = self.widths.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        format!("rows={} cols={widths}", self.rows)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.rows * self.cols() * elem) as u64
    }
}

/// `y [rows, width] = x [rows, cols]` from column `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    pub rows: usize,
    pub cols: usize,
    pub from: usize,
    pub width: usize,
}

slots! {
    pub mod slice(op: Slice) {
        X: in activation [op.rows * op.cols],
        Y: out activation [op.rows * op.width],
    }
}

impl Operation for Slice {
    table!(slice);

    fn name(&self) -> &'static str {
        "slice"
    }

    fn dims(&self) -> String {
        format!("rows={} cols={}..{} of {}", self.rows, self.from, self.from + self.width, self.cols)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.rows * self.width * elem) as u64
    }

    fn least_bytes(&self, _slot: usize, _len: usize, elem: usize) -> u64 {
        (self.rows * self.width * elem) as u64
    }
}

/// `y = a * b` for each element, in place on `a` or `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Multiply {
    pub len: usize,
}

slots! {
    pub mod multiply(op: Multiply) {
        A: in activation [op.len],
        B: in activation [op.len],
        Y: out activation [op.len],
    }
}

impl Operation for Multiply {
    table!(multiply);

    fn name(&self) -> &'static str {
        "multiply"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (3 * self.len * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(multiply::A, multiply::Y), (multiply::B, multiply::Y)]
    }
}
