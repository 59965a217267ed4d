//! Operations on each element of a tensor, on its rows, and their sums.

use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// `y = 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fill {
    pub len: usize,
}

/// `y [n, hw, c] = x [n, c, hw]` transposed within each sample; `rows`, `cols` are those of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transpose {
    pub n: usize,
    pub rows: usize,
    pub cols: usize,
}

/// `y [rows, cols] = x + bias [cols]`, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasAdd {
    pub rows: usize,
    pub cols: usize,
}

/// `y = f(x)` over `len` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Act {
    pub func: Activation,
    pub len: usize,
}

/// `dx = dy * f'(saved)`, in place on `dy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActBwd {
    pub func: Activation,
    pub len: usize,
}

/// `db [cols] = sum over rows of dy [rows, cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasGrad {
    pub rows: usize,
    pub cols: usize,
    pub accumulate: bool,
}

/// `y = a + b`, in place on `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Add {
    pub len: usize,
}

/// `y = f(a + b)`, or `y = (a + b) f'(saved)`, in place on `a` or `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddAct {
    pub len: usize,
    pub act: Option<Activation>,
    pub act_grad: Option<Activation>,
}

/// `mask [len / 8]`: bit `i % 8` of byte `i / 8` says whether `x[i] > 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignBits {
    pub len: usize,
}

/// `y = x`, rounded to the type of `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cast {
    pub len: usize,
}
