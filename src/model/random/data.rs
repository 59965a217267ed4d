//! Random data for networks. Its random numbers are separate from those of the network.

use super::{Draw, Size};
use crate::model::{DataSource, DataSpec, LossSpec, NamedInput, SplitKind, Targets};
use crate::tensor::Shape;

/// The share of networks whose input has the shape of a data set with classes.
const FITTED: f64 = 0.4;
/// The share of networks that have data, if suitable data exist.
const WITH_DATA: f64 = 0.85;
/// The limit of a regression's size: samples times variables times outputs.
const TERMS: usize = 1_000_000;

/// The numbers of features of data sets with classes: points of the plane, flowers and digits.
const PLANE: usize = 2;
const FLOWERS: usize = 4;
const DIGITS: usize = 8 * 8;

/// The shape of a sample of a data set with classes, as features or as an image; `None` for most networks.
pub(super) fn input_shape(draw: &mut Draw) -> Option<Shape> {
    let few = [[PLANE, 0, 0], [PLANE, 0, 0], [2, 1, 1], [1, 2, 1], [1, 1, 2], [FLOWERS, 0, 0], [1, 2, 2], [4, 1, 1]];
    let many = [[DIGITS, 0, 0], [1, 8, 8], [1, 8, 8]];
    if !draw.coin(FITTED) {
        return None;
    }
    // Small inputs leave little work for threads to share.
    let is_small = draw.size().sample <= Size::SMALL.sample && draw.coin(0.75);
    let [c, h, w] = if is_small { draw.pick(&few) } else { draw.pick(&many) };
    Some(if h == 0 { Shape::from([c]) } else { Shape::from([c, h, w]) })
}

/// The smallest number of classes for a classifier of this input.
pub(super) fn classes(input: &Shape) -> usize {
    match input.len() {
        FLOWERS => 3,
        DIGITS => 10,
        _ => 2,
    }
}

/// Samples that fit a network, some of which are held out; without them, training repeats a batch of random numbers.
pub(super) fn spec(draw: &mut Draw, batch: usize, loss: LossSpec, [input, output]: [&Shape; 2]) -> Option<DataSpec> {
    let samples = draw.between(4 * batch, 9 * batch);
    let noise = draw.number(0.0, 0.3);
    let source = match loss.targets() {
        Targets::Values => DataSource::Regression { samples, noise },
        Targets::Classes | Targets::Binary => classified(draw, input, output.len(), (samples, noise))?,
    };
    let is_long =
        loss.targets() == Targets::Values && samples.saturating_mul(input.len()).saturating_mul(output.len()) > TERMS;
    let held_out = draw.extreme_or(&[0.0, 1.0], |d| d.number(0.1, 0.5));
    let split = draw.pick(&[SplitKind::Shuffled, SplitKind::Last]);
    // No data set has only one class.
    let is_single = loss.wants_classes() && output.len() == 1;
    (!is_long && draw.coin(WITH_DATA) && !is_single).then(|| DataSpec { held_out, split, ..DataSpec::of(source) })
}

/// The same samples and targets for the first of several inputs, with as many drawn samples for the others; the data
/// itself for a single input, and `None` if samples cannot be joined.
pub(super) fn joined(data: DataSpec, inputs: &[NamedInput]) -> Option<DataSpec> {
    if inputs.len() == 1 {
        return Some(data);
    }
    let &DataSource::Regression { samples, noise } = &data.source else { return None };
    if inputs.iter().any(|input| input.content.is_tokens()) {
        return None;
    }
    let of_each = |input: &NamedInput| (input.name.clone(), DataSource::Regression { samples, noise });
    let source = DataSource::Joined { inputs: inputs.iter().map(of_each).collect(), target: inputs[0].name.clone() };
    Some(DataSpec { source, ..data })
}

/// Uses the samples at the end of an epoch that are fewer than a batch, for a data set that was drawn here.
pub(super) fn left_over(data: &DataSpec, batch: usize) -> usize {
    let samples = |source: &DataSource| match source {
        DataSource::Regression { samples, .. }
        | DataSource::Moons { samples, .. }
        | DataSource::Spirals { samples, .. }
        | DataSource::Circles { samples, .. }
        | DataSource::Xor { samples, .. } => *samples,
        DataSource::Iris => 150,
        DataSource::Digits => 1797,
        _ => 0,
    };
    let count = data.source.parts().map(samples).max().unwrap_or(0);
    (count - data.held_out_of(count)) % batch
}

/// A data set whose samples have this shape, with at most this many classes.
fn classified(draw: &mut Draw, input: &Shape, most: usize, (samples, noise): (usize, f64)) -> Option<DataSource> {
    // Digits are pictures; another shape with the same number of elements is not suitable.
    let takes_digits = input.rank() == 1 || input.0 == [1, 8, 8];
    match input.len() {
        PLANE if most < 2 => Some(DataSource::Moons { samples, noise }),
        PLANE => Some(match draw.between(0, 3) {
            0 => DataSource::Spirals { samples, classes: draw.between(2, most.min(4)), noise },
            1 => DataSource::Moons { samples, noise },
            2 => DataSource::Circles { samples, noise, factor: draw.number(0.2, 0.9) },
            _ => DataSource::Xor { samples, noise },
        }),
        FLOWERS if most >= 3 => Some(DataSource::Iris),
        DIGITS if most >= 10 && takes_digits => Some(DataSource::Digits),
        _ => None,
    }
}
