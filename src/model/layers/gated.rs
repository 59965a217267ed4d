//! `gru` and `lstm`: recurrent units with gates that control their state.

use super::recurrent::{self, Recurrent, last};
use super::{LayerKind, LayerType};
use crate::model::cell::Cell;
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, lens};
use crate::tensor::Shape;

/// `LONG`: whether there is a long-term memory in addition to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gated<const LONG: bool> {
    pub units: usize,
    /// Whether a second direction reads from the end.
    pub bidirectional: bool,
    /// Whether only the final state of each direction is returned.
    pub last: bool,
}

/// Gated recurrent units (Cho et al. 2014), with the reset gate applied after the product, as in cuDNN.
pub type Gru = Gated<false>;
/// Long short-term memory (Hochreiter and Schmidhuber 1997), with a forget gate.
pub type Lstm = Gated<true>;

impl<const LONG: bool> Gated<LONG> {
    const CELL: Cell = if LONG { Cell::Lstm } else { Cell::Gru };

    /// The layer as a generic recurrent layer.
    #[must_use]
    pub const fn recurrent(self) -> Recurrent {
        let Self { units, bidirectional, last } = self;
        Recurrent { cell: Self::CELL, units, bidirectional, last }
    }

    const fn of(layer: Recurrent) -> Self {
        let Recurrent { units, bidirectional, last, .. } = layer;
        Self { units, bidirectional, last }
    }
}

const GRU: LayerKind =
    LayerKind::new("gru", "GRU", "A state with gates that reset and keep it reads the sequence, position by position.");
const LSTM: LayerKind = LayerKind::new(
    "lstm",
    "LSTM",
    "A state and a long-term memory, both controlled by gates, read the sequence, position by position.",
);

impl<const LONG: bool> LayerType for Gated<LONG> {
    const KIND: LayerKind = if LONG { LSTM } else { GRU };
    const FIELDS: &'static [FieldSpec<Self>] =
        &[recurrent::units(lens!(units)), recurrent::bidirectional(lens!(bidirectional)), recurrent::returned(last!())];
    const OUTPUT_FIELD: Option<&'static str> = Some("units");

    fn example() -> Self {
        Self { units: 64, bidirectional: false, last: false }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        Self::of(Recurrent::drawn(draw, Self::CELL))
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        self.recurrent().infer(cx)
    }

    fn keep_shape(&mut self, input: &Shape) {
        *self = Self::of(self.recurrent().kept(input));
    }
}
