//! Parameters that are updated where their gradient is made.
//!
//! A small network's step waits longer for the launch of an optimizer than for its arithmetic. Where all trained parameters are weights and biases of
//! dense layers whose gradients are single small products and sums, the update rides on these: the gradient stays in registers, moments and parameter are
//! fetched before the gradient of the layer behind is there, and no gradient takes memory. An update waits until the last reader of its parameter is done. Of
//! larger networks the optimizer's own pass is the faster one: it moves memory twice as fast as the ends of products do.

use super::Real;
use super::adapt::{push, set};
use super::gemm::ALONE_TILE;
use crate::ir::{Phase, Role};
use crate::lower::{Alias, Epilogue, LValue, LValueId, Layout, Op, OpKind, Program, Segment, Trans};
use crate::model::ParamId;
use crate::ops;
use crate::tensor::{DType, Shape};
use std::collections::{HashMap, HashSet};

/// Multiplications of a product at most: what one launch without a split reduction does well.
const SMALL: usize = 1 << 26;
/// Rows that a bias's gradient sums at most.
const ROWS: usize = 1024;
/// Parameters at most, and where products reduce over many rows: on an H200, batches of 64 and 128 gain 10 to 25 % up to 920 thousand parameters, one of 512
/// loses 7 %.
const PARAMETERS: usize = 1 << 20;
const PARAMETERS_OF_MANY: usize = 1 << 16;
const MANY_ROWS: usize = 128;

/// Moves Adam's steps into the operations that make the gradients, where that can be done for every parameter.
pub(super) fn step_early(program: &mut Program, real: Real) {
    let Some(plan) = Plan::of(program, real) else { return };
    plan.carry_out(program, real);
}

/// What is to be merged.
struct Plan {
    /// The optimizer's operation.
    update: usize,
    /// The operation that makes the gradient of each segment.
    makers: Vec<usize>,
}

impl Plan {
    /// Nothing where one parameter's gradient is made in another way, is needed by somebody else, or has to be looked at before anything changes, as
    /// with a loss that is scaled.
    fn of(program: &Program, real: Real) -> Option<Self> {
        if real == Real::F16 {
            return None;
        }
        let update = sole_update(program)?;
        let total: usize = program.segments.iter().map(|(_, s)| s.len).sum();
        if total == 0 || total > PARAMETERS {
            return None;
        }
        // Whatever else the way back consists of would wait for updates that now follow the products one by one.
        let small = |kind: &OpKind| {
            let elements = matches!(kind, OpKind::DropoutBwd { .. } | OpKind::ActBwd { .. });
            elements || matches!(kind, OpKind::Gemm(_) | OpKind::BiasGrad { .. })
        };
        if program.ops.iter().any(|op| op.phase == Phase::Backward && !small(&op.kind)) {
            return None;
        }
        let makers = writers(program, update)?.into_iter().map(|of| {
            let [index] = of[..] else { return None };
            let fits = match &program.ops[index].kind {
                OpKind::Gemm(g) => {
                    let plain = g.trans == Trans::Tn && !g.accumulate && g.epilogue == Epilogue::default();
                    let short = total <= PARAMETERS_OF_MANY || g.k <= MANY_ROWS;
                    plain && short && g.m.saturating_mul(g.n).saturating_mul(g.k) <= SMALL
                }
                OpKind::BiasGrad(ops::BiasGrad { rows, accumulate, .. }) => !accumulate && *rows <= ROWS,
                _ => false,
            };
            fits.then_some(index)
        });
        Some(Self { update, makers: makers.collect::<Option<_>>()? })
    }

