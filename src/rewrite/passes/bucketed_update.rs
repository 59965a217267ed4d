//! Updates large networks some layers at a time.
//!
//! One update of all parameters at the end of a step is one launch, but until then all gradients live, with as many
//! bytes as the parameters. If that is much, a few megabytes of parameters are updated as soon as their gradients are
//! computed and the last reader of the parameters is done, so that gradients of different layers share memory.

use crate::ir::Role;
use crate::lower::{Alias, FLAT_ALIGN, LValue, LValueId, Op, Program};
use crate::model::ParamId;
use crate::ops::{self, OpKind, Segment};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like, set};
use crate::rewrite::updates::{ParamReaders, Update, gradient_writers, is_large, place, sole_update};
use crate::tensor::Shape;
use std::ops::Range;

/// The smallest number of parameters that are updated together, unless there are fewer.
const TOGETHER: usize = 1 << 21;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let program = rw.program();
    let Some(at) = sole_update(program).filter(|_| is_large(program)) else { return };
    // Gradients that survive the step keep their memory.
    if program.ops[at].arg("grad").is_none_or(|grad| program.value(program.root(grad).0).persistent) {
        return;
    }
    let Some(ready) = ready(program, at) else { return };
    let buckets = buckets(program, &ready);
    let whole = rw.op(at).clone();
    let mut updates: Vec<Update> = Vec::new();
    for bucket in buckets {
        let op = update_of(rw, &whole, &bucket.segments);
        updates.push(Update { ready: bucket.after, op, from: vec![at] });
    }
    updates.sort_by_key(|u| u.ready);
    rw.remove(at);
    place(rw, updates);
}

/// Neighbouring segments that are updated together.
struct Bucket {
    segments: Range<usize>,
    /// The operation that the update follows.
    after: usize,
}

/// The operation after which each segment can be updated; `None` if another operation needs a gradient.
fn ready(program: &Program, update: usize) -> Option<Vec<usize>> {
    let readers = ParamReaders::of(program, &program.ops[update]);
    let writers = gradient_writers(program, update)?;
    let of = |(of, (_, segment)): (&Vec<usize>, &(ParamId, Segment))| Some(readers.last_of(*segment).max(*of.last()?));
    writers.iter().zip(&program.segments).map(of).collect()
}

/// The buckets of the update: whole layers, from the last one on, because the backward pass computes its gradients
/// first.
fn buckets(program: &Program, ready: &[usize]) -> Vec<Bucket> {
    let layer = |number: usize| program.value(program.params[program.segments[number].0.0 as usize].value).layer;
    let mut buckets: Vec<Bucket> = Vec::new();
    let (mut held, mut end) = (0, ready.len());
    while end > 0 {
        let start = (0..end).rev().take_while(|number| layer(*number) == layer(end - 1)).last().unwrap_or(end - 1);
        let len: usize = program.segments[start..end].iter().map(|(_, s)| s.len).sum();
        let after = ready[start..end].iter().copied().max().unwrap_or_default();
        match buckets.last_mut().filter(|_| held < TOGETHER && len < TOGETHER) {
            Some(bucket) => {
                *bucket = Bucket { segments: start..bucket.segments.end, after: bucket.after.max(after) };
                held += len;
            }
            None => {
                buckets.push(Bucket { segments: start..end, after });
                held = len;
            }
        }
        end = start;
    }
    buckets
}

