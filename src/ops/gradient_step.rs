//! Operations that make the gradient of a parameter and step it by Adam at once.

use super::Operation;
use super::geometry::Scalar;
use super::optimizer::adam_text;
use super::slots::{slots, table};
use super::update::{RuleText, UpdateSlots};
use serde::{Deserialize, Serialize};

/// Pairs to which the stretch of each parameter in the parts of an update is rounded up.
pub const PARTS_ALIGN: usize = 32;

/// The gradient `a [k, m]^T b [k, n]` of a dense layer's weight and its Adam step in one pass: the gradient is never
/// in memory. Where bound, `parts` holds the largest |change| and the norm of the gradients of tiles of `grain` by 16
/// elements, row by row, padded with zeros to a multiple of 32 pairs; where a kernel's own tile is larger, its first
/// pair stands for all of it. `together` counts the tiles of 96 by 64 elements of all such operations that end a step
/// at the same time; 0 of those in its middle.
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

/// What the operations share that make a gradient and step its parameter at once.
pub trait GradientStep: Operation {
    /// Elements of the parameter.
    fn param_len(&self) -> usize;

    /// Elements of what the gradient is made from.
    fn factor_len(&self) -> usize;

    /// Elements of the other factor, where the gradient is a product.
    fn second_factor_len(&self) -> Option<usize>;
}

slots! {
    /// What a rule reads and writes is where it is in [`adam_step`](crate::ops::slot::adam_step), so that one rule
    /// serves both ([`UpdateSlots`]; the kernels assert the same).
    pub mod gradient_step(op: impl GradientStep) {
        PARAM_PREV: in [op.param_len()],
        A: in activation [op.factor_len()],
        M_PREV: in [op.param_len()],
        V_PREV: in [op.param_len()],
        HYPER: in [2],
        CORR: in [2],
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

impl Operation for WeightStep {
    table!(gradient_step);

    fn name(&self) -> &'static str {
        "gemm_tn_adam"
    }

    fn dims(&self) -> String {
        format!("m={} n={} k={}", self.m, self.n, self.k)
    }

    fn flops(&self) -> u64 {
        self.least_flops() + (16 * self.m * self.n) as u64
    }

    fn least_flops(&self) -> u64 {
        (2 * self.m * self.n * self.k) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((self.m * self.k + self.k * self.n) * elem + (6 * self.m * self.n + 4) * size_of::<f32>()) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }

    fn update(&self) -> Option<UpdateSlots> {
        Some(GRADIENT_UPDATE)
    }

    fn rule(&self) -> Option<RuleText> {
        Some(adam_text(self.beta1, self.beta2, self.eps, self.decoupled))
    }

    fn step_parts(&self) -> usize {
        (self.m.div_ceil(self.grain) * self.n.div_ceil(16)).next_multiple_of(PARTS_ALIGN)
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

impl Operation for BiasStep {
    table!(gradient_step);

    fn name(&self) -> &'static str {
        "reduce_sum_adam"
    }

    fn dims(&self) -> String {
        format!("rows={} cols={}", self.rows, self.cols)
    }

    fn flops(&self) -> u64 {
        (self.rows * self.cols + 16 * self.cols) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        (self.rows * self.cols * elem + (6 * self.cols + 4) * size_of::<f32>()) as u64
    }

    fn is_for_gpus(&self) -> bool {
        true
    }

    fn update(&self) -> Option<UpdateSlots> {
        Some(GRADIENT_UPDATE)
    }

    fn rule(&self) -> Option<RuleText> {
        Some(adam_text(self.beta1, self.beta2, self.eps, self.decoupled))
    }

    fn step_parts(&self) -> usize {
        self.cols.div_ceil(32).next_multiple_of(PARTS_ALIGN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::optimizer::{ADAM_UPDATE, adam_step};

    #[test]
    fn one_rule_reads_the_slots_of_both() {
        let shadow = ADAM_UPDATE.shadow;
        assert_eq!(UpdateSlots { shadow, ..GRADIENT_UPDATE }, ADAM_UPDATE);
        assert_eq!(gradient_step::A, adam_step::GRAD);
    }

    #[test]
    fn an_optimizer_replaces_what_it_reads() {
        for [before, after] in GRADIENT_UPDATE.states.iter().chain([&GRADIENT_UPDATE.param]) {
            let table = gradient_step::SLOTS;
            assert_eq!(table[*before].name, format!("{}_prev", table[*after].name));
        }
    }
}