    fn carry_out(&self, program: &mut Program, real: Real) {
        let update = program.ops[self.update].clone();
        let metrics = program.ops.iter().position(|op| {
            matches!(op.kind, OpKind::UpdateMetrics { .. }) && op.arg("update_max_seg") == update.arg("update_max")
        });
        let metrics = metrics.map(|at| program.ops[at].clone());
        let measured = update.arg("update_max").is_some() || update.arg("grad_norm_seg").is_some();
        let (mut aliases, readers) = (Aliases::of(program), Readers::of(program, &update));
        let mut steps: Vec<(usize, usize, Op)> = Vec::new();
        let last = program.segments.iter().map(|(_, segment)| readers.last_of(*segment)).max().unwrap_or(0);
        for (number, &maker) in self.makers.iter().enumerate() {
            let (param, segment) = program.segments[number];
            let step = step_of(program, &mut aliases, &update, maker, (param, segment), real);
            let ready = readers.last_of(segment).max(maker);
            program.params[param.0 as usize].grad = None;
            steps.push((ready, maker, step));
        }
        let tiles = |(ready, _, step): &(usize, usize, Op)| match step.kind {
            OpKind::WeightStep(ops::WeightStep { m, n, .. }) if *ready >= last => {
                m.div_ceil(ALONE_TILE[0]) * n.div_ceil(ALONE_TILE[1])
            }
            _ => 0,
        };
        let all = steps.iter().map(tiles).sum();
        for (ready, _, step) in &mut steps {
            if let OpKind::WeightStep(ops::WeightStep { together, .. }) = &mut step.kind
                && *ready >= last
            {
                *together = all;
            }
        }
        let mut closing = None;
        if measured {
            closing = Some(self.measure(program, &update, metrics.as_ref(), &mut steps));
        }
        steps.sort_by_key(|s| (s.0, s.1));
        let steps = steps.into_iter().map(|(ready, _, step)| (ready, step)).collect();
        let made: HashSet<usize> = self.makers.iter().copied().collect();
        place(program, steps, |index, op| {
            index == self.update
                || made.contains(&index)
                || metrics.is_some() && matches!(op.kind, OpKind::UpdateMetrics { .. })
        });
        program.ops.extend(closing);
    }

