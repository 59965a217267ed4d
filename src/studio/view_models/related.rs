//! Everything that belongs to the selection, in the terms of every view.

use crate::compile::Compiled;
use crate::ir::NodeId;
use crate::lower::LValueId;
use crate::model::{LayerId, LayerPath};
use crate::ops::Dir;
use crate::plan::{BindingPlan, BufferId};
use crate::studio::commands::selection::Selection;
use std::collections::{BTreeSet, HashMap};

/// Everything that belongs to a selection, in every view's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Related {
    pub layers: BTreeSet<LayerPath>,
    pub ops: BTreeSet<usize>,
    pub buffers: BTreeSet<BufferId>,
    /// Parts of flat vectors, each by the vector and its index there, if not the whole vector belongs to it.
    pub parts: BTreeSet<(BufferId, usize)>,
    /// Nodes of the graph, by index.
    pub nodes: BTreeSet<usize>,
    /// Operations before fusion, by index.
    pub lowered: BTreeSet<usize>,
    /// The range of the arena that was selected directly.
    pub bytes: Option<[u64; 2]>,
}

impl Related {
    /// Everything that belongs to `selection` in a compiled step; only the layer itself if there is none.
    #[must_use]
    pub fn new(selection: &Selection, compiled: Option<&Compiled>) -> Self {
        let mut out = Self::default();
        if let Selection::Layer(path) = selection {
            out.layers.insert(path.clone());
        }
        let Some(compiled) = compiled else { return out };
        match selection {
            Selection::Node(node) => out.take_node(compiled, *node),
            Selection::Lowered(index) => out.take_lowered(compiled, *index),
            other => {
                out.take_selected(compiled, other);
                out.take_earlier_levels(compiled);
            }
        }
        out
    }

    /// Adds everything that belongs to an item of the step as it runs.
    fn take_selected(&mut self, compiled: &Compiled, selection: &Selection) {
        let plan = &compiled.plan;
        let path = |id: LayerId| path_of(compiled, id);
        match selection {
            Selection::Nothing | Selection::Node(_) | Selection::Lowered(_) => {}
            Selection::Layer(path) => self.take_layer(compiled, path),
            Selection::Op(index) | Selection::Call(index) => {
                let Some(op) = plan.program.ops.get(*index) else { return };
                self.ops.insert(*index);
                self.layers.extend(op.layer.and_then(path));
                self.take_arguments(plan, *index, op);
            }
            Selection::Part(id, part) => {
                let Some(of) = plan.buffers.get(id.0 as usize).and_then(|b| b.parts.get(*part)) else { return };
                self.parts.insert((*id, *part));
                self.ops.extend(plan.ops_of_part(*id, *part, Dir::In));
                self.ops.extend(plan.ops_of_part(*id, *part, Dir::Out));
                self.layers.extend(of.layer.and_then(path));
            }
            Selection::Buffer(id) => {
                let Some(buffer) = plan.buffers.get(id.0 as usize) else { return };
                self.buffers.insert(*id);
                self.ops.extend(buffer.writers.iter().chain(&buffer.readers));
                self.layers.extend(buffer.layer.and_then(path));
            }
            Selection::Kernel(kernel) => {
                let choices = compiled.selection.choices.iter().enumerate();
                self.ops.extend(choices.filter(|(_, c)| c.kernel == *kernel).map(|(i, _)| i));
                self.take_buffers_and_layers(compiled);
            }
            Selection::Bytes([from, to]) => {
                self.bytes = Some([*from, *to]);
                let inside = |b: &crate::plan::Buffer| !b.is_external() && b.offset < *to && *from < b.offset + b.bytes;
                for (id, b) in (0u32..).map(BufferId).zip(&plan.buffers).filter(|(_, b)| inside(b)) {
                    self.buffers.insert(id);
                    self.ops.extend(b.writers.iter().chain(&b.readers));
                    self.layers.extend(b.layer.and_then(path));
                }
            }
        }
    }

