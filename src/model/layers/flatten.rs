//! `flatten`: an image or a sequence as one row of features.

use super::{LayerKind, LayerType, NextActivation};
use crate::model::infer::Infer;
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flatten;

impl LayerType for Flatten {
    const KIND: LayerKind =
        LayerKind::new("flatten", "Flatten", "Sees an image or a sequence as one row of features; moves nothing.");

    fn example() -> Self {
        Self
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        Some(Shape::from([cx.input.len()]))
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }
}
