//! `parallel`.

use super::{At, Exported};
use crate::model::Layer;
use crate::model::layers::{JoinKind, Parallel};
use crate::train::export::onnx_graph::{Attribute, Writer};
use crate::train::export::python::literal;

impl Exported for Parallel {
    fn pytorch(&self, _layer: &Layer) -> String {
        let name =
            |branch: &crate::model::layers::Branch| branch.input.as_deref().map_or_else(|| "None".to_owned(), literal);
        let names = self.branches.iter().map(name).collect::<Vec<_>>().join(", ");
        format!("Parallel(\"{}\", [{names}], ", self.join.name())
    }

    fn onnx(&self, w: &mut Writer, at: At<'_>) -> String {
        let mut outputs = Vec::with_capacity(self.branches.len());
        for (number, branch) in self.branches.iter().enumerate() {
            let named = branch.input.as_deref().and_then(|name| w.input(name)).map(str::to_owned);
            outputs.push(at.inside(w, number, named.unwrap_or_else(|| at.x.clone())));
        }
        let names: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let axis = 1 + JoinKind::concat_axis(at.layer.output.rank()) as i64;
        match self.join {
            _ if names.len() == 1 => names[0].to_owned(),
            JoinKind::Concat => w.node("Concat", &names, &[Attribute::Int("axis", axis)]),
            JoinKind::Add => chained(w, "Add", &names),
            JoinKind::Multiply => chained(w, "Mul", &names),
        }
    }
}

/// A node of two inputs for each value after the first.
fn chained(w: &mut Writer, op: &str, names: &[&str]) -> String {
    names[1..].iter().fold(names[0].to_owned(), |joined, name| w.node(op, &[&joined, name], &[]))
}
