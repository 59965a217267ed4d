//! Updates of large networks, some layers at a time.
//!
//! One update of all parameters at the end of a step is one launch, but all gradients live until then: as many bytes as the parameters have. Where that is
//! much, what a few megabytes of gradients belong to is updated as soon as these are there and the last reader of its parameters is done, so that gradients
//! of different layers share memory.

use super::Real;
use super::adapt::{push, set};
use super::early::{Readers, place, sole_update, writers};
use crate::ir::Role;
use crate::lower::{Alias, FLAT_ALIGN, LValue, Op, OpKind, Program, Segment};
use crate::model::ParamId;
use crate::ops;
use crate::tensor::Shape;
use std::ops::Range;

/// Parameters from which gradients are worth their memory.
const MANY: usize = 1 << 24;
/// Parameters that are updated together, at least, where there are so many.
const TOGETHER: usize = 1 << 21;

/// An update of neighbouring segments.
struct Part {
    segments: Range<usize>,
    /// The operation that it follows.
    after: usize,
}

/// Whether a network has so many parameters that its memory is worth passes of its own.
pub(super) fn is_large(program: &Program) -> bool {
    program.segments.iter().map(|(_, s)| s.len).sum::<usize>() >= MANY
}

/// Splits Adam's update of a large network.
pub(super) fn update_by_layers(program: &mut Program, real: Real) {
    // A loss that is scaled is looked at before anything changes.
    if real == Real::F16 {
        return;
    }
    let Some(update) = sole_update(program) else { return };
    if !is_large(program) {
        return;
    }
    let Some(ready) = ready(program, update) else { return };
    let parts = parts(program, &ready);
    carry_out(program, update, &parts);
}

/// The operation after which each segment can be updated; nothing where somebody else needs a gradient.
fn ready(program: &Program, update: usize) -> Option<Vec<usize>> {
    let readers = Readers::of(program, &program.ops[update]);
    let makers = writers(program, update)?;
    let of = |(of, (_, segment)): (&Vec<usize>, &(ParamId, Segment))| Some(readers.last_of(*segment).max(*of.last()?));
    makers.iter().zip(&program.segments).map(of).collect()
}

/// What is updated together: whole layers, from the last one on, because the way back makes its gradients first.
fn parts(program: &Program, ready: &[usize]) -> Vec<Part> {
    let layer = |number: usize| program.value(program.params[program.segments[number].0.0 as usize].value).layer;
    let mut parts: Vec<Part> = Vec::new();
    let (mut held, mut end) = (0, ready.len());
    while end > 0 {
        let start = (0..end).rev().take_while(|number| layer(*number) == layer(end - 1)).last().unwrap_or(end - 1);
        let len: usize = program.segments[start..end].iter().map(|(_, s)| s.len).sum();
        let after = ready[start..end].iter().copied().max().unwrap_or_default();
        match parts.last_mut().filter(|_| held < TOGETHER && len < TOGETHER) {
            Some(part) => {
                *part = Part { segments: start..part.segments.end, after: part.after.max(after) };
                held += len;
            }
            None => {
                parts.push(Part { segments: start..end, after });
                held = len;
            }
        }
        end = start;
    }
    parts
}

fn carry_out(program: &mut Program, at: usize, parts: &[Part]) {
    let update = program.ops[at].clone();
    let mut steps: Vec<(usize, Op)> = Vec::new();
    for part in parts {
        let step = part_of(program, &update, &part.segments);
        steps.push((part.after, step));
    }
    steps.sort_by_key(|s| s.0);
    place(program, steps, |index, _| index == at);
}

