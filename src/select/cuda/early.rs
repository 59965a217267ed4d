//! Adam's updates before the end of the step.
//!
//! One update of all parameters at the end of a step is one launch, but it waits for everything, and all gradients live until then.
//!
//! - The smallest networks' step waits longer for the launch of an optimizer than for its arithmetic. Where a weight's or a bias's gradient is a single small
//!   product or sum, the update rides on it: the gradient stays in registers, moments and parameter are fetched while the product is under way, and no
//!   gradient takes memory.
//! - Networks of dense layers that are larger update each layer beside the products of the layers in front of it, which leave most of the machine
//!   idle; on the last products of the way back, which nothing runs beside, updates ride.
//! - Networks of many parameters update what a few megabytes of gradients belong to as soon as these are there: gradients of different layers share memory.
//!
//! An update waits until the last reader of its parameters is done.

use super::Real;
use super::adapt::{push, set};
use super::parts::{Aliases, Readers, part_of, step_of};
use crate::ir::{Phase, Role};
use crate::lower::{Alias, Epilogue, LValue, LValueId, Layout, Op, OpKind, Program, Segment, Trans};
use crate::tensor::{DType, Shape};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Multiplications of a product at most that an update rides on: what one launch without a split reduction does well.
const SMALL: usize = 1 << 26;
/// Rows that a bias's gradient sums at most.
const ROWS: usize = 1024;
/// Parameters up to which all updates ride: between 10 thousand, where 1.2 of 9.1 us are saved on an H200, and 670 thousand, where 1 of 25 us is lost.
const RIDING: usize = 1 << 16;
/// Parameters up to which updates of layers run beside products.
const BESIDE: usize = 1 << 22;
/// Parameters from which gradients are worth their memory, and how many are updated together then.
const MANY: usize = 1 << 24;
const TOGETHER: usize = 1 << 21;

/// Splits the update at the end of the step, where that is worth it.
pub(super) fn step_early(program: &mut Program, real: Real) {
    let Some(plan) = Plan::of(program, real) else { return };
    plan.carry_out(program, real);
}

/// An update of neighbouring segments by itself.
struct Part {
    segments: Range<usize>,
    /// The operation that it follows.
    after: usize,
}

/// What becomes of the update.
struct Plan {
    /// The optimizer's operation.
    update: usize,
    /// For each segment, the operation that makes its gradient and on which its update rides, with the one that it follows.
    riding: Vec<Option<(usize, usize)>>,
    /// Updates of the other segments.
    parts: Vec<Part>,
}

