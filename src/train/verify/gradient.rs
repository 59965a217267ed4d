//! Gradients: against central differences, fast against reference, their scale and direction.

use super::{Check, Culprit, VerifyOptions, prepared};
use crate::compile::{Options, compile};
use crate::exec::Step;
use crate::exec::cpu::{Pool, host_target};
use crate::ir::Phase;
use crate::lower::OpKind;
use crate::model::layers::LayerSpec;
use crate::model::{LossSpec, Model, OptimizerSpec, ParamId, Rng};
use crate::select::cuda::Real;
use crate::train::TrainError;

/// Samples in a gradient check: enough for batch statistics, few enough for plain loops.
const BATCH: usize = 4;

fn trained(model: &Model) -> impl Iterator<Item = ParamId> + '_ {
    (0..model.params.len()).filter(|&i| model.params[i].kind.is_trained()).map(|i| ParamId(i as u32))
}

/// The layer whose gradient is wrong.
fn culprit(model: &Model, param: ParamId) -> Culprit {
    Culprit::Layer(model.layer(model.param(param).layer).path.clone())
}

/// The first operation of a phase and everything after it.
fn first_of(step: &Step, phase: Phase) -> usize {
    let ops = &step.compiled().plan.program.ops;
    ops.iter().position(|o| o.phase == phase).unwrap_or(ops.len())
}

/// The operation that changes parameters, once all gradients are there; a GPU's plan advances counters before it. One past the last operation where updates
/// stand between the gradients.
fn update_at(step: &Step) -> usize {
    let ops = &step.compiled().plan.program.ops;
    let updates = |k: &OpKind| matches!(k, OpKind::AdamStep { .. } | OpKind::SgdStep { .. });
    let is_update = |k: &OpKind| updates(k) || matches!(k, OpKind::ScaleUpdate { .. });
    match ops.iter().filter(|o| updates(&o.kind)).count() {
        1 => ops.iter().position(|o| is_update(&o.kind)).unwrap_or(ops.len()),
        _ => ops.len(),
    }
}

/// Runs a step that starts afresh as far as its gradients, and gives these, scaled as the step scales them. Where updates ride on the gradients or stand
/// between them, the whole step is run, and they are read off the first moment, which was zero: `m = (1 - beta1) g`, with `wd p` in `g` unless decoupled.
fn run_to_gradients(step: &mut Step, pool: &mut Pool, model: &Model) -> Result<Vec<(ParamId, Vec<f32>)>, TrainError> {
    let compiled = std::sync::Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    let update = update_at(step);
    if update < program.ops.len() && trained(model).all(|p| program.params[p.0 as usize].grad.is_some()) {
        step.run_ops(0, update, pool)?;
        return trained(model).map(|p| Ok((p, step.grad::<f32>(p)?))).collect();
    }
    let before: Vec<(ParamId, Vec<f32>)> =
        trained(model).map(|p| Ok((p, step.param::<f32>(p)?))).collect::<Result<_, TrainError>>()?;
    let (beta1, decay) = match model.optimizer {
        OptimizerSpec::Adam { betas, decoupled: false, .. } => (betas[0], model.optimizer.weight_decay()),
        OptimizerSpec::Adam { betas, .. } => (betas[0], 0.0),
        OptimizerSpec::Sgd { .. } => (0.0, 0.0),
    };
    step.run_ops(0, program.ops.len(), pool)?;
    let of = |(p, before): (ParamId, Vec<f32>)| {
        let moment = step.stored::<f32>(step.find(&format!("m.{}", model.param(p).name))?)?;
        let moment = program.params[p.0 as usize].order.to_logical(&moment);
        let grad = |(m, p): (&f32, f32)| (f64::from(*m) / (1.0 - beta1) - decay * f64::from(p)) as f32;
        Ok((p, moment.iter().zip(before).map(grad).collect()))
    };
    before.into_iter().map(of).collect()
}

/// What gradients are multiplied by.
fn scale_of(step: &Step) -> Result<f32, TrainError> {
    match step.find("loss_scale") {
        Ok(id) => Ok(step.stored::<f32>(id)?[0]),
        Err(_) => Ok(1.0),
    }
}

/// How far gradients may lie from the f64 reference: single elements as a share of the tensor's largest magnitude, or for coarse types
/// the length of the difference as a share of the tensor's.
fn tolerance(step: &Step) -> f64 {
    match step.compiled().selection.real {
        Real::F32 => 1e-3,
        Real::Tf32 | Real::F16 => 8e-2,
        Real::Bf16 => 3e-1,
    }
}

