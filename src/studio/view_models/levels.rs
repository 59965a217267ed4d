//! The step at every stage of the compiler, as rows of one table: nodes of the graph, lowered operations, selected
//! kernels, recorded calls.

use crate::compile::Compiled;
use crate::exec::cpu::kernels;
use crate::ir::{NodeId, Phase};
use crate::lower::{LValueId, Op, Program, dims};
use crate::model::{LayerId, LayerPath};
use crate::ops::Dir;
use crate::select::cuda::CompiledFor;
use crate::select::least;
use crate::studio::commands::selection::Selection;
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::related::{Related, lowered_into};
use crate::studio::view_models::step_graph::letter;
use crate::tensor::Bytes;

/// A stage of the compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    Ir,
    Lowered,
    #[default]
    Selected,
    Recorded,
}

impl Level {
    pub const ALL: [Self; 4] = [Self::Ir, Self::Lowered, Self::Selected, Self::Recorded];

    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Ir => "IR",
            Self::Lowered => "Lowered",
            Self::Selected => "Selected",
            Self::Recorded => "Recorded",
        }
    }

    /// What its rows are, for the tooltip.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Ir => "Nodes of the graph: the computation, without memory or kernels",
            Self::Lowered => "Operations with every dimension written out, before fusion, and their rewritten forms",
            Self::Selected => "Operations after fusion with their kernels, and why other kernels were not chosen",
            Self::Recorded => {
                "The calls of the recording: arguments as offsets in the arena, phases between barriers, threads"
            }
        }
    }

    /// The name of a row.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Ir => "nodes",
            Self::Lowered | Self::Selected => "ops",
            Self::Recorded => "calls",
        }
    }
}

/// The cost of a row, as far as it is known at its level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LevelCost {
    pub flops: Option<u64>,
    pub bytes: Option<u64>,
    /// Estimated, in microseconds.
    pub us: Option<f64>,
}

impl LevelCost {
    fn of(choice: &crate::select::Choice) -> Self {
        Self { flops: Some(choice.flops), bytes: Some(choice.bytes), us: Some(choice.cost_us) }
    }
}

/// How a call is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallShares {
    /// Phases, separated by a barrier of all threads.
    pub phases: usize,
    /// Threads that share it.
    pub threads: usize,
}

/// One row of any level; fields that a level does not have are empty.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelRow {
    pub index: usize,
    pub phase: Phase,
    pub layer: String,
    pub path: Option<LayerPath>,
    /// The node or operation.
    pub name: &'static str,
    /// The kernel; for nodes their outputs, for lowered operations what they were fused into.
    pub kernel: String,
    /// The sizes that the kernel works for, on a GPU.
    pub compiled_for: Option<CompiledFor>,
    pub shapes: String,
    pub dtypes: String,
    /// Inputs of a node, dimensions of an operation, rejected candidates of a selection, addresses of a call.
    pub detail: String,
    pub cost: LevelCost,
    /// How a processor runs a call.
    pub shares: Option<CallShares>,
    haystack: String,
}

impl LevelRow {
    /// True if every word of `filter` (in lower case) is found.
    #[must_use]
    pub fn matches(&self, filter: &str) -> bool {
        filter.split_whitespace().all(|word| self.haystack.contains(word))
    }

    fn found_by(mut self) -> Self {
        self.haystack = format!("{} {} {} {} {}", self.phase.name(), self.layer, self.name, self.kernel, self.shapes)
            .to_lowercase();
        self
    }
}

/// All levels of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels {
    ir: Vec<LevelRow>,
    lowered: Vec<LevelRow>,
    selected: Vec<LevelRow>,
    recorded: Vec<LevelRow>,
}

impl Levels {
    /// Every level of a compiled step.
    #[must_use]
    pub fn new(compiled: &Compiled) -> Self {
        Self {
            ir: ir_rows(compiled),
            lowered: lowered_rows(compiled),
            selected: selected_rows(compiled),
            recorded: recorded_rows(compiled),
        }
    }

