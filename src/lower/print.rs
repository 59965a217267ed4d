//! The program as text and as Graphviz.

use super::program::{LValueId, Op, Program};
use crate::ir::Phase;
use crate::ops::{Dir, OpKind};
use std::collections::HashMap;
use std::fmt::{self, Write as _};

/// The dimensions of an operation, short: `m=64 n=128 k=64`.
#[must_use]
pub(crate) fn dims(kind: &OpKind) -> String {
    kind.dims()
}

impl Program {
    /// One operation on one line, without its number.
    #[must_use]
    fn op_line(&self, op: &Op) -> String {
        let list =
            |dir| op.bound(dir).map(|(slot, v)| format!("{slot}={}", self.value(v).name)).collect::<Vec<_>>().join(" ");
        format!("{:<22} {:<34} {} -> {}", op.kind.name(), op.kind.dims(), list(Dir::In), list(Dir::Out))
    }

    /// The program in Graphviz's language: operations in order, with an edge from each writer of a value to its
    /// readers.
    #[must_use]
    pub fn to_dot(&self, label: impl Fn(usize, &Op) -> String) -> String {
        let mut out = String::from(
            "digraph program {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"Helvetica\", \
             fontsize=10];\n",
        );
        let mut writer: HashMap<LValueId, usize> = HashMap::new();
        for (index, op) in self.ops.iter().enumerate() {
            let fill = crate::ir::phase_fill(op.phase);
            let _ =
                writeln!(out, "  n{index} [label=\"{}\", fillcolor=\"{fill}\"];", label(index, op).replace('"', "'"));
            for read in op.reads() {
                let mut id = Some(read);
                while let Some(value) = id {
                    if let Some(from) = writer.get(&value) {
                        let _ = writeln!(out, "  n{from} -> n{index};");
                        break;
                    }
                    id = self.value(value).alias.map(|a| a.of);
                }
            }
            for written in op.writes() {
                writer.insert(written, index);
            }
        }
        out.push_str("}\n");
        out
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut phase: Option<Phase> = None;
        for (index, op) in self.ops.iter().enumerate() {
            if phase != Some(op.phase) {
                writeln!(f, "-- {}", op.phase.name())?;
                phase = Some(op.phase);
            }
            writeln!(f, "{index:>4}  {}", self.op_line(op))?;
        }
        Ok(())
    }
}
