//! A step as far as its gradients.

use super::Culprit;
use crate::exec::Step;
use crate::exec::cpu::Pool;
use crate::ir::{Phase, Share};
use crate::lower::LValueId;
use crate::model::{Model, ParamId};
use crate::ops::OpKind;
use crate::plan::StateKind;
use crate::train::TrainError;

/// Steps in the emulated arithmetic of a coarse type: one that rounds to the nearest, and others that round at random.
pub(super) const EMULATED: u64 = 9;

/// Samples in a gradient check: enough for batch statistics, few enough for plain loops.
pub(super) const BATCH: usize = 4;

/// The parameters that the model trains: those that its layers use, where it is that of a path.
pub(super) fn trained(model: &Model) -> impl Iterator<Item = ParamId> + '_ {
    let is_run = model.runs();
    let is_trained = move |i: &usize| is_run[*i] && model.params[*i].kind.is_trained();
    (0..model.params.len()).filter(is_trained).map(|i| ParamId(i as u32))
}

/// The layer whose gradient is wrong.
pub(super) fn culprit(model: &Model, param: ParamId) -> Culprit {
    Culprit::Layer(model.layer(model.param(param).layer).path.clone())
}

/// The first operation of a phase and everything after it.
pub(super) fn first_of(step: &Step, phase: Phase) -> usize {
    let ops = &step.compiled().plan.program.ops;
    ops.iter().position(|o| o.phase == phase).unwrap_or(ops.len())
}

/// The operation that changes parameters, once all gradients are there; a GPU's plan advances counters before it. One
/// past the last operation where updates
/// are between the gradients.
pub(super) fn update_at(step: &Step) -> usize {
    let ops = &step.compiled().plan.program.ops;
    let updates = |k: &OpKind| k.flat_update().is_some();
    let is_update = |k: &OpKind| updates(k) || matches!(k, OpKind::ScaleUpdate { .. });
    let first = ops.iter().position(|o| is_update(&o.kind)).unwrap_or(ops.len());
    let last_gradient = ops.iter().rposition(|o| o.phase == Phase::Backward).unwrap_or(0);
    // A path of a network has an update for each group of its parameters.
    let are_updates = ops.iter().any(|o| updates(&o.kind));
    if are_updates && last_gradient < first { first } else { ops.len() }
}

/// The operation before which all gradients are in memory; `None` if updates are fused into them or between them.
fn gradients_at(step: &Step, model: &Model) -> Option<usize> {
    let (update, compiled) = (update_at(step), step.compiled());
    let program = &compiled.plan.program;
    let is_before_last = compiled.graph.share.is_some_and(|share| share != Share::Last);
    let has_gradients = || trained(model).all(|p| program.params[p.0 as usize].grad.is_some());
    (is_before_last || update < program.ops.len() && has_gradients()).then_some(update)
}

/// Runs a step that starts afresh as far as its gradients, and gives these, scaled as the step scales them. Where
/// updates ride on the gradients or are between them, the whole step is run, without decay, and they are read off the
/// first moment, which was zero: `m = (1 - beta1) g`.
pub(super) fn run_to_gradients(
    step: &mut Step,
    pool: &mut Pool,
    model: &Model,
) -> Result<Vec<(ParamId, Vec<f32>)>, TrainError> {
    if let Some(update) = gradients_at(step, model) {
        step.run_ops(0, update, pool)?;
        return trained(model).map(|p| Ok((p, step.grad::<f32>(p)?))).collect();
    }
    let compiled = std::sync::Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    // Only updates that keep the mean of the gradients are fused into them; of others there is no such state.
    let (state, share) = model.optimizer.first_gradient().unwrap_or(("mean of the gradients", 1.0));
    // Decay would be in the moment too, and what its sum with the gradient rounds.
    let hyper = step.state(StateKind::Hyper)?;
    let given = step.stored::<f32>(hyper)?.to_vec();
    step.write(hyper, &[given[0], 0.0])?;
    step.run_ops(0, program.ops.len(), pool)?;
    step.write(hyper, &given)?;
    let of = |p: ParamId| {
        let moment = step.stored::<f32>(step.find(&format!("{state}.{}", model.param(p).name))?)?;
        let moment = program.params[p.0 as usize].order.to_logical(&moment);
        Ok((p, moment.iter().map(|m| (f64::from(*m) / share) as f32).collect()))
    };
    trained(model).map(of).collect()
}

/// Counters with their values.
pub(super) type Counts = Vec<(LValueId, Vec<i64>)>;

/// The counters that decide the random numbers of a batch.
pub(super) fn counts(step: &Step) -> Result<Counts, TrainError> {
    let found = ["counter", "batches"].into_iter().filter_map(|name| step.find(name).ok());
    found.map(|id| Ok((id, step.stored::<i64>(id)?.to_vec()))).collect()
}

/// Runs a batch that adds to the gradients in memory, `once` those of the same batch, once more with the random numbers
/// of these `counts`. Returns the largest difference between a sum and twice its part, as a share of the norm of the
/// sum; 0 if updates are between the gradients.
pub(super) fn adding_error(
    step: &mut Step,
    pool: &mut Pool,
    model: &Model,
    once: &[(ParamId, Vec<f32>)],
    counts: &Counts,
) -> Result<f64, TrainError> {
    let Some(update) = gradients_at(step, model) else { return Ok(0.0) };
    counts.iter().try_for_each(|(id, count)| step.write(*id, count))?;
    step.run_ops(0, update, pool)?;
    let mut largest = 0.0f64;
    for (p, part) in once {
        let sum = step.grad::<f32>(*p)?;
        let length = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
        let difference = length(&mut sum.iter().zip(part).map(|(s, g)| f64::from(*s) - 2.0 * f64::from(*g)));
        let whole = length(&mut part.iter().map(|g| 2.0 * f64::from(*g)));
        // A gradient that is zero, or not finite, shows nothing.
        if whole > 0.0 && whole.is_finite() {
            largest = largest.max(difference / whole);
        }
    }
    Ok(largest)
}

/// What gradients are multiplied by.
pub(super) fn scale_of(step: &Step) -> Result<f32, TrainError> {
    match step.find("loss_scale") {
        Ok(id) => Ok(step.stored::<f32>(id)?[0]),
        Err(_) => Ok(1.0),
    }
}
