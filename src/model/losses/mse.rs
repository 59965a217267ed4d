//! `mse`: the mean squared error.

use super::loss_type::{LossRule, LossType, Targets};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mse {}

impl LossType for Mse {
    const NAME: &'static str = "mse";
    const TITLE: &'static str = "mean squared error";
    const ABOUT: &'static str = "For values; large errors count most.";
    const TARGETS: Targets = Targets::Values;

    fn example() -> Self {
        Self {}
    }

    fn cost(&self) -> usize {
        0
    }

    fn rule(&self) -> LossRule {
        LossRule::SquaredError
    }

    fn pytorch(&self, _is_plain: bool) -> String {
        "F.mse_loss(output, y)".into()
    }
}
