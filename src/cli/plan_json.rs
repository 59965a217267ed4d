//! The compiled step as one JSON document, for scripts.
//!
//! Flat vectors are listed as the parameters they consist of. So no two entries of `buffers` share a byte while both
//! are alive, the bytes of all entries add up to `unshared_bytes`, and the largest sum of the entries alive at one
//! operation is `lower_bound_bytes`.

use crate::compile::Compiled;
use crate::ir::{Role, Share};
use crate::lower::dims;
use crate::model::{LayerId, Model};
use crate::ops::Dir;
use crate::plan::{BindingPlan, Buffer, CapturePlan, Constant};
use crate::select::{Candidate, Target, Threads};
use crate::tensor::{DType, Shape};
use serde::Serialize;

/// One operation with its kernel.
#[derive(Serialize)]
struct OpEntry<'a> {
    index: usize,
    op: &'static str,
    kernel: &'a str,
    /// `L0:Dense`; null if it belongs to no layer.
    layer: Option<String>,
    /// The layer's place in the preset: `layers[0]`.
    layer_path: Option<String>,
    /// Which application of a repeated layer it is, from 0.
    pass: u32,
    phase: &'static str,
    dims: String,
    flops: u64,
    /// The least number of bytes that are read and written.
    bytes: u64,
    workspace_bytes: u64,
    /// An estimate of the time.
    cost_us: f64,
    /// The plain operations that were fused into it.
    fused: &'a [String],
    candidates: &'a [Candidate],
    reads: Vec<Argument<'a>>,
    writes: Vec<Argument<'a>>,
}

#[derive(Serialize)]
struct Argument<'a> {
    slot: &'static str,
    value: &'a str,
    offset: Option<u64>,
}

/// A range of memory.
#[derive(Serialize)]
struct BufferEntry<'a> {
    name: String,
    role: &'static str,
    shape: Shape,
    dtype: DType,
    /// Bytes taken, padding included.
    bytes: u64,
    /// Bytes of its elements.
    data_bytes: u64,
    /// First byte in the arena.
    offset: u64,
    /// First operation at which it is alive, and one past the last one.
    live: [usize; 2],
    /// True if it exists before the step or is read after it.
    persistent: bool,
    layer: Option<String>,
    /// Other values that start at its first byte: views, updates in place.
    aliases: Vec<&'a str>,
    /// The flat vector that it is a part of.
    part_of: Option<&'a str>,
}

#[derive(Serialize)]
struct StageTimes {
    ir: f64,
    lower: f64,
    select: f64,
    plan: f64,
    total: f64,
}

/// The whole document.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    preset: &'a str,
    mode: crate::ir::Mode,
    /// For layers that choose: the planned path, and the paths that steps take, as far as they are known in advance.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
    batch: usize,
    parameters: usize,
    target: &'a Target,
    /// Threads that share a CPU's step, and how their number was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<Threads>,
    ops: Vec<OpEntry<'a>>,
    buffers: Vec<BufferEntry<'a>>,
    /// Buffers of an evaluation that belong to the training step; the evaluation has no memory for them.
    external_buffers: Vec<BufferEntry<'a>>,
    arena_bytes: u64,
    lower_bound_bytes: u64,
    unshared_bytes: u64,
    persistent_bytes: u64,
    /// Arena over lower bound.
    ratio: f64,
    flops: u64,
    cost_us: f64,
    times_ms: StageTimes,
    planner: Planners<'a>,
    constants: Vec<Constant>,
    capture: CapturePlan,
    /// The recordings of a step, if several batches make one step; the fields above describe the last one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variants: Vec<Variant>,
}

/// One of the recordings that make up a step.
#[derive(Serialize)]
pub(super) struct Variant {
    /// `first`, `middle` or `last`.
    name: &'static str,
    /// The number of batches of a step that use it.
    batches: usize,
    /// What happens to the gradients of the preceding batches: `overwrite` or `add`.
    gradients: &'static str,
    /// Whether it updates the parameters.
    updates: bool,
    ops: usize,
    /// Kernels, in order.
    kernels: Vec<String>,
    flops: u64,
    cost_us: f64,
    /// Memory in addition to what all recordings share.
    transient_bytes: u64,
}

impl Variant {
    /// The variant that a compiled step is, if it is one of several.
    pub(super) fn of(compiled: &Compiled) -> Option<Self> {
        let (share, plan) = (compiled.graph.share?, &compiled.plan);
        let between = compiled.model.accumulate - 2;
        Some(Self {
            name: share.name(),
            batches: if share == Share::Middle { between } else { 1 },
            gradients: if share == Share::First { "overwrite" } else { "add" },
            updates: share == Share::Last,
            ops: plan.program.ops.len(),
            kernels: compiled.selection.choices.iter().map(|c| c.kernel.clone()).collect(),
            flops: compiled.selection.flops(),
            cost_us: compiled.selection.cost_us(),
            transient_bytes: plan.arena_bytes - plan.persistent_bytes,
        })
    }
}

/// The largest number of paths of a network that are listed.
const MOST_PATHS: usize = 256;

#[derive(Serialize)]
struct Planners<'a> {
    chosen: &'static str,
    proved_optimal: bool,
    tried: &'a [crate::plan::arena::Attempt],
}

fn label(model: &Model, layer: Option<LayerId>) -> Option<String> {
    layer.map(|l| model.layer(l).label())
}

