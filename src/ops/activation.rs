//! Activation functions, their derivatives, and the signs that a derivative needs.

use super::Operation;
use super::slots::{slots, table};
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

impl Operation for Act {
    table!(act);

    fn name(&self) -> &'static str {
        self.func.name()
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (2 * self.len * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(act::X, act::Y)]
    }

    fn work_ps(&self) -> usize {
        self.len * activation_ps(self.func)
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

impl Operation for ActBwd {
    table!(act_bwd);

    fn name(&self) -> &'static str {
        self.func.backward_name()
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        2 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (3 * self.len * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(act_bwd::DY, act_bwd::DX)]
    }

    fn work_ps(&self) -> usize {
        match self.func {
            Activation::Gelu => self.len * 540,
            Activation::Silu => self.len * 380,
            _ => 0,
        }
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

impl Operation for SignBits {
    table!(sign_bits);

    fn name(&self) -> &'static str {
        "sign_bits"
    }

    fn dims(&self) -> String {
        format!("len={}", self.len)
    }

    fn flops(&self) -> u64 {
        self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.len * elem + self.len.div_ceil(8)) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }
}
