//! Networks with several inputs: a branch for each, joined by the first layer. Their random numbers are separate from
//! those of other networks.

use super::builder::Builder;
use crate::model::draw::Draw;
use crate::model::layers::{Branch, Dense, Embedding, Flatten, JoinKind, LayerType, Parallel};
use crate::model::{Content, LayerSpec, NamedInput};
use crate::tensor::Shape;

/// The share of networks with several inputs.
const SEVERAL: f64 = 0.12;
/// The names of inputs, in order.
const NAMES: [&str; 3] = ["x", "facts", "words"];
/// The share of inputs that a second branch takes.
const AGAIN: f64 = 0.15;
/// The share of inputs after the first that consist of tokens.
const TOKENS: f64 = 0.3;

/// Several inputs, with the layer that joins them.
pub(super) struct Inputs {
    pub(super) inputs: Vec<NamedInput>,
    pub(super) first: LayerSpec,
    /// The output of the layer.
    pub(super) output: Shape,
}

/// Inputs in addition to one with this content and shape; `None` for most networks.
pub(super) fn several(draw: &mut Draw, batch: usize, content: Content, shape: &Shape) -> Option<Inputs> {
    if !draw.coin(SEVERAL) {
        return None;
    }
    let count = draw.between(2, NAMES.len());
    let mut inputs = vec![NamedInput { name: NAMES[0].into(), content, shape: shape.clone() }];
    inputs.extend(NAMES[1..count].iter().map(|name| drawn(draw, name)));
    let join = draw.pick(&[JoinKind::Concat, JoinKind::Concat, JoinKind::Add, JoinKind::Multiply]);
    let units = draw.between(1, 9);
    let mut branches = Vec::new();
    let mut width = 0;
    for input in &inputs {
        let times = 1 + usize::from(draw.coin(AGAIN));
        for _ in 0..times {
            let (layers, len) = branch(draw, batch, input, (join != JoinKind::Concat).then_some(units));
            branches.push(Branch { input: Some(input.name.clone()), layers });
            width += len;
        }
    }
    let output = Shape::from([if join == JoinKind::Concat { width } else { units }]);
    Some(Inputs { inputs, first: LayerSpec::Parallel(Parallel { branches, join }), output })
}

/// A small input of numbers or tokens.
fn drawn(draw: &mut Draw, name: &str) -> NamedInput {
    let (content, shape) = if draw.coin(TOKENS) {
        let vocab = draw.extreme_or(&[1, 2], |d| d.between(3, 40));
        (Content::Tokens { vocab }, Shape::from([draw.extreme_or(&[1], |d| d.between(2, 8))]))
    } else if draw.coin(0.3) {
        (Content::Real, Shape::from([draw.between(1, 3), draw.between(1, 5), draw.between(1, 5)]))
    } else {
        (Content::Real, Shape::from([draw.extreme_or(&[1], |d| d.between(2, 20))]))
    };
    NamedInput { name: name.to_owned(), content, shape }
}

/// The layers from an input to features, and the number of features: `units` if given, otherwise few enough to be
/// combined with those of other branches.
fn branch(draw: &mut Draw, batch: usize, input: &NamedInput, units: Option<usize>) -> (Vec<LayerSpec>, usize) {
    let (mut layers, mut shape) = (Vec::new(), input.shape.clone());
    if input.content.is_tokens() {
        let embedding = Embedding::drawn(draw, &shape);
        shape = Shape::from([shape.0[0], embedding.units]);
        layers.push(LayerSpec::Embedding(embedding));
    }
    let count = draw.between(0, 2);
    let (rest, output) = Builder::new(draw, batch, &|_| true).layers(count, &shape, 1, false);
    layers.extend(rest);
    if output.rank() > 1 {
        layers.push(LayerSpec::Flatten(Flatten));
    }
    let most = draw.size().sample / 8;
    let width = units.or((output.len() > most).then_some(most.min(12)));
    if let Some(units) = width {
        let (activation, bias) = (draw.activation(), draw.coin(0.8));
        layers.push(LayerSpec::Dense(Dense { units, activation, bias, tied: String::new() }));
    }
    (layers, width.unwrap_or(output.len()))
}
