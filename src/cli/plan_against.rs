//! How the steps of two paths differ.

use super::choices::Format;
use super::error::wrong;
use super::output;
use crate::compile::Compiled;
use crate::tensor::Bytes;
use crate::train::{Figure, OperationsApart, StepDifference, StepFigures};
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Serialize)]
struct Document<'a> {
    paths: [&'a str; 2],
    #[serde(flatten)]
    difference: StepDifference,
}

/// The difference of two steps of these names, in the requested form.
///
/// # Errors
/// If the form is that of a graph.
pub(super) fn shown(names: [&str; 2], steps: [&Compiled; 2], format: Format) -> anyhow::Result<String> {
    let difference = StepDifference::between(steps);
    match format {
        Format::Text => Ok(text(names, &difference)),
        Format::Json => Ok(serde_json::to_string_pretty(&Document { paths: names, difference })? + "\n"),
        Format::Dot => Err(wrong("the difference of two steps cannot be drawn as a graph; use --format text or json")),
    }
}

fn figure(figure: Figure) -> String {
    match figure {
        Figure::Count(count) => output::count(count),
        Figure::Bytes(bytes) => Bytes(bytes).to_string(),
        Figure::Micros(us) => output::micros(us),
    }
}

fn text(names: [&str; 2], difference: &StepDifference) -> String {
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(16);
    let [a, b] = names;
    let mut out = format!("{:<16}  {a:>width$}  {b:>width$}\n", "");
    let [a, b] = difference.figures.each_ref().map(StepFigures::named);
    for ((what, a), (_, b)) in a.into_iter().zip(b) {
        // Writing to a text cannot fail.
        let _ = writeln!(out, "{what:<16}  {:>width$}  {:>width$}", figure(a), figure(b));
    }
    if difference.is_empty() {
        out.push_str("\nBoth steps have the same operations.\n");
        return out;
    }
    for ((name, operations), kernels) in names.iter().zip(&difference.operations).zip(&difference.kernels) {
        let _ = writeln!(out, "\nonly in {name}: {}", output::counted(total(operations), "operation"));
        for OperationsApart { owner, kernel, dims, count } in operations {
            let times = if *count > 1 { format!("  {count} times") } else { String::new() };
            let _ = writeln!(out, "  {owner:<24}  {kernel}  {dims}{times}");
        }
        if !kernels.is_empty() {
            let _ = writeln!(out, "  kernels that only this step runs: {}", kernels.join(", "));
        }
    }
    out
}

fn total(operations: &[OperationsApart]) -> u64 {
    operations.iter().map(|operations| operations.count as u64).sum()
}
