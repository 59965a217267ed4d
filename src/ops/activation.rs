//! Activation functions, their derivatives, and the bit mask that a derivative needs.

use super::Operation;
use super::operation::{dims, operation};
use crate::model::Activation;

/// Time of an activation function for one element, in picoseconds.
pub(super) fn activation_ps(func: Activation) -> usize {
    match func {
        Activation::Relu | Activation::LeakyRelu => 0,
        Activation::Gelu => 250,
        Activation::Silu | Activation::Sigmoid => 310,
        Activation::Tanh => 160,
    }
}

operation! {
    /// `y = f(x)` over `len` elements.
    pub struct Act { pub func: Activation, pub len: usize }
    slots act(op) { X: in activation [op.len], Y: out activation [op.len], WORK: scratch }
    op.func.name() => {
        dims: dims!(op: len),
        flops: op.len as u64,
        in_place: &[(act::X, act::Y)],
        work_ps: op.len * activation_ps(op.func),
    }
}

operation! {
    /// `dx = dy * f'(saved)`, in place on `dy`.
    pub struct ActBwd { pub func: Activation, pub len: usize }
    slots act_bwd(op) { DY: in activation [op.len], SAVED: in activation [op.len], DX: out activation [op.len] }
    op.func.backward_name() => {
        dims: dims!(op: len),
        flops: 2 * op.len as u64,
        in_place: &[(act_bwd::DY, act_bwd::DX)],
        work_ps: match op.func {
            Activation::Gelu => op.len * 540,
            Activation::Silu => op.len * 380,
            _ => 0,
        },
    }
}

operation! {
    /// `mask [len / 8]`: bit `i % 8` of byte `i / 8` says whether `x[i] > 0`.
    pub struct SignBits { pub len: usize }
    slots sign_bits(op) { X: in activation [op.len], MASK: out [op.len.div_ceil(8)] }
    "sign_bits" => {
        dims: dims!(op: len),
        flops: op.len as u64,
        bytes_moved(elem): (op.len * elem + op.len.div_ceil(8)) as u64,
        is_for_gpus: true,
    }
}
