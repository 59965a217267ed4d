//! Information about the selection, in groups.

use crate::ir::Phase;
use crate::model::{LayerPath, Preset};
use crate::ops::Dir;
use crate::plan::BufferId;
use crate::select::Kernels;
use crate::select::cuda::CompiledFor;
use crate::studio::commands::selection::Selection;
use crate::studio::view_models::compiler_pages;
use crate::studio::view_models::format;
pub use crate::studio::view_models::inspector_page::InspectorView;
use crate::studio::view_models::inspector_page::{
    Group, Row, buffer_link, bytes, cut, fact, flops, memory_links, offset, op_link,
};
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::related::{Related, selection_of_value};
use crate::tensor::Bytes;

impl InspectorView {
    /// The page of a selection. `updates` is the largest change of each trained parameter in a recent step, for the
    /// same network.
    #[must_use]
    pub fn new(selection: &Selection, preset: &Preset, plan: Option<&PlanView>, updates: &[f32]) -> Self {
        let mut page = match (selection, plan) {
            (Selection::Nothing, plan) => network(preset, plan),
            (Selection::Layer(path), plan) => layer(path, preset, plan, updates),
            (Selection::Op(index), Some(plan)) => op(*index, plan),
            (Selection::Buffer(id), Some(plan)) => buffer(*id, plan),
            (Selection::Part(id, index), Some(plan)) => part(*id, *index, plan),
            (Selection::Node(id), Some(plan)) => compiler_pages::node(*id, plan),
            (Selection::Lowered(index), Some(plan)) => compiler_pages::lowered(*index, plan),
            (Selection::Kernel(id), Some(plan)) => compiler_pages::kernel(id, plan),
            (Selection::Call(index), Some(plan)) => compiler_pages::call(*index, plan),
            (Selection::Bytes(bytes), Some(plan)) => compiler_pages::stretch(*bytes, plan),
            (_, None) => Self { kind: "Selection", title: "No plan yet".into(), ..Self::default() },
        };
        page.groups.retain(|g| !g.rows.is_empty());
        page
    }
}

fn network(preset: &Preset, plan: Option<&PlanView>) -> InspectorView {
    let mut page =
        InspectorView { kind: "Network", title: preset.name.clone(), about: preset.about.clone(), groups: Vec::new() };
    let Some(plan) = plan else { return page };
    let c = &plan.compiled;
    let params = c.model.trained_len();
    let path = plan.path_text().map(|path| fact("plan of", path));
    let mut rows = vec![
        Row::Fact {
            label: "parameters".into(),
            value: format::count(params as f64),
            exact: format::exact(params as u64),
        },
        fact("operations", plan.ops.len().to_string()),
        flops(plan.whole.flops),
        fact("estimated time", format::micros(plan.whole.us)),
        fact("target", c.selection.target.name.clone()),
    ];
    rows.extend(path);
    page.groups.push(Group { title: "Step", rows });
    page.groups.push(Group {
        title: "Memory",
        rows: vec![
            bytes("arena", c.plan.arena_bytes),
            bytes("lower bound", c.plan.lower_bound_bytes),
            bytes("unshared", c.plan.unshared_bytes),
            bytes("survives the step", c.plan.persistent_bytes),
        ],
    });
    let us = |d: std::time::Duration| format::micros(d.as_secs_f64() * 1e6);
    page.groups.push(Group {
        title: "Compile time",
        rows: vec![
            fact("graph", us(c.times.ir)),
            fact("lowering", us(c.times.lower)),
            fact("kernels", us(c.times.select)),
            fact("memory plan", us(c.times.plan)),
        ],
    });
    page
}

