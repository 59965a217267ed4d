//! Operations that move or add elements, and sums over the rows of a matrix.

use super::Operation;
use super::chunks::row_chunks;
use super::geometry::{Epilogue, Scalar};
use super::operation::operation;
use super::slots::slots;
use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// `y = 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fill {
    pub len: usize,
}

slots! {
    pub mod fill(op: Fill) {
        Y: out activation [op.len],
    }
}

operation! {
    Fill: fill, "fill", |op| {
        dims: format!("len={}", op.len),
        flops: 0,
        bytes_moved(elem): (op.len * elem) as u64,
    }
}

/// `y [n, hw, c] = x [n, c, hw]` transposed within each sample; `rows`, `cols` are those of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transpose {
    pub n: usize,
    pub rows: usize,
    pub cols: usize,
}

slots! {
    pub mod transpose(op: Transpose) {
        X: in activation [op.n * op.rows * op.cols],
        Y: out activation [op.n * op.rows * op.cols],
        WORK: scratch,
    }
}

operation! {
    Transpose: transpose, "transpose", |op| {
        dims: format!("n={} {}x{}", op.n, op.rows, op.cols),
        flops: 0,
        bytes_moved(elem): (2 * op.n * op.rows * op.cols * elem) as u64,
        work_ps: op.n * op.rows * op.cols * 350,
    }
}

/// `y [rows, cols] = x + bias [cols]`, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasAdd {
    pub rows: usize,
    pub cols: usize,
}

slots! {
    pub mod bias_add(op: BiasAdd) {
        X: in activation [op.rows * op.cols],
        BIAS: in [op.cols],
        Y: out activation [op.rows * op.cols],
    }
}

operation! {
    BiasAdd: bias_add, "bias_add", |op| {
        dims: format!("rows={} cols={}", op.rows, op.cols),
        flops: (op.rows * op.cols) as u64,
        bytes_moved(elem): ((2 * op.rows * op.cols + op.cols) * elem) as u64,
        in_place: &[(bias_add::X, bias_add::Y)],
    }
}

/// `db [cols] = sum over rows of dy [rows, cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasGrad {
    pub rows: usize,
    pub cols: usize,
    pub accumulate: bool,
    /// Columns, from the first up to the second, of which it is known that their sum is zero: it is made so, because
    /// what rounding leaves of it would move a parameter by an adaptive optimizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still: Option<[usize; 2]>,
}

impl BiasGrad {
    /// Whether the sum of a column is known to be zero.
    #[must_use]
    pub fn is_still(&self, col: usize) -> bool {
        self.still.is_some_and(|[from, to]| (from..to).contains(&col))
    }
}

slots! {
    pub mod bias_grad(op: BiasGrad) {
        DY: in activation [op.rows * op.cols],
        DB_PREV: in [op.cols] if op.accumulate,
        DB: out [op.cols],
        WORK: scratch,
    }
}

operation! {
    BiasGrad: bias_grad, "reduce_sum", |op| {
        kernel_name: "bias_grad",
        dims: format!("rows={} cols={}", op.rows, op.cols),
        flops: (op.rows * op.cols) as u64,
        bytes_moved(elem): ((op.rows * op.cols + (1 + usize::from(op.accumulate)) * op.cols) * elem) as u64,
        scratch_floats: row_chunks(op.rows, op.cols) * op.cols,
    }
}

/// `y = a + b`, in place on `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Add {
    pub len: usize,
}

slots! {
    pub mod add(op: Add) {
        A: in activation [op.len],
        B: in activation [op.len],
        Y: out activation [op.len],
    }
}

operation! {
    Add: add, "add", |op| {
        dims: format!("len={}", op.len),
        flops: op.len as u64,
        bytes_moved(elem): (3 * op.len * elem) as u64,
        in_place: &[(add::A, add::Y), (add::B, add::Y)],
    }
}

/// `y = factor x`, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scale {
    pub len: usize,
    pub factor: Scalar,
}

slots! {
    pub mod scale(op: Scale) {
        X: in activation [op.len],
        Y: out activation [op.len],
    }
}

operation! {
    Scale: scale, "scale", |op| {
        dims: format!("len={}", op.len),
        flops: op.len as u64,
        bytes_moved(elem): (2 * op.len * elem) as u64,
        in_place: &[(scale::X, scale::Y)],
    }
}

/// `y = f(a + b)`, or `y = (a + b) f'(saved)`, in place on `a` or `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddAct {
    pub len: usize,
    pub act: Option<Activation>,
    pub act_grad: Option<Activation>,
}

slots! {
    pub mod add_act(op: AddAct) {
        A: in activation [op.len],
        B: in activation [op.len],
        SAVED: in activation [op.len] if op.act_grad.is_some(),
        Y: out activation [op.len],
    }
}

operation! {
    AddAct: add_act, "add", |op| {
        epilogue: Epilogue { act: op.act, act_grad: op.act_grad, ..Epilogue::default() },
        dims: format!("len={}", op.len),
        flops: 2 * op.len as u64,
        bytes_moved(elem): ((3 + usize::from(op.act_grad.is_some())) * op.len * elem) as u64,
        in_place: &[(add_act::A, add_act::Y), (add_act::B, add_act::Y)],
        is_for_gpus: true,
    }
}

/// `y = x`, rounded to the type of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cast {
    pub len: usize,
}

slots! {
    pub mod cast(op: Cast) {
        X: in activation [op.len],
        Y: out activation [op.len],
    }
}

operation! {
    Cast: cast, "cast", |op| {
        dims: format!("len={}", op.len),
        flops: 0,
        bytes_moved(elem): ((size_of::<f32>() + elem) * op.len) as u64,
        is_for_gpus: true,
    }
}
