//! `binary_cross_entropy`: the cross entropy of the sigmoid of each logit with a target that is 0 or 1.

use super::loss_type::{LossRule, LossType, Targets, plain_loss};
use super::point_fn::PointFn;

plain_loss!(BinaryCrossEntropy {
    name: "binary_cross_entropy",
    title: "binary cross entropy",
    about: "For independent yes-or-no answers.",
    targets: Binary,
    rule: LossRule::Pointwise { func: PointFn::BinaryCrossEntropy, delta: 0.0 },
    pytorch: "F.binary_cross_entropy_with_logits(output, y)",
});