    /// Adds the operations and buffers of a layer. A block represents everything inside it.
    fn take_layer(&mut self, compiled: &Compiled, path: &LayerPath) {
        let plan = &compiled.plan;
        let inside = |id: Option<LayerId>| id.and_then(|id| path_of(compiled, id)).is_some_and(|p| p.starts_with(path));
        self.ops.extend(plan.program.ops.iter().enumerate().filter(|(_, op)| inside(op.layer)).map(|(i, _)| i));
        for (id, buffer) in (0u32..).map(BufferId).zip(&plan.buffers) {
            // If layers share a vector, only their own parts belong to them.
            let own = buffer.parts.iter().enumerate().filter(|(_, p)| inside(p.layer));
            let own: Vec<usize> = own.map(|(part, _)| part).collect();
            let is_all = !own.is_empty() && own.len() == buffer.parts.len();
            match inside(buffer.layer) || is_all {
                true => self.buffers.extend([id]),
                false => self.parts.extend(own.into_iter().map(|part| (id, part))),
            }
        }
    }

    /// Adds everything that a node of the graph was lowered to.
    fn take_node(&mut self, compiled: &Compiled, node: NodeId) {
        let has = |op: &crate::lower::Op| op.nodes.contains(&node);
        self.nodes.insert(node.0 as usize);
        self.ops.extend(compiled.plan.program.ops.iter().enumerate().filter(|(_, op)| has(op)).map(|(i, _)| i));
        self.lowered.extend(compiled.program.ops.iter().enumerate().filter(|(_, op)| has(op)).map(|(i, _)| i));
        self.take_buffers_and_layers(compiled);
        let own = compiled.graph.nodes.get(node.0 as usize).and_then(|n| n.layer);
        self.layers.extend(own.and_then(|id| path_of(compiled, id)));
    }

    /// Adds everything that a lowered operation was fused into, and its nodes.
    fn take_lowered(&mut self, compiled: &Compiled, index: usize) {
        self.lowered.insert(index);
        self.ops.extend(became(compiled, index));
        self.take_buffers_and_layers(compiled);
        let Some(op) = compiled.program.ops.get(index) else { return };
        self.nodes.extend(op.nodes.iter().map(|n| n.0 as usize));
    }

    /// Adds the nodes and the lowered operations that the operations were made from.
    fn take_earlier_levels(&mut self, compiled: &Compiled) {
        let whole = &self.buffers;
        self.parts.retain(|(buffer, _)| !whole.contains(buffer));
        let ops = self.ops.iter().filter_map(|i| compiled.plan.program.ops.get(*i));
        self.nodes.extend(ops.flat_map(|op| &op.nodes).map(|n| n.0 as usize));
        let all = lowered_into(compiled);
        let own = all.iter().enumerate().filter(|(_, op)| op.is_some_and(|o| self.ops.contains(&o)));
        self.lowered.extend(own.map(|(i, _)| i));
    }

    /// Adds what an operation binds.
    fn take_arguments(&mut self, plan: &BindingPlan, index: usize, op: &crate::lower::Op) {
        for (_, value) in op.bound(Dir::In).chain(op.bound(Dir::Out)) {
            let Some((buffer, parts)) = plan.parts_of(value) else { continue };
            self.buffers.extend(parts.is_empty().then_some(buffer));
            self.parts.extend(parts.map(|part| (buffer, part)));
        }
        self.buffers.extend(plan.workspaces[index]);
    }

    /// True if a buffer, or the given part of it, belongs to the selection.
    #[must_use]
    pub fn holds(&self, buffer: BufferId, part: Option<usize>) -> bool {
        self.buffers.contains(&buffer) || part.is_some_and(|p| self.parts.contains(&(buffer, p)))
    }

    /// Adds what the operations bind, and the layers that they belong to.
    fn take_buffers_and_layers(&mut self, compiled: &Compiled) {
        let plan = &compiled.plan;
        for index in self.ops.clone() {
            let Some(op) = plan.program.ops.get(index) else { continue };
            self.take_arguments(plan, index, op);
            let layer = op.layer.and_then(|id| compiled.model.layers.get(id.0 as usize));
            self.layers.extend(layer.map(|l| l.path.clone()));
        }
    }
}