    /// Gives every step its stretch of a vector of parts; the operation that sums them up.
    fn measure(
        &self,
        program: &mut Program,
        update: &Op,
        metrics: Option<&Op>,
        steps: &mut [(usize, usize, Op)],
    ) -> Op {
        let mut segments = Vec::with_capacity(steps.len());
        let mut total = 0;
        for (_, _, step) in steps.iter() {
            let len = step.kind.step_parts();
            segments.push(Segment { start: total, len });
            total += len;
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
        let parts = push(program, blank.clone());
        let params: Vec<ParamId> = program.segments.iter().map(|(param, _)| *param).collect();
        for (((_, _, step), segment), param) in steps.iter_mut().zip(&segments).zip(params) {
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
        let kind = OpKind::StepMetrics(ops::StepMetrics { segments });
        let mut closing = Op {
            args: vec![None; kind.slots().len()],
            kind,
            fused: vec![update.kind.name().to_owned()],
            ..update.clone()
        };
        set(&mut closing, "parts", parts);
        let mut pass_on = |from: &Op, slot: &str, to: &str| {
            if let Some(value) = from.arg(slot) {
                set(&mut closing, to, value);
            }
        };
        pass_on(update, "update_max", "update_max_seg");
        pass_on(update, "grad_norm_seg", "grad_norm_seg");
        if let Some(metrics) = metrics {
            pass_on(metrics, "update_max", "update_max");
            pass_on(metrics, "grad_norm", "grad_norm");
            closing.fused.push(metrics.kind.name().to_owned());
            closing.nodes.extend(metrics.nodes.iter().copied());
        }
        closing
    }
}

/// The one update by Adam.
pub(super) fn sole_update(program: &Program) -> Option<usize> {
    let is_update = |at: &usize| matches!(program.ops[*at].kind, OpKind::AdamStep { .. });
    let mut updates = (0..program.ops.len()).filter(is_update);
    let update = updates.next()?;
    updates.next().is_none().then_some(update)
}

/// The operations that write the gradient of each segment, in order; nothing where one has none, or where another operation than the update reads one.
pub(super) fn writers(program: &Program, update: usize) -> Option<Vec<Vec<usize>>> {
    let grads = program.root(program.ops[update].arg("grad")?).0;
    let mut by_place: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, op) in program.ops.iter().enumerate() {
        if index != update && op.reads().any(|id| program.root(id).0 == grads) {
            return None;
        }
        for (root, place) in op.writes().map(|id| program.root(id)) {
            if root == grads {
                by_place.entry(place).or_default().push(index);
            }
        }
    }
    let of = |(param, _): &(ParamId, Segment)| {
        by_place.get(&program.root(program.params[param.0 as usize].grad?).1).cloned()
    };
    program.segments.iter().map(of).collect()
}

/// Puts each of `steps`, in the order of these, behind the operation that it follows, and takes out what is `gone`. Counters go behind whatever reads their
/// old values, and before everything that reads the new ones; scheduling finds them company.
pub(super) fn place(program: &mut Program, steps: Vec<(usize, Op)>, gone: impl Fn(usize, &Op) -> bool) {
    let is_counter = |op: &Op| matches!(op.kind, OpKind::StepInc | OpKind::BiasCorr { .. });
    let counted = program.ops.iter().rposition(|op| !is_counter(op) && op.arg("counter").is_some());
    let front = steps.first().map_or(0, |s| s.0).max(counted.map_or(0, |at| at + 1));
    let mut ops = Vec::with_capacity(program.ops.len() + steps.len());
    let mut steps = steps.into_iter().peekable();
    for (index, op) in program.ops.iter().enumerate() {
        if index == front {
            ops.extend(program.ops.iter().filter(|op| is_counter(op)).cloned());
        }
        if !is_counter(op) && !gone(index, op) {
            ops.push(op.clone());
        }
        while let Some((_, step)) = steps.next_if(|s| s.0 <= index && index >= front) {
            ops.push(step);
        }
    }
    program.ops = ops;
}

/// The operation that makes the gradient of a parameter and uses it up.
fn step_of(
    program: &mut Program,
    aliases: &mut Aliases,
    update: &Op,
    maker: usize,
    (param, segment): (ParamId, Segment),
    real: Real,
) -> Op {
    let maker = program.ops[maker].clone();
    let OpKind::AdamStep(ops::AdamStep { beta1, beta2, eps, decoupled, .. }) = update.kind else { return maker };
    let kind = match maker.kind {
        OpKind::Gemm(g) => {
            // The smallest tile of the kernels that are offered.
            let grain = if real == Real::F32 { 8 } else { 16 };
            OpKind::WeightStep(ops::WeightStep {
                m: g.m,
                n: g.n,
                k: g.k,
                grain,
                together: 0,
                beta1,
                beta2,
                eps,
                decoupled,
            })
        }
        OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => {
            OpKind::BiasStep(ops::BiasStep { rows, cols, beta1, beta2, eps, decoupled })
        }
        _ => return maker,
    };
    let mut step = Op {
        args: vec![None; kind.slots().len()],
        fused: vec![maker.kind.name().to_owned(), update.kind.name().to_owned()],
        nodes: maker.nodes.iter().chain(&update.nodes).copied().collect(),
        kind,
        ..maker.clone()
    };
    for (slot, from) in [("a", "a"), ("b", "b"), ("a", "dy")] {
        if let Some(value) = maker.arg(from) {
            set(&mut step, slot, value);
        }
    }
    for slot in ["hyper", "corr"] {
        if let Some(value) = update.arg(slot) {
            set(&mut step, slot, value);
        }
    }
    let shape = program.value(program.params[param.0 as usize].value).clone();
    for (before, after) in [("param_prev", "param"), ("m_prev", "m"), ("v_prev", "v"), ("", "shadow")] {
        let (old, new) = (update.arg(before), update.arg(after));
        if let Some(flat) = old {
            let value = aliases.part(program, flat, &shape, param, segment);
            set(&mut step, before, value);
        }
        if let Some(flat) = new {
            let of = program.root(flat).0;
            let before = aliases.part(program, of, &shape, param, segment);
            let value = aliases.renewed(program, before);
            set(&mut step, after, value);
        }
    }
    step
}

/// The values that lie in others, by where they begin.
struct Aliases(HashMap<(LValueId, usize), Vec<LValueId>>);

impl Aliases {
    fn of(program: &Program) -> Self {
        let mut out: HashMap<_, Vec<LValueId>> = HashMap::new();
        for (value, id) in program.values.iter().zip((0..).map(LValueId)) {
            if let Some(Alias { of, start }) = value.alias {
                out.entry((of, start)).or_default().push(id);
            }
        }
        Self(out)
    }

