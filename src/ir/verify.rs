//! Checks a graph: it knows the rules of the graph, but not how the builder follows them.

use super::graph::{Graph, InputKind, Phase};
use super::nodes::{NodeKind, Shapes};
use super::value::{Role, ValueId};
use super::{Mode, Share};
use std::collections::HashSet;
use thiserror::Error;

/// A violated rule, with the node that violates it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IrError {
    #[error("node {node} ({kind}) reads {value}, which no earlier node makes")]
    ReadBeforeMade { node: usize, kind: &'static str, value: String },
    #[error("node {node} ({kind}) makes {value} a second time")]
    MadeTwice { node: usize, kind: &'static str, value: String },
    #[error("node {node} ({kind}) of phase {found} comes after one of phase {before}")]
    PhaseOrder { node: usize, kind: &'static str, found: &'static str, before: &'static str },
    #[error("node {node} ({kind}): {rule}")]
    Shape { node: usize, kind: &'static str, rule: String },
    #[error("trained parameter {param} has no gradient that the optimizer reads")]
    Untrained { param: String },
    #[error("parameter {param} has a gradient, and no layer uses it")]
    NotRun { param: String },
    #[error("the step has no input of samples")]
    NoSamples,
    #[error("the input {name} is not the value of that name, or is given twice")]
    Input { name: String },
    #[error("{value} survives the step but nothing makes its next value")]
    Update { value: String },
}

/// Checks single assignment, order of phases, shapes and that every trained parameter is updated.
///
/// # Errors
/// The first violated rule.
pub fn verify(graph: &Graph) -> Result<(), IrError> {
    inputs(graph)?;
    let outputs = Marks::of(graph, graph.nodes.iter().flat_map(|n| &n.outputs));
    let mut made = Marks(outputs.0.iter().map(|is_output| !is_output).collect());
    let mut latest = Phase::Forward;
    for (index, node) in graph.nodes.iter().enumerate() {
        let kind = node.kind.name();
        for &input in &node.inputs {
            if !made.has(input) {
                return Err(IrError::ReadBeforeMade { node: index, kind, value: graph.value(input).name.clone() });
            }
        }
        for &output in &node.outputs {
            if !made.add(output) {
                return Err(IrError::MadeTwice { node: index, kind, value: graph.value(output).name.clone() });
            }
        }
        if node.phase != Phase::Metric {
            if node.phase < latest {
                return Err(IrError::PhaseOrder { node: index, kind, found: node.phase.name(), before: latest.name() });
            }
            latest = node.phase;
        }
        let shapes = Shapes { values: &graph.values, inputs: &node.inputs, outputs: &node.outputs };
        node.kind.verify(&shapes).map_err(|rule| IrError::Shape { node: index, kind, rule })?;
    }
    survivors(graph, &outputs)
}

/// A set of values.
struct Marks(Vec<bool>);

impl Marks {
    fn of<'a>(graph: &Graph, values: impl Iterator<Item = &'a ValueId>) -> Self {
        let mut marks = Self(vec![false; graph.values.len()]);
        values.for_each(|value| marks.0[value.0 as usize] = true);
        marks
    }

    fn has(&self, value: ValueId) -> bool {
        self.0[value.0 as usize]
    }

    /// Adds a value; returns false if it was in the set before.
    fn add(&mut self, value: ValueId) -> bool {
        !std::mem::replace(&mut self.0[value.0 as usize], true)
    }
}

/// Checks that there are samples, and that every input is the one value of its name.
fn inputs(graph: &Graph) -> Result<(), IrError> {
    if !graph.inputs.0.iter().any(|input| input.kind == InputKind::Samples) {
        return Err(IrError::NoSamples);
    }
    let mut names = HashSet::new();
    for input in &graph.inputs.0 {
        let value = graph.value(input.value);
        if value.role != Role::Input || value.name != input.name || !names.insert(&input.name) {
            return Err(IrError::Input { name: input.name.clone() });
        }
    }
    Ok(())
}

fn survivors(graph: &Graph, made: &Marks) -> Result<(), IrError> {
    for (before, after) in &graph.updates {
        if !made.has(*after) || graph.value(*before).shape != graph.value(*after).shape {
            return Err(IrError::Update { value: graph.value(*before).name.clone() });
        }
    }
    if graph.mode == Mode::Eval {
        return Ok(());
    }
    // Before the last of several batches, gradients are computed, and nothing reads them.
    let is_read = graph.share.is_none_or(|share| share == Share::Last);
    let steps = graph.nodes.iter().filter(|n| matches!(n.kind, NodeKind::OptimizerStep(_)));
    let read = Marks::of(graph, steps.flat_map(|n| &n.inputs));
    // Parameters that the path of a network leaves out have no gradient.
    let forward = graph.nodes.iter().filter(|node| node.phase == Phase::Forward);
    let is_run = Marks::of(graph, forward.flat_map(|node| &node.inputs));
    for (&param, grad) in graph.params.iter().zip(&graph.grads) {
        if !is_run.has(param) && grad.is_some() {
            return Err(IrError::NotRun { param: graph.value(param).name.clone() });
        }
        if is_run.has(param)
            && graph.value(param).role == Role::Param
            && grad.is_none_or(|g| (is_read && !read.has(g)) || !made.has(g))
        {
            return Err(IrError::Untrained { param: graph.value(param).name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Metrics, build};
    use super::*;
    use crate::model::{check, read_preset};
    use crate::tensor::DType;

    const PRESET: &str = r#"{"version": 1, "name": "t", "input": {"shape": [2, 6, 6], "batch": 4}, "layers": [
        {"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same", "bias": false},
        {"type": "batch_norm"},
        {"type": "residual", "layers": [
            {"type": "activation", "function": "gelu"}, {"type": "conv2d", "filters": 4, "kernel": 1}]},
        {"type": "max_pool2d", "size": 2}, {"type": "flatten"}, {"type": "dropout", "rate": 0.5},
        {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 36, "activation": "relu"}]},
        {"type": "dense", "units": 3}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;

    fn graph(mode: Mode) -> Graph {
        let checked = check(&read_preset(PRESET).unwrap());
        assert_eq!(checked.diagnostics, []);
        build(&checked.model.unwrap(), mode, Metrics::default(), DType::F32)
    }

    #[test]
    fn a_built_graph_satisfies_every_rule() {
        for mode in [Mode::Train, Mode::Eval] {
            assert_eq!(verify(&graph(mode)), Ok(()));
        }
    }

    #[test]
    fn each_violated_rule_is_reported() {
        let mut g = graph(Mode::Train);
        g.nodes.swap(1, 2);
        assert!(matches!(verify(&g), Err(IrError::ReadBeforeMade { .. })));
        let mut g = graph(Mode::Train);
        let again = g.nodes[0].clone();
        g.nodes.insert(1, again);
        assert!(matches!(verify(&g), Err(IrError::MadeTwice { node: 1, .. })));
        let mut g = graph(Mode::Train);
        let last = g.nodes.iter().position(|n| n.phase == Phase::Loss).unwrap();
        g.nodes[last].phase = Phase::Optimizer;
        assert!(matches!(verify(&g), Err(IrError::PhaseOrder { .. })));
        let mut g = graph(Mode::Train);
        let grad = g.grads.iter().flatten().next().copied().unwrap();
        g.nodes.iter_mut().filter(|n| n.phase == Phase::Optimizer).for_each(|n| n.inputs.retain(|v| *v != grad));
        assert!(verify(&g).is_err());
        let mut g = graph(Mode::Train);
        g.inputs.0[1].name = "labels".into();
        assert!(matches!(verify(&g), Err(IrError::Input { .. })));
        g.inputs.0.clear();
        assert_eq!(verify(&g), Err(IrError::NoSamples));
        let mut g = graph(Mode::Train);
        let w = g.find("layers.0.weight").unwrap();
        g.values[w.0 as usize].shape.0[0] += 1;
        assert!(matches!(verify(&g), Err(IrError::Shape { node: 1, .. })), "{:?}", verify(&g));
    }
}
