//! Inspector pages of the compiler's intermediate results: nodes, lowered operations, kernels, calls, bytes; and the
//! links between all of them.

use crate::ir::NodeId;
use crate::studio::commands::selection::Selection;
use crate::studio::view_models::byte_owners::ByteOwners;
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::inspector_page::{
    Group, InspectorView, Row, buffer_link, bytes, cut, fact, flops, memory_links, op_link,
};
use crate::studio::view_models::levels::{CallShares, Level, addresses, bound_values};
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::related::{Related, lowered_into};
use crate::tensor::Bytes;

fn page(kind: &'static str, title: String) -> InspectorView {
    InspectorView { kind, title, about: String::new(), groups: Vec::new() }
}

fn layer_link(label: &str, path: Option<&crate::model::LayerPath>) -> Option<Row> {
    let path = path?;
    Some(Row::Link { label: "layer".into(), text: label.to_owned(), to: Selection::Layer(path.clone()) })
}

fn node_links(plan: &PlanView, nodes: impl Iterator<Item = usize>) -> Vec<Row> {
    let rows = plan.levels.rows(Level::Ir);
    let link = |i: usize| {
        let row = rows.get(i)?;
        let to = Selection::Node(NodeId(i as u32));
        Some(Row::Link { label: row.phase.name().into(), text: format!("{i} {} {}", row.name, row.kernel), to })
    };
    cut(nodes.filter_map(link).collect())
}

fn lowered_links(plan: &PlanView, lowered: impl Iterator<Item = usize>) -> Vec<Row> {
    let rows = plan.levels.rows(Level::Lowered);
    let link = |i: usize| {
        let row = rows.get(i)?;
        Some(Row::Link { label: row.phase.name().into(), text: format!("{i} {}", row.name), to: Selection::Lowered(i) })
    };
    cut(lowered.filter_map(link).collect())
}

fn op_links(plan: &PlanView, ops: impl Iterator<Item = usize>) -> Vec<Row> {
    cut(ops.filter(|i| *i < plan.ops.len()).map(|i| op_link(plan, i, plan.ops[i].phase.name())).collect())
}

/// The items of an operation at the other levels: its kernel, its call, its nodes and lowered operations.
pub(super) fn other_levels(index: usize, plan: &PlanView) -> Vec<Group> {
    let related = Related::new(&Selection::Op(index), Some(&plan.compiled));
    let Some(row) = plan.ops.get(index) else { return Vec::new() };
    let links = vec![
        Row::Link { label: "kernel".into(), text: row.kernel.clone(), to: Selection::Kernel(row.kernel.clone()) },
        Row::Link { label: "recorded as".into(), text: format!("call {index}"), to: Selection::Call(index) },
    ];
    vec![
        Group { title: "Other levels", rows: links },
        Group { title: "Nodes that it computes", rows: node_links(plan, related.nodes.iter().copied()) },
        Group {
            title: "Lowered operations that it contains",
            rows: lowered_links(plan, related.lowered.iter().copied()),
        },
    ]
}

/// The nodes of the graph that belong to a selection.
pub(super) fn nodes_of(selection: &Selection, plan: &PlanView) -> Group {
    let related = Related::new(selection, Some(&plan.compiled));
    Group { title: "Nodes of the graph", rows: node_links(plan, related.nodes.iter().copied()) }
}

