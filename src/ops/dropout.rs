//! Dropout and its derivative.

use super::Operation;
use super::geometry::Scalar;
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// The smallest random number that keeps its element: `rate 2^32`, rounded up.
#[must_use]
pub fn dropout_threshold(rate: f64) -> u32 {
    (rate * 4_294_967_296.0).ceil() as u32
}

/// `y = x * keep / (1 - rate)`; the bits of `keep` are drawn from (seed, stream, step counter) and kept in `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dropout {
    pub len: usize,
    pub rate: Scalar,
    pub stream: u32,
}

slots! {
    pub mod dropout(op: Dropout) {
        X: in activation [op.len],
        COUNTER: in [2],
        Y: out activation [op.len],
        MASK: out [op.len.div_ceil(8)],
    }
}

impl Operation for Dropout {
    table!(dropout);

    fn name(&self) -> &'static str {
        "dropout"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        2 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.len * elem + self.len.div_ceil(8)) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(dropout::X, dropout::Y)]
    }

    fn work_ps(&self) -> usize {
        self.len * 340
    }
}

/// `dx = dy * mask / (1 - rate)`, in place on `dy`. At rate 0 also the derivative of ReLU by
/// [`SignBits`](super::SignBits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DropoutBwd {
    pub len: usize,
    pub rate: Scalar,
}

slots! {
    pub mod dropout_bwd(op: DropoutBwd) {
        DY: in activation [op.len],
        MASK: in [op.len.div_ceil(8)],
        DX: out activation [op.len],
    }
}

impl Operation for DropoutBwd {
    table!(dropout_bwd);

    fn name(&self) -> &'static str {
        "dropout_bwd"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        2 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.len * elem + self.len.div_ceil(8)) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(dropout_bwd::DY, dropout_bwd::DX)]
    }

    fn work_ps(&self) -> usize {
        self.len * 65
    }
}
