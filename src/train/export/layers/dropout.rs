//! `dropout`, which has no effect at inference.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::Dropout;
use crate::train::export::onnx_graph::Writer;

impl Exported for Dropout {
    fn pytorch(&self, _layer: &Layer) -> String {
        format!("nn.Dropout({:?})", self.rate)
    }

    fn onnx(&self, _w: &mut Writer, at: At<'_>) -> String {
        at.x
    }
}
