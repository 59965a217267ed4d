//! Which launches start before the one in front is done.
//!
//! A product of a small layer waits longer for its factors than it computes. One factor of nearly every product is old: the weight in the forward pass, the
//! saved activation in the backward pass. It is fetched while the launch in front still runs, where nothing in that launch writes it. The launch in front
//! says when the next one may start: after its own wait, so that everything before it is in memory by then.

use super::bind::{MAX_ARGS, Work};
use super::group::Launch;
use crate::compile::Compiled;
use crate::ir::Role;
use crate::lower::{Dir, OpKind};
use crate::ops;
use crate::select::{Variant, cuda};

/// The slot of a kernel's pointers that holds these flags; no operation has so many.
pub(super) const FLAGS: usize = MAX_ARGS - 1;

// As `LaunchFlags` in the kernels' prelude.
pub(super) const EARLY_A: u64 = 1;
const EARLY_B: u64 = 2;
pub(super) const OVERLAPPED: u64 = 4;
const EARLY_ENDS: u64 = 8;

/// Where bytes begin in memory, the plan's or the device's, and where they end.
pub(super) type Range = (u64, u64);

/// Whether two stretches of memory have bytes in common.
pub(super) const fn meet(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// Sets the flags of a step's launches. The first one keeps none, because what is in front of it is not known.
pub(super) fn overlap(compiled: &Compiled, calls: &[Vec<Work>], launches: &mut [Launch]) {
    if compiled.selection.target.as_cuda().is_none_or(|gpu| gpu.capability.0 < 9) {
        return;
    }
    for at in 1..launches.len() {
        let (before, after) = launches.split_at_mut(at);
        let (Some(front), Some(launch)) = (before.last_mut(), after.first_mut()) else { continue };
        if !front.ops().iter().all(|op| is_ours(calls, *op) && leaves_room(compiled, *op)) {
            continue;
        }
        let written: Vec<Range> = front.ops().iter().flat_map(|op| writes(compiled, *op)).collect();
        if fetch_ahead(compiled, calls, launch, &written) {
            front.start_next_early();
        }
    }
}

/// Whether an operation is one kernel of ours.
pub(super) fn is_ours(calls: &[Vec<Work>], op: usize) -> bool {
    matches!(&calls[op][..], [Work::Kernel { .. }])
}

/// Lets a launch fetch what the one in front does not write; whether there is any such.
pub(super) fn fetch_ahead(compiled: &Compiled, calls: &[Vec<Work>], launch: &mut Launch, written: &[Range]) -> bool {
    let mut overlaps = false;
    for op in launch.ops().to_vec().into_iter().filter(|op| is_ours(calls, *op) && fetches_early(compiled, *op)) {
        let flags = early(compiled, op, written);
        overlaps |= flags != 0;
        launch.add_flags(op, flags);
    }
    overlaps
}

/// Whether the last kernel of an operation leaves room for the blocks of the next launch.
pub(super) fn ends_small(compiled: &Compiled, calls: &[Vec<Work>], op: usize) -> bool {
    leaves_room(compiled, op) || ends_in_metrics(compiled, &calls[op], op)
}

/// Whether an operation is an update whose metrics come together in a kernel of their own.
fn ends_in_metrics(compiled: &Compiled, calls: &[Work], op: usize) -> bool {
    let updates = matches!(compiled.plan.program.ops[op].kind, OpKind::AdamStep { .. } | OpKind::SgdStep { .. });
    updates && matches!(calls, [Work::Kernel { kernel, .. }] if kernel.phases.len() > 1)
}

/// The bytes that the last kernel of an operation writes.
pub(super) fn writes_last(compiled: &Compiled, calls: &[Vec<Work>], op: usize) -> Vec<Range> {
    if !ends_in_metrics(compiled, &calls[op], op) {
        return writes(compiled, op);
    }
    let program = &compiled.plan.program;
    let operation = &program.ops[op];
    let slots = operation.kind.slots().iter().zip(&operation.args).enumerate();
    let metrics = slots.filter(|(_, (slot, arg))| {
        slot.dir == Dir::Out && arg.is_some_and(|id| program.value(id).role == Role::Metric)
    });
    metrics.filter_map(|(index, _)| extent(compiled, op, index, Dir::Out)).collect()
}

/// Whether an operation's kernel knows the flags.
fn fetches_early(compiled: &Compiled, op: usize) -> bool {
    let own = matches!(compiled.selection.choices[op].variant, Variant::Cuda(cuda::Route::Own(_)));
    own && matches!(
        compiled.plan.program.ops[op].kind,
        OpKind::Gemm(_)
            | OpKind::DenseCe { .. }
            | OpKind::WeightStep { .. }
            | OpKind::AdamStep { .. }
            | OpKind::SgdStep { .. }
    )
}

/// Elements of which a pass leaves most of the machine free.
const FEW_ELEMENTS: usize = 1 << 17;

/// Whether blocks of the next launch find room beside those of an operation: what streams through a whole image fills the machine, and those who wait there
/// take room from those who work. The kernels of these operations look at their flags (`compiler::beginning`).
fn leaves_room(compiled: &Compiled, op: usize) -> bool {
    let kind = &compiled.plan.program.ops[op].kind;
    if let OpKind::Dropout(ops::Dropout { len, .. })
    | OpKind::DropoutBwd(ops::DropoutBwd { len, .. })
    | OpKind::ActBwd(ops::ActBwd { len, .. }) = kind
    {
        return *len <= FEW_ELEMENTS;
    }
    matches!(
        kind,
        OpKind::Gemm(_)
            | OpKind::BiasGrad { .. }
            | OpKind::WeightStep { .. }
            | OpKind::BiasStep { .. }
            | OpKind::SoftmaxCeFused { .. }
            | OpKind::DenseCe { .. }
            | OpKind::LossMean { .. }
            | OpKind::StepMetrics { .. }
            | OpKind::StepInc
            | OpKind::BiasCorr { .. }
    )
}

/// The bytes that an operation writes, scratch and counters included.
pub(super) fn writes(compiled: &Compiled, op: usize) -> Vec<Range> {
    let plan = &compiled.plan;
    let operation = &plan.program.ops[op];
    let slots = operation.kind.slots().iter().enumerate();
    let written = slots.filter(|(_, slot)| slot.dir != Dir::In || slot.name == "ticket");
    written.filter_map(|(index, slot)| extent(compiled, op, index, slot.dir)).collect()
}

/// The bytes that an operation reads.
pub(super) fn reads(compiled: &Compiled, op: usize) -> Vec<Range> {
    let slots = compiled.plan.program.ops[op].kind.slots().iter().enumerate();
    slots
        .filter(|(_, slot)| slot.dir == Dir::In)
        .filter_map(|(index, _)| extent(compiled, op, index, Dir::In))
        .collect()
}

/// The bytes of an operation's argument.
pub(super) fn extent(compiled: &Compiled, op: usize, slot: usize, dir: Dir) -> Option<(u64, u64)> {
    let plan = &compiled.plan;
    let place = plan.argument(op, slot)?;
    let bytes = match dir {
        Dir::Work => plan.buffer(place.buffer).bytes,
        Dir::In | Dir::Out => plan.program.value(plan.program.ops[op].args[slot]?).bytes(),
    };
    Some((place.offset, place.offset + bytes))
}

/// What of an operation's inputs none of `written` touches.
fn early(compiled: &Compiled, op: usize, written: &[Range]) -> u64 {
    let kind = &compiled.plan.program.ops[op].kind;
    let slots = kind.slots();
    let is_product = matches!(kind, OpKind::Gemm(_) | OpKind::DenseCe { .. } | OpKind::WeightStep { .. });
    let flag_of = |slot: &str| match slot {
        "a" if is_product => EARLY_A,
        "b" if is_product => EARLY_B,
        // An update waits for its gradient and for the counters.
        "grad" | "hyper" | "corr" | "scaler" | "ticket" if !is_product => 0,
        _ => EARLY_ENDS,
    };
    let mut flags = if is_product { EARLY_A | EARLY_B | EARLY_ENDS } else { EARLY_ENDS };
    for (index, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.dir == Dir::In) {
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
        // The last layer with its loss: what it keeps for the way back is its new input.
        assert_eq!(flags(find("dense_ce", 0), find("gemm", 1)), EARLY_B);
        // The gradient of its input: the loss's gradient is new, the weight and what the activation saved are old.
        assert_eq!(flags(find("gemm_nt", 0), find("dense_ce", 0)), EARLY_B | EARLY_ENDS);
        // The gradient of its weight: the other way round.
        assert_eq!(flags(find("gemm_tn", 0), find("dense_ce", 0)), EARLY_A | EARLY_ENDS);
        // The first layer behind an update: everything but the samples may be new.
        assert_eq!(flags(find("gemm", 0), find("sgd_step", 0)), EARLY_A);
        assert_eq!(flags(find("sgd_step", 0), find("gemm_tn", 2)), EARLY_ENDS);
    }
}
