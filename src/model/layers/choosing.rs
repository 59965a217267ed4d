//! Layers that choose what they do at every step.

use super::{LayerSpec, LayerType, each_layer};
use crate::model::choose::Choice;
use crate::model::draw::Draw;

impl LayerSpec {
    /// The choice of the layer at every step; `None` if every step does the same.
    #[must_use]
    pub fn choice(&self) -> Option<Choice> {
        each_layer!(self, l => LayerType::choice(l))
    }

    /// The list of layers that is run if this value is chosen; `None` if none is run.
    pub(in crate::model) fn list_at(&self, value: usize) -> Option<usize> {
        each_layer!(self, l => l.list_at(value))
    }

    /// Whether the network ends with this layer if this value is chosen.
    pub(in crate::model) fn ends_at(&self, value: usize) -> bool {
        each_layer!(self, l => l.ends_at(value))
    }

    /// Makes the layer choose, for random networks, if it can.
    pub(in crate::model) fn draw_choice(&mut self, draw: &mut Draw) {
        each_layer!(self, l => l.draw_choice(draw));
    }

    /// The layer for steps that choose this value, as a layer that does not choose.
    pub(in crate::model) fn settled(&self, value: usize) -> Self {
        each_layer!(self, l => LayerType::settled(l, value).into())
    }
}

#[cfg(test)]
mod tests;
