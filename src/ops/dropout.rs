//! Dropout and its derivative.

use super::Operation;
use super::geometry::Scalar;
use super::operation::{dims, operation};

/// The smallest random number that keeps its element: `rate 2^32`, rounded up.
#[must_use]
pub fn dropout_threshold(rate: f64) -> u32 {
    (rate * 4_294_967_296.0).ceil() as u32
}

operation! {
    /// `y = x * keep / (1 - rate)`; the bits of `keep` are drawn from (seed, stream, step counter) and kept in `mask`.
    pub struct Dropout { pub len: usize, pub rate: Scalar, pub stream: u32 }
    slots dropout(op) {
        X: in activation [op.len],
        COUNTER: in live [2],
        Y: out activation [op.len],
        MASK: out [op.len.div_ceil(8)],
    }
    "dropout" => {
        dims: dims!(op: len),
        flops: 2 * op.len as u64,
        bytes_moved(elem): (2 * op.len * elem + op.len.div_ceil(8)) as u64,
        in_place: &[(dropout::X, dropout::Y)],
        work_ps: op.len * 340,
    }
}

operation! {
    /// `dx = dy * mask / (1 - rate)`, in place on `dy`. At rate 0 also the derivative of ReLU by
    /// [`SignBits`](super::SignBits).
    pub struct DropoutBwd { pub len: usize, pub rate: Scalar }
    slots dropout_bwd(op) { DY: in activation [op.len], MASK: in [op.len.div_ceil(8)], DX: out activation [op.len] }
    "dropout_bwd" => {
        dims: dims!(op: len),
        flops: 2 * op.len as u64,
        bytes_moved(elem): (2 * op.len * elem + op.len.div_ceil(8)) as u64,
        in_place: &[(dropout_bwd::DY, dropout_bwd::DX)],
        work_ps: op.len * 65,
    }
}
