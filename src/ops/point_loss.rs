//! Losses that are the mean of a function of each output and its target, with their gradients, and the accuracy of
//! yes-or-no answers.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::geometry::Scalar;
use super::operation::{dims, operation};
use crate::model::losses::PointFn;

/// Picoseconds for one element: of its value, and of its derivative.
const fn point_ps(func: PointFn) -> [usize; 2] {
    match func {
        PointFn::BinaryCrossEntropy => [400, 310],
        PointFn::L1 | PointFn::Huber => [0, 0],
    }
}

/// The name of an operation by its function: for binary cross entropy, the absolute error and Huber's error.
const fn named(func: PointFn, [cross_entropy, l1, huber]: [&'static str; 3]) -> &'static str {
    match func {
        PointFn::BinaryCrossEntropy => cross_entropy,
        PointFn::L1 => l1,
        PointFn::Huber => huber,
    }
}

/// Whether JSON omits a number.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(value: &Scalar) -> bool {
    value.get() == 0.0
}

/// Declares an operation on `len` outputs with their targets by a function. `delta` is the parameter of the function,
/// if it has one.
macro_rules! point_operation {
    (
        $(#[$doc:meta])*
        pub struct $Op:ident;
        slots $table:ident($op:ident) { $($slots:tt)+ }
        $names:expr => { $($rows:tt)+ }
    ) => {
        operation! {
            $(#[$doc])*
            pub struct $Op {
                pub func: PointFn,
                #[serde(default, skip_serializing_if = "is_zero")]
                pub delta: Scalar,
                pub len: usize,
            }
            slots $table($op) { $($slots)+ }
            named($op.func, $names) => {
                dims: dims!($op: len),
                $($rows)+
            }
        }
    };
}

point_operation! {
    /// `loss [1] = mean over len of f(y, target)`.
    pub struct PointLoss;
    slots point_loss(op) { Y: in activation [op.len], TARGET: in activation [op.len], LOSS: out [1], WORK: scratch }
    ["binary_ce", "l1_loss", "huber_loss"] => {
        flops: 4 * op.len as u64,
        scratch_floats: op.len.div_ceil(FLAT_CHUNK),
        work_ps: op.len * point_ps(op.func)[0],
    }
}

point_operation! {
    /// `dy = f'(y, target) / len`, in place on `y`.
    pub struct PointLossGrad;
    slots point_loss_grad(op) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        SCALE: in [1] if OPTIONAL,
    }
    ["binary_ce_grad", "l1_loss_grad", "huber_loss_grad"] => {
        flops: 3 * op.len as u64,
        in_place: &[(point_loss_grad::Y, point_loss_grad::DY)],
        work_ps: op.len * point_ps(op.func)[1],
    }
}

point_operation! {
    /// `PointLoss`, `PointLossGrad` and, if bound, `BinaryAccuracy` in one pass.
    pub struct PointLossFused;
    slots point_loss_fused(op) {
        Y: in activation [op.len],
        TARGET: in activation [op.len],
        DY: out activation [op.len],
        LOSS: out [1],
        ACCURACY: out [1] if OPTIONAL,
        WORK: scratch,
        SCALE: in [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
    ["binary_ce_fused", "l1_loss_fused", "huber_loss_fused"] => {
        flops: 7 * op.len as u64,
        bytes_moved(elem): ((3 * op.len + 2) * elem) as u64,
        in_place: &[(point_loss_fused::Y, point_loss_fused::DY)],
        // A sum of losses and a count of correct answers for each chunk.
        scratch_floats: 2 * op.len.div_ceil(FLAT_CHUNK),
        work_ps: op.len * point_ps(op.func).iter().sum::<usize>(),
    }
}

operation! {
    /// `accuracy [1]`: share of elements of `y` that are above 0 if `target` is above one half, and not above 0
    /// otherwise. NaN is never correct.
    pub struct BinaryAccuracy { pub len: usize }
    slots binary_accuracy(op) { Y: in activation [op.len], TARGET: in activation [op.len], ACCURACY: out [1] }
    "binary_accuracy" => {
        dims: dims!(op: len),
        flops: op.len as u64,
    }
}
