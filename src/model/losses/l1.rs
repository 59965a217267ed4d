//! `l1`: the mean absolute error.

use super::loss_type::{LossRule, LossType, Targets};
use super::point_fn::PointFn;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct L1 {}

impl LossType for L1 {
    const NAME: &'static str = "l1";
    const TITLE: &'static str = "mean absolute error";
    const ABOUT: &'static str = "For values with outliers; every error counts by its size.";
    const TARGETS: Targets = Targets::Values;

    fn example() -> Self {
        Self {}
    }

    fn rule(&self) -> LossRule {
        LossRule::Pointwise { func: PointFn::L1, delta: 0.0 }
    }

    fn pytorch(&self, _is_plain: bool) -> String {
        "F.l1_loss(output, y)".into()
    }
}