/// The update of some neighbouring segments, whose gradients get separate memory.
fn update_of(rw: &mut Rewriter, whole: &Op, segments: &Range<usize>) -> Op {
    let OpKind::AdamStep(ops::AdamStep { beta1, beta2, eps, decoupled, .. }) = whole.kind else {
        return whole.clone();
    };
    let of: Vec<(ParamId, Segment)> = rw.program().segments[segments.clone()].to_vec();
    let start = of.first().map_or(0, |(_, s)| s.start);
    let end = of.last().map_or(0, |(_, s)| (s.start + s.len).next_multiple_of(FLAT_ALIGN));
    let own = of.iter().map(|(_, s)| Segment { start: s.start - start, len: s.len }).collect();
    let (len, options) = (end - start, ops::StepOptions::default());
    let kind = OpKind::AdamStep(ops::AdamStep { len, segments: own, beta1, beta2, eps, decoupled, options });
    let shared = ["hyper", "corr"].map(|slot| (slot, whole.arg(slot)));
    let mut op = Op { fused: whole.fused.clone(), ..made_like(whole, kind, &shared) };
    let layer_of = |param: &ParamId| rw.program().value(rw.program().params[param.0 as usize].value).layer;
    let layer = of.first().and_then(|(param, _)| layer_of(param));
    op.layer = layer.filter(|layer| of.iter().all(|(param, _)| layer_of(param) == Some(*layer)));
    // A range of each vector: of elements, or of numbers for each segment.
    let elements =
        ["param_prev", "m_prev", "v_prev", "param", "m", "v", "shadow"].map(|slot| (slot, start, end - start, None));
    let param = of.first().map(|o| o.0);
    let numbers = ["update_max", "grad_norm_seg"].map(|slot| (slot, segments.start, segments.len(), param));
    for (slot, from, len, param) in elements.into_iter().chain(numbers) {
        if let Some(vector) = whole.arg(slot) {
            let stretch = stretch(rw, vector, (from, len), segments.start, param);
            set(&mut op, slot, stretch);
        }
    }
    if let Some(flat) = whole.arg("grad") {
        let moved = moved_gradients(rw, flat, start..end, segments.start);
        set(&mut op, "grad", moved);
    }
    op
}

/// A range `(from, len)` of a vector. A vector whose parts are written one by one is named after a parameter there.
fn stretch(
    rw: &mut Rewriter,
    vector: LValueId,
    (from, len): (usize, usize),
    number: usize,
    param: Option<ParamId>,
) -> LValueId {
    let program = rw.program();
    let (root, first) = program.root(vector);
    let (name, value) = (format!("{}.{number}", program.value(vector).name), program.value(root).clone());
    let alias = Some(Alias { of: root, start: first + from });
    rw.push(LValue { name, alias, param: param.or(value.param), shape: Shape::from([len]), ..value })
}

/// A separate vector for the gradients that are at `place` in the vector of all gradients.
fn moved_gradients(rw: &mut Rewriter, flat: LValueId, place: Range<usize>, number: usize) -> LValueId {
    let root = rw.program().root(flat).0;
    let value = rw.program().value(root).clone();
    let (name, shape) = (format!("{}.{number}", value.name), Shape::from([place.len()]));
    let moved = rw.push(LValue { name, role: Role::Grad, shape, ..value });
    for id in (0..rw.program().values.len() as u32).map(LValueId) {
        let alias = rw.program().value(id).alias;
        if let Some(alias) = alias.filter(|a| a.of == root && place.contains(&a.start)) {
            rw.value_mut(id).alias = Some(Alias { of: moved, start: alias.start - place.start });
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{classifier, on_gpu};

    fn rewritten(wide: usize, precision: Precision) -> Program {
        let layers = format!(
            r#"{{"type": "dense", "units": 128, "activation": "relu"}}, {{"type": "dense", "units": {wide}}},
            {{"type": "dense", "units": 2048}}, {{"type": "dense", "units": 64}}"#
        );
        on_gpu(&classifier(&layers, "adam"), precision)
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
        for precision in [Precision::F32, Precision::Bf16] {
            let program = rewritten(8192, precision);
            let found = updates(&program);
            // The last two layers, the layer with 17 million parameters, the first two.
            assert_eq!(found.iter().map(|u| u.1).collect::<Vec<_>>(), [4, 2, 4]);
            let grads = |op: &Op| op.arg("grad").map(|id| program.value(program.root(id).0).shape.len());
            assert_eq!(program.ops.iter().filter_map(grads).sum::<usize>(), program.flat_len());
            // No update is before the last reader of its parameters, or before the counters.
            let counters = program.ops.iter().rposition(|op| matches!(op.kind, OpKind::BiasCorr(_))).unwrap();
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
        assert_eq!(updates(&rewritten(512, Precision::F32)).len(), 1);
        assert_eq!(updates(&rewritten(8192, Precision::F16)).len(), 1);
    }
}
