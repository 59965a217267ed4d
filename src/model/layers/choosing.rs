//! Layers that choose at every step what they do.

use super::{LayerSpec, LayerType, each_layer};
use crate::model::choose::Choice;
use crate::model::draw::Draw;

impl LayerSpec {
    /// The choice that the layer makes at every step; nothing where every step does the same.
    #[must_use]
    pub fn choice(&self) -> Option<Choice> {
        each_layer!(self, l => LayerType::choice(l))
    }

    /// The list of layers that is run where this value is chosen; nothing where none is.
    pub(in crate::model) fn list_at(&self, value: usize) -> Option<usize> {
        each_layer!(self, l => l.list_at(value))
    }

    /// Whether the network ends with this layer where this value is chosen.
    pub(in crate::model) fn ends_at(&self, value: usize) -> bool {
        each_layer!(self, l => l.ends_at(value))
    }

    /// Makes it choose, for random networks, where it can.
    pub(in crate::model) fn draw_choice(&mut self, draw: &mut Draw) {
        each_layer!(self, l => l.draw_choice(draw));
    }

    /// The layer that every step has that chooses this value.
    pub(in crate::model) fn settled(&self, value: usize) -> Self {
        each_layer!(self, l => LayerType::settled(l, value).into())
    }
}

#[cfg(test)]
mod tests;
