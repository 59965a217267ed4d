//! `lstm`: long short-term memory (Hochreiter and Schmidhuber 1997), with a forget gate.

use super::recurrent::{self, Recurrent, last};
use super::{LayerKind, LayerType};
use crate::model::cell::Cell;
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lstm {
    pub units: usize,
    /// Whether a second direction walks from the end.
    pub bidirectional: bool,
    /// Whether only the final state of each direction is given.
    pub last: bool,
}

impl Lstm {
    /// The layer as one of its family.
    #[must_use]
    pub const fn recurrent(self) -> Recurrent {
        let Self { units, bidirectional, last } = self;
        Recurrent { cell: Cell::Lstm, units, bidirectional, last }
    }

    const fn of(layer: Recurrent) -> Self {
        let Recurrent { units, bidirectional, last, .. } = layer;
        Self { units, bidirectional, last }
    }
}

impl LayerType for Lstm {
    const KIND: LayerKind = LayerKind {
        type_name: "lstm",
        class: "LSTM",
        about: "A state and a long-term memory behind gates read the sequence, position by position.",
    };
    const FIELDS: &'static [FieldSpec<Self>] =
        &[recurrent::units(lens!(units)), recurrent::bidirectional(lens!(bidirectional)), recurrent::returned(last!())];
    const OUTPUT_FIELD: Option<&'static str> = Some("units");

    fn example() -> Self {
        Self { units: 64, bidirectional: false, last: false }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self::of(Recurrent::drawn(draw, Cell::Lstm))
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        self.recurrent().infer(cx)
    }

    fn keep_shape(&mut self, input: &Shape) {
        *self = Self::of(self.recurrent().kept(input));
    }
}