impl Plan {
    /// Nothing where a gradient is needed by somebody else, or has to be looked at before anything changes, as with a loss that is scaled.
    fn of(program: &Program, real: Real) -> Option<Self> {
        if real == Real::F16 {
            return None;
        }
        let is_update = |op: &Op| matches!(op.kind, OpKind::AdamStep { .. });
        let mut updates = program.ops.iter().enumerate().filter(|(_, op)| is_update(op)).map(|(i, _)| i);
        let (update, None) = (updates.next()?, updates.next()) else { return None };
        let total: usize = program.segments.iter().map(|(_, s)| s.len).sum();
        let grads = program.root(program.ops[update].arg("grad")?).0;
        let touches = |id: LValueId| program.root(id).0 == grads;
        let read_by_others = program.ops.iter().enumerate().any(|(i, op)| i != update && op.reads().any(touches));
        if total == 0 || read_by_others {
            return None;
        }
        // Whatever else the way back consists of would wait for updates that follow the products one by one.
        let others =
            |op: &Op| op.phase == Phase::Backward && !matches!(op.kind, OpKind::Gemm(_) | OpKind::BiasGrad { .. });
        let dense = !program.ops.iter().any(others);
        let mut writers: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, op) in program.ops.iter().enumerate() {
            for written in op.writes().filter(|w| touches(*w)) {
                writers.entry(program.root(written).1).or_default().push(index);
            }
        }
        let readers = Readers::of(program, &program.ops[update]);
        // For each segment, who makes its gradient, and the operation after which it can be updated.
        let mut made = Vec::with_capacity(program.segments.len());
        for (param, segment) in &program.segments {
            let grad = program.params[param.0 as usize].grad?;
            let [maker] = writers.get(&program.root(grad).1)?[..] else { return None };
            made.push((maker, readers.last_of(*segment).max(maker)));
        }
        let all_fit = made.iter().all(|m| fits(&program.ops[m.0].kind));
        match total {
            ..=RIDING if dense && all_fit => {
                Some(Self { update, riding: made.into_iter().map(Some).collect(), parts: Vec::new() })
            }
            ..=BESIDE if dense && total > RIDING => Some(Self::beside(program, update, &made)),
            MANY.. => Some(Self::by_size(program, update, &made)),
            _ => None,
        }
    }

    /// Updates beside the products of the layers in front; at the end of the way back they ride where they can.
    fn beside(program: &Program, update: usize, made: &[(usize, usize)]) -> Self {
        let is_chain =
            |op: &Op| op.phase == Phase::Backward && matches!(op.kind, OpKind::Gemm(g) if g.trans == Trans::Nt);
        let chain: Vec<usize> = (0..program.ops.len()).filter(|at| is_chain(&program.ops[*at])).collect();
        let end = made.iter().map(|m| m.1).max().unwrap_or(update);
        let mut riding = vec![None; made.len()];
        let mut parts: Vec<Part> = Vec::new();
        for (number, &(maker, ready)) in made.iter().enumerate() {
            // Behind the next link of the chain, so that it does not stand between this one and what runs beside it.
            let link = chain.iter().copied().find(|link| *link >= ready);
            if link.is_none() && fits(&program.ops[maker].kind) {
                riding[number] = Some((maker, ready));
                continue;
            }
            let after = link.unwrap_or(end);
            match parts.last_mut().filter(|p| p.after == after && p.segments.end == number) {
                Some(part) => part.segments.end += 1,
                None => parts.push(Part { segments: number..number + 1, after }),
            }
        }
        Self { update, riding, parts }
    }

    /// An update for every few megabytes of gradients.
    fn by_size(program: &Program, update: usize, made: &[(usize, usize)]) -> Self {
        let layer = |number: usize| program.value(program.params[program.segments[number].0.0 as usize].value).layer;
        let mut parts: Vec<Part> = Vec::new();
        let (mut held, mut end) = (0, made.len());
        // The way back makes the gradients of the last layers first.
        while end > 0 {
            let start = (0..end).rev().take_while(|number| layer(*number) == layer(end - 1)).last().unwrap_or(end - 1);
            let len: usize = program.segments[start..end].iter().map(|(_, s)| s.len).sum();
            let ready = made[start..end].iter().map(|m| m.1).max().unwrap_or(update);
            match parts.last_mut().filter(|_| held < TOGETHER && len < TOGETHER) {
                Some(part) => {
                    part.segments.start = start;
                    part.after = part.after.max(ready);
                    held += len;
                }
                None => {
                    parts.push(Part { segments: start..end, after: ready });
                    held = len;
                }
            }
            end = start;
        }
        Self { update, riding: vec![None; made.len()], parts }
    }

    fn carry_out(&self, program: &mut Program, real: Real) {
        let update = program.ops[self.update].clone();
        let metrics = program.ops.iter().position(|op| {
            matches!(op.kind, OpKind::UpdateMetrics { .. }) && op.arg("update_max_seg") == update.arg("update_max")
        });
        let metrics = metrics.map(|at| program.ops[at].clone());
        let measured = update.arg("update_max").is_some() || update.arg("grad_sq").is_some();
        let mut aliases = Aliases::of(program);
        // Each update with the operation that it follows and a number that orders those who follow the same.
        let mut steps: Vec<(usize, usize, Op)> = Vec::new();
        let mut made: HashSet<usize> = HashSet::new();
        let mut riding: Vec<(usize, Op)> = Vec::new();
        for (number, ride) in self.riding.iter().enumerate() {
            let Some((maker, ready)) = *ride else { continue };
            let (param, segment) = program.segments[number];
            let step = step_of(program, &mut aliases, &update, maker, (param, segment), real);
            program.params[param.0 as usize].grad = None;
            made.insert(maker);
            steps.push((ready, maker, step.clone()));
            riding.push((number, step));
        }
        let mut parts: Vec<(Range<usize>, Op)> = Vec::new();
        for part in &self.parts {
            parts.push((part.segments.clone(), part_of(program, &update, &part.segments)));
        }
        let mut closing = None;
        if measured {
            closing = Some(measure(program, &update, metrics.as_ref(), &mut riding, &mut parts));
        }
        for ((_, maker, step), (_, measured)) in steps.iter_mut().zip(riding) {
            debug_assert!(made.contains(maker));
            *step = measured;
        }
        steps.extend(self.parts.iter().zip(parts).map(|(part, (_, op))| (part.after, usize::MAX, op)));
        // Counters go behind whatever reads their old values, and before everything that reads the new ones; scheduling finds them company.
        let is_counter = |op: &Op| matches!(op.kind, OpKind::StepInc | OpKind::BiasCorr { .. });
        let counted = program.ops.iter().rposition(|op| !is_counter(op) && op.arg("counter").is_some());
        let front = steps.iter().map(|s| s.0).min().unwrap_or(0).max(counted.map_or(0, |at| at + 1));
        steps.sort_by_key(|s| (s.0, s.1));
        let mut steps = steps.into_iter().peekable();
        let mut ops = Vec::with_capacity(program.ops.len());
        for (index, op) in program.ops.iter().enumerate() {
            if index == front {
                ops.extend(program.ops.iter().filter(|op| is_counter(op)).cloned());
            }
            let gone = index == self.update
                || is_counter(op)
                || made.contains(&index)
                || metrics.is_some() && matches!(op.kind, OpKind::UpdateMetrics { .. });
            if !gone {
                ops.push(op.clone());
            }
            while let Some((_, _, step)) = steps.next_if(|s| s.0 == index) {
                ops.push(step);
            }
        }
        ops.extend(closing);
        program.ops = ops;
    }
}

