//! What a pass changed, as text.

use super::history::PassRun;
use crate::lower::Program;
use std::fmt::Write as _;

/// One line for each operation that a pass changed: what happened, and the operations before and after it with their
/// numbers.
#[must_use]
pub fn changes_text(run: &PassRun, before: &Program, after: &Program) -> String {
    let name = |program: &Program, number: usize| {
        program.ops.get(number).map_or_else(|| number.to_string(), |op| format!("{number} {}", op.kind.name()))
    };
    let mut out = String::new();
    for change in &run.changes {
        let from: Vec<String> = change.before.iter().map(|&number| name(before, number)).collect();
        let to = change.after.map(|number| name(after, number));
        let text = match (from.is_empty(), to) {
            (true, to) => to.unwrap_or_default(),
            (false, None) => from.join(" + "),
            (false, Some(to)) => format!("{} -> {to}", from.join(" + ")),
        };
        let _ = writeln!(out, "{:<8} {text}", change.how.name());
    }
    out
}