    /// The sizes that the kernel of an operation works for, on a GPU.
    #[must_use]
    pub fn compiled_for(&self, op: usize) -> Option<CompiledFor> {
        self.selected.get(op)?.compiled_for
    }

    /// The rows of a level, in order.
    #[must_use]
    pub fn rows(&self, level: Level) -> &[LevelRow] {
        match level {
            Level::Ir => &self.ir,
            Level::Lowered => &self.lowered,
            Level::Selected => &self.selected,
            Level::Recorded => &self.recorded,
        }
    }
}

/// What a click on a row selects.
#[must_use]
pub const fn selection_of(level: Level, index: usize) -> Selection {
    match level {
        Level::Ir => Selection::Node(NodeId(index as u32)),
        Level::Lowered => Selection::Lowered(index),
        Level::Selected => Selection::Op(index),
        Level::Recorded => Selection::Call(index),
    }
}

/// True if a row belongs to the selection.
#[must_use]
pub fn is_related(level: Level, index: usize, related: &Related) -> bool {
    match level {
        Level::Ir => related.nodes.contains(&index),
        Level::Lowered => related.lowered.contains(&index),
        Level::Selected | Level::Recorded => related.ops.contains(&index),
    }
}

fn blank(
    index: usize,
    phase: Phase,
    name: &'static str,
    compiled: &Compiled,
    layer: Option<LayerId>,
    pass: u32,
) -> LevelRow {
    let layer = layer.and_then(|l| compiled.model.layers.get(l.0 as usize));
    let pass = if pass > 0 { format!("#{pass}") } else { String::new() };
    LevelRow {
        index,
        phase,
        layer: layer.map_or_else(String::new, |l| format!("{}{pass}", l.label())),
        path: layer.map(|l| l.path.clone()),
        name,
        kernel: String::new(),
        compiled_for: None,
        shapes: String::new(),
        dtypes: String::new(),
        detail: String::new(),
        cost: LevelCost::default(),
        shares: None,
        haystack: String::new(),
    }
}

/// Names in a line; the middle of a long list is only counted.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    if all.len() <= 6 {
        return all.join(", ");
    }
    format!("{}, … {} more, {}", all[..3].join(", "), all.len() - 4, all[all.len() - 1])
}

fn ir_rows(compiled: &Compiled) -> Vec<LevelRow> {
    let graph = &compiled.graph;
    let name = |v: &crate::ir::ValueId| graph.value(*v).name.as_str();
    let row = |(index, node): (usize, &crate::ir::Node)| {
        let mut row = blank(index, node.phase, node.kind.name(), compiled, node.layer, node.pass);
        row.kernel = listed(node.outputs.iter().map(name));
        row.detail = listed(node.inputs.iter().map(name));
        let first = node.outputs.first().map(|v| graph.value(*v));
        let input = node.inputs.first().map(|v| graph.value(*v).shape.to_string());
        let output = first.map(|v| v.shape.to_string());
        row.shapes = [input, output].into_iter().flatten().collect::<Vec<_>>().join(" → ");
        row.dtypes = first.map_or_else(String::new, |v| v.dtype.name().to_owned());
        row.found_by()
    };
    graph.nodes.iter().enumerate().map(row).collect()
}

/// The types of all arguments, each once: `f32` or `f32 i32`.
fn dtypes(program: &Program, op: &Op) -> String {
    let mut out: Vec<&'static str> = Vec::new();
    for v in op.reads().chain(op.writes()) {
        let name = program.value(v).dtype.name();
        if !out.contains(&name) {
            out.push(name);
        }
    }
    out.join(" ")
}

/// The first input and the first output.
fn shapes(program: &Program, op: &Op) -> String {
    let shape = |v: Option<LValueId>| v.map(|v| program.value(v).shape.to_string());
    [shape(op.reads().next()), shape(op.writes().next())].into_iter().flatten().collect::<Vec<_>>().join(" → ")
}

