//! Operations that compute the gradient of a parameter and immediately update the parameter by Adam.

use super::Operation;
use super::geometry::Scalar;
use super::operation::operation;
use super::optimizer::adam_text;
use super::slots::slots;
use super::update::UpdateSlots;
use serde::{Deserialize, Serialize};

/// The range of each parameter in the partial metrics of an update is rounded up to this number of pairs.
pub const PARTS_ALIGN: usize = 32;

/// The gradient `a [k, m]^T b [k, n]` of a dense layer's weight and its Adam step in one pass: the gradient is never in
/// memory. If bound, `parts` holds the largest |change| and the norm of the gradients of tiles of `grain` by 16
/// elements, row by row, padded with zeros to a multiple of 32 pairs; if a kernel's tile is larger, its first pair
/// contains the values of the whole tile. `together` is the number of tiles of 96 by 64 elements of all such operations
/// that run together at the end of a step; 0 for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightStep {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub grain: usize,
    pub together: usize,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
}

/// The gradient of a bias, the sum over the rows of `a [rows, cols]`, and its Adam step in one pass. `parts` as for
/// `WeightStep`, of 32 columns each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasStep {
    pub rows: usize,
    pub cols: usize,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
}

/// The common properties of operations that compute a gradient and update its parameter.
pub trait GradientStep: Operation {
    /// Elements of the parameter.
    fn param_len(&self) -> usize;

    /// Elements that the gradient is computed from.
    fn factor_len(&self) -> usize;

    /// Elements of the other factor, if the gradient is a product.
    fn second_factor_len(&self) -> Option<usize>;
}

slots! {
    /// The arguments of a rule are in the same slots as in [`adam_step`](crate::ops::slot::adam_step), so that one rule
    /// serves both ([`UpdateSlots`]; the kernels assert the same).
    pub mod gradient_step(op: impl GradientStep) {
        PARAM_PREV: in [op.param_len()],
        A: in activation [op.factor_len()],
        M_PREV: in [op.param_len()],
        V_PREV: in [op.param_len()],
        HYPER: in live [2],
        CORR: in live [2],
        PARAM: out [op.param_len()],
        M: out [op.param_len()],
        V: out [op.param_len()],
        PARTS: out [2 * op.step_parts()] if OPTIONAL,
        B: in activation [op.second_factor_len().unwrap_or(op.param_len())] if op.second_factor_len().is_some(),
        WORK: scratch,
        SHADOW: out [op.param_len()] if OPTIONAL,
    }
}

/// The slots of the operations with a [`gradient_step`] as optimizers.
const GRADIENT_UPDATE: UpdateSlots = UpdateSlots {
    param: [gradient_step::PARAM_PREV, gradient_step::PARAM],
    states: &[[gradient_step::M_PREV, gradient_step::M], [gradient_step::V_PREV, gradient_step::V]],
    hyper: gradient_step::HYPER,
    corr: Some(gradient_step::CORR),
    shadow: gradient_step::SHADOW,
};

impl GradientStep for WeightStep {
    fn param_len(&self) -> usize {
        self.m * self.n
    }

    fn factor_len(&self) -> usize {
        self.m * self.k
    }

    fn second_factor_len(&self) -> Option<usize> {
        Some(self.n * self.k)
    }
}

operation! {
    WeightStep: gradient_step, "gemm_tn_adam", |op| {
        dims: format!("m={} n={} k={}", op.m, op.n, op.k),
        flops: op.least_flops() + (16 * op.m * op.n) as u64,
        least_flops: (2 * op.m * op.n * op.k) as u64,
        bytes_moved(elem): ((op.m * op.k + op.k * op.n) * elem + (6 * op.m * op.n + 4) * size_of::<f32>()) as u64,
        is_for_gpus: true,
        update: Some(GRADIENT_UPDATE),
        rule: Some(adam_text(op.beta1, op.beta2, op.eps, op.decoupled)),
        step_parts: (op.m.div_ceil(op.grain) * op.n.div_ceil(16)).next_multiple_of(PARTS_ALIGN),
    }
}

impl GradientStep for BiasStep {
    fn param_len(&self) -> usize {
        self.cols
    }

    fn factor_len(&self) -> usize {
        self.rows * self.cols
    }

    fn second_factor_len(&self) -> Option<usize> {
        None
    }
}

operation! {
    BiasStep: gradient_step, "reduce_sum_adam", |op| {
        dims: format!("rows={} cols={}", op.rows, op.cols),
        flops: (op.rows * op.cols + 16 * op.cols) as u64,
        bytes_moved(elem): (op.rows * op.cols * elem + (6 * op.cols + 4) * size_of::<f32>()) as u64,
        is_for_gpus: true,
        update: Some(GRADIENT_UPDATE),
        rule: Some(adam_text(op.beta1, op.beta2, op.eps, op.decoupled)),
        step_parts: op.cols.div_ceil(32).next_multiple_of(PARTS_ALIGN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::optimizer::{ADAM_UPDATE, adam_step};

    #[test]
    fn separate_and_fused_updates_have_the_same_slots() {
        let shadow = ADAM_UPDATE.shadow;
        assert_eq!(UpdateSlots { shadow, ..GRADIENT_UPDATE }, ADAM_UPDATE);
        assert_eq!(gradient_step::A, adam_step::GRAD);
    }

    #[test]
    fn an_optimizer_overwrites_the_vectors_that_it_reads() {
        for [before, after] in GRADIENT_UPDATE.states.iter().chain([&GRADIENT_UPDATE.param]) {
            let table = gradient_step::SLOTS;
            assert_eq!(table[*before].name, format!("{}_prev", table[*after].name));
        }
    }
}
