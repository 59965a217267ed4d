//! Optimizers over the flat parameters, each with its formula.

use super::Operation;
use super::geometry::{Scalar, Segment};
use super::slots::slots;
use super::update::{MOST_STATES, Number, Rates, Rule, RuleText, StepOptions, UpdateSlots, UpdatedSlots, flat_update};
use serde::{Deserialize, Serialize};

/// The slots of an update of the flat parameters: the rule's states before the update, its corrections, and its states
/// after the update, among the slots that all updates have.
macro_rules! update_slots {
    (pub mod $module:ident($op:ident: $Step:ident) {
        before { $($before:tt)* }
        $(rates { $($rates:tt)* })?
        after { $($after:tt)* }
    }) => {
        slots! {
            pub mod $module($op: $Step) {
                PARAM_PREV: in [$op.len],
                GRAD: in [$op.len],
                $($before)*
                HYPER: in live [$op.options.rates()],
                $($($rates)*)?
                PARAM: out [$op.len],
                $($after)*
                UPDATE_MAX: out [$op.segments.len()] if OPTIONAL,
                GRAD_NORM_SEG: out [$op.segments.len()] if OPTIONAL,
                WORK: scratch,
                SCALER: in [crate::ops::SCALER] if OPTIONAL,
                SHADOW: out [$op.len] if OPTIONAL,
                TOTAL_MAX: out [1] if OPTIONAL,
                GRAD_NORM: out [1] if OPTIONAL,
                TICKET: in_out [1] if OPTIONAL,
            }
        }
    };
}

/// Adam over the flat parameters. With `g` the gradient (plus `wd * p` unless `decoupled`): `m = b1 m + (1-b1) g`, `v =
/// b2 v + (1-b2) g^2`, `p -= lr wd p` first if `decoupled`, then `p -= lr corr0 m / (sqrt(v) corr1 + eps)`. `hyper [2]`
/// is learning rate, weight decay; if the step is clipped, a third value that gradients are multiplied by first.
/// Segments that `options` exempts have no decay. If bound: `update_max [segments]` is the largest
/// |change| and `grad_norm_seg [segments]` the norm of the (undecayed) gradient of each segment, `total_max` and
/// `grad_norm` are those of `UpdateMetrics`, `shadow` is a copy of the parameters in the type that products read, and
/// `scaler` is that of `ScaleUpdate`: gradients are multiplied by its third value, and if its fourth is 1 nothing
/// changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdamStep {
    pub len: usize,
    pub segments: Vec<Segment>,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
    #[serde(default, skip_serializing_if = "StepOptions::is_usual")]
    pub options: StepOptions,
}

update_slots! {
    pub mod adam_step(op: AdamStep) {
        before {
            M_PREV: in [op.len],
            V_PREV: in [op.len],
        }
        rates {
            CORR: in live [2],
        }
        after {
            M: out [op.len],
            V: out [op.len],
        }
    }
}

/// The slots of [`AdamStep`] as an optimizer.
pub(super) const ADAM_UPDATE: UpdateSlots = UpdateSlots {
    param: [adam_step::PARAM_PREV, adam_step::PARAM],
    states: &[[adam_step::M_PREV, adam_step::M], [adam_step::V_PREV, adam_step::V]],
    hyper: adam_step::HYPER,
    corr: Some(adam_step::CORR),
    shadow: adam_step::SHADOW,
};

/// Adam's rule with these constants, as kernels are compiled for it.
pub(super) fn adam_text(beta1: Scalar, beta2: Scalar, eps: Scalar, decoupled: bool) -> RuleText {
    RuleText { name: "Adam", constants: [beta1, beta2, eps].map(Scalar::get).to_vec(), flags: vec![decoupled] }
}

impl Operation for AdamStep {
    flat_update!(adam_step, |_op| ADAM_UPDATE);

    fn name(&self) -> &'static str {
        "adam_step"
    }

    fn flops(&self) -> u64 {
        16 * self.len as u64
    }

    fn work_ps(&self) -> usize {
        self.len * 140
    }

    fn rule(&self) -> Option<RuleText> {
        Some(adam_text(self.beta1, self.beta2, self.eps, self.decoupled))
    }
}

