//! `activation`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::ActivationLayer;
use crate::train::export::onnx_graph::Writer;
use crate::train::export::python::activation;

impl Exported for ActivationLayer {
    fn pytorch(&self, _layer: &Layer) -> String {
        format!("Apply({})", activation(Some(self.function)))
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        w.activation(at.x, Some(self.function))
    }
}
