//! Programmatic dependent launch (PDL): which launches start before the preceding one is done.
//!
//! A product of a small layer waits longer for its factors than it computes. One factor of nearly every product was
//! computed earlier: the weight in the forward pass, the saved activation in the backward pass. If the preceding launch
//! does not write it, it is loaded while that launch is still running. The preceding launch signals when the next one
//! may start: after its own wait, so that all earlier results are in memory by then.

use super::arguments::{EARLY_A, EARLY_B, EARLY_ENDS, Range, meet};
use super::bound_call::BoundCall;
use super::bound_ops::BoundOps;
use super::extents::{extent, writes};
use super::launch::Launch;
use crate::compile::Compiled;
use crate::ir::Role;
use crate::ops::{Dir, OpKind};
use crate::select::cuda::Pdl;
use crate::select::{Variant, cuda};

/// Sets the flags of a step's launches. The first one has none, because the launch before it is not known.
pub(super) fn set_flags(ops: &BoundOps, launches: &mut [Launch]) {
    if ops.compiled.selection.target.as_cuda().is_none_or(|gpu| gpu.capability.0 < 9) {
        return;
    }
    for at in 1..launches.len() {
        let (before, after) = launches.split_at_mut(at);
        let (Some(front), Some(launch)) = (before.last_mut(), after.first_mut()) else { continue };
        if !front.ops().iter().all(|op| pdl_of(ops, *op).is_some_and(|pdl| pdl.leaves_room)) {
            continue;
        }
        let written: Vec<Range> = front.ops().iter().flat_map(|op| writes(&ops.compiled, *op)).collect();
        if fetch_ahead(ops, launch, &written) {
            front.start_next_early();
        }
    }
}

/// How an operation uses programmatic dependent launch, if it is a single custom kernel.
fn pdl_of(ops: &BoundOps, op: usize) -> Option<Pdl> {
    match &ops.calls[op][..] {
        [BoundCall::Kernel { spec, .. }] => Some(spec.pdl),
        _ => None,
    }
}

/// Lets a launch load what the preceding one does not write; returns whether there is any such data.
pub(super) fn fetch_ahead(ops: &BoundOps, launch: &mut Launch, written: &[Range]) -> bool {
    let mut overlaps = false;
    for op in launch.ops().to_vec().into_iter().filter(|op| fetches_early(ops, *op)) {
        let flags = early(&ops.compiled, op, written);
        overlaps |= flags != 0;
        launch.add_flags(op, flags);
    }
    overlaps
}

/// Whether an operation's kernel can load inputs early. A kernel that replaces a library cannot.
fn fetches_early(ops: &BoundOps, op: usize) -> bool {
    let planned = matches!(ops.compiled.selection.choices[op].variant, Variant::Cuda(cuda::Route::Own(_)));
    planned && pdl_of(ops, op).is_some_and(|pdl| pdl.fetches_early)
}

/// Whether an operation is a custom kernel whose last phase leaves space for the blocks of the next launch.
pub(super) fn ends_small(ops: &BoundOps, op: usize) -> bool {
    pdl_of(ops, op).is_some_and(|pdl| pdl.leaves_room || ends_in_metrics(ops, op))
}

/// Whether an operation is an update whose metrics are combined in a separate phase.
fn ends_in_metrics(ops: &BoundOps, op: usize) -> bool {
    let updates = ops.compiled.plan.program.ops[op].kind.flat_update().is_some();
    updates && matches!(&ops.calls[op][..], [BoundCall::Kernel { kernel, .. }] if kernel.phases.len() > 1)
}

/// The bytes that the last phase of an operation writes.
pub(super) fn writes_last(ops: &BoundOps, op: usize) -> Vec<Range> {
    if !ends_in_metrics(ops, op) {
        return writes(&ops.compiled, op);
    }
    let compiled = &ops.compiled;
    let program = &compiled.plan.program;
    let operation = &program.ops[op];
    let slots = operation.kind.slots().iter().zip(&operation.args).enumerate();
    let metrics = slots.filter(|(_, (slot, arg))| {
        slot.dir == Dir::Out && arg.is_some_and(|id| program.value(id).role == Role::Metric)
    });
    metrics.filter_map(|(index, _)| extent(compiled, op, index, Dir::Out)).collect()
}

/// The inputs of an operation that do not overlap `written`.
fn early(compiled: &Compiled, op: usize, written: &[Range]) -> u64 {
    let kind = &compiled.plan.program.ops[op].kind;
    let slots = kind.slots();
    let is_alone = matches!(kind, OpKind::Gemm(_) | OpKind::GemmNorm(_) | OpKind::GemmNormBwd(_));
    let is_product = is_alone || matches!(kind, OpKind::DenseCe { .. } | OpKind::WeightStep { .. });
    let flag_of = |slot: &str| match slot {
        "a" if is_product => EARLY_A,
        "b" if is_product => EARLY_B,
        // An update waits for its gradient and for the counters.
        "grad" | "hyper" | "corr" | "scaler" | "ticket" if !is_product => 0,
        _ => EARLY_ENDS,
    };
    let mut flags = if is_product { EARLY_A | EARLY_B | EARLY_ENDS } else { EARLY_ENDS };
    for (index, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.dir.is_read()) {
        let touched = |read| written.iter().any(|w| meet(*w, read));
        if extent(compiled, op, index, Dir::In).is_some_and(touched) {
            flags &= !flag_of(slot.name);
        }
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{check, read_preset};
    use crate::select::Target;

    #[test]
    fn a_product_fetches_early_what_the_launch_in_front_does_not_write() {
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [64], "batch": 64}, "layers": [
            {"type": "dense", "units": 128, "activation": "relu"}, {"type": "dense", "units": 96, "activation": "relu"},
            {"type": "dense", "units": 10}],
            "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let compiled = compile(&model, &Options::train(Target::h200())).unwrap();
        let ops = &compiled.plan.program.ops;
        let find = |name: &str, nth: usize| (0..ops.len()).filter(|i| ops[*i].kind.name() == name).nth(nth).unwrap();
        let flags = |op: usize, front: usize| early(&compiled, op, &writes(&compiled, front));
        // The second layer: its input is new, weight and bias are old.
        assert_eq!(flags(find("gemm", 1), find("gemm", 0)), EARLY_B | EARLY_ENDS);
        // The last layer with its loss: its saved activation is its new input.
        assert_eq!(flags(find("dense_ce", 0), find("gemm", 1)), EARLY_B);
        // The gradient of its input: the loss's gradient is new, the weight and the saved activation are old.
        assert_eq!(flags(find("gemm_nt", 0), find("dense_ce", 0)), EARLY_B | EARLY_ENDS);
        // The gradient of its weight: the other way round.
        assert_eq!(flags(find("gemm_tn", 0), find("dense_ce", 0)), EARLY_A | EARLY_ENDS);
        // The first layer after an update: everything except the samples may be new.
        assert_eq!(flags(find("gemm", 0), find("sgd_step", 0)), EARLY_A);
        assert_eq!(flags(find("sgd_step", 0), find("gemm_tn", 2)), EARLY_ENDS);
    }
}
