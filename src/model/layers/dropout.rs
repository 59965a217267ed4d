//! `dropout`: sets a random share of elements to zero during training and scales the others.

use super::{LayerKind, LayerType, NextActivation};
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, Range, lens};
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share of elements that is set to zero, in `[0, 1)`.
    pub rate: f64,
}

impl LayerType for Dropout {
    const KIND: LayerKind = LayerKind::new("dropout", "Dropout", "Silences a random share of elements while training.");
    const FIELDS: &'static [FieldSpec<Self>] = &[FieldSpec::<Self>::real("rate", lens!(rate))
        .within(Range::SHARE)
        .help("Share of elements silenced while training, below 1.")];

    fn example() -> Self {
        Self { rate: 0.1 }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self { rate: draw.extreme_or(&[0.0, 0.95, 0.999], |d| d.number(0.01, 0.6)) }
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        Some(cx.input.clone())
    }

    fn next_activation(&self) -> NextActivation {
        NextActivation::Beyond
    }

    fn is_random(&self) -> bool {
        self.rate > 0.0
    }
}
