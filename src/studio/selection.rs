//! What is selected, one for all views, with a way back.

use super::document::{layer_at, split_path};
use super::view_models::PlanView;
use crate::lower::Dir;
use crate::model::{LayerId, LayerPath, Preset};
use crate::plan::BufferId;
use std::collections::BTreeSet;

/// What a person pointed at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    #[default]
    Nothing,
    Layer(LayerPath),
    /// An operation, by its place in the step.
    Op(usize),
    Buffer(BufferId),
}

/// Everything that belongs to a selection, in every view's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Related {
    pub layers: BTreeSet<LayerPath>,
    pub ops: BTreeSet<usize>,
    pub buffers: BTreeSet<BufferId>,
}

impl Related {
    /// What belongs to `selection` in a compiled step; only the layer itself where there is none.
    #[must_use]
    pub fn new(selection: &Selection, plan: Option<&PlanView>) -> Self {
        let mut out = Self::default();
        if let Selection::Layer(path) = selection {
            out.layers.insert(path.clone());
        }
        let Some(compiled) = plan.map(|p| &p.compiled) else { return out };
        let (model, plan) = (&compiled.model, &compiled.plan);
        let layer_path = |id: LayerId| model.layers.get(id.0 as usize).map(|l| l.path.clone());
        match selection {
            Selection::Nothing => {}
            Selection::Layer(path) => {
                // A block stands for everything inside it.
                let inside = |id: Option<LayerId>| id.and_then(layer_path).is_some_and(|p| p.0.starts_with(&path.0));
                out.ops.extend(plan.program.ops.iter().enumerate().filter(|(_, op)| inside(op.layer)).map(|(i, _)| i));
                let owned = |b: &crate::plan::Buffer| inside(b.layer) || b.parts.iter().any(|p| inside(p.layer));
                out.buffers.extend((0u32..).zip(&plan.buffers).filter(|(_, b)| owned(b)).map(|(i, _)| BufferId(i)));
            }
            Selection::Op(index) => {
                let Some(op) = plan.program.ops.get(*index) else { return out };
                out.ops.insert(*index);
                out.layers.extend(op.layer.and_then(layer_path));
                let values = op.bound(Dir::In).chain(op.bound(Dir::Out));
                out.buffers.extend(values.filter_map(|(_, v)| plan.place(v)).map(|p| p.buffer));
                out.buffers.extend(plan.workspaces[*index]);
            }
            Selection::Buffer(id) => {
                let Some(buffer) = plan.buffers.get(id.0 as usize) else { return out };
                out.buffers.insert(*id);
                out.ops.extend(buffer.writers.iter().chain(&buffer.readers));
                out.layers.extend(buffer.layer.and_then(layer_path));
            }
        }
        out
    }
}

/// The selections before and after the present one.
#[derive(Debug, Default)]
pub struct SelectionHistory {
    current: Selection,
    back: Vec<Selection>,
    forward: Vec<Selection>,
}

/// Selections remembered in each direction.
const LIMIT: usize = 100;

impl SelectionHistory {
    /// The present selection.
    #[must_use]
    pub const fn current(&self) -> &Selection {
        &self.current
    }

    /// Selects something; false where it already was.
    pub fn select(&mut self, selection: Selection) -> bool {
        if selection == self.current {
            return false;
        }
        self.back.push(std::mem::replace(&mut self.current, selection));
        if self.back.len() > LIMIT {
            self.back.remove(0);
        }
        self.forward.clear();
        true
    }

    /// Forgets everything: another document is open.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Drops layers that the preset does not have; where the present one is among them, the network is selected.
    pub fn forget_missing(&mut self, preset: &Preset) {
        let there =
            |s: &Selection| if let Selection::Layer(path) = s { layer_at(preset, path).is_some() } else { true };
        if !there(&self.current) {
            self.current = Selection::Nothing;
        }
        self.back.retain(there);
        self.forward.retain(there);
    }

    /// After undo or redo: a selected layer stays selected where it is still the same one, else the network is.
    pub fn follow(&mut self, before: &Preset, after: &Preset) {
        let Selection::Layer(path) = &self.current else { return };
        let kind = |preset| layer_at(preset, path).map(crate::model::LayerSpec::kind);
        // Layers that came or went in the same list have moved the others to places that are not their own.
        let siblings = |preset: &Preset| {
            let (parent, _) = split_path(path);
            let list = if parent.0.is_empty() {
                Some(preset.layers.as_slice())
            } else {
                layer_at(preset, &parent).map(crate::model::LayerSpec::children)
            };
            list.map(<[_]>::len)
        };
        if kind(before) != kind(after) || siblings(before) != siblings(after) {
            self.current = Selection::Nothing;
        }
    }

    #[must_use]
    pub fn can_go_back(&self) -> bool {
        !self.back.is_empty()
    }

    #[must_use]
    pub fn can_go_forward(&self) -> bool {
        !self.forward.is_empty()
    }

    pub fn go_back(&mut self) {
        if let Some(before) = self.back.pop() {
            self.forward.push(std::mem::replace(&mut self.current, before));
        }
    }

    pub fn go_forward(&mut self) {
        if let Some(after) = self.forward.pop() {
            self.back.push(std::mem::replace(&mut self.current, after));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_is_gone_is_not_selected() {
        let preset = crate::studio::presets::digits();
        let layer = |index| Selection::Layer(LayerPath(vec![index]));
        let mut longer = preset.clone();
        longer.layers.insert(1, preset.layers[0].clone());
        let mut h = SelectionHistory::default();
        h.select(layer(3));
        h.select(layer(1));
        h.follow(&longer, &preset);
        h.forget_missing(&preset);
        assert_eq!(h.current(), &Selection::Nothing);
        assert!(!h.back.contains(&layer(3)));
        // An edit of a field leaves the layer where it is.
        h.select(layer(2));
        h.follow(&preset, &preset.clone());
        assert_eq!(h.current(), &layer(2));
    }

    #[test]
    fn selections_go_back_and_forward() {
        let mut h = SelectionHistory::default();
        assert!(h.select(Selection::Op(1)) && h.select(Selection::Op(2)) && !h.select(Selection::Op(2)));
        h.go_back();
        assert_eq!(h.current(), &Selection::Op(1));
        h.go_forward();
        assert_eq!(h.current(), &Selection::Op(2));
        h.go_back();
        h.select(Selection::Op(3));
        assert!(!h.can_go_forward() && h.can_go_back());
    }
}
