//! Operations that concatenate values, slice them, and multiply them element by element.

use super::Operation;
use super::elementwise::pairwise;
use super::operation::{dims, operation};
use super::slots::slots;
use serde::{Deserialize, Serialize};

/// `y [rows, widths[0] + widths[1] + ..] = x0 [rows, widths[0]], x1 [rows, widths[1]], ..`, concatenated along the
/// columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Concat {
    pub rows: usize,
    /// From one to [`Concat::MOST`] values.
    pub widths: Vec<usize>,
}

impl Concat {
    /// The largest number of values that one operation concatenates.
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

operation! {
    Concat: concat, "concat", |op| {
        dims: {
            let widths = op.widths.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
            format!("rows={} cols={widths}", op.rows)
        },
        flops: 0,
        bytes_moved(elem): (2 * op.rows * op.cols() * elem) as u64,
    }
}

operation! {
    /// `y [rows, width] = x [rows, cols]` from column `from` on.
    pub struct Slice { pub rows: usize, pub cols: usize, pub from: usize, pub width: usize }
    slots slice(op) { X: in activation [op.rows * op.cols], Y: out activation [op.rows * op.width] }
    "slice" => {
        dims: format!("rows={} cols={}..{} of {}", op.rows, op.from, op.from + op.width, op.cols),
        flops: 0,
        bytes_moved(elem): (2 * op.rows * op.width * elem) as u64,
        least_bytes(_slot, _len, elem): (op.rows * op.width * elem) as u64,
    }
}

pairwise! {
    /// `y = a * b`, in place on `a` or `b`.
    Multiply: multiply, "multiply"
}
