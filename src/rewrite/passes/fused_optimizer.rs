//! Fuses the update of parameters into the operations that compute their gradients.
//!
//! A small network's step waits longer for the launch of an optimizer than for its arithmetic. If all trained
//! parameters are weights and biases of dense layers whose gradients are single small products and sums, the update is
//! fused into these: the gradient stays in registers, moments and parameter are loaded before the gradient of the
//! following layer is computed, and no gradient takes memory. An update waits until the last reader of its parameter is
//! done. For larger networks a separate pass of the optimizer is faster: it moves memory at twice the speed of a
//! product's epilogue.

mod metrics;
mod stretches;

use crate::ir::Phase;
use crate::lower::{LValue, Op, Program};
use crate::model::{ParamId, Precision};
use crate::ops::{self, Epilogue, OpKind, Segment, Trans};
use crate::rewrite::history::absorb;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like, set};
use crate::rewrite::tiles::{LONE_UPDATE_TILE, smallest_rows};
use crate::rewrite::updates::{ParamReaders, Update, gradient_writers, place, sole_update};
use metrics::measure;
use stretches::Stretches;

/// The largest number of multiplications of a product: what one launch without a split reduction computes efficiently.
const SMALL: usize = 1 << 26;
/// The largest number of rows that a bias's gradient sums.
const ROWS: usize = 1024;
/// The largest number of parameters, and the same if products reduce over many rows: on an H200, batches of 64 and 128
/// gain 10 to 25 % up to 920 thousand parameters, one of 512 loses 7 %.
const PARAMETERS: usize = 1 << 20;
const PARAMETERS_OF_MANY: usize = 1 << 16;
const MANY_ROWS: usize = 128;

pub(super) fn run(rw: &mut Rewriter, goal: &Goal) {
    if let Some(plan) = Plan::of(rw.program()) {
        plan.carry_out(rw, goal.precision);
    }
}

/// The operations to fuse.
struct Plan {
    /// The optimizer's operation.
    update: usize,
    /// The operation that computes the gradient of each segment.
    makers: Vec<usize>,
}

/// An update that is fused into a gradient.
struct Step {
    /// The last reader of the parameter, or the operation that computes the gradient.
    ready: usize,
    maker: usize,
    op: Op,
}

impl Plan {
    /// `None` if one parameter's gradient is computed in another way or is needed by another operation.
    fn of(program: &Program) -> Option<Self> {
        let update = sole_update(program)?;
        let total: usize = program.segments.iter().map(|(_, s)| s.len).sum();
        if total == 0 || total > PARAMETERS {
            return None;
        }
        // Any other operation of the backward pass would wait for updates that now follow the products one by one.
        let small = |kind: &OpKind| {
            matches!(kind, OpKind::DropoutBwd(_) | OpKind::ActBwd(_) | OpKind::Gemm(_) | OpKind::BiasGrad(_))
        };
        if program.ops.iter().any(|op| op.phase == Phase::Backward && !small(&op.kind)) {
            return None;
        }
        let makers = gradient_writers(program, update)?.into_iter().map(|of| {
            let [maker] = of[..] else { return None };
            takes_update(&program.ops[maker].kind, total).then_some(maker)
        });
        Some(Self { update, makers: makers.collect::<Option<_>>()? })
    }

