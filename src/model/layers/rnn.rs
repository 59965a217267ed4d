//! `rnn`: a state that is a function of the input and of the preceding state (Elman 1990).

use super::recurrent::{self, Recurrent, last};
use super::{LayerKind, LayerType};
use crate::model::cell::Cell;
use crate::model::draw::Draw;
use crate::model::infer::Infer;
use crate::model::schema::{FieldSpec, Lens, lens};
use crate::tensor::Shape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rnn {
    /// Whether the function is relu; tanh otherwise.
    pub relu: bool,
    pub units: usize,
    /// Whether a second direction reads from the end.
    pub bidirectional: bool,
    /// Whether only the final state of each direction is returned.
    pub last: bool,
}

const NONLINEARITIES: [&str; 2] = ["tanh", "relu"];
const NONLINEARITY: Lens<Rnn, usize> = Lens { get: |l| usize::from(l.relu), set: |l, i| l.relu = i == 1 };

impl Rnn {
    /// The layer as a generic recurrent layer.
    #[must_use]
    pub const fn recurrent(self) -> Recurrent {
        let Self { relu, units, bidirectional, last } = self;
        Recurrent { cell: if relu { Cell::RnnRelu } else { Cell::RnnTanh }, units, bidirectional, last }
    }

    const fn of(layer: Recurrent) -> Self {
        let Recurrent { cell, units, bidirectional, last } = layer;
        Self { relu: matches!(cell, Cell::RnnRelu), units, bidirectional, last }
    }
}

impl LayerType for Rnn {
    const KIND: LayerKind =
        LayerKind::new("rnn", "RNN", "A state that is mixed with each input reads the sequence, position by position.");
    const FIELDS: &'static [FieldSpec<Self>] = &[
        recurrent::units(lens!(units)),
        FieldSpec::<Self>::option("nonlinearity", &NONLINEARITIES, NONLINEARITY).help("The function of the new state."),
        recurrent::bidirectional(lens!(bidirectional)),
        recurrent::returned(last!()),
    ];
    const OUTPUT_FIELD: Option<&'static str> = Some("units");

    fn example() -> Self {
        Self { relu: false, units: 64, bidirectional: false, last: false }
    }

    fn drawn(draw: &mut Draw, _input: &Shape) -> Self {
        let cell = draw.pick(&[Cell::RnnTanh, Cell::RnnRelu]);
        Self::of(Recurrent::drawn(draw, cell))
    }

    fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        self.recurrent().infer(cx)
    }

    fn keep_shape(&mut self, input: &Shape) {
        *self = Self::of(self.recurrent().kept(input));
    }
}
