//! Recurrent layers: the loop of one direction over the positions, and its derivative.

use super::node_type::{NodeType, Shapes, must, same};
use crate::model::Cell;
use serde::{Deserialize, Serialize};

/// One direction of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    pub cell: Cell,
    /// From the last position to the first.
    pub reverse: bool,
    /// Whether the layer is bidirectional.
    pub bidirectional: bool,
    /// Whether the output is only the final state.
    pub last: bool,
}

/// `x, w, b, [other] -> y, gates, [inner], before`: `x` is the input part of all gates; `other` is the output of the
/// forward direction; the reverse direction writes it before its own output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recurrence {
    #[serde(flatten)]
    pub direction: Direction,
}

/// `dy, w, gates, [inner], [before] -> dx, [dhidden]`; `dy` is that of the layer's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecurrenceBwd {
    #[serde(flatten)]
    pub direction: Direction,
}

impl Direction {
    /// The name for this kind of cell, given those for plain cells, GRUs and LSTMs.
    const fn of(self, [rnn, gru, lstm]: [&'static str; 3]) -> &'static str {
        match self.cell {
            Cell::RnnTanh | Cell::RnnRelu => rnn,
            Cell::Gru => gru,
            Cell::Lstm => lstm,
        }
    }

    /// Whether the node of this direction returns the output of both.
    #[must_use]
    pub const fn joins(self) -> bool {
        self.bidirectional && self.reverse
    }

    /// Checks a value of all gates, the weight, and a value whose rows contain the states of `sides` directions.
    fn verify(self, gates: &[usize], weight: &[usize], states: &[usize], sides: usize) -> Result<(), String> {
        let [batch, positions, wide] = *gates else { return Err(format!("{gates:?} is not a batch of sequences")) };
        let units = wide / self.cell.gates();
        must(*weight == [units, self.cell.gates() * units], format!("{weight:?} is not a weight of {gates:?}"))?;
        let width = sides * units;
        let wanted = if self.last { vec![batch, width] } else { vec![batch, positions, width] };
        same(states, &wanted)
    }
}

impl NodeType for Recurrence {
    fn name(&self) -> Option<&'static str> {
        Some(self.direction.of(["Rnn", "Gru", "Lstm"]))
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let Self { direction } = self;
        let joins = direction.joins();
        let outputs = 3 + usize::from(direction.cell.keeps_inner());
        let is_complete = (at.inputs.len(), at.outputs.len()) == (3 + usize::from(joins), outputs);
        must(is_complete, "the other direction's output belongs to the second, and inner values to some cells")?;
        direction.verify(at.input(0), at.input(1), at.output(0), if joins { 2 } else { 1 })?;
        same(at.input(0), at.output(1))?;
        must(at.input(2) == [at.input(1)[1]], "one bias a gate and unit")
    }
}

impl NodeType for RecurrenceBwd {
    fn name(&self) -> Option<&'static str> {
        Some(self.direction.of(["RnnBwd", "GruBwd", "LstmBwd"]))
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        let Direction { cell, bidirectional, .. } = self.direction;
        let hidden = usize::from(cell.has_hidden_gradient());
        let is_complete =
            (at.inputs.len(), at.outputs.len()) == (3 + usize::from(cell.keeps_inner()) + hidden, 1 + hidden);
        must(is_complete, "inner values and states belong to some cells, and to no others")?;
        self.direction.verify(at.input(2), at.input(1), at.input(0), 1 + usize::from(bidirectional))?;
        (0..=hidden).try_for_each(|i| same(at.input(2), at.output(i)))
    }
}