    fn carry_out(&self, rw: &mut Rewriter, precision: Precision) {
        let update = rw.op(self.update).clone();
        let mut steps = self.steps(rw, &update, precision);
        let of_updates = |op: &Op| {
            matches!(op.kind, OpKind::UpdateMetrics(_)) && op.arg("update_max_seg") == update.arg("update_max")
        };
        let metrics = rw.program().ops.iter().position(of_updates);
        let measured = update.arg("update_max").is_some() || update.arg("grad_norm_seg").is_some();
        let closing = measured.then(|| {
            let totals = metrics.map(|at| rw.op(at).clone());
            measure(rw, &update, totals.as_ref(), steps.iter_mut().map(|step| &mut step.op))
        });
        steps.sort_by_key(|s| (s.ready, s.maker));
        let is_totals = |at: &usize| metrics.is_some() && matches!(rw.op(*at).kind, OpKind::UpdateMetrics(_));
        let totals: Vec<usize> = (0..rw.len()).filter(is_totals).collect();
        let gone = self.makers.iter().chain([&self.update]).chain(&totals);
        gone.for_each(|&number| rw.remove(number));
        let placed = |Step { ready, maker, op }| Update { ready, op, from: vec![maker, self.update] };
        place(rw, steps.into_iter().map(placed).collect());
        if let Some(closing) = closing {
            let from: Vec<usize> = [self.update].into_iter().chain(metrics).collect();
            rw.append(closing, &from);
        }
    }

    /// The update of each segment.
    fn steps(&self, rw: &mut Rewriter, update: &Op, precision: Precision) -> Vec<Step> {
        let (mut stretches, readers) = (Stretches::of(rw.program()), ParamReaders::of(rw.program(), update));
        let last = rw.program().segments.iter().map(|(_, segment)| readers.last_of(*segment)).max().unwrap_or(0);
        let mut steps: Vec<Step> = Vec::new();
        for (number, &maker) in self.makers.iter().enumerate() {
            let (param, segment) = rw.program().segments[number];
            let op = step_of(rw, &mut stretches, (update, maker), (param, segment), precision);
            rw.forget_gradient(param);
            steps.push(Step { ready: readers.last_of(segment).max(maker), maker, op });
        }
        let at_end = |step: &Step| step.ready >= last;
        let tiles = |step: &Step| match step.op.kind {
            OpKind::WeightStep(ops::WeightStep { m, n, .. }) if at_end(step) => {
                m.div_ceil(LONE_UPDATE_TILE[0]) * n.div_ceil(LONE_UPDATE_TILE[1])
            }
            _ => 0,
        };
        let all = steps.iter().map(tiles).sum();
        for step in steps.iter_mut().filter(|step| at_end(step)) {
            if let OpKind::WeightStep(ops::WeightStep { together, .. }) = &mut step.op.kind {
                *together = all;
            }
        }
        steps
    }
}

/// Whether an operation that computes a gradient of one of `total` parameters can also update that parameter.
fn takes_update(maker: &OpKind, total: usize) -> bool {
    match maker {
        OpKind::Gemm(g) => {
            let plain = g.trans == Trans::Tn && !g.accumulate && g.epilogue == Epilogue::default();
            let short = total <= PARAMETERS_OF_MANY || g.k <= MANY_ROWS;
            plain && short && g.m.saturating_mul(g.n).saturating_mul(g.k) <= SMALL
        }
        OpKind::BiasGrad(ops::BiasGrad { rows, accumulate, .. }) => !accumulate && *rows <= ROWS,
        _ => false,
    }
}

/// The kind of operation that computes a gradient and updates its parameter.
fn step_kind(maker: &OpKind, update: &OpKind, precision: Precision) -> Option<OpKind> {
    let OpKind::AdamStep(ops::AdamStep { beta1, beta2, eps, decoupled, .. }) = *update else { return None };
    match *maker {
        OpKind::Gemm(g) => {
            let (m, n, k, grain, together) = (g.m, g.n, g.k, smallest_rows(precision), 0);
            Some(OpKind::WeightStep(ops::WeightStep { m, n, k, grain, together, beta1, beta2, eps, decoupled }))
        }
        OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }) => {
            Some(OpKind::BiasStep(ops::BiasStep { rows, cols, beta1, beta2, eps, decoupled }))
        }
        _ => None,
    }
}

