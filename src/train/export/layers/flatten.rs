//! `flatten`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::Flatten;
use crate::train::export::onnx_graph::{Attribute, Writer};

impl Exported for Flatten {
    fn pytorch(&self, _layer: &Layer) -> String {
        "nn.Flatten()".to_owned()
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        w.node("Flatten", &[&at.x], &[Attribute::Int("axis", 1)])
    }
}
