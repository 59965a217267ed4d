//! Builds lists of layers that fit each other.

use crate::model::draw::Draw;
use crate::model::{
    InputSpec, LayerKind, LayerSpec, ListId, LossSpec, Model, OptimizerSpec, Precision, Preset, UpdateSpec, check,
};
use crate::tensor::Shape;

/// The largest depth of nested blocks.
const DEPTH: usize = 3;

/// Whether a network may be drawn; it is also called for single layers.
pub type Filter<'a> = &'a dyn Fn(&Model) -> bool;

/// Builds layers that fit each other.
pub(super) struct Builder<'a> {
    pub(super) draw: &'a mut Draw,
    pub(super) batch: usize,
    pub(super) filter: Filter<'a>,
    /// The kinds of layers that are drawn.
    kinds: Vec<LayerKind>,
}

impl<'a> Builder<'a> {
    /// Layers that choose are inserted later, with separate random numbers.
    pub(super) fn new(draw: &'a mut Draw, batch: usize, filter: Filter<'a>) -> Self {
        let kinds = LayerKind::ALL.into_iter().filter(|kind| kind.example().choice().is_none()).collect();
        Self { draw, batch, filter, kinds }
    }

    /// `count` layers on an input, and the shape of their output; with `keep`, each keeps the shape.
    pub(super) fn layers(&mut self, count: usize, input: &Shape, depth: usize, keep: bool) -> (Vec<LayerSpec>, Shape) {
        let (mut layers, mut shape) = (Vec::new(), input.clone());
        while layers.len() < count {
            let Some(mut layer) = self.layer(&shape, depth) else { continue };
            if keep {
                layer.keep_shape(&shape);
            }
            // A layer that keeps a large input's shape is always allowed, so that this loop ends.
            let limit = self.draw.size().sample.max(shape.len());
            let output = self.output_of(&layer, &shape);
            if let Some(output) = output.filter(|o| o.len() <= limit && (!keep || *o == shape)) {
                layers.push(layer);
                shape = output;
            }
        }
        (layers, shape)
    }

    /// A layer of any kind; `None` if the kind is too deep here, or was rejected because it is rarely wanted.
    fn layer(&mut self, input: &Shape, depth: usize) -> Option<LayerSpec> {
        let mut layer = self.draw.pick(&self.kinds).drawn(self.draw, input);
        // Half of the layers have no effect on a shape that is not an image.
        let gives_features = || self.output_of(&layer, input).is_some_and(|o| o.rank() == 1);
        if input.rank() > 1 && gives_features() && self.draw.coin(0.6) {
            return None;
        }
        if layer.is_block() && depth >= DEPTH {
            return None;
        }
        let ids: Vec<ListId> = layer.lists().into_iter().map(|(id, _)| id).collect();
        for id in ids {
            let count = self.draw.between(usize::from(!layer.may_be_empty()), 3);
            let layers = self.layers(count, input, depth + 1, layer.keeps_shape_inside(input)).0;
            *layer.list_mut(id)? = layers;
        }
        Some(layer)
    }

    /// A layer's output for an input, if it accepts it and may be drawn; this is the checker's own answer.
    fn output_of(&self, layer: &LayerSpec, input: &Shape) -> Option<Shape> {
        let preset = Preset {
            name: String::new(),
            about: String::new(),
            input: InputSpec::one(input.clone(), self.batch),
            layers: vec![layer.clone()],
            loss: LossSpec::MSE,
            optimizer: OptimizerSpec::sgd(0.1),
            update: UpdateSpec::default(),
            precision: Precision::F32,
            data: None,
            train: None,
        };
        let checked = check(&preset);
        // A single layer without trainable parameters is not a mistake of the layer.
        if checked.diagnostics.iter().any(|mistake| mistake.layer.is_some()) {
            return None;
        }
        let may_be_drawn = checked.model.as_ref().is_none_or(self.filter);
        checked.facts.first()?.output.clone().filter(|_| may_be_drawn)
    }
}
