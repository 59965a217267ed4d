//! `activation`: a nonlinear function of each element.

use super::{LayerKind, LayerType, NextActivation};
use crate::model::activation::Activation;
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, Lens};
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationLayer {
    pub function: Activation,
}

const FUNCTION: Lens<ActivationLayer, usize> = Lens {
    get: |l| Activation::option(Some(l.function)) - 1,
    set: |l, i| l.function = Activation::of_option(i + 1).unwrap_or(l.function),
};

impl LayerType for ActivationLayer {
    const KIND: LayerKind = LayerKind::new("activation", "Activation", "A nonlinear function of each element.");
    const FIELDS: &'static [FieldSpec<Self>] =
        &[FieldSpec::<Self>::choice("function", &Activation::NAMES, FUNCTION).help("The function of each element.")];

    fn example() -> Self {
        Self { function: Activation::Relu }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { function: draw.function() }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        Some(cx.input.clone())
    }

    fn activation(&self) -> Option<Activation> {
        Some(self.function)
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Is(self.function)
    }
}
