//! `batch_norm` and `layer_norm`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{BatchNorm, LayerNorm};
use crate::train::export::onnx_graph::{Attribute, Writer};

impl Exported for BatchNorm {
    fn pytorch(&self, layer: &Layer) -> String {
        let rank = if layer.input.rank() == 3 { "2d" } else { "1d" };
        let Self { eps, momentum } = self;
        format!("nn.BatchNorm{rank}({}, eps={eps:?}, momentum={momentum:?})", layer.input.0[0])
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        w.node("BatchNormalization", &at.inputs(), &[Attribute::Float("epsilon", self.eps as f32)])
    }
}

impl Exported for LayerNorm {
    fn pytorch(&self, layer: &Layer) -> String {
        format!("nn.LayerNorm({}, eps={:?})", layer.input.0.last().copied().unwrap_or(1), self.eps)
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let attributes = [Attribute::Int("axis", -1), Attribute::Float("epsilon", self.eps as f32)];
        w.node("LayerNormalization", &at.inputs(), &attributes)
    }
}
