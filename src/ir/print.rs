//! The graph as text and as Graphviz.

use super::graph::{Graph, Phase};
use super::value::ValueId;
use std::fmt::{self, Write as _};

/// One line a node: `%12 L0:Dense.z [64, 128] = Linear(%0 x, %2 layers.0.weight)`.
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |id: &ValueId| format!("{id} {}", self.value(*id).name);
        let mut phase = None;
        for node in &self.nodes {
            if phase != Some(node.phase) {
                writeln!(f, "-- {}", node.phase.name())?;
                phase = Some(node.phase);
            }
            let outputs: Vec<String> = node
                .outputs
                .iter()
                .map(|v| {
                    let value = self.value(*v);
                    format!("{} {}{}", name(v), value.dtype, value.shape)
                })
                .collect();
            let inputs: Vec<String> = node.inputs.iter().map(name).collect();
            let shown = |list: &[String]| {
                if list.len() <= 8 {
                    return list.join(", ");
                }
                format!("{}, … {} more, {}", list[..3].join(", "), list.len() - 4, list[list.len() - 1])
            };
            writeln!(f, "{} = {}({})", shown(&outputs), node.kind.name(), shown(&inputs))?;
        }
        Ok(())
    }
}

/// Fill colours by phase: one ramp of lightness, so that phases can be distinguished without colour.
pub(crate) const fn phase_fill(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "#f3f6fa",
        Phase::Loss => "#dfe7f1",
        Phase::Backward => "#c5d3e4",
        Phase::Optimizer => "#a6bbd4",
        Phase::Metric => "#ececec",
    }
}

impl Graph {
    /// The graph in Graphviz's language: nodes are operations, edges are values.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut out = String::from(
            "digraph ir {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"Helvetica\", fontsize=10];\n",
        );
        for (index, node) in self.nodes.iter().enumerate() {
            let shape = node.outputs.first().map_or_else(String::new, |v| self.value(*v).shape.to_string());
            let fill = phase_fill(node.phase);
            let first = node.outputs.first().map_or("", |v| self.value(*v).name.as_str());
            let _ =
                writeln!(out, "  n{index} [label=\"{}\\n{first} {shape}\", fillcolor=\"{fill}\"];", node.kind.name());
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for input in &node.inputs {
                if let Some(producer) = self.value(*input).producer {
                    let _ = writeln!(out, "  n{} -> n{index};", producer.0);
                }
            }
        }
        out.push_str("}\n");
        out
    }
}