/// The rule of [`AdamStep`]. `DECOUPLED`: whether weight decay is applied to the parameters directly and not through
/// the gradient.
pub struct AdamRule<const DECOUPLED: bool>;

#[derive(Clone, Copy)]
pub struct AdamTerms<N> {
    betas: [N; 2],
    rests: [N; 2],
    eps: N,
    /// Weight decay; multiplied by the learning rate if it is decoupled.
    decay: N,
    /// Learning rate divided by the first moment's correction.
    rate: N,
    /// The second moment's correction of `sqrt(v)`.
    corr: N,
}

impl<const DECOUPLED: bool> Rule for AdamRule<DECOUPLED> {
    type Step = AdamStep;
    type Terms<N: Number> = AdamTerms<N>;
    const STATES: usize = 2;

    #[inline(always)]
    fn terms<N: Number>(step: &AdamStep, Rates { lr, wd, corr }: Rates<N>) -> AdamTerms<N> {
        let (beta1, beta2) = (step.beta1.get(), step.beta2.get());
        AdamTerms {
            betas: [N::constant(beta1), N::constant(beta2)],
            rests: [N::constant(1.0 - beta1), N::constant(1.0 - beta2)],
            eps: N::constant(step.eps.get()),
            decay: if DECOUPLED { lr * wd } else { wd },
            rate: lr * corr[0],
            corr: corr[1],
        }
    }

    #[inline(always)]
    fn step<N: Number>(t: &AdamTerms<N>, old: N, grad: N, states: &mut [N; MOST_STATES]) -> N {
        let (g, decayed) = if DECOUPLED { (grad, old - t.decay * old) } else { (grad + t.decay * old, old) };
        let m = t.betas[0] * states[0] + t.rests[0] * g;
        let v = t.betas[1] * states[1] + t.rests[1].times_square(g);
        *states = [m, v];
        decayed - t.rate * m / (v.root() * t.corr + t.eps)
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
    #[serde(default, skip_serializing_if = "StepOptions::is_usual")]
    pub options: StepOptions,
}

update_slots! {
    pub mod sgd_step(op: SgdStep) {
        before {
            MOMENTUM_PREV: in [op.len] if op.momentum.get() > 0.0,
        }
        after {
            MOMENTUM: out [op.len] if op.momentum.get() > 0.0,
        }
    }
}

/// The slots of [`SgdStep`] as an optimizer, with or without momentum.
const fn sgd_update(has_momentum: bool) -> UpdateSlots {
    const MOMENTUM: &[UpdatedSlots] = &[[sgd_step::MOMENTUM_PREV, sgd_step::MOMENTUM]];
    UpdateSlots {
        param: [sgd_step::PARAM_PREV, sgd_step::PARAM],
        states: if has_momentum { MOMENTUM } else { &[] },
        hyper: sgd_step::HYPER,
        corr: None,
        shadow: sgd_step::SHADOW,
    }
}

impl Operation for SgdStep {
    flat_update!(sgd_step, |op| sgd_update(op.momentum.get() > 0.0));

    fn name(&self) -> &'static str {
        "sgd_step"
    }

    fn flops(&self) -> u64 {
        let each = if self.momentum.get() == 0.0 { 4 } else { 7 };
        each * self.len as u64
    }

    fn rule(&self) -> Option<RuleText> {
        Some(RuleText { name: "Sgd", constants: vec![self.momentum.get()], flags: vec![self.nesterov] })
    }
}

/// The rule of [`SgdStep`].
pub struct SgdRule<const MOMENTUM: bool, const NESTEROV: bool>;

#[derive(Clone, Copy)]
pub struct SgdTerms<N> {
    lr: N,
    wd: N,
    momentum: N,
}

impl<const MOMENTUM: bool, const NESTEROV: bool> Rule for SgdRule<MOMENTUM, NESTEROV> {
    type Step = SgdStep;
    type Terms<N: Number> = SgdTerms<N>;
    const STATES: usize = if MOMENTUM { 1 } else { 0 };