fn layer(path: &LayerPath, preset: &Preset, plan: Option<&PlanView>, updates: &[f32]) -> InspectorView {
    let Some(spec) = preset.layer(path) else {
        return InspectorView { kind: "Layer", title: "No such layer".into(), ..InspectorView::default() };
    };
    let kind = spec.kind();
    let mut page = InspectorView {
        kind: "Layer",
        title: format!("L{}:{}", path.number(), kind.class),
        about: kind.about.into(),
        groups: Vec::new(),
    };
    let Some(plan) = plan else { return page };
    let model = &plan.compiled.model;
    let Some(layer) = model.layers.iter().find(|l| l.path == *path) else { return page };
    let share = plan.flop_share(path);
    let mut rows = vec![fact("input", layer.input.to_string()), fact("output", layer.output.to_string())];
    if share > 0.0 {
        rows.push(fact("share of FLOPs", format::percent(share)));
    }
    page.groups.push(Group { title: "Shape", rows });
    let trained: Vec<u32> = (0u32..).zip(&model.params).filter(|(_, p)| p.kind.is_trained()).map(|(i, _)| i).collect();
    let params = layer.params.iter().map(|id| {
        let p = model.param(*id);
        let change = trained.iter().position(|t| *t == id.0).and_then(|i| updates.get(i));
        let change = change.map_or_else(String::new, |c| format!("  Δ {}", format::number(f64::from(*c))));
        let name = p.name.rsplit('.').next().unwrap_or(&p.name).to_owned();
        Row::Fact {
            label: name,
            value: format!("{}{change}", p.shape),
            exact: format!("{}: {}", p.name, format::counted(p.shape.len() as u64, "value")),
        }
    });
    page.groups.push(Group { title: "Parameters", rows: params.collect() });
    let related = Related::new(&Selection::Layer(path.clone()), Some(&plan.compiled));
    let ops = related.ops.iter().map(|&i| op_link(plan, i, plan.ops[i].phase.name()));
    page.groups.push(Group { title: "Operations", rows: cut(ops.collect()) });
    page.groups.push(Group { title: "Buffers", rows: memory_links(plan, &related) });
    page.groups.push(compiler_pages::nodes_of(&Selection::Layer(path.clone()), plan));
    page
}

fn op(index: usize, plan: &PlanView) -> InspectorView {
    let Some(row) = plan.ops.get(index) else {
        return InspectorView { kind: "Operation", title: "No such operation".into(), ..InspectorView::default() };
    };
    let c = &plan.compiled;
    let (op, choice) = (&c.plan.program.ops[index], &c.selection.choices[index]);
    let mut page = InspectorView {
        kind: "Operation",
        title: format!("{index} {}", row.op),
        about: String::new(),
        groups: Vec::new(),
    };
    let mut rows = vec![fact("kernel", row.kernel.clone()), fact("phase", phase_name(row.phase))];
    if let Some(sizes) = plan.levels.compiled_for(index) {
        rows.push(fact("compiled for", sizes_text(sizes, c.selection.target.kernels)));
    }
    if let Some(path) = &row.path {
        rows.push(Row::Link { label: "layer".into(), text: row.layer.clone(), to: Selection::Layer(path.clone()) });
    }
    rows.extend([fact("dimensions", row.dims.clone()), flops(row.flops), bytes("moved at least", row.bytes)]);
    let share = if plan.whole.us > 0.0 { row.cost_us / plan.whole.us } else { 0.0 };
    rows.push(fact(
        "estimated time",
        format!("{} ({} of the step)", format::micros(row.cost_us), format::percent(share)),
    ));
    if !op.fused.is_empty() {
        rows.push(fact("fused from", op.fused.join(" + ")));
    }
    page.groups.push(Group { title: "Operation", rows });
    for (title, dir) in [("Reads", Dir::In), ("Writes", Dir::Out)] {
        let links = op.bound(dir).filter_map(|(slot, value)| {
            let v = c.plan.program.value(value);
            Some(Row::Link {
                label: slot.into(),
                text: format!("{} {}{}", v.name, v.dtype, v.shape),
                to: selection_of_value(&c.plan, value)?,
            })
        });
        page.groups.push(Group { title, rows: links.collect() });
    }
    if let Some(work) = c.plan.workspaces[index] {
        page.groups.push(Group { title: "Workspace", rows: vec![buffer_link(plan, work, "scratch")] });
    }
    let lost = choice.candidates.iter().filter(|k| !k.lost.is_empty());
    let lost = lost.map(|k| Row::Link {
        label: k.kernel.clone(),
        text: k.lost.clone(),
        to: Selection::Kernel(k.kernel.clone()),
    });
    let lost = lost.collect();
    page.groups.push(Group { title: "Rejected candidates", rows: lost });
    page.groups.extend(compiler_pages::other_levels(index, plan));
    let constants = plan.capture.constants.iter().filter(|k| k.op == index);
    let constants = constants.map(|k| {
        fact(&k.name, if k.live { format!("live, from {}", k.value) } else { format!("frozen at {}", k.value) })
    });
    page.groups.push(Group { title: "Constants", rows: constants.collect() });
    page
}

