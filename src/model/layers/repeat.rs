//! `repeat`: a block of layers, several times with the same weights.

use super::{LayerKind, LayerSpec, LayerType};
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::path::ListField;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

/// `f` applied `times` times with the same weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub times: usize,
    pub layers: Vec<LayerSpec>,
}

impl LayerType for Repeat {
    const KIND: LayerKind = LayerKind {
        type_name: "repeat",
        class: "Repeat",
        about: "Applies the same layers, with the same weights, several times.",
    };
    const FIELDS: &'static [FieldSpec<Self>] =
        &[FieldSpec::<Self>::count("times", lens!(times))
            .help("How often the block is applied, with the same weights.")];
    const LISTS: Option<ListField> = Some(ListField::Layers);

    fn example() -> Self {
        Self { times: 2, layers: Vec::new() }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { times: draw.extreme_or(&[1, 5], |d| d.between(2, 3)), layers: Vec::new() }
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

    fn times(&self) -> Option<usize> {
        Some(self.times)
    }

    fn takes_tokens(&self) -> bool {
        self.times <= 1
    }

    fn must_keep_shape(&self) -> bool {
        self.times > 1
    }
}
