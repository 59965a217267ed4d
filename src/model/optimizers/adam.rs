//! `adam` and `adamw`: steps by the mean of the gradients divided by the root of the mean of their squares.

use super::optimizer_type::{OptimizerType, UpdateRule, betas, lr, weight_decay};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, Range, lens};
use std::ops::Bound;

/// `DECOUPLED`: whether weight decay is applied to the parameters directly and not through the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamLike<const DECOUPLED: bool> {
    pub lr: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
}

/// Kingma and Ba 2015.
pub type Adam = AdamLike<false>;
/// Loshchilov and Hutter 2019.
pub type AdamW = AdamLike<true>;

const EPS: Range =
    Range::Real { from: Bound::Excluded(0.0), to: Bound::Included(1.0), help: "above 0 and at most 1, such as 1e-8" };

impl<const DECOUPLED: bool> OptimizerType for AdamLike<DECOUPLED> {
    const NAME: &'static str = if DECOUPLED { "adamw" } else { "adam" };
    const TITLE: &'static str = if DECOUPLED { "AdamW" } else { "Adam" };
    const FIELDS: &'static [FieldSpec<Self>] = &[
        lr::<Self>(lens!(lr)),
        betas::<Self>(lens!(betas), |_| FieldValue::Numbers([0.9, 0.999])).help("Decay of the two moments."),
        FieldSpec::<Self>::real("optimizer.eps", lens!(eps))
            .default(|_| FieldValue::Number(1e-8))
            .within(EPS)
            .label("eps")
            .help("Added to the root of the second moment."),
        weight_decay::<Self>(lens!(weight_decay)),
    ];

    fn example() -> Self {
        Self { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0 }
    }

    fn drawn(draw: &mut Draw, _way: usize) -> Self {
        let first = draw.extreme_or(&[0.0, 0.999, 0.999_999], |d| d.pick(&[0.5, 0.8, 0.9, 0.95]));
        let second = draw.extreme_or(&[0.0, 0.9, 0.999_999], |d| d.pick(&[0.95, 0.99, 0.999]));
        let eps = draw.extreme_or(&[1e-12, 1e-3, 1.0], |_| 1e-8);
        Self { betas: [first, second], eps, ..Self::example() }
    }

    fn cost(&self) -> usize {
        3 + usize::from(DECOUPLED)
    }

    fn rule(&self) -> UpdateRule {
        UpdateRule::Adam { betas: self.betas, eps: self.eps, decoupled: DECOUPLED }
    }

    fn corrected(&self) -> Option<[f64; 2]> {
        Some(self.betas)
    }

    fn is_decoupled(&self) -> bool {
        DECOUPLED
    }

    fn first_gradient(&self) -> Option<(&'static str, f64)> {
        Some(("m", 1.0 - self.betas[0]))
    }
}
