//! `adam` and `adamw`: steps by the mean of the gradients over the root of the mean of their squares.

use super::{DECAY, DECAY_HELP, LR, LR_HELP, OptimizerType, SHARE, UpdateRule};
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, Range, lens};
use std::ops::Bound;

/// `DECOUPLED`: whether weight decay shrinks the parameters apart from the gradient.
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
        FieldSpec::<Self>::real("optimizer.lr", lens!(lr)).within(LR).label("learning rate").help(LR_HELP).live(),
        FieldSpec::<Self>::reals("optimizer.betas", lens!(betas))
            .default(|_| FieldValue::Numbers([0.9, 0.999]))
            .within(SHARE)
            .label("betas")
            .help("Decay of the two moments."),
        FieldSpec::<Self>::real("optimizer.eps", lens!(eps))
            .default(|_| FieldValue::Number(1e-8))
            .within(EPS)
            .label("eps")
            .help("Added to the root of the second moment."),
        // PyTorch's AdamW decays by 0.01 unless another value is given; a preset says what it does, so the default here
        // is none for all optimizers.
        FieldSpec::<Self>::real("optimizer.weight_decay", lens!(weight_decay))
            .default(|_| FieldValue::Number(0.0))
            .within(DECAY)
            .label("weight decay")
            .help(DECAY_HELP)
            .live(),
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
