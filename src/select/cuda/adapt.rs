//! What a GPU's kernels need besides the fused program: types of half width with their master copies, loss scaling, counters of finished blocks.
//!
//! In half precision, activations and their gradients are of that type; parameters, moments, statistics, weight gradients and losses stay `f32`. Products
//! read a copy of the parameters (`shadow`) that the optimizer writes beside the masters. In `f16` the gradient of the loss is multiplied by a scale
//! that the step itself adapts.

use super::Real;
use crate::ir::{Phase, Role};
use crate::lower::{Alias, LValue, LValueId, Layout, Op, OpKind, Program, SCALER, Trans};
use crate::ops;
use crate::tensor::{DType, Shape};

/// Adapts a fused program to a GPU. Values keep their ids; new ones stand at the end.
#[must_use]
pub fn adapt(program: &Program, real: Real) -> Program {
    let mut program = super::join::join(program);
    if let Some(half) = real.half() {
        shadow_weights(&mut program, half);
        narrow(&mut program, half);
    }
    super::head::join_head(&mut program);
    super::early::step_early(&mut program, real);
    super::layered::update_by_layers(&mut program, real);
    super::signs::keep_signs(&mut program);
    fold_metrics(&mut program);
    if real == Real::F16 {
        scale_loss(&mut program);
    }
    bind_tickets(&mut program);
    program
}

pub(super) fn push(program: &mut Program, value: LValue) -> LValueId {
    program.values.push(value);
    LValueId(program.values.len() as u32 - 1)
}

/// A value of its own that survives the step.
pub(super) fn state(program: &mut Program, name: String, dtype: DType, len: usize) -> LValueId {
    push(
        program,
        LValue {
            name,
            role: Role::State,
            dtype,
            shape: Shape::from([len]),
            layout: Layout::Plain,
            alias: None,
            persistent: true,
            layer: None,
            pass: 0,
            param: None,
        },
    )
}

/// A view of a value, from its first element on.
fn view(program: &mut Program, name: String, of: LValueId, len: usize) -> LValueId {
    let value =
        LValue { name, alias: Some(Alias { of, start: 0 }), shape: Shape::from([len]), ..program.value(of).clone() };
    push(program, value)
}

pub(super) fn set(op: &mut Op, slot: &str, value: LValueId) {
    if let Some(index) = op.kind.slot(slot) {
        op.args[index] = Some(value);
    }
}

/// The slot of an operation that holds a weight that products read, where it has one.
const fn weight_slot(kind: &OpKind) -> Option<&'static str> {
    match kind {
        OpKind::Gemm(g) if !matches!(g.trans, Trans::Tn) => Some("b"),
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } => Some("b"),
        _ => None,
    }
}

/// Whether a slot holds activations or their gradients.
fn is_activation(kind: &OpKind, slot: &str) -> bool {
    match kind {
        OpKind::Gemm(g) => match slot {
            "a" | "saved" | "z" => true,
            "b" => matches!(g.trans, Trans::Tn),
            "c" => !matches!(g.trans, Trans::Tn),
            _ => false,
        },
        OpKind::Conv2d { .. } | OpKind::Conv2dBwdX { .. } => matches!(slot, "a" | "saved" | "z" | "c"),
        OpKind::Conv2dBwdW { .. } => matches!(slot, "a" | "b"),
        OpKind::LossMean { .. }
        | OpKind::StepInc
        | OpKind::BiasCorr { .. }
        | OpKind::AdamStep { .. }
        | OpKind::SgdStep { .. }
        | OpKind::UpdateMetrics { .. }
        | OpKind::ScaleUpdate { .. }
        | OpKind::StepMetrics { .. } => false,
        OpKind::WeightStep { .. } | OpKind::BiasStep { .. } => matches!(slot, "a" | "b"),
        _ => matches!(
            slot,
            "x" | "y"
                | "dy"
                | "dx"
                | "saved"
                | "residual"
                | "a"
                | "b"
                | "logits"
                | "probs"
                | "dlogits"
                | "scores"
                | "target"
        ),
    }
}

/// The stretch of `shadow` that holds a parameter's copy.
fn narrow_copy(program: &mut Program, param: LValueId, shadow: LValueId, half: DType) -> LValueId {
    let (_, start) = program.root(param);
    let master = program.value(param).clone();
    let name = format!("{}.{half}", master.name);
    let found = program.find(&name);
    let alias = Some(Alias { of: shadow, start });
    found.unwrap_or_else(|| push(program, LValue { name, role: Role::State, dtype: half, alias, ..master }))
}