fn lowered_rows(compiled: &Compiled) -> Vec<LevelRow> {
    let program = &compiled.program;
    let into = lowered_into(compiled);
    let row = |(index, op): (usize, &Op)| {
        let mut row = blank(index, op.phase, op.kind.name(), compiled, op.layer, op.pass);
        row.kernel = match into[index] {
            Some(i) if compiled.selection.program.ops[i].fused.is_empty() => format!("op {i}"),
            Some(i) => format!("fused into op {i}"),
            None => "removed: nothing needs it".into(),
        };
        row.shapes = shapes(program, op);
        row.dtypes = dtypes(program, op);
        row.detail = dims(&op.kind);
        row.cost.flops = Some(op.kind.flops());
        row.cost.bytes = Some(least::bytes(program, op));
        row.found_by()
    };
    program.ops.iter().enumerate().map(row).collect()
}

fn selected_rows(compiled: &Compiled) -> Vec<LevelRow> {
    let program = &compiled.plan.program;
    let compiled_for = CompiledFor::of_all(&compiled.selection);
    let row = |(index, (op, choice)): (usize, (&Op, &crate::select::Choice))| {
        let mut row = blank(index, op.phase, op.kind.name(), compiled, op.layer, op.pass);
        row.kernel.clone_from(&choice.kernel);
        row.compiled_for = compiled_for.get(index).copied();
        row.shapes = shapes(program, op);
        row.dtypes = dtypes(program, op);
        let lost = choice.candidates.iter().filter(|k| !k.lost.is_empty());
        row.detail =
            lost.map(|k| format!("{}: {}", k.kernel, format::with_micro_signs(&k.lost))).collect::<Vec<_>>().join("\n");
        row.cost = LevelCost::of(choice);
        row.found_by()
    };
    program.ops.iter().zip(&compiled.selection.choices).enumerate().map(row).collect()
}

/// The bound arguments of a call as offsets in the arena, one pair for each slot.
#[must_use]
pub fn addresses(compiled: &Compiled, index: usize) -> Vec<(&'static str, u64)> {
    let plan = &compiled.plan;
    let Some(op) = plan.program.ops.get(index) else { return Vec::new() };
    let slots = op.kind.slots().iter().enumerate();
    slots.filter_map(|(slot, s)| Some((s.name, plan.argument(index, slot)?.offset))).collect()
}

fn recorded_rows(compiled: &Compiled) -> Vec<LevelRow> {
    let program = &compiled.plan.program;
    let cpu = compiled.selection.target.as_cpu();
    let row = |(index, (op, choice)): (usize, (&Op, &crate::select::Choice))| {
        let mut row = blank(index, op.phase, op.kind.name(), compiled, op.layer, op.pass);
        row.kernel.clone_from(&choice.kernel);
        let placed = addresses(compiled, index).into_iter();
        row.detail = placed.map(|(slot, at)| format!("{slot}=+{at:#x}")).collect::<Vec<_>>().join(" ");
        let threads = cpu.map_or(1, |c| c.threads);
        let call = cpu.and_then(|_| kernels::resolve(&op.kind, choice.variant, threads));
        row.shares = call
            .map(|k| CallShares { phases: k.phases, threads: if k.parallel && choice.shared { threads } else { 1 } });
        row.shapes = shapes(program, op);
        row.dtypes = dtypes(program, op);
        row.cost = LevelCost::of(choice);
        row.found_by()
    };
    program.ops.iter().zip(&compiled.selection.choices).enumerate().map(row).collect()
}

/// The links of a call: slot, value and offset.
#[must_use]
pub fn bound_values(compiled: &Compiled, index: usize) -> Vec<(&'static str, String, crate::plan::BufferId, u64)> {
    let plan = &compiled.plan;
    let Some(op) = plan.program.ops.get(index) else { return Vec::new() };
    let bound = op.bound(Dir::In).chain(op.bound(Dir::Out));
    bound
        .filter_map(|(slot, v)| plan.place(v).map(|p| (slot, plan.program.value(v).name.clone(), p.buffer, p.offset)))
        .collect()
}