/// Rounding of activations and of their gradients beside that of parameters.
const ROUNDING: f64 = 4.0;

/// The length of the difference as a share of the length of `a`.
fn apart(a: &[f64], b: impl Iterator<Item = f64>) -> f64 {
    let difference: f64 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
    (difference / a.iter().map(|a| a * a).sum::<f64>().max(1e-30)).sqrt()
}

/// A number with as many bits of fraction as products have of a type.
fn coarse(value: f64, real: Real) -> f64 {
    let drop = match real {
        Real::F32 => return value,
        Real::Tf32 | Real::F16 => 13,
        Real::Bf16 => 16,
    };
    let bits = (value as f32).to_bits();
    f64::from(f32::from_bits(bits.wrapping_add(1 << (drop - 1)) & !((1 << drop) - 1)))
}

/// Loss at the present parameters; everything else that the step changes is put back.
fn loss_at(step: &mut Step, pool: &mut Pool, before: usize, saved: &[u8]) -> Result<f64, TrainError> {
    step.run_ops(0, before, pool)?;
    let loss = step.stored::<f64>(step.find("loss")?)?[0];
    step.restore(saved)?;
    Ok(loss)
}

/// Parameters that are compared with central differences at most, or about as many; directions of each.
const COMPARED: usize = 40;
const DIRECTIONS: usize = 4;

/// Seconds that the plain loops of the gradient checks take, roughly, and bytes that they hold at once.
pub(super) fn cost(model: &Model) -> Result<(f64, u64), TrainError> {
    /// What plain loops in f64 do in a second on one core, and what is copied.
    const FLOPS: f64 = 3e8;
    const BYTES: f64 = 1e9;
    let small = model.with_batch(model.batch.clamp(2, BATCH));
    let compiled = compile(&small, &Options::reference_f64(host_target(1)))?;
    let plan = &compiled.plan;
    let forward = |phase: Phase| matches!(phase, Phase::Forward | Phase::Loss);
    let choices = || plan.program.ops.iter().zip(&compiled.selection.choices);
    let flops = choices().filter(|(op, _)| forward(op.phase)).map(|(_, c)| c.flops).sum::<u64>() as f64;
    let count = trained(&small).count();
    let passes = (count.div_ceil(count.div_ceil(COMPARED).max(1)) * DIRECTIONS * 2) as f64;
    let persistent = (small.trained_len() * 8 * 3) as f64;
    let seconds = passes * (flops / FLOPS + persistent / BYTES) + 3.0 * compiled.selection.flops() as f64 / FLOPS;
    // A step in f64 and one in f32, what is put back after each pass, and gradients three times.
    let held = plan.arena_bytes + plan.arena_bytes / 2 + 2 * persistent as u64;
    Ok((seconds, held))
}

