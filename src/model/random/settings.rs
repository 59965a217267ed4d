//! The loss, the optimizer, data and the length of training.

use crate::model::draw::Draw;
use crate::model::layers::Dense;
use crate::model::{LayerSpec, LossSpec, OptimizerSpec, TrainSpec};

/// A loss on classes, or one on values. Which one on values is drawn with the separate generator `of_recipe`.
pub(super) fn loss(draw: &mut Draw, of_recipe: &mut Draw) -> LossSpec {
    if !draw.coin(0.4) {
        return LossSpec::drawn("softmax_cross_entropy", draw);
    }
    let on_values = LossSpec::NAMES.map(|name| (name, LossSpec::example(name)));
    let on_values: Vec<&str> =
        on_values.iter().filter(|(_, loss)| loss.is_some_and(|l| !l.wants_classes())).map(|(name, _)| *name).collect();
    LossSpec::drawn(of_recipe.pick(&on_values), of_recipe)
}

/// The number of outputs of the last layer before a softmax: 1 class, a few but at least the required number, or more
/// than a vector register holds.
pub(super) fn classifier(draw: &mut Draw, least: usize) -> LayerSpec {
    let units = draw.extreme_or(&[1, 1, 17, 40], |d| d.between(least, 12));
    LayerSpec::Dense(Dense { units, activation: None, bias: draw.coin(0.8), tied: String::new() })
}

/// Rates are chosen so that a run of a few dozen steps stays finite: a run that diverges shows nothing about the
/// program.
pub(super) fn optimizer(draw: &mut Draw) -> OptimizerSpec {
    let lr = draw.extreme_or(&[0.0, 1e-12, 0.05], |d| d.magnitude(-4, -2));
    let weight_decay = draw.extreme_or(&[1.0, 5.0], |d| if d.coin(0.4) { d.magnitude(-4, -2) } else { 0.0 });
    OptimizerSpec::drawn(draw, lr, weight_decay)
}

pub(super) fn train(draw: &mut Draw) -> Option<TrainSpec> {
    draw.coin(0.3).then(|| TrainSpec {
        steps: draw.between(1, 100),
        seed: draw.between(0, 1_000) as u64,
        accumulate: 1,
    })
}

/// The number of batches whose mean gradient makes a training step: one for most networks.
pub(super) fn accumulated(draw: &mut Draw) -> usize {
    if draw.coin(0.3) { draw.between(2, 4) } else { 1 }
}
