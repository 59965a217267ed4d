//! The compiled step as text, for people.

use super::args::Stage;
use super::{output, plan_passes};
use crate::compile::Compiled;
use crate::ir::{Phase, Role};
use crate::model::{Foreseen, LayerId, Model, PathOf, inputs_text};
use crate::plan::{BindingPlan, CapturePlan};
use crate::select::Threads;
use crate::tensor::Bytes;

/// One stage, or all of them under headings.
#[must_use]
pub(super) fn text(compiled: &Compiled, threads: Option<Threads>, stage: Stage) -> String {
    match stage {
        Stage::Ir => compiled.graph.to_string(),
        Stage::Lowered => compiled.program.to_string(),
        Stage::Passes => plan_passes::list(compiled),
        Stage::Selected => compiled.selection.to_string(),
        Stage::Bindings => bindings(compiled),
        Stage::Arena => arena(&compiled.plan),
        Stage::Capture => capture(compiled),
        Stage::All => all(compiled, threads),
    }
}

fn all(compiled: &Compiled, threads: Option<Threads>) -> String {
    let parts = [
        ("IR: what the step means", compiled.graph.to_string()),
        ("Lowered: operations with every dimension", compiled.program.to_string()),
        ("Selected: a kernel for each operation, and why others were not chosen", compiled.selection.to_string()),
        ("Bindings: every buffer with its role, live range and address", bindings(compiled)),
        ("Arena: how the buffers were placed", arena(&compiled.plan)),
        ("Capture plan: the buffers of each layer, and the constants", capture(compiled)),
    ];
    let sections: String = parts.iter().map(|(title, text)| format!("\n== {title}\n\n{text}")).collect();
    summary(compiled, threads) + &sections
}

fn summary(compiled: &Compiled, threads: Option<Threads>) -> String {
    let shared = threads.map_or_else(String::new, |t| format!("threads      {t}\n"));
    let (plan, model) = (&compiled.plan, &compiled.model);
    let batch = match compiled.graph.share {
        Some(share) => format!("batch        {} of {} that make a step\n", share.name(), model.accumulate),
        None => String::new(),
    };
    let path = path(model);
    let ops = &plan.program.ops;
    let of = |phase: Phase| ops.iter().filter(|o| o.phase == phase).count();
    let phases: Vec<String> = Phase::ALL
        .iter()
        .map(|p| (p, of(*p)))
        .filter(|(_, n)| *n > 0)
        .map(|(p, n)| format!("{n} {}", p.name()))
        .collect();
    let t = &compiled.times;
    let ms = |d: std::time::Duration| d.as_secs_f64() * 1e3;
    format!(
        "{}: {}, {}, input {} x {}\n\
         target       {}\n{shared}{path}{batch}\
         operations   {} ({}); {} before fusion, {} in the IR\n\
         arithmetic   {} floating-point operations a step; estimated {}\n\
         memory       {}\n\
         compiled in  {:.2} ms: IR {:.2}, lowering {:.2}, selection {:.2}, plan {:.2}\n",
        model.name,
        output::counted(model.layers.len() as u64, "layer"),
        output::counted(model.trained_len() as u64, "parameter"),
        model.batch,
        inputs_text(&model.inputs),
        compiled.selection.target.name,
        ops.len(),
        phases.join(", "),
        compiled.program.ops.len(),
        output::counted(compiled.graph.nodes.len() as u64, "node"),
        output::count(compiled.selection.flops()),
        output::micros(compiled.selection.cost_us()),
        memory(plan),
        ms(t.total()),
        ms(t.ir),
        ms(t.lower),
        ms(t.select),
        ms(t.plan)
    )
}

/// The planned path, among the paths that steps take.
fn path(model: &Model) -> String {
    let Some(PathOf { path, whole }) = &model.of_path else { return String::new() };
    let Foreseen { paths, are_all } = whole.foreseen(SHOWN_PATHS);
    let more = if are_all { "" } else { ", ..." };
    let others = paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let run = model.run_layers().into_iter().filter(|is_run| *is_run).count();
    format!("path         {path}, {run} of {} layers; steps take {others}{more}\n", model.layers.len())
}