/// Products read a copy of the parameters in half width.
fn shadow_weights(program: &mut Program, half: DType) {
    let len = program.flat_len();
    let shadow = state(program, format!("params.{half}"), half, len);
    for index in 0..program.ops.len() {
        let op = &program.ops[index];
        if let Some(slot) = weight_slot(&op.kind)
            && let Some(weight) = op.arg(slot)
        {
            let copy = narrow_copy(program, weight, shadow, half);
            set(&mut program.ops[index], slot, copy);
        }
    }
    // Libraries add biases of the product's own type.
    for index in 0..program.ops.len() {
        let op = &program.ops[index];
        let product = matches!(&op.kind, OpKind::Gemm(g) if matches!(g.trans, Trans::Nn));
        if let Some(bias) = op.arg("bias").filter(|_| product) {
            let copy = narrow_copy(program, bias, shadow, half);
            set(&mut program.ops[index], "bias_half", copy);
        }
    }
    let after = view(program, format!("params.{half}.new"), shadow, len);
    for op in &mut program.ops {
        set(op, "shadow", after);
    }
}

/// By value, whether it is an activation or the gradient of one, or shares its memory.
#[must_use]
pub fn narrowed(program: &Program) -> Vec<bool> {
    let mut roots = vec![false; program.values.len()];
    for op in &program.ops {
        for (slot, arg) in op.kind.slots().iter().zip(&op.args) {
            if let Some(id) = arg
                && is_activation(&op.kind, slot.name)
                && program.value(*id).dtype == DType::F32
                && program.value(*id).param.is_none()
            {
                roots[program.root(*id).0.0 as usize] = true;
            }
        }
    }
    (0..program.values.len() as u32).map(|i| roots[program.root(LValueId(i)).0.0 as usize]).collect()
}

/// Gives activations and their gradients the half type, with everything that shares their memory.
fn narrow(program: &mut Program, half: DType) {
    let narrow = narrowed(program);
    for (value, narrow) in program.values.iter_mut().zip(narrow) {
        if narrow {
            value.dtype = half;
        }
    }
}

/// The update writes its totals itself.
fn fold_metrics(program: &mut Program) {
    let Some(at) = program.ops.iter().position(|op| matches!(op.kind, OpKind::UpdateMetrics { .. })) else { return };
    let metrics = program.ops[at].clone();
    let source = metrics.arg("update_max_seg");
    let update = program
        .ops
        .iter()
        .position(|op| source.is_some() && op.arg("update_max") == source && op.kind.slot("total_max").is_some());
    let (Some(update), Some(max), Some(norm)) = (update, metrics.arg("update_max"), metrics.arg("grad_norm")) else {
        return;
    };
    let op = &mut program.ops[update];
    set(op, "total_max", max);
    set(op, "grad_norm", norm);
    if op.fused.is_empty() {
        op.fused.push(op.kind.name().to_owned());
    }
    op.fused.push(metrics.kind.name().to_owned());
    op.nodes.extend(metrics.nodes);
    program.ops.remove(at);
}

/// Multiplies the gradient of the loss by a scale that adapts itself.
fn scale_loss(program: &mut Program) {
    let Some(update) = program.ops.iter().position(|op| op.kind.slot("scaler").is_some()) else { return };
    let Some(grad) = program.ops[update].arg("grad") else { return };
    let before = state(program, "scaler".into(), DType::F32, SCALER);
    let scale = view(program, "loss_scale".into(), before, 1);
    let after = view(program, "scaler.new".into(), before, SCALER);
    let skipped = push(
        program,
        LValue {
            name: "skipped_steps".into(),
            role: Role::State,
            dtype: DType::F32,
            alias: Some(Alias { of: before, start: 4 }),
            ..program.value(scale).clone()
        },
    );
    set(&mut program.ops[update], "scaler", after);
    for op in &mut program.ops {
        set(op, "scale", scale);
        set(op, "skipped", skipped);
    }
    let kind = OpKind::ScaleUpdate(ops::ScaleUpdate { len: program.value(grad).shape.len() });
    let mut op = Op {
        args: vec![None; kind.slots().len()],
        kind,
        fused: Vec::new(),
        phase: Phase::Optimizer,
        ..program.ops[update].clone()
    };
    set(&mut op, "grad", grad);
    set(&mut op, "scaler_prev", before);
    set(&mut op, "scaler", after);
    program.ops.insert(update, op);
}

fn bind_tickets(program: &mut Program) {
    for index in 0..program.ops.len() {
        if program.ops[index].kind.slot("ticket").is_some() {
            let ticket = state(program, format!("ticket.{}", program.ops[index].kind.name()), DType::I32, 1);
            set(&mut program.ops[index], "ticket", ticket);
        }
    }
}
