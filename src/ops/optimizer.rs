//! Optimizers over the flat parameters, and those that step a parameter where its gradient is made.

use super::Operation;
use super::chunks::FLAT_CHUNK;
use super::geometry::{Scalar, Segment};
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// Pairs to which the stretch of each parameter in the parts of an update is rounded up.
pub const PARTS_ALIGN: usize = 32;

/// A vector that an update replaces: the slot of its value before the update, and of the one after it.
pub type UpdatedSlots = [usize; 2];

/// Where an optimizer finds what it steps. Who cuts, joins or moves updates goes by this, whatever the optimizer's
/// rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateSlots {
    pub param: UpdatedSlots,
    /// The vectors of as many elements as the parameters that the rule keeps from step to step, in its own order.
    pub states: &'static [UpdatedSlots],
    /// Learning rate and weight decay.
    pub hyper: usize,
    /// Corrections of the states, where the rule has any.
    pub corr: Option<usize>,
    /// The copy of the parameters in the type that products read.
    pub shadow: usize,
}

/// Adam over the flat parameters. With `g` the gradient (plus `wd * p` unless `decoupled`): `m = b1 m + (1-b1) g`, `v
/// = b2 v + (1-b2) g^2`, `p -= lr wd p` first where `decoupled`, then `p -= lr corr0 m / (sqrt(v) corr1 + eps)`.
/// `hyper [2]` is learning rate, weight decay. Where bound: `update_max [segments]` is the largest |change| and
/// `grad_norm_seg [segments]` the norm of the (undecayed) gradient of each segment, `total_max` and `grad_norm` are
/// those of `UpdateMetrics`, `shadow` is a copy of the parameters in the type that products read, and `scaler` is
/// that of `ScaleUpdate`: gradients are multiplied by its third value, and where its fourth is 1 nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdamStep {
    pub len: usize,
    pub segments: Vec<Segment>,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
}

slots! {
    pub mod adam_step(op: AdamStep) {
        PARAM_PREV: in [op.len],
        GRAD: in [op.len],
        M_PREV: in [op.len],
        V_PREV: in [op.len],
        HYPER: in [2],
        CORR: in [2],
        PARAM: out [op.len],
        M: out [op.len],
        V: out [op.len],
        UPDATE_MAX: out [op.segments.len()] if OPTIONAL,
        GRAD_NORM_SEG: out [op.segments.len()] if OPTIONAL,
        WORK: scratch,
        SCALER: in [crate::ops::SCALER] if OPTIONAL,
        SHADOW: out [op.len] if OPTIONAL,
        TOTAL_MAX: out [1] if OPTIONAL,
        GRAD_NORM: out [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
}

impl Operation for AdamStep {
    table!(adam_step);

    fn name(&self) -> &'static str {
        "adam_step"
    }

    fn dims(&self) -> String {
        format!("len={} segments={}", self.len, self.segments.len())
    }

    fn flops(&self) -> u64 {
        16 * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((7 * self.len + 4 + 2 * self.segments.len()) * elem) as u64
    }

    fn least_bytes(&self, _slot: usize, len: usize, elem: usize) -> u64 {
        segment_bytes(&self.segments, self.len, len, elem)
    }

    fn scratch_floats(&self) -> usize {
        metric_floats(&self.segments, self.len)
    }

    fn update(&self) -> Option<UpdateSlots> {
        Some(ADAM_UPDATE)
    }

    fn work_ps(&self) -> usize {
        self.len * 140
    }
}

/// Stochastic gradient descent over the flat parameters. `g += wd p`; with momentum `buf = momentum buf + g`, `g =
/// nesterov ? g + momentum buf : buf`; `p -= lr g`. Metrics as for Adam.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SgdStep {
    pub len: usize,
    pub segments: Vec<Segment>,
    pub momentum: Scalar,
    pub nesterov: bool,
}