/// The largest number of paths of a network that are listed.
const SHOWN_PATHS: usize = 16;

fn memory(plan: &BindingPlan) -> String {
    format!(
        "arena {}, {:.4} of the lower bound; {} unshared, {} survive the step",
        Bytes(plan.arena_bytes),
        plan.ratio(),
        Bytes(plan.unshared_bytes),
        Bytes(plan.persistent_bytes)
    )
}

/// A buffer, or a part of one, on a line.
struct Row<'a> {
    role: &'a str,
    offset: u64,
    bytes: u64,
    live: [usize; 2],
    dtype: &'a str,
    shape: String,
    layer: String,
    name: String,
}

impl Row<'_> {
    fn line(&self) -> String {
        let Self { role, offset, bytes, live: [from, to], dtype, shape, layer, name } = self;
        let live = format!("{from}..{to}");
        let line = format!("{role:<10} {offset:>12} {bytes:>12} {live:>11}  {dtype:<4} {shape:<18} {layer:<16} {name}");
        format!("{}\n", line.trim_end())
    }
}

/// One line for each buffer, with the parts of flat vectors after their vector.
fn bindings(compiled: &Compiled) -> String {
    let (plan, model) = (&compiled.plan, &compiled.model);
    let mut out = format!(
        "{:<10} {:>12} {:>12} {:>11}  {:<4} {:<18} {:<16} name\n",
        "role", "offset", "bytes", "live", "type", "shape", "layer"
    );
    let label = |layer: Option<LayerId>| layer.map_or_else(String::new, |l| model.layer(l).label());
    for b in &plan.buffers {
        let whole = Row {
            role: if b.is_external() { "(external)" } else { b.role.name() },
            offset: if b.is_external() { 0 } else { b.offset },
            bytes: b.bytes,
            live: b.live,
            dtype: b.dtype.name(),
            shape: b.shape.to_string(),
            layer: label(b.layer),
            name: b.name.clone(),
        };
        out += &whole.line();
        for p in &b.parts {
            let (offset, shape, name) = (whole.offset + p.start, p.shape.to_string(), format!("  {}", p.name));
            out += &Row { role: "", offset, bytes: p.bytes, shape, layer: label(p.layer), name, ..whole }.line();
        }
    }
    out
}

fn arena(plan: &BindingPlan) -> String {
    let report = &plan.report;
    let proof =
        if report.proved_optimal { "proved to be the smallest possible" } else { "not proved to be the smallest" };
    let mut out = format!("{}\nplaced by {}, {proof}\n", memory(plan), report.planner);
    for a in &report.tried {
        out.push_str(&format!(
            "  {:<32} {:>12} for what shares memory, {}\n",
            a.planner.name(),
            Bytes(a.height),
            output::micros(a.micros as f64)
        ));
    }
    let live = plan.live_bytes();
    if let Some((op, peak)) = live.iter().enumerate().max_by_key(|(i, b)| (**b, std::cmp::Reverse(*i))) {
        let name = plan.program.ops[op].kind.name();
        out.push_str(&format!("the most is alive at operation {op} ({name}): {}\n", Bytes(*peak)));
        for role in Role::ALL {
            let alive =
                |b: &&crate::plan::Buffer| b.role == role && !b.is_external() && (b.live[0]..b.live[1]).contains(&op);
            let bytes: u64 = plan.buffers.iter().filter(alive).map(|b| b.bytes).sum();
            if bytes > 0 {
                out.push_str(&format!("  {:<12} {:>12}\n", role.name(), Bytes(bytes)));
            }
        }
    }
    out
}

fn capture(compiled: &Compiled) -> String {
    let mut out = CapturePlan::new(&compiled.plan, &compiled.model).to_string();
    out.push_str("\nconstants\n");
    for c in compiled.plan.constants() {
        let kernel = &compiled.selection.choices[c.op].kernel;
        let how = if c.live { "read from memory at every replay:" } else { "frozen:" };
        out.push_str(&format!("  op {:>4} {kernel:<34} {:<14} {how} {}\n", c.op, c.name, c.value));
    }
    out
}