/// f64 analytic gradients against central differences along random directions and single elements of each parameter.
pub(super) fn against_differences(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const STEP: f64 = 1e-6;
    let small = model.with_batch(model.batch.clamp(2, BATCH));
    let (mut step, mut pool) = prepared(&small, &Options::reference_f64(host_target(1)), options.seed)?;
    let (backward, update) = (first_of(&step, Phase::Backward), update_at(&step));
    let saved = step.snapshot()?;
    step.run_ops(0, update, &mut pool)?;
    let grads: Vec<(ParamId, Vec<f64>)> =
        trained(&small).map(|p| Ok((p, step.grad::<f64>(p)?))).collect::<Result<_, TrainError>>()?;
    step.restore(&saved)?;
    let mut rng = Rng::new(options.seed, 0x6AAD);
    let (mut worst, mut worst_name, mut compared) = (0.0f64, String::new(), 0usize);
    let mut failures = Vec::new();
    // A network of many parameters is sampled: each costs several forward passes on plain loops.
    let stride = grads.len().div_ceil(COMPARED);
    for (p, grad) in grads.iter().skip(rng.below(stride)).step_by(stride) {
        let start = step.param::<f64>(*p)?;
        let name = &small.param(*p).name;
        let scale = grad.iter().fold(0.0f64, |m, g| m.max(g.abs()));
        for trial in 0..DIRECTIONS {
            // Directions: one over all elements, then single ones.
            let direction: Vec<f64> = if trial == 0 {
                (0..start.len()).map(|_| if rng.uniform() < 0.5 { -1.0 } else { 1.0 }).collect()
            } else {
                let chosen = rng.below(start.len());
                (0..start.len()).map(|i| f64::from(u8::from(i == chosen))).collect()
            };
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            let analytic: f64 = grad.iter().zip(&direction).map(|(g, d)| g * d).sum::<f64>() / norm;
            let mut at = |sign: f64| {
                let moved: Vec<f64> = start.iter().zip(&direction).map(|(v, d)| v + sign * STEP * d / norm).collect();
                step.set_param(*p, &moved)?;
                loss_at(&mut step, &mut pool, backward, &saved)
            };
            let numeric = (at(1.0)? - at(-1.0)?) / (2.0 * STEP);
            let error = (analytic - numeric).abs() / scale.max(analytic.abs()).max(1e-6);
            compared += 1;
            if error > worst {
                (worst, worst_name) = (error, name.clone());
            }
            // A relu or maximum that switches inside the interval spoils single comparisons; those stay far below a wrong gradient's error.
            if error > 1e-4 {
                let text = format!("{name}: analytic {analytic:.6e}, central difference {numeric:.6e}");
                failures.push((text, Some(culprit(&small, *p))));
            }
        }
    }
    let tolerated = compared / 50;
    let passed = failures.len() <= tolerated;
    let figures = format!(
        "{compared} comparisons, largest relative error {worst:.1e} at {worst_name}, {} above 1e-4 (up to {tolerated} for kinks)",
        failures.len()
    );
    failures.truncate(8);
    Ok(Check::new("gradient against central differences (f64)", passed, figures).detail(if passed {
        Vec::new()
    } else {
        failures
    }))
}

/// Gradients of the fast f32 kernels against the f64 reference, from the same parameters and batch.
pub(super) fn fast_against_reference(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let small = model.with_batch(model.batch.clamp(2, 2 * BATCH));
    let (mut exact, mut exact_pool) = prepared(&small, &Options::reference_f64(host_target(1)), options.seed)?;
    let (mut fast, mut pool) = prepared(&small, &options.compiling(), options.seed)?;
    let update = update_at(&exact);
    let saved = exact.snapshot()?;
    exact.run_ops(0, update, &mut exact_pool)?;
    let expected: Vec<Vec<f64>> = trained(&small).map(|p| exact.grad::<f64>(p)).collect::<Result<_, _>>()?;
    let found = run_to_gradients(&mut fast, &mut pool, &small)?;
    let (mut worst, mut worst_name) = (0.0f64, String::new());
    let mut failures = Vec::new();
    let (unscale, base) = (1.0 / scale_of(&fast)?, tolerance(&fast));
    let exactly = fast.compiled().selection.real == Real::F32;
    // How far exact gradients move where the parameters alone are rounded: a deep network turns many a relu the other way for that.
    let mut moved = expected.clone();
    if !exactly {
        exact.restore(&saved)?;
        for p in trained(&small) {
            let rounded: Vec<f64> =
                exact.param::<f64>(p)?.iter().map(|v| coarse(*v, fast.compiled().selection.real)).collect();
            exact.set_param(p, &rounded)?;
        }
        exact.run_ops(0, update, &mut exact_pool)?;
        moved = trained(&small).map(|p| exact.grad::<f64>(p)).collect::<Result<_, _>>()?;
    }
    let mut widest = base;
    for (((p, mut b), a), moved) in found.into_iter().zip(&expected).zip(&moved) {
        b.iter_mut().for_each(|g| *g *= unscale);
        let scale = a.iter().fold(1e-12f64, |m, g| m.max(g.abs()));
        let error = if exactly {
            a.iter().zip(&b).fold(0.0f64, |m, (a, b)| m.max((a - f64::from(*b)).abs())) / scale
        } else {
            // Coarse rounding now and then turns a relu or a maximum the other way, which moves single elements far: the whole tensor counts.
            apart(a, b.iter().map(|b| f64::from(*b)))
        };
        let allowed = base.max(ROUNDING * apart(a, moved.iter().copied()));
        widest = widest.max(allowed);
        let name = &small.param(p).name;
        if error > worst || error.is_nan() {
            (worst, worst_name) = (error, name.clone());
        }
        // A gradient that vanishes by symmetry, such as a bias before a batch norm, is pure rounding: its size against the whole decides.
        let negligible = scale < 1e-7 && b.iter().all(|g| g.abs() < 1e-5);
        if (error > allowed || error.is_nan()) && !negligible {
            let text = format!("{name}: off by {error:.1e} of its largest magnitude {scale:.1e}");
            failures.push((text, Some(culprit(&small, p))));
        }
    }
    let passed = failures.is_empty();
    let figures =
        format!("largest difference {worst:.1e} of the tensor's magnitude (up to {widest:.0e}), at {worst_name}");
    failures.truncate(8);
    Ok(Check::new("fast kernels against reference (f64)", passed, figures).detail(failures))
}