    #[inline(always)]
    fn terms<N: Number>(step: &SgdStep, Rates { lr, wd, .. }: Rates<N>) -> SgdTerms<N> {
        SgdTerms { lr, wd, momentum: N::constant(step.momentum.get()) }
    }

    #[inline(always)]
    fn step<N: Number>(t: &SgdTerms<N>, old: N, grad: N, states: &mut [N; MOST_STATES]) -> N {
        let mut g = grad + t.wd * old;
        if MOMENTUM {
            let moved = t.momentum * states[0] + g;
            states[0] = moved;
            g = if NESTEROV { g + t.momentum * moved } else { moved };
        }
        old - t.lr * g
    }
}

/// Lion over the flat parameters (Chen et al. 2023). With `g` the gradient: `u = sign(b1 m + (1-b1) g)`, where the sign
/// of zero is zero and that of NaN is NaN; `p -= lr (u + wd p)`; `m = b2 m + (1-b2) g`. Metrics as for Adam.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LionStep {
    pub len: usize,
    pub segments: Vec<Segment>,
    pub beta1: Scalar,
    pub beta2: Scalar,
    #[serde(default, skip_serializing_if = "StepOptions::is_usual")]
    pub options: StepOptions,
}

update_slots! {
    pub mod lion_step(op: LionStep) {
        before {
            M_PREV: in [op.len],
        }
        after {
            M: out [op.len],
        }
    }
}

/// The slots of [`LionStep`] as an optimizer.
const LION_UPDATE: UpdateSlots = UpdateSlots {
    param: [lion_step::PARAM_PREV, lion_step::PARAM],
    states: &[[lion_step::M_PREV, lion_step::M]],
    hyper: lion_step::HYPER,
    corr: None,
    shadow: lion_step::SHADOW,
};

impl Operation for LionStep {
    flat_update!(lion_step, |_op| LION_UPDATE);

    fn name(&self) -> &'static str {
        "lion_step"
    }

    fn flops(&self) -> u64 {
        11 * self.len as u64
    }

    fn rule(&self) -> Option<RuleText> {
        let constants = [self.beta1, self.beta2].map(Scalar::get).to_vec();
        Some(RuleText { name: "Lion", constants, flags: Vec::new() })
    }
}

/// The rule of [`LionStep`].
pub struct LionRule;

#[derive(Clone, Copy)]
pub struct LionTerms<N> {
    betas: [N; 2],
    rests: [N; 2],
    lr: N,
    /// Learning rate times weight decay.
    decay: N,
}

impl Rule for LionRule {
    type Step = LionStep;
    type Terms<N: Number> = LionTerms<N>;
    const STATES: usize = 1;

    #[inline(always)]
    fn terms<N: Number>(step: &LionStep, Rates { lr, wd, .. }: Rates<N>) -> LionTerms<N> {
        let (beta1, beta2) = (step.beta1.get(), step.beta2.get());
        LionTerms {
            betas: [N::constant(beta1), N::constant(beta2)],
            rests: [N::constant(1.0 - beta1), N::constant(1.0 - beta2)],
            lr,
            decay: lr * wd,
        }
    }

    #[inline(always)]
    fn step<N: Number>(t: &LionTerms<N>, old: N, grad: N, states: &mut [N; MOST_STATES]) -> N {
        let direction = (t.betas[0] * states[0] + t.rests[0] * grad).sign();
        states[0] = t.betas[1] * states[0] + t.rests[1] * grad;
        old - t.decay * old - t.lr * direction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optimizer_overwrites_the_vectors_that_it_reads() {
        for (table, update) in
            [(adam_step::SLOTS, ADAM_UPDATE), (sgd_step::SLOTS, sgd_update(true)), (lion_step::SLOTS, LION_UPDATE)]
        {
            for [before, after] in update.states.iter().chain([&update.param]) {
                assert_eq!(table[*before].name, format!("{}_prev", table[*after].name));
            }
        }
    }
}