/// The page of a node of the graph.
pub(super) fn node(id: NodeId, plan: &PlanView) -> InspectorView {
    let index = id.0 as usize;
    let graph = &plan.compiled.graph;
    let (Some(node), Some(row)) = (graph.nodes.get(index), plan.levels.rows(Level::Ir).get(index)) else {
        return page("Node", "No such node".into());
    };
    let mut out = page("Node of the graph", format!("{index} {}", row.name));
    let mut rows = vec![fact("phase", row.phase.name())];
    rows.extend(layer_link(&row.layer, row.path.as_ref()));
    out.groups.push(Group { title: "Node", rows });
    for (title, values) in [("Inputs", &node.inputs), ("Outputs", &node.outputs)] {
        let line = |v: &crate::ir::ValueId| {
            let value = graph.value(*v);
            let text = format!("{} {}{}", value.name, value.dtype, value.shape);
            // A value links to the node that makes it; values that exist before the step have none.
            match value.producer.filter(|p| *p != id) {
                Some(p) => Row::Link { label: v.to_string(), text, to: Selection::Node(p) },
                None => fact(&v.to_string(), text),
            }
        };
        out.groups.push(Group { title, rows: cut(values.iter().map(line).collect()) });
    }
    let related = Related::new(&Selection::Node(id), Some(&plan.compiled));
    out.groups.push(Group { title: "Lowered to", rows: lowered_links(plan, related.lowered.iter().copied()) });
    out.groups.push(Group { title: "Carried out by", rows: op_links(plan, related.ops.iter().copied()) });
    out.groups.push(Group { title: "Buffers", rows: memory_links(plan, &related) });
    out
}

/// The page of a lowered operation.
pub(super) fn lowered(index: usize, plan: &PlanView) -> InspectorView {
    let Some(row) = plan.levels.rows(Level::Lowered).get(index) else {
        return page("Lowered operation", "No such operation".into());
    };
    let mut out = page("Lowered operation", format!("{index} {}", row.name));
    let mut rows = vec![fact("phase", row.phase.name())];
    rows.extend(layer_link(&row.layer, row.path.as_ref()));
    rows.extend([fact("dimensions", row.detail.clone()), fact("shapes", row.shapes.clone())]);
    rows.extend(row.cost.flops.map(flops));
    rows.extend(row.cost.bytes.map(|b| bytes("moved at least", b)));
    out.groups.push(Group { title: "Operation before fusion", rows });
    let into = lowered_into(&plan.compiled).get(index).copied().flatten();
    let into = into.map_or_else(|| vec![Row::Note(row.kernel.clone())], |op| vec![op_link(plan, op, &row.kernel)]);
    out.groups.push(Group { title: "Rewritten to", rows: into });
    let related = Related::new(&Selection::Lowered(index), Some(&plan.compiled));
    out.groups.push(Group { title: "Nodes", rows: node_links(plan, related.nodes.iter().copied()) });
    out.groups.push(Group { title: "Buffers", rows: memory_links(plan, &related) });
    out
}

/// The page of a kernel: all operations that run it.
pub(super) fn kernel(id: &str, plan: &PlanView) -> InspectorView {
    let ops: Vec<usize> = plan.ops.iter().filter(|o| o.kernel == id).map(|o| o.index).collect();
    let mut out = page("Kernel", id.to_owned());
    let sum = |f: fn(&crate::studio::view_models::step_graph::OpRow) -> u64| {
        ops.iter().map(|i| f(&plan.ops[*i])).sum::<u64>()
    };
    let cost: f64 = ops.iter().map(|i| plan.ops[*i].cost_us).sum();
    let share = if plan.whole.us > 0.0 { cost / plan.whole.us } else { 0.0 };
    let rows = vec![
        fact("runs in", format!("{} of {}", ops.len(), plain_count(plan.ops.len(), "op"))),
        flops(sum(|o| o.flops)),
        bytes("moved at least", sum(|o| o.bytes)),
        fact("estimated time", format!("{} ({} of the step)", format::micros(cost), format::percent(share))),
    ];
    out.groups.push(Group { title: "In this step", rows });
    if ops.is_empty() {
        out.about = "No operation of the current plan runs it.".into();
    }
    let lost = plan.compiled.selection.choices.iter().enumerate();
    let lost = lost.flat_map(|(i, c)| c.candidates.iter().map(move |k| (i, k)));
    let lost = lost.filter(|(_, k)| k.kernel == id && !k.lost.is_empty());
    let lost: Vec<Row> = lost
        .map(|(i, k)| Row::Link {
            label: format!("op {i}"),
            text: format::with_micro_signs(&k.lost),
            to: Selection::Op(i),
        })
        .collect();
    out.groups.push(Group { title: "Operations", rows: op_links(plan, ops.into_iter()) });
    out.groups.push(Group { title: "Where it lost", rows: cut(lost) });
    out
}

