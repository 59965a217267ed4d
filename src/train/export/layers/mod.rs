//! The form of each layer in other programs: a module of PyTorch, nodes of ONNX.

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

use super::onnx_graph::Writer;
use crate::model::layers::each_layer;
use crate::model::{Choice, Choose, Layer, LayerId, Model};

/// A layer in the formats of other programs.
trait Exported {
    /// The module in Python. For a block it is the start, up to the list of the layers inside.
    fn pytorch(&self, layer: &Layer) -> String;

    /// Like [`Self::pytorch`], for a layer that chooses; `choice` is its choice in Python.
    fn pytorch_choosing(&self, layer: &Layer, _choice: &str) -> String {
        self.pytorch(layer)
    }

    /// Adds the nodes and returns the name of their output.
    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String;
}

/// The context of a layer.
struct At<'m> {
    model: &'m Model,
    layer: &'m Layer,
    /// The name of its input.
    x: String,
}

impl<'m> At<'m> {
    /// The input, and the layer's parameters in order.
    fn inputs(&self) -> Vec<&str> {
        std::iter::once(self.x.as_str()).chain(self.params()).collect()
    }

    fn params(&self) -> impl Iterator<Item = &'m str> {
        let model = self.model;
        self.layer.params.iter().map(|p| model.param(*p).name.as_str())
    }

    /// Applies the layers of one of a block's lists once.
    fn inside(&self, w: &mut Writer, list: usize, x: String) -> String {
        self.layer.lists[list].iter().fold(x, |x, id| onnx(w, self.model, *id, x))
    }
}

/// The module of a layer in Python; for a block its start.
pub(super) fn pytorch(layer: &Layer, id: LayerId) -> String {
    let Some(Choice { how, evaluation, .. }) = layer.spec.choice() else {
        return each_layer!(&layer.spec, l => l.pytorch(layer));
    };
    let (by, values) = match how {
        Choose::Cycle(values) => ("cycle", format!("{values:?}")),
        Choose::Random(weights) => ("random", format!("{weights:?}")),
        Choose::Schedule(at) => ("schedule", format!("{at:?}")),
    };
    let choice = format!("Choice({}, \"{by}\", {values}, {evaluation})", id.0);
    each_layer!(&layer.spec, l => l.pytorch_choosing(layer, &choice))
}

/// Adds the nodes of a layer and returns the name of their output.
pub(super) fn onnx(w: &mut Writer, model: &Model, id: LayerId, x: String) -> String {
    let layer = model.layer(id);
    let at = At { model, layer, x };
    each_layer!(&layer.spec, l => l.onnx(w, at))
}