/// The update of some neighbouring segments, whose gradients get memory of their own.
fn part_of(program: &mut Program, update: &Op, segments: &Range<usize>) -> Op {
    let OpKind::AdamStep(ops::AdamStep { beta1, beta2, eps, decoupled, .. }) = update.kind else {
        return update.clone();
    };
    let of: Vec<(ParamId, Segment)> = program.segments[segments.clone()].to_vec();
    let start = of.first().map_or(0, |(_, s)| s.start);
    let end = of.last().map_or(0, |(_, s)| (s.start + s.len).next_multiple_of(FLAT_ALIGN));
    let own = of.iter().map(|(_, s)| Segment { start: s.start - start, len: s.len }).collect();
    let kind = OpKind::AdamStep(ops::AdamStep { len: end - start, segments: own, beta1, beta2, eps, decoupled });
    let mut part = Op { args: vec![None; kind.slots().len()], kind, ..update.clone() };
    let value_of = |param: &ParamId| program.value(program.params[param.0 as usize].value);
    let layer = of.first().and_then(|(param, _)| value_of(param).layer);
    part.layer = layer.filter(|layer| of.iter().all(|(param, _)| value_of(param).layer == Some(*layer)));
    for slot in ["hyper", "corr"] {
        if let Some(value) = update.arg(slot) {
            set(&mut part, slot, value);
        }
    }
    // A stretch of each vector: of elements, or of numbers for each segment.
    let elements =
        ["param_prev", "m_prev", "v_prev", "param", "m", "v", "shadow"].map(|slot| (slot, start, end - start));
    let numbers = ["update_max", "grad_norm_seg"].map(|slot| (slot, segments.start, segments.len()));
    for (slot, from, len) in elements.into_iter().chain(numbers) {
        let Some(whole) = update.arg(slot) else { continue };
        let (root, first) = program.root(whole);
        let (name, value) = (format!("{}.{}", program.value(whole).name, segments.start), program.value(root).clone());
        let alias = Some(Alias { of: root, start: first + from });
        // What consists of parts that are written one by one has parameters' names on them.
        let param = if slot == "update_max" || slot == "grad_norm_seg" { of.first().map(|o| o.0) } else { value.param };
        let made = push(program, LValue { name, alias, param, shape: Shape::from([len]), ..value });
        set(&mut part, slot, made);
    }
    if let Some(flat) = update.arg("grad") {
        let root = program.root(flat).0;
        let value = program.value(root).clone();
        let name = format!("{}.{}", value.name, segments.start);
        let moved = push(program, LValue { name, role: Role::Grad, shape: Shape::from([end - start]), ..value });
        for value in &mut program.values {
            if let Some(alias) = value.alias.as_mut().filter(|a| a.of == root && (start..end).contains(&a.start)) {
                *alias = Alias { of: moved, start: alias.start - start };
            }
        }
        set(&mut part, "grad", moved);
    }
    part
}

#[cfg(test)]
mod tests {
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, Op, OpKind, Program, lower_for, verify};
    use crate::model::{check, read_preset};
    use crate::select::cuda::{Real, adapt};
    use crate::select::fuse;
    use crate::tensor::DType;

    fn adapted(wide: usize, real: Real) -> Program {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": 64}}, "layers": [
            {{"type": "dense", "units": 128, "activation": "relu"}}, {{"type": "dense", "units": {wide}}},
            {{"type": "dense", "units": 2048}}, {{"type": "dense", "units": 64}}, {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.001}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let program = lower_for(&build(&model, Mode::Train, Metrics::default(), DType::F32), &model, FilterOrder::Ohwi);
        let program = adapt(&fuse(&program), real);
        assert_eq!(verify(&program), Ok(()));
        program
    }

    /// The updates, by position, with the segments that each has.
    fn updates(program: &Program) -> Vec<(usize, usize)> {
        let of = |(at, op): (usize, &Op)| match &op.kind {
            OpKind::AdamStep(ops::AdamStep { segments, .. }) => Some((at, segments.len())),
            _ => None,
        };
        program.ops.iter().enumerate().filter_map(of).collect()
    }

    #[test]
    fn gradients_of_a_large_network_share_memory() {
        for real in [Real::F32, Real::Bf16] {
            let program = adapted(8192, real);
            let found = updates(&program);
            // The last two layers, the one of 17 million parameters, the first two.
            assert_eq!(found.iter().map(|u| u.1).collect::<Vec<_>>(), [4, 2, 4]);
            let grads = |op: &Op| op.arg("grad").map(|id| program.value(program.root(id).0).shape.len());
            assert_eq!(program.ops.iter().filter_map(grads).sum::<usize>(), program.flat_len());
            // No update stands before the last reader of what it changes, nor before the counters.
            let counters = program.ops.iter().rposition(|op| matches!(op.kind, OpKind::BiasCorr { .. })).unwrap();
            for &(at, _) in &found {
                assert!(counters < at);
                for slot in ["param", "shadow"] {
                    let Some(id) = program.ops[at].arg(slot) else { continue };
                    let ((root, start), len) = (program.root(id), program.value(id).shape.len());
                    let later = program.ops[at + 1..].iter().filter(|op| op.kind.slot("param_prev").is_none());
                    for read in later.flat_map(Op::reads) {
                        let (of, first) = program.root(read);
                        assert!(of != root || first + program.value(read).shape.len() <= start || start + len <= first);
                    }
                }
            }
        }
    }

    #[test]
    fn smaller_networks_and_scaled_losses_have_one_update() {
        assert_eq!(updates(&adapted(512, Real::F32)).len(), 1);
        assert_eq!(updates(&adapted(8192, Real::F16)).len(), 1);
    }
}