/// The sizes that a kernel works for, as a sentence.
const fn sizes_text(sizes: CompiledFor, kernels: Kernels) -> &'static str {
    match sizes {
        CompiledFor::AnySize if matches!(kernels, Kernels::FirstGeneral) => {
            "any size: a long run changes over to a kernel for these sizes"
        }
        CompiledFor::AnySize => "any size",
        CompiledFor::ItsSizes => "these sizes",
        CompiledFor::Library => "a library chooses the kernel",
    }
}

const fn phase_name(phase: Phase) -> &'static str {
    phase.name()
}

fn buffer(id: BufferId, plan: &PlanView) -> InspectorView {
    let Some(b) = plan.compiled.plan.buffers.get(id.0 as usize) else {
        return InspectorView { kind: "Buffer", title: "No such buffer".into(), ..InspectorView::default() };
    };
    let c = &plan.compiled;
    let mut page = InspectorView { kind: "Buffer", title: b.name.clone(), about: String::new(), groups: Vec::new() };
    let mut rows = vec![
        fact("role", b.role.name()),
        fact("shape", format!("{}{}", b.dtype, b.shape)),
        bytes("size", b.bytes),
        offset(b.offset),
        fact(
            "live",
            if b.persistent {
                "the whole step".into()
            } else {
                format!("ops {} to {}", b.live[0], b.live[1].saturating_sub(1))
            },
        ),
    ];
    if let Some(layer) = b.layer {
        let layer = c.model.layer(layer);
        rows.push(Row::Link { label: "layer".into(), text: layer.label(), to: Selection::Layer(layer.path.clone()) });
    }
    let span = [b.offset, b.offset + b.bytes];
    let text = format!("{:#x} to {:#x}", span[0], span[1].saturating_sub(1));
    rows.push(Row::Link { label: "bytes".into(), text, to: Selection::Bytes(span) });
    page.groups.push(Group { title: "Buffer", rows });
    let parts = b.parts.iter().map(|p| {
        let text = format!("{} {}", p.shape, Bytes(p.bytes));
        match p.layer.and_then(|l| c.model.layers.get(l.0 as usize)) {
            Some(layer) => Row::Link { label: p.name.clone(), text, to: Selection::Layer(layer.path.clone()) },
            None => fact(&p.name, text),
        }
    });
    page.groups.push(Group { title: "Parts, each with its layer", rows: cut(parts.collect()) });
    let links = |ops: &[usize]| cut(ops.iter().map(|&i| op_link(plan, i, plan.ops[i].phase.name())).collect());
    page.groups.push(Group { title: "Written by", rows: links(&b.writers) });
    page.groups.push(Group { title: "Read by", rows: links(&b.readers) });
    let values = b.values.iter().map(|v| c.plan.program.value(*v)).filter(|v| v.name != b.name && v.param.is_none());
    page.groups
        .push(Group { title: "Also holds", rows: cut(values.map(|v| fact(&v.name, v.shape.to_string())).collect()) });
    page.groups.push(compiler_pages::nodes_of(&Selection::Buffer(id), plan));
    page
}

/// The page of a part of a flat vector.
fn part(id: BufferId, index: usize, plan: &PlanView) -> InspectorView {
    let c = &plan.compiled;
    let buffer = c.plan.buffers.get(id.0 as usize);
    let Some((buffer, part)) = buffer.and_then(|b| Some((b, b.parts.get(index)?))) else {
        return InspectorView { kind: "Part", title: "No such part of a vector".into(), ..InspectorView::default() };
    };
    let mut page =
        InspectorView { kind: "Part of a vector", title: part.name.clone(), about: String::new(), groups: Vec::new() };
    let from = buffer.offset + part.start;
    let mut rows = vec![
        fact("role", buffer.role.name()),
        fact("shape", format!("{}{}", buffer.dtype, part.shape)),
        bytes("size", part.bytes),
        offset(from),
        buffer_link(plan, id, "part of"),
    ];
    if let Some(layer) = part.layer.and_then(|l| c.model.layers.get(l.0 as usize)) {
        rows.push(Row::Link { label: "layer".into(), text: layer.label(), to: Selection::Layer(layer.path.clone()) });
    }
    page.groups.push(Group { title: "Part", rows });
    for (title, dir) in [("Written by", Dir::Out), ("Read by", Dir::In)] {
        let ops = c.plan.ops_of_part(id, index, dir);
        let rows = ops.iter().map(|&i| op_link(plan, i, plan.ops[i].phase.name())).collect();
        page.groups.push(Group { title, rows: cut(rows) });
    }
    page.groups.push(compiler_pages::nodes_of(&Selection::Part(id, index), plan));
    page
}