/// The operation that computes the gradient of a parameter and uses it for the update.
fn step_of(
    rw: &mut Rewriter,
    stretches: &mut Stretches,
    (update, maker): (&Op, usize),
    (param, segment): (ParamId, Segment),
    precision: Precision,
) -> Op {
    let maker = rw.op(maker).clone();
    let Some(kind) = step_kind(&maker.kind, &update.kind, precision) else { return maker };
    let bound = [
        ("a", maker.arg("a").or(maker.arg("dy"))),
        ("b", maker.arg("b")),
        ("hyper", update.arg("hyper")),
        ("corr", update.arg("corr")),
    ];
    let mut step = made_like(&maker, kind, &bound);
    step.fused.push(maker.kind.name().to_owned());
    absorb(&mut step, update);
    let like: LValue = rw.program().value(rw.program().params[param.0 as usize].value).clone();
    for (before, after) in [("param_prev", "param"), ("m_prev", "m"), ("v_prev", "v"), ("", "shadow")] {
        if let Some(flat) = update.arg(before) {
            let value = stretches.before(rw, flat, &like, (param, segment));
            set(&mut step, before, value);
        }
        if let Some(flat) = update.arg(after) {
            let of = rw.program().root(flat).0;
            let value = stretches.after(rw, of, &like, (param, segment));
            set(&mut step, after, value);
        }
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for, verify};
    use crate::rewrite::pipeline::rewrite;
    use crate::rewrite::sample::classifier;
    use crate::tensor::DType;

    const NORM: &str = r#", {"type": "layer_norm"}"#;

    fn rewritten(units: usize, between: &str, optimizer: &str, precision: Precision, metrics: Metrics) -> Program {
        let layers = format!(r#"{{"type": "dense", "units": {units}, "activation": "relu"}}{between}"#);
        let model = classifier(&layers, optimizer);
        let program = lower_for(&build(&model, Mode::Train, metrics, DType::F32), &model, FilterOrder::Ohwi);
        rewrite(&program, &Goal::gpu(precision)).unwrap().program
    }

    fn names(program: &Program) -> Vec<&'static str> {
        program.ops.iter().map(|op| op.kind.name()).collect()
    }

    #[test]
    fn updates_of_a_small_dense_network_are_fused_into_its_gradients() {
        for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
            let program = rewritten(128, "", "adamw", precision, Metrics::default());
            assert_eq!(verify(&program), Ok(()));
            let names = names(&program);
            assert_eq!(names.iter().filter(|n| n.ends_with("_adam")).count(), 4, "{names:?}");
            assert!(!names.contains(&"adam_step") && names.last() == Some(&"step_metrics"), "{names:?}");
            // Each update follows the last reader of its parameter, and the counters come before all of them.
            let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
            assert!(at("dense_ce") < at("gemm_tn_adam") && at("bias_corr") < at("reduce_sum_adam"), "{names:?}");
            assert!(program.params.iter().all(|p| p.grad.is_none()));
        }
    }

    #[test]
    fn other_networks_keep_their_optimizer() {
        let kept = [
            rewritten(16_384, "", "adam", Precision::F32, Metrics::default()),
            rewritten(128, "", "sgd", Precision::F32, Metrics::default()),
            rewritten(128, "", "adam", Precision::F16, Metrics::default()),
            rewritten(128, NORM, "adam", Precision::F32, Metrics::default()),
        ];
        for program in kept {
            let names = names(&program);
            assert!(!names.iter().any(|n| n.ends_with("_adam")), "{names:?}");
            assert!(program.params.iter().all(|p| p.grad.is_some()));
        }
    }

    #[test]
    fn metrics_that_are_not_requested_are_not_computed() {
        let none = Metrics { updates: false, ..Metrics::default() };
        let program = rewritten(128, "", "adam", Precision::F32, none);
        assert_eq!(verify(&program), Ok(()));
        let parts = program.ops.iter().filter(|op| op.arg("parts").is_some()).count();
        assert_eq!(parts, 0, "{:?}", names(&program));
        assert!(!names(&program).contains(&"step_metrics"));
    }
}
