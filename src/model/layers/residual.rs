//! `residual`: a block of layers whose input is added to its output.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::infer::Infer;
use crate::model::path::ListField;
use crate::tensor::Shape;

/// `x + f(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    pub layers: Vec<LayerSpec>,
}

impl LayerType for Residual {
    const KIND: LayerKind =
        LayerKind { type_name: "residual", class: "Residual", about: "Adds the block's input to its output." };
    const LISTS: Option<ListField> = Some(ListField::Layers);

    fn example() -> Self {
        Self { layers: Vec::new() }
    }

    fn infer(&self, _cx: &mut Infer<'_>) -> Option<Shape> {
        unreachable!("the checker goes through the layers inside")
    }

    fn lists(&self) -> Vec<&Vec<LayerSpec>> {
        vec![&self.layers]
    }

    fn lists_mut(&mut self) -> Vec<&mut Vec<LayerSpec>> {
        vec![&mut self.layers]
    }

    fn must_keep_shape(&self) -> bool {
        true
    }
}