/// The slots of [`AdamStep`] as an optimizer.
const ADAM_UPDATE: UpdateSlots = UpdateSlots {
    param: [adam_step::PARAM_PREV, adam_step::PARAM],
    states: &[[adam_step::M_PREV, adam_step::M], [adam_step::V_PREV, adam_step::V]],
    hyper: adam_step::HYPER,
    corr: Some(adam_step::CORR),
    shadow: adam_step::SHADOW,
};

slots! {
    pub mod sgd_step(op: SgdStep) {
        PARAM_PREV: in [op.len],
        GRAD: in [op.len],
        MOMENTUM_PREV: in [op.len] if op.momentum.get() > 0.0,
        HYPER: in [2],
        PARAM: out [op.len],
        MOMENTUM: out [op.len] if op.momentum.get() > 0.0,
        UPDATE_MAX: out [op.segments.len()] if OPTIONAL,
        GRAD_NORM_SEG: out [op.segments.len()] if OPTIONAL,
        WORK: scratch,
        SCALER: in [crate::ops::SCALER] if OPTIONAL,
        SHADOW: out [op.len] if OPTIONAL,
        TOTAL_MAX: out [1] if OPTIONAL,
        GRAD_NORM: out [1] if OPTIONAL,
        TICKET: in_out [1] if OPTIONAL,
    }
}

impl Operation for SgdStep {
    table!(sgd_step);

    fn name(&self) -> &'static str {
        "sgd_step"
    }

    fn dims(&self) -> String {
        format!("len={} segments={}", self.len, self.segments.len())
    }

    fn flops(&self) -> u64 {
        let each = if self.momentum.get() == 0.0 { 4 } else { 7 };
        each * self.len as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let streams = if self.momentum.get() == 0.0 { 3 } else { 5 };
        ((streams * self.len + 2 + 2 * self.segments.len()) * elem) as u64
    }

    fn least_bytes(&self, _slot: usize, len: usize, elem: usize) -> u64 {
        segment_bytes(&self.segments, self.len, len, elem)
    }

    fn scratch_floats(&self) -> usize {
        metric_floats(&self.segments, self.len)
    }

    fn update(&self) -> Option<UpdateSlots> {
        let momentum: &'static [UpdatedSlots] = &[[sgd_step::MOMENTUM_PREV, sgd_step::MOMENTUM]];
        Some(UpdateSlots {
            param: [sgd_step::PARAM_PREV, sgd_step::PARAM],
            states: if self.momentum.get() > 0.0 { momentum } else { &[] },
            hyper: sgd_step::HYPER,
            corr: None,
            shadow: sgd_step::SHADOW,
        })
    }
}

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
    /// What a rule reads and writes is where it is in [`adam_step`](super::adam_step), so that one rule serves both
    /// ([`UpdateSlots`]; the kernels assert the same).
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

    fn step_parts(&self) -> usize {
        self.cols.div_ceil(32).next_multiple_of(PARTS_ALIGN)
    }
}

/// The bytes that an optimizer must touch of an argument of `len` elements: of a flat vector no more than its segments.
fn segment_bytes(segments: &[Segment], flat: usize, len: usize, elem: usize) -> u64 {
    let all = (len * elem) as u64;
    if len == flat { segments.iter().map(|s| (s.len * elem) as u64).sum::<u64>().min(all) } else { all }
}

/// Floats of scratch memory for the metrics of an update: a pair for each segment and each chunk.
fn metric_floats(segments: &[Segment], len: usize) -> usize {
    2 * (segments.len() + len.div_ceil(FLAT_CHUNK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rule_reads_the_slots_of_both() {
        let shadow = ADAM_UPDATE.shadow;
        assert_eq!(UpdateSlots { shadow, ..GRADIENT_UPDATE }, ADAM_UPDATE);
        assert_eq!(gradient_step::A, adam_step::GRAD);
    }

    #[test]
    fn an_optimizer_replaces_what_it_reads() {
        for (table, update) in [(adam_step::SLOTS, ADAM_UPDATE), (gradient_step::SLOTS, GRADIENT_UPDATE)] {
            for [before, after] in update.states.iter().chain([&update.param]) {
                assert_eq!(table[*before].name, format!("{}_prev", table[*after].name));
            }
        }
    }
}
