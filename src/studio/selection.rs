//! What is selected, one for all views, with a way back.

use super::view_models::PlanView;
use crate::lower::Dir;
use crate::model::{LayerId, LayerPath};
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