/// The JSON document of a compiled step.
#[must_use]
pub(super) fn document(compiled: &Compiled, threads: Option<Threads>, variants: Vec<Variant>) -> Document<'_> {
    let (plan, model) = (&compiled.plan, &compiled.model);
    let (mut buffers, mut external_buffers) = (Vec::new(), Vec::new());
    for buffer in &plan.buffers {
        entries(plan, model, buffer, if buffer.is_external() { &mut external_buffers } else { &mut buffers });
    }
    let ms = |d: std::time::Duration| d.as_secs_f64() * 1e3;
    let t = &compiled.times;
    Document {
        preset: &model.name,
        mode: plan.program.mode,
        path: model.of_path.as_ref().map(|of| of.path.to_string()),
        paths: model
            .of_path
            .as_ref()
            .map_or_else(Vec::new, |of| of.whole.foreseen(MOST_PATHS).paths.iter().map(ToString::to_string).collect()),
        batch: model.batch,
        parameters: model.trained_len(),
        target: &compiled.selection.target,
        threads,
        ops: ops(compiled),
        buffers,
        external_buffers,
        arena_bytes: plan.arena_bytes,
        lower_bound_bytes: plan.lower_bound_bytes,
        unshared_bytes: plan.unshared_bytes,
        persistent_bytes: plan.persistent_bytes,
        ratio: plan.ratio(),
        flops: compiled.selection.flops(),
        cost_us: compiled.selection.cost_us(),
        times_ms: StageTimes {
            ir: ms(t.ir),
            lower: ms(t.lower),
            select: ms(t.select),
            plan: ms(t.plan),
            total: ms(t.total()),
        },
        planner: Planners {
            chosen: plan.report.planner.name(),
            proved_optimal: plan.report.proved_optimal,
            tried: &plan.report.tried,
        },
        constants: plan.constants(),
        capture: CapturePlan::new(plan, model),
        variants,
    }
}

fn ops(compiled: &Compiled) -> Vec<OpEntry<'_>> {
    let (plan, model) = (&compiled.plan, &compiled.model);
    let program = &plan.program;
    let rows = program.ops.iter().zip(&compiled.selection.choices).enumerate();
    rows.map(|(index, (op, choice))| {
        let arguments = |dir| {
            let bound = op.bound(dir);
            bound
                .map(|(slot, v)| Argument {
                    slot,
                    value: &program.value(v).name,
                    offset: plan.place(v).map(|p| p.offset),
                })
                .collect()
        };
        OpEntry {
            index,
            op: op.kind.name(),
            kernel: &choice.kernel,
            layer: label(model, op.layer),
            layer_path: op.layer.map(|l| model.layer(l).path.to_string()),
            pass: op.pass,
            phase: op.phase.name(),
            dims: dims(&op.kind),
            flops: choice.flops,
            bytes: choice.bytes,
            workspace_bytes: choice.workspace_bytes,
            cost_us: choice.cost_us,
            fused: &op.fused,
            candidates: &choice.candidates,
            reads: arguments(Dir::In),
            writes: arguments(Dir::Out),
        }
    })
    .collect()
}

/// The entries of one buffer: itself, or its parts and the ranges between them.
fn entries<'a>(plan: &'a BindingPlan, model: &Model, buffer: &'a Buffer, out: &mut Vec<BufferEntry<'a>>) {
    let whole =
        |name: String, start: u64, bytes: u64, data_bytes: u64, shape: Shape, layer: Option<LayerId>| BufferEntry {
            aliases: aliases(plan, buffer, &name, buffer.offset + start),
            name,
            role: buffer.role.name(),
            shape,
            dtype: buffer.dtype,
            bytes,
            data_bytes,
            offset: buffer.offset + start,
            live: buffer.live,
            persistent: buffer.persistent,
            layer: label(model, layer),
            part_of: None,
        };
    let size = buffer.dtype.size() as u64;
    let apart = buffer.parts.windows(2).all(|p| p[0].start + p[0].bytes <= p[1].start);
    let inside = buffer.parts.last().is_some_and(|p| p.start + p.bytes <= buffer.bytes);
    if !(apart && inside) {
        let data = if buffer.role == Role::Workspace { buffer.bytes } else { buffer.shape.len() as u64 * size };
        out.push(whole(buffer.name.clone(), 0, buffer.bytes, data, buffer.shape.clone(), buffer.layer));
        return;
    }
    let mut end = 0;
    let filler = |from: u64, to: u64, out: &mut Vec<BufferEntry<'a>>| {
        if from < to {
            let shape = Shape::from([((to - from) / size) as usize]);
            let entry = whole(format!("{}.padding.{from}", buffer.name), from, to - from, 0, shape, None);
            out.push(BufferEntry { part_of: Some(&buffer.name), aliases: Vec::new(), ..entry });
        }
    };
    for part in &buffer.parts {
        filler(end, part.start, out);
        let data = part.shape.len() as u64 * size;
        let entry = whole(part.name.clone(), part.start, part.bytes, data, part.shape.clone(), part.layer);
        out.push(BufferEntry { part_of: Some(&buffer.name), ..entry });
        end = part.start + part.bytes;
    }
    filler(end, buffer.bytes, out);
}

/// The values, other than `name`, that start at `offset` inside a buffer.
fn aliases<'a>(plan: &'a BindingPlan, buffer: &Buffer, name: &str, offset: u64) -> Vec<&'a str> {
    let there = buffer.values.iter().filter(|v| plan.place(**v).is_some_and(|p| p.offset == offset));
    there.map(|v| plan.program.value(*v).name.as_str()).filter(|n| *n != name).collect()
}
