//! `mse`: the mean squared error.

use super::loss_type::{LossRule, LossType, Targets, plain_loss};

plain_loss!(Mse {
    name: "mse",
    title: "mean squared error",
    about: "For values; large errors count most.",
    targets: Values,
    rule: LossRule::SquaredError,
    pytorch: "F.mse_loss(output, y)",
    cost: 0,
});