/// Whether the loss is the batch's mean or its sum: a batch that holds every sample twice must not change loss and gradients.
pub(super) fn loss_scale(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "loss scale";
    let drops = model.layers.iter().any(|l| matches!(&l.spec, LayerSpec::Dropout(d) if d.rate > 0.0));
    if drops {
        return Ok(Check::skipped(NAME, "dropout masks differ between the two batches"));
    }
    let (once, twice) = (model.with_batch(BATCH), model.with_batch(2 * BATCH));
    let compiling = Options::reference_f64(host_target(1));
    let (mut a, mut pool) = prepared(&once, &compiling, options.seed)?;
    let (mut b, _) = prepared(&twice, &compiling, options.seed)?;
    let program = &a.compiled().plan.program;
    let (x, y) = (program.x, program.y);
    let samples = a.stored::<f64>(x)?.to_vec();
    b.write(b.compiled().plan.program.x, &[samples.clone(), samples].concat())?;
    if let (Some(y), Some(to)) = (y, b.compiled().plan.program.y) {
        if matches!(model.loss, LossSpec::Mse) {
            let t = a.stored::<f64>(y)?.to_vec();
            b.write(to, &[t.clone(), t].concat())?;
        } else {
            let t = a.stored::<i32>(y)?.to_vec();
            b.write(to, &[t.clone(), t].concat())?;
        }
    }
    let mut largest = [0.0f64; 2];
    for (step, size) in [&mut a, &mut b].into_iter().zip(&mut largest) {
        let update = update_at(step);
        step.run_ops(0, update, &mut pool)?;
        for p in trained(model) {
            *size = step.grad::<f64>(p)?.iter().fold(*size, |m, g| m.max(g.abs()));
        }
    }
    let (loss_a, loss_b) = (a.stored::<f64>(a.find("loss")?)?[0], b.stored::<f64>(b.find("loss")?)?[0]);
    let (loss, grad) = (loss_b / loss_a, largest[1] / largest[0]);
    let is_mean = (loss - 1.0).abs() < 1e-6 && (grad - 1.0).abs() < 1e-6;
    let word = if is_mean { "mean over the batch" } else { "not the batch mean" };
    let figures = format!("{word}: doubling the batch scales the loss by {loss:.6} and the gradients by {grad:.6}");
    Ok(Check::new(NAME, is_mean, figures))
}

/// The first update must go against the gradient.
pub(super) fn update_direction(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    let (mut step, mut pool) = prepared(model, &options.compiling(), options.seed)?;
    let before: Vec<Vec<f32>> = trained(model).map(|p| step.param::<f32>(p)).collect::<Result<_, _>>()?;
    let grads = run_to_gradients(&mut step, &mut pool, model)?;
    let (update, ops) = (update_at(&step), step.compiled().plan.program.ops.len());
    step.run_ops(update, ops, &mut pool)?;
    let mut product = 0.0f64;
    for ((p, grad), before) in grads.iter().zip(&before) {
        let p = *p;
        let after = step.param::<f32>(p)?;
        product += after.iter().zip(before).zip(grad).map(|((a, b), g)| f64::from(a - b) * f64::from(*g)).sum::<f64>();
    }
    let decays = model.optimizer.weight_decay() > 0.0;
    let rule = match model.optimizer {
        OptimizerSpec::Sgd { .. } => "SGD",
        OptimizerSpec::Adam { decoupled: true, .. } => "AdamW",
        OptimizerSpec::Adam { .. } => "Adam",
    };
    let figures = format!(
        "{rule}: sum of update times gradient {product:.3e}{}",
        if decays { " (weight decay included)" } else { "" }
    );
    let still = model.optimizer.lr() == 0.0 && product == 0.0;
    Ok(Check::new("update direction", product < 0.0 || still, figures))
}
