//! A page of the inspector: groups of lines and links.

use crate::plan::BufferId;
use crate::studio::commands::selection::Selection;
use crate::studio::view_models::format;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::related::Related;
use crate::tensor::Bytes;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Fact {
        label: String,
        value: String,
        exact: String,
    },
    /// A line that selects something else.
    Link {
        label: String,
        text: String,
        to: Selection,
    },
    Note(String),
}

/// Lines under a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub title: &'static str,
    pub rows: Vec<Row>,
}

/// The inspector's page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InspectorView {
    pub kind: &'static str,
    pub title: String,
    pub about: String,
    pub groups: Vec<Group>,
}

/// The number of links that are listed; the others are only counted.
const LINKS: usize = 40;

pub(super) fn fact(label: &str, value: impl Into<String>) -> Row {
    let value = value.into();
    Row::Fact { label: label.into(), exact: value.clone(), value }
}

pub(super) fn bytes(label: &str, n: u64) -> Row {
    Row::Fact { label: label.into(), value: Bytes(n).to_string(), exact: format!("{} bytes", format::exact(n)) }
}

pub(super) fn offset(n: u64) -> Row {
    Row::Fact { label: "offset".into(), value: format!("{n:#x}"), exact: format!("{} bytes", format::exact(n)) }
}

pub(super) fn flops(n: u64) -> Row {
    Row::Fact { label: "FLOPs".into(), value: format::count(n as f64), exact: format::exact(n) }
}

pub(super) fn cut(mut rows: Vec<Row>) -> Vec<Row> {
    if rows.len() > LINKS {
        let more = rows.len() - LINKS;
        rows.truncate(LINKS);
        rows.push(Row::Note(format!("and {more} more")));
    }
    rows
}

pub(super) fn op_link(plan: &PlanView, index: usize, label: &str) -> Row {
    let text = plan.ops.get(index).map_or_else(|| index.to_string(), |o| format!("{index} {}", o.kernel));
    Row::Link { label: label.into(), text, to: Selection::Op(index) }
}

pub(super) fn buffer_link(plan: &PlanView, id: BufferId, label: &str) -> Row {
    let b = plan.compiled.plan.buffer(id);
    Row::Link { label: label.into(), text: format!("{} {}", b.name, Bytes(b.bytes)), to: Selection::Buffer(id) }
}

/// The links to the buffers and parts that belong to a selection.
pub(super) fn memory_links(plan: &PlanView, related: &Related) -> Vec<Row> {
    let role = |id: BufferId| plan.compiled.plan.buffer(id).role.name();
    let buffers = related.buffers.iter().map(|&id| buffer_link(plan, id, role(id)));
    let parts = related.parts.iter().filter(|(id, _)| !related.buffers.contains(id));
    cut(buffers.chain(parts.filter_map(|part| part_link(plan, *part))).collect())
}

/// The link to a part of a flat vector.
fn part_link(plan: &PlanView, (id, index): (BufferId, usize)) -> Option<Row> {
    let buffer = plan.compiled.plan.buffer(id);
    let part = buffer.parts.get(index)?;
    let text = format!("{} {}", part.name, Bytes(part.bytes));
    Some(Row::Link { label: buffer.role.name().into(), text, to: Selection::Part(id, index) })
}

/// The page as text, one line for each entry.
impl std::fmt::Display for InspectorView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.kind, self.title)?;
        for group in &self.groups {
            writeln!(f, "[{}]", group.title)?;
            for row in &group.rows {
                match row {
                    Row::Fact { label, value, .. } => writeln!(f, "  {label}: {value}")?,
                    Row::Link { label, text, .. } => writeln!(f, "  {label} -> {text}")?,
                    Row::Note(text) => writeln!(f, "  {text}")?,
                }
            }
        }
        Ok(())
    }
}