fn path_of(compiled: &Compiled, id: LayerId) -> Option<LayerPath> {
    compiled.model.layers.get(id.0 as usize).map(|l| l.path.clone())
}

/// What a click on a value selects: its buffer, or its part of a flat vector.
#[must_use]
pub fn selection_of_value(plan: &BindingPlan, value: LValueId) -> Option<Selection> {
    let (buffer, parts) = plan.parts_of(value)?;
    Some(if parts.len() == 1 { Selection::Part(buffer, parts.start) } else { Selection::Buffer(buffer) })
}

/// For each lowered operation, the operation that computes it: itself, or what it was fused into. `None` if none does
/// any more.
#[must_use]
pub fn lowered_into(compiled: &Compiled) -> Vec<Option<usize>> {
    let ops = &compiled.selection.program.ops;
    let mut writer: HashMap<LValueId, Vec<usize>> = HashMap::new();
    let mut of_node: HashMap<NodeId, Vec<usize>> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        op.writes().for_each(|v| writer.entry(v).or_default().push(index));
        op.nodes.iter().for_each(|n| of_node.entry(*n).or_default().push(index));
    }
    let into = |low: &crate::lower::Op| {
        let name = low.kind.name();
        let does = |i: &usize| ops[*i].kind.name() == name || ops[*i].fused.iter().any(|f| f == name);
        let shares_node = |i: &usize| low.nodes.iter().any(|n| ops[*i].nodes.contains(n));
        // The operation that writes the same value; for a value that fusion has removed, only the nodes are known.
        let by_value =
            low.writes().filter_map(|v| writer.get(&v)).flatten().copied().find(|i| does(i) && shares_node(i));
        by_value.or_else(|| low.nodes.iter().filter_map(|n| of_node.get(n)).flatten().copied().find(does))
    };
    compiled.program.ops.iter().map(into).collect()
}

/// The operation that computes a lowered one.
fn became(compiled: &Compiled, lowered: usize) -> Option<usize> {
    lowered_into(compiled).get(lowered).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::view_models::plan::PlanView;

    #[test]
    fn a_layer_highlights_its_own_part_of_a_vector() {
        let plan = PlanView::of_preset(&crate::studio::document::presets::digits());
        let bindings = &plan.compiled.plan;
        let layer = LayerPath::from([2]);
        let related = Related::new(&Selection::Layer(layer.clone()), Some(&plan.compiled));
        assert!(related.parts.len() >= 6 && related.buffers.iter().all(|b| bindings.buffer(*b).parts.is_empty()));
        // The highlighted items are those that the layer's card counts.
        let buffers: u64 = related.buffers.iter().map(|b| bindings.buffer(*b).bytes).sum();
        let bytes = |(id, part): &(BufferId, usize)| plan.part_bytes(*id, *part).map(|[from, to]| to - from);
        let parts: u64 = related.parts.iter().filter_map(bytes).sum();
        let model = &plan.compiled.model;
        let index = model.layers.iter().position(|l| l.path == layer).unwrap();
        assert_eq!(buffers + parts, plan.layers[index].bytes);
        for row in &plan.capture.layers {
            // Other buffers may hold values of several layers, one after the other.
            for cell in row.cells.iter().flatten().filter(|c| c.part.is_some()) {
                assert_eq!(related.holds(cell.buffer, cell.part), row.layer.as_ref() == Some(&layer), "{}", row.name);
            }
        }
        // An operation highlights the part that it writes, and a part the operations that write and read it.
        for &(buffer, part) in &related.parts {
            let of_part = Related::new(&Selection::Part(buffer, part), Some(&plan.compiled));
            assert!(of_part.buffers.is_empty() && of_part.layers == related.layers && !of_part.ops.is_empty());
            for op in of_part.ops.iter().filter(|op| related.ops.contains(op)) {
                assert!(Related::new(&Selection::Op(*op), Some(&plan.compiled)).parts.contains(&(buffer, part)));
            }
        }
    }
}
