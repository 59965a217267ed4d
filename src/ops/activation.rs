//! Activation functions, their derivatives, and the signs that a derivative needs.

use super::Operation;
use super::operation::operation;
use super::slots::slots;
use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// Picoseconds that one element of an activation function takes.
pub(super) fn activation_ps(func: Activation) -> usize {
    match func {
        Activation::Relu | Activation::LeakyRelu => 0,
        Activation::Gelu => 250,
        Activation::Silu | Activation::Sigmoid => 310,
        Activation::Tanh => 160,
    }
}

/// `y = f(x)` over `len` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Act {
    pub func: Activation,
    pub len: usize,
}

slots! {
    pub mod act(op: Act) {
        X: in activation [op.len],
        Y: out activation [op.len],
        WORK: scratch,
    }
}

operation! {
    Act: act, op.func.name(), |op| {
        dims: format!("len={}", op.len),
        flops: op.len as u64,
        bytes_moved(elem): (2 * op.len * elem) as u64,
        in_place: &[(act::X, act::Y)],
        work_ps: op.len * activation_ps(op.func),
    }
}

/// `dx = dy * f'(saved)`, in place on `dy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActBwd {
    pub func: Activation,
    pub len: usize,
}

slots! {
    pub mod act_bwd(op: ActBwd) {
        DY: in activation [op.len],
        SAVED: in activation [op.len],
        DX: out activation [op.len],
    }
}

operation! {
    ActBwd: act_bwd, op.func.backward_name(), |op| {
        dims: format!("len={}", op.len),
        flops: 2 * op.len as u64,
        bytes_moved(elem): (3 * op.len * elem) as u64,
        in_place: &[(act_bwd::DY, act_bwd::DX)],
        work_ps: match op.func {
            Activation::Gelu => op.len * 540,
            Activation::Silu => op.len * 380,
            _ => 0,
        },
    }
}

/// `mask [len / 8]`: bit `i % 8` of byte `i / 8` says whether `x[i] > 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignBits {
    pub len: usize,
}

slots! {
    pub mod sign_bits(op: SignBits) {
        X: in activation [op.len],
        MASK: out [op.len.div_ceil(8)],
    }
}

operation! {
    SignBits: sign_bits, "sign_bits", |op| {
        dims: format!("len={}", op.len),
        flops: op.len as u64,
        bytes_moved(elem): (op.len * elem + op.len.div_ceil(8)) as u64,
        is_for_gpus: true,
    }
}
