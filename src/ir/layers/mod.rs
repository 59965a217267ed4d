//! The forward pass and the derivative of each layer, side by side.

mod activation;
mod affine;
mod attention;
mod block;
mod dropout;
mod flatten;
mod norm;
mod parallel;
mod pool;
mod recurrent;
mod sequence;
mod unary;

use super::builder::{At, Builder, Forward};
use super::value::ValueId;
use crate::model::layers::each_layer;
use crate::model::{Layer, LayerId};

/// Adds the forward pass of a layer, including the layers inside it, and returns its output.
pub(super) fn forward(b: &mut Builder<'_>, id: LayerId, x: ValueId) -> ValueId {
    let model = b.model;
    let layer = model.layer(id);
    b.layer = Some(id);
    let at = At { layer, x, out: layer.output.batched(model.batch), inside };
    each_layer!(&layer.spec, l => l.forward(b, &at))
}

/// Applies the layers of one of a block's lists once.
fn inside(b: &mut Builder<'_>, block: &Layer, list: usize, x: ValueId) -> ValueId {
    block.lists[list].iter().fold(x, |x, &child| forward(b, child, x))
}
