//! `l1`: the mean absolute error.

use super::loss_type::{LossRule, LossType, Targets, plain_loss};
use super::point_fn::PointFn;

plain_loss!(L1 {
    name: "l1",
    title: "mean absolute error",
    about: "For values with outliers; the mean of the absolute errors.",
    targets: Values,
    rule: LossRule::Pointwise { func: PointFn::L1, delta: 0.0 },
    pytorch: "F.l1_loss(output, y)",
});