impl std::fmt::Display for LevelRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {} {}", self.index, letter(self.phase), self.layer, self.name, self.kernel)?;
        write!(f, " [{}] {}", self.shapes, self.dtypes)?;
        if let Some(bytes) = self.cost.bytes {
            write!(f, " {}", Bytes(bytes))?;
        }
        if let Some(CallShares { phases, threads }) = self.shares {
            let [phases, threads] = [(phases, "phase"), (threads, "thread")].map(|(n, noun)| plain_count(n, noun));
            write!(f, " {phases} on {threads}")?;
        }
        write!(f, " ({})", self.detail.replace('\n', "; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::check;
    use crate::select::{Isa, Target};

    fn levels() -> (Compiled, Levels) {
        let model = check(&crate::studio::document::presets::digits()).model.unwrap();
        let compiled = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 2))).unwrap();
        let levels = Levels::new(&compiled);
        (compiled, levels)
    }

    #[test]
    fn every_level_has_a_row_for_each_of_its_items() {
        let (c, l) = levels();
        assert_eq!(l.rows(Level::Ir).len(), c.graph.nodes.len());
        assert_eq!(l.rows(Level::Lowered).len(), c.program.ops.len());
        assert_eq!(l.rows(Level::Selected).len(), c.plan.program.ops.len());
        assert_eq!(l.rows(Level::Recorded).len(), c.plan.program.ops.len());
        let first = l.rows(Level::Ir)[0].to_string();
        assert!(first.starts_with("0 F "), "{first}");
        let lowered: Vec<String> = l.rows(Level::Lowered).iter().map(ToString::to_string).collect();
        assert!(lowered.iter().any(|r| r.contains("bias_add fused into op 0")), "{lowered:#?}");
        let selected = l.rows(Level::Selected)[0].to_string();
        assert!(selected.contains("gemm_bias_relu") && selected.contains("estimated"), "{selected}");
        let recorded = l.rows(Level::Recorded)[0].to_string();
        assert!(recorded.contains("=+0x") && recorded.contains(" 1 phase on "), "{recorded}");
    }

    #[test]
    fn every_lowered_operation_is_computed_by_one_of_its_kind() {
        let (c, _) = levels();
        for (low, into) in c.program.ops.iter().zip(lowered_into(&c)) {
            let op = &c.selection.program.ops[into.expect("nothing is superfluous here")];
            let name = low.kind.name();
            assert!(op.kind.name() == name || op.fused.iter().any(|f| f == name), "{name} by {:?}", op.fused);
        }
    }

    #[test]
    fn a_selection_reaches_every_level_from_every_level() {
        let (c, _) = levels();
        let plan = crate::studio::view_models::plan::PlanView::new(std::sync::Arc::new(c));
        let op = Related::new(&Selection::Op(0), Some(&plan.compiled));
        assert!(!op.nodes.is_empty() && !op.lowered.is_empty());
        for node in &op.nodes {
            let back = Related::new(&Selection::Node(NodeId(*node as u32)), Some(&plan.compiled));
            assert!(back.ops.contains(&0) && !back.buffers.is_empty() && !back.layers.is_empty());
        }
        for low in &op.lowered {
            let back = Related::new(&Selection::Lowered(*low), Some(&plan.compiled));
            assert_eq!(back.ops.iter().copied().collect::<Vec<_>>(), [0]);
        }
        let kernel = plan.ops[0].kernel.clone();
        assert!(Related::new(&Selection::Kernel(kernel), Some(&plan.compiled)).ops.contains(&0));
        assert_eq!(Related::new(&Selection::Call(0), Some(&plan.compiled)), op);
        let buffer = plan.arena.rect(*op.buffers.first().unwrap()).unwrap();
        let bytes = Related::new(&Selection::Bytes([buffer.offset, buffer.offset + 1]), Some(&plan.compiled));
        assert!(bytes.buffers.contains(&buffer.id) && bytes.ops.contains(&0) && bytes.bytes.is_some());
    }
}
