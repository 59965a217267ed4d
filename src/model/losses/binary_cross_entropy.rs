//! `binary_cross_entropy`: the cross entropy of the sigmoid of logits with targets that are 0 or 1, each by itself.

use super::loss_type::{LossRule, LossType, Targets};
use super::point_fn::PointFn;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinaryCrossEntropy {}

impl LossType for BinaryCrossEntropy {
    const NAME: &'static str = "binary_cross_entropy";
    const TITLE: &'static str = "binary cross entropy";
    const ABOUT: &'static str = "For answers that are yes or no, each by itself.";
    const TARGETS: Targets = Targets::Binary;

    fn example() -> Self {
        Self {}
    }

    fn rule(&self) -> LossRule {
        LossRule::Pointwise { func: PointFn::BinaryCrossEntropy, delta: 0.0 }
    }

    fn pytorch(&self, _is_plain: bool) -> String {
        "F.binary_cross_entropy_with_logits(output, y)".into()
    }
}
