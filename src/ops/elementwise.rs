//! Operations that move or add elements, and sums over the rows of a matrix.

use super::Operation;
use super::chunks::row_chunks;
use super::geometry::Epilogue;
use super::slots::{slots, table};
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

impl Operation for Fill {
    table!(fill);

    fn name(&self) -> &'static str {
        "fill"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.len * elem) as u64
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

impl Operation for Transpose {
    table!(transpose);

    fn name(&self) -> &'static str {
        "transpose"
    }

    fn dims(&self) -> String {
        format!("n={} {}x{}", self.n, self.rows, self.cols)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.n * self.rows * self.cols * elem) as u64
    }

    fn work_ps(&self) -> usize {
        self.n * self.rows * self.cols * 350
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

impl Operation for BiasAdd {
    table!(bias_add);

    fn name(&self) -> &'static str {
        "bias_add"
    }

    fn dims(&self) -> String {
        format!("rows={} cols={}", self.rows, self.cols)
    }

    fn flops(&self) -> u64 {
        (self.rows * self.cols) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.rows * self.cols + self.cols) * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(bias_add::X, bias_add::Y)]
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

impl Operation for BiasGrad {
    table!(bias_grad);

    fn name(&self) -> &'static str {
        "reduce_sum"
    }

    fn kernel_name(&self) -> &'static str {
        "bias_grad"
    }

    fn dims(&self) -> String {
        format!("rows={} cols={}", self.rows, self.cols)
    }

    fn flops(&self) -> u64 {
        (self.rows * self.cols) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((self.rows * self.cols + (1 + usize::from(self.accumulate)) * self.cols) * elem) as u64
    }

    fn scratch_floats(&self) -> usize {
        row_chunks(self.rows, self.cols) * self.cols
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

impl Operation for Add {
    table!(add);

    fn name(&self) -> &'static str {
        "add"
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
        &[(add::A, add::Y), (add::B, add::Y)]
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

impl Operation for AddAct {
    table!(add_act);

    fn name(&self) -> &'static str {
        "add"
    }

    fn epilogue(&self) -> Epilogue {
        Epilogue { act: self.act, act_grad: self.act_grad, ..Epilogue::default() }
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        2 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((3 + usize::from(self.act_grad.is_some())) * self.len * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(add_act::A, add_act::Y), (add_act::B, add_act::Y)]
    }

    fn is_for_gpus(&self) -> bool {
        true
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

impl Operation for Cast {
    table!(cast);

    fn name(&self) -> &'static str {
        "cast"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        0
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((size_of::<f32>() + elem) * self.len) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }
}