    /// A parameter's stretch of a flat vector, as it is before the step.
    fn part(
        &mut self,
        program: &mut Program,
        flat: LValueId,
        like: &LValue,
        param: ParamId,
        segment: Segment,
    ) -> LValueId {
        let there = self.0.entry((flat, segment.start)).or_default();
        if let Some(found) = there.iter().find(|id| program.value(**id).param == Some(param)) {
            return *found;
        }
        let LValue { name, role, dtype, .. } = program.value(flat).clone();
        let alias = Some(Alias { of: flat, start: segment.start });
        let made = push(program, LValue { name: format!("{name}.{}", like.name), role, dtype, alias, ..like.clone() });
        there.push(made);
        made
    }

    /// What a value becomes, in the same place.
    fn renewed(&mut self, program: &mut Program, before: LValueId) -> LValueId {
        let there = self.0.entry((before, 0)).or_default();
        if let Some(found) = there.first() {
            return *found;
        }
        let value = program.value(before).clone();
        let alias = Some(Alias { of: before, start: 0 });
        let made = push(program, LValue { name: format!("{}.new", value.name), alias, ..value });
        there.push(made);
        made
    }
}

/// Who reads which stretch of the parameters or of their copy in half width, beside the optimizer: operation, first element, one past the last.
pub(super) struct Readers(Vec<(usize, usize, usize)>);

impl Readers {
    pub(super) fn of(program: &Program, update: &Op) -> Self {
        let flat: Vec<LValueId> =
            ["param", "shadow"].iter().filter_map(|s| update.arg(s)).map(|id| program.root(id).0).collect();
        let mut out = Vec::new();
        for (index, op) in program.ops.iter().enumerate().filter(|(_, op)| op.kind.slot("param_prev").is_none()) {
            for id in op.reads() {
                let (root, start) = program.root(id);
                if flat.contains(&root) {
                    out.push((index, start, start + program.value(id).shape.len()));
                }
            }
        }
        Self(out)
    }

    /// The last reader of a parameter.
    pub(super) fn last_of(&self, segment: Segment) -> usize {
        let overlaps = |r: &&(usize, usize, usize)| segment.start < r.2 && r.1 < segment.start + segment.len;
        self.0.iter().rev().find(overlaps).map_or(0, |r| r.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for, verify};
    use crate::model::{check, read_preset};
    use crate::select::fuse;

    const NORM: &str = r#", {"type": "layer_norm"}"#;

    fn adapted(units: usize, between: &str, optimizer: &str, real: Real, metrics: Metrics) -> Program {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": 64}}, "layers": [
            {{"type": "dense", "units": {units}, "activation": "relu"}}{between}, {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "{optimizer}", "lr": 0.001}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let program = lower_for(&build(&model, Mode::Train, metrics, DType::F32), &model, FilterOrder::Ohwi);
        super::super::adapt(&fuse(&program), real)
    }

    fn names(program: &Program) -> Vec<&'static str> {
        program.ops.iter().map(|op| op.kind.name()).collect()
    }

    #[test]
    fn a_small_network_of_dense_layers_is_updated_where_its_gradients_are_made() {
        for real in [Real::F32, Real::Tf32, Real::Bf16] {
            let program = adapted(128, "", "adamw", real, Metrics::default());
            assert_eq!(verify(&program), Ok(()));
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
            adapted(16_384, "", "adam", Real::F32, Metrics::default()),
            adapted(128, "", "sgd", Real::F32, Metrics::default()),
            adapted(128, "", "adam", Real::F16, Metrics::default()),
            adapted(128, NORM, "adam", Real::F32, Metrics::default()),
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
        let program = adapted(128, "", "adam", Real::F32, none);
        assert_eq!(verify(&program), Ok(()));
        let parts = program.ops.iter().filter(|op| op.arg("parts").is_some()).count();
        assert_eq!(parts, 0, "{:?}", names(&program));
        assert!(!names(&program).contains(&"step_metrics"));
    }
}