/// Whether an update can ride on what makes a gradient.
fn fits(maker: &OpKind) -> bool {
    match maker {
        OpKind::Gemm(g) => {
            let plain = g.trans == Trans::Tn && !g.accumulate && g.epilogue == Epilogue::default();
            plain && g.m.saturating_mul(g.n).saturating_mul(g.k) <= SMALL
        }
        OpKind::BiasGrad { rows, accumulate, .. } => !accumulate && *rows <= ROWS,
        _ => false,
    }
}

/// Gives every update that rides its stretch of a vector of parts, and every other one its numbers for each segment; the operation that sums them up.
fn measure(
    program: &mut Program,
    update: &Op,
    metrics: Option<&Op>,
    riding: &mut [(usize, Op)],
    alone: &mut [(Range<usize>, Op)],
) -> Op {
    let count = program.segments.len();
    let mut segments = vec![Segment { start: 0, len: 0 }; count];
    let mut total = 0;
    for (number, step) in riding.iter() {
        let len = step.kind.step_parts();
        segments[*number] = Segment { start: total, len };
        total += len;
    }
    // The others are counted: their numbers stand one behind the other.
    let apart = (0..count).filter(|number| segments[*number].len == 0).collect::<Vec<_>>();
    for (place, number) in apart.iter().enumerate() {
        segments[*number].start = place;
    }
    let blank = LValue {
        name: "update_parts".into(),
        role: Role::Metric,
        dtype: DType::F32,
        shape: Shape::from([2 * total]),
        layout: Layout::Plain,
        alias: None,
        persistent: false,
        layer: None,
        pass: 0,
        param: None,
    };
    let kind = OpKind::StepMetrics { segments: segments.clone() };
    let mut closing =
        Op { args: vec![None; kind.slots().len()], kind, fused: vec![update.kind.name().to_owned()], ..update.clone() };
    if total > 0 {
        let parts = push(program, blank.clone());
        for (number, step) in riding.iter_mut() {
            let (param, segment) = (program.segments[*number].0, segments[*number]);
            let of = program.value(program.params[param.0 as usize].value).name.clone();
            let value = LValue {
                name: format!("update_parts.{of}"),
                param: Some(param),
                alias: Some(Alias { of: parts, start: 2 * segment.start }),
                shape: Shape::from([2 * segment.len]),
                layer: step.layer,
                ..blank.clone()
            };
            let value = push(program, value);
            set(step, "parts", value);
        }
        set(&mut closing, "parts", parts);
    }
    for (slot, all) in [("update_max", "update_max_part"), ("grad_sq", "grad_sq_part")] {
        if alone.is_empty() || update.arg(slot).is_none() {
            continue;
        }
        let whole = push(program, LValue { name: all.into(), shape: Shape::from([apart.len()]), ..blank.clone() });
        for (range, op) in alone.iter_mut() {
            let alias = Some(Alias { of: whole, start: segments[range.start].start });
            let (name, shape) = (format!("{all}.{}", range.start), Shape::from([range.len()]));
            let param = Some(program.segments[range.start].0);
            let value = push(program, LValue { name, alias, shape, param, ..blank.clone() });
            set(op, slot, value);
        }
        set(&mut closing, all, whole);
    }
    let mut pass_on = |from: &Op, slot: &str, to: &str| {
        if let Some(value) = from.arg(slot) {
            set(&mut closing, to, value);
        }
    };
    pass_on(update, "update_max", "update_max_seg");
    pass_on(update, "grad_sq", "grad_sq_seg");
    if let Some(metrics) = metrics {
        pass_on(metrics, "update_max", "update_max");
        pass_on(metrics, "grad_norm", "grad_norm");
        closing.fused.push(metrics.kind.name().to_owned());
        closing.nodes.extend(metrics.nodes.iter().copied());
    }
    closing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for, verify};
    use crate::model::{check, read_preset};
    use crate::select::fuse;

    const DROPOUT: &str = r#", {"type": "dropout", "rate": 0.5}"#;

    fn adapted(units: usize, between: &str, optimizer: &str, real: Real, metrics: Metrics) -> Program {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": 64}}, "layers": [
            {{"type": "dense", "units": {units}, "activation": "relu"}}{between}, {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "{optimizer}", "lr": 0.001}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let program = lower_for(&build(&model, Mode::Train, metrics, DType::F32), &model, FilterOrder::Ohwi);
        let program = super::super::adapt(&fuse(&program), real);
        assert_eq!(verify(&program), Ok(()));
        program
    }

    fn names(program: &Program) -> Vec<&'static str> {
        program.ops.iter().map(|op| op.kind.name()).collect()
    }

    #[test]
    fn a_small_network_of_dense_layers_is_updated_where_its_gradients_are_made() {
        for real in [Real::F32, Real::Tf32, Real::Bf16] {
            let program = adapted(128, "", "adamw", real, Metrics::default());
            let names = names(&program);
            assert_eq!(names.iter().filter(|n| n.ends_with("_adam")).count(), 4, "{names:?}");
            assert!(!names.contains(&"adam_step") && names.last() == Some(&"step_metrics"), "{names:?}");
            // Each update waits for the last reader of its parameter, and the counters come before all of them.
            let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
            assert!(at("dense_ce") < at("gemm_tn_adam") && at("bias_corr") < at("reduce_sum_adam"), "{names:?}");
            assert!(program.params.iter().all(|p| p.grad.is_none()));
        }
    }

    #[test]
    fn other_networks_keep_their_optimizer() {
        let kept = [
            adapted(2048, DROPOUT, "adam", Real::F32, Metrics::default()),
            adapted(128, "", "sgd", Real::F32, Metrics::default()),
            adapted(128, "", "adam", Real::F16, Metrics::default()),
            adapted(128, DROPOUT, "adam", Real::F32, Metrics::default()),
        ];
        for program in kept {
            let names = names(&program);
            assert!(!names.iter().any(|n| n.ends_with("_adam")), "{names:?}");
            assert!(program.params.iter().all(|p| p.grad.is_some()));
        }
    }

    #[test]
    fn what_nobody_asks_for_is_not_measured() {
        let none = Metrics { updates: false, ..Metrics::default() };
        for layers in ["", WIDE, HUGE] {
            let program = adapted(128, layers, "adam", Real::F32, none);
            let measured = |op: &&Op| op.arg("parts").is_some() || op.arg("update_max").is_some();
            assert_eq!(program.ops.iter().filter(measured).count(), 0, "{:?}", names(&program));
            assert!(!names(&program).contains(&"step_metrics"));
        }
    }

    const WIDE: &str = r#", {"type": "dense", "units": 128}, {"type": "dense", "units": 128}, {"type": "dense", "units": 128},
        {"type": "dense", "units": 256, "activation": "relu"}, {"type": "dense", "units": 256, "activation": "relu"}"#;
    const HUGE: &str =
        r#", {"type": "dense", "units": 8192}, {"type": "dense", "units": 2048}, {"type": "dense", "units": 64}"#;

    /// The segments that updates by themselves have, in the order of the operations.
    fn alone(program: &Program) -> Vec<usize> {
        let of = |op: &Op| if let OpKind::AdamStep { segments, .. } = &op.kind { Some(segments.len()) } else { None };
        program.ops.iter().filter_map(of).collect()
    }

    #[test]
    fn layers_of_a_larger_network_are_updated_beside_the_products_in_front_of_them() {
        let program = adapted(128, WIDE, "adamw", Real::Tf32, Metrics::default());
        let names = names(&program);
        // Six layers behind the first one: the last two follow the same link of the chain.
        assert_eq!(alone(&program), [4, 2, 2, 2, 2], "{names:?}");
        assert_eq!(names.iter().filter(|n| n.ends_with("_adam")).count(), 2, "{names:?}");
        let last = |name: &str| names.iter().rposition(|n| *n == name).unwrap();
        assert!(last("adam_step") < last("gemm_tn_adam") && last("gemm_tn_adam") < last("step_metrics"), "{names:?}");
        // No update stands before the last reader of what it changes.
        for (index, op) in program.ops.iter().enumerate().filter(|(_, op)| op.kind.name() == "adam_step") {
            let (root, start) = program.root(op.arg("param").unwrap());
            let end = start + program.value(op.arg("param").unwrap()).shape.len();
            let later = program.ops[index + 1..].iter().filter(|op| op.kind.slot("param_prev").is_none());
            for read in later.flat_map(Op::reads) {
                let (of, at) = program.root(read);
                assert!(of != root || at + program.value(read).shape.len() <= start || end <= at);
            }
        }
    }

    #[test]
    fn gradients_of_a_huge_network_share_memory() {
        let program = adapted(128, HUGE, "adam", Real::Bf16, Metrics::default());
        assert_eq!(alone(&program), [4, 2, 4], "{:?}", names(&program));
        let grads = |op: &Op| op.arg("grad").map(|id| program.value(program.root(id).0).shape.len());
        let sizes: Vec<usize> = program.ops.iter().filter_map(grads).collect();
        assert_eq!(sizes.iter().sum::<usize>(), program.flat_len(), "{sizes:?}");
    }
}
