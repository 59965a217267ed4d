//! `huber`: half the squared error if it is small, otherwise linear with the same slope as at the border.

use super::loss_type::{LossRule, LossType, Targets};
use super::point_fn::PointFn;
use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, Range, lens};
use std::ops::Bound;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Huber {
    /// The error at which the loss becomes linear.
    pub delta: f64,
}

const DELTA: Range =
    Range::Real { from: Bound::Excluded(0.0), to: Bound::Included(1e6), help: "above 0 and at most 1e6, such as 1" };

impl LossType for Huber {
    const NAME: &'static str = "huber";
    const TITLE: &'static str = "Huber loss";
    const ABOUT: &'static str =
        "For values with outliers; small errors count squared, large ones by their absolute value.";
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::real("loss.delta", lens!(delta))
        .default(|_| FieldValue::Number(1.0))
        .within(DELTA)
        .label("delta")
        .help("Errors up to it count squared, larger ones by their absolute value.")];
    const TARGETS: Targets = Targets::Values;

    fn example() -> Self {
        Self { delta: 1.0 }
    }

    fn drawn(draw: &mut Draw) -> Self {
        Self { delta: draw.extreme_or(&[1e-3, 100.0], |d| if d.coin(0.5) { 1.0 } else { d.number(0.05, 2.0) }) }
    }

    fn cost(&self) -> usize {
        1 + usize::from(self.delta != 1.0)
    }

    fn rule(&self) -> LossRule {
        LossRule::Pointwise { func: PointFn::Huber, delta: self.delta }
    }

    fn pytorch(&self, _is_plain: bool) -> String {
        format!("F.huber_loss(output, y, delta={:?})", self.delta)
    }
}