/// The page of a recorded call.
pub(super) fn call(index: usize, plan: &PlanView) -> InspectorView {
    let Some(row) = plan.levels.rows(Level::Recorded).get(index) else {
        return page("Recorded call", "No such call".into());
    };
    let mut out = page("Recorded call", format!("{index} {}", row.kernel));
    out.about = "A replay runs this call with a fixed kernel, addresses and dimensions.".into();
    let mut rows = vec![fact("phase of the step", row.phase.name())];
    rows.extend(layer_link(&row.layer, row.path.as_ref()));
    rows.push(op_link(plan, index, "operation"));
    rows.push(Row::Link {
        label: "kernel".into(),
        text: row.kernel.clone(),
        to: Selection::Kernel(row.kernel.clone()),
    });
    if let Some(CallShares { phases, threads }) = row.shares {
        rows.push(fact("phases", phases.to_string()));
        let shared = || format!("{threads}, which meet after each phase");
        rows.push(fact("threads", if threads == 1 { "one alone".to_owned() } else { shared() }));
    }
    out.groups.push(Group { title: "Call", rows });
    let link = |(slot, name, buffer, offset): (&str, String, crate::plan::BufferId, u64)| Row::Link {
        label: slot.to_owned(),
        text: format!("+{offset:#x} {name}"),
        to: Selection::Buffer(buffer),
    };
    let bound = bound_values(&plan.compiled, index).into_iter().map(link).collect();
    out.groups.push(Group { title: "Arena offsets", rows: cut(bound) });
    let scratch = plan.compiled.plan.workspaces[index].map(|w| buffer_link(plan, w, "scratch"));
    out.groups.push(Group { title: "Workspace", rows: scratch.into_iter().collect() });
    let empty = addresses(&plan.compiled, index).is_empty();
    out.groups.push(Group {
        title: "Arguments",
        rows: if empty { vec![Row::Note("It takes none.".into())] } else { Vec::new() },
    });
    out
}

/// The page of a range of the arena.
pub(super) fn stretch([from, to]: [u64; 2], plan: &PlanView) -> InspectorView {
    let title = if to == from + 1 { format!("byte {from:#x}") } else { format!("bytes {from:#x} to {:#x}", to - 1) };
    let mut out = page("Bytes of the arena", title);
    let view = &plan.arena;
    if from >= view.arena_bytes {
        out.about = format!("The arena ends at {:#x}.", view.arena_bytes);
        return out;
    }
    let related = Related::new(&Selection::Bytes([from, to]), Some(&plan.compiled));
    let rows =
        vec![bytes("stretch", to - from), bytes("from", from), fact("owners", related.buffers.len().to_string())];
    out.groups.push(Group { title: "Stretch", rows });
    let first = ByteOwners::of(view, from).buffers;
    let (title, owners): (_, Vec<_>) = if to == from + 1 {
        ("Owners in turn", first)
    } else {
        let mut all: Vec<_> = related.buffers.iter().copied().collect();
        all.sort_by_key(|id| view.rect(*id).map_or([0, 0], |r| r.live));
        ("Buffers that use any of these bytes, one after the other", all)
    };
    let link = |id: crate::plan::BufferId| {
        let r = view.rect(id)?;
        let text = format!("{} {}", r.name, Bytes(r.bytes));
        let last = r.live[1].saturating_sub(1);
        Some(Row::Link { label: format!("ops {} to {last}", r.live[0]), text, to: Selection::Buffer(id) })
    };
    out.groups.push(Group { title, rows: cut(owners.into_iter().filter_map(link).collect()) });
    let ops: Vec<Row> = op_links(plan, related.ops.iter().copied());
    out.groups.push(Group { title: "Operations that use it", rows: ops });
    out
}
