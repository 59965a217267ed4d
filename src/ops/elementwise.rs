//! Operations that move or add elements, and sums over the rows of a matrix.

use super::Operation;
use super::chunks::row_chunks;
use super::geometry::{Epilogue, Scalar};
use super::operation::{dims, operation};
use crate::model::Activation;

operation! {
    /// `y = 0`.
    pub struct Fill { pub len: usize }
    slots fill(op) { Y: out activation [op.len] }
    "fill" => {
        dims: dims!(op: len),
        flops: 0,
    }
}

operation! {
    /// `y [n, hw, c] = x [n, c, hw]` transposed within each sample; `rows`, `cols` are those of `x`.
    pub struct Transpose { pub n: usize, pub rows: usize, pub cols: usize }
    slots transpose(op) {
        X: in activation [op.n * op.rows * op.cols],
        Y: out activation [op.n * op.rows * op.cols],
        WORK: scratch,
    }
    "transpose" => {
        dims: format!("n={} {}x{}", op.n, op.rows, op.cols),
        flops: 0,
        work_ps: op.n * op.rows * op.cols * 350,
    }
}

operation! {
    /// `y [rows, cols] = x + bias [cols]`; `y` may be `x`.
    pub struct BiasAdd { pub rows: usize, pub cols: usize }
    slots bias_add(op) {
        X: in activation [op.rows * op.cols],
        BIAS: in [op.cols],
        Y: out activation [op.rows * op.cols],
    }
    "bias_add" => {
        dims: dims!(op: rows cols),
        flops: (op.rows * op.cols) as u64,
        in_place: &[(bias_add::X, bias_add::Y)],
    }
}

operation! {
    /// `db [cols] = sum over rows of dy [rows, cols]`.
    pub struct BiasGrad {
        pub rows: usize,
        pub cols: usize,
        pub accumulate: bool,
        /// The half-open range of columns whose sum is zero in exact arithmetic. It is set to zero, because an adaptive
        /// optimizer would turn a remaining rounding error into a full step of the parameter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub zeros: Option<[usize; 2]>,
    }
    slots bias_grad(op) {
        DY: in activation [op.rows * op.cols],
        DB_PREV: in [op.cols] if op.accumulate,
        DB: out [op.cols],
        WORK: scratch,
    }
    "reduce_sum" => {
        kernel_name: "bias_grad",
        dims: dims!(op: rows cols),
        flops: (op.rows * op.cols) as u64,
        scratch_floats: row_chunks(op.rows, op.cols) * op.cols,
    }
}

impl BiasGrad {
    /// Whether the sum of a column is set to zero.
    #[must_use]
    pub fn is_zero(&self, col: usize) -> bool {
        self.zeros.is_some_and(|[from, to]| (from..to).contains(&col))
    }
}

/// Declares an operation on two values, element by element, in place on either.
macro_rules! pairwise {
    ($(#[$doc:meta])* $Op:ident: $table:ident, $name:literal) => {
        operation! {
            $(#[$doc])*
            pub struct $Op { pub len: usize }
            slots $table(op) { A: in activation [op.len], B: in activation [op.len], Y: out activation [op.len] }
            $name => {
                dims: dims!(op: len),
                flops: op.len as u64,
                in_place: &[($table::A, $table::Y), ($table::B, $table::Y)],
            }
        }
    };
}
pub(super) use pairwise;

pairwise! {
    /// `y = a + b`, in place on `a` or `b`.
    Add: add, "add"
}

operation! {
    /// `y = factor x`, in place.
    pub struct Scale { pub len: usize, pub factor: Scalar }
    slots scale(op) { X: in activation [op.len], Y: out activation [op.len] }
    "scale" => {
        dims: dims!(op: len),
        flops: op.len as u64,
        in_place: &[(scale::X, scale::Y)],
    }
}

operation! {
    /// `y = f(a + b)`, or `y = (a + b) f'(saved)`, in place on `a` or `b`.
    pub struct AddAct { pub len: usize, pub act: Option<Activation>, pub act_grad: Option<Activation> }
    slots add_act(op) {
        A: in activation [op.len],
        B: in activation [op.len],
        SAVED: in activation [op.len] if op.act_grad.is_some(),
        Y: out activation [op.len],
    }
    "add" => {
        epilogue: Epilogue { act: op.act, act_grad: op.act_grad, ..Epilogue::default() },
        dims: dims!(op: len),
        flops: 2 * op.len as u64,
        in_place: &[(add_act::A, add_act::Y), (add_act::B, add_act::Y)],
        is_for_gpus: true,
    }
}

operation! {
    /// `y = x`, rounded to the type of `y`.
    pub struct Cast { pub len: usize }
    slots cast(op) { X: in activation [op.len], Y: out activation [op.len] }
    "cast" => {
        dims: dims!(op: len),
        flops: 0,
        bytes_moved(elem): ((size_of::<f32>() + elem) * op.len) as u64,
        is_for_gpus: true,
    }
}
