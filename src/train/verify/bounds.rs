//! Fast kernels against plain loops in f64, each difference held against what rounding may cause: a bound for each element, from the arithmetic
//! that made it.

use super::gradient::{BATCH, culprit, run_to_gradients, scale_of, trained, update_at};
use super::{Check, Culprit, VerifyOptions, prepared};
use crate::compile::Options;
use crate::exec::Step;
use crate::exec::cpu::kernels::reference::bounded::Bounded;
use crate::exec::cpu::{BoundedStep, Storage, host_target};
use crate::lower::{LValueId, Op};
use crate::model::{Model, ParamId};
use crate::select::cuda::Real;
use crate::tensor::DType;
use crate::train::TrainError;

/// Batches that are drawn until no maximum has its place decided by rounding.
const DRAWS: u64 = 6;
/// Below this a difference is that of numbers too small for `f32`.
const TINY: f64 = 1e-40;

/// An exact value with the bound for a kernel's error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    value: f64,
    pub(super) error: f64,
}

impl<const SUM: i32, const PRODUCT: i32> From<Bounded<SUM, PRODUCT>> for Bound {
    fn from(from: Bounded<SUM, PRODUCT>) -> Self {
        Self { value: from.value, error: from.error }
    }
}

/// The element whose error takes the largest part of its bound.
#[derive(Clone, Debug, Default)]
struct Worst {
    /// Error over bound; infinite where a value is not a number and the exact one is.
    ratio: f64,
    /// Such as `layers.0.weight[17]: error 1.2e-9, bound 3.4e-8`.
    text: String,
}

impl Worst {
    /// Takes the element in; true where it is within its bound.
    fn meets(&mut self, name: impl Fn() -> String, index: usize, found: f64, bound: Bound) -> bool {
        let error = (found - bound.value).abs();
        let both_same = found == bound.value || (found.is_nan() && bound.value.is_nan());
        let ratio = if both_same {
            0.0
        } else if error.is_nan() {
            f64::INFINITY
        } else {
            error / (bound.error + TINY)
        };
        if ratio > self.ratio {
            self.ratio = ratio;
            self.text = format!(
                "{}[{index}]: error {error:.1e}, bound {:.1e} ({found:.6e} instead of {:.6e})",
                name(),
                bound.error,
                bound.value
            );
        }
        ratio <= 1.0
    }

    fn figures(&self) -> String {
        if self.text.is_empty() {
            return "no difference".into();
        }
        format!("largest error {:.2} of its bound, at {}", self.ratio, self.text)
    }
}

/// Exact gradients and the exact loss, with bounds.
pub(super) struct Exact {
    /// By trained parameter, in logical order.
    pub(super) grads: Vec<Vec<Bound>>,
    pub(super) loss: Bound,
    /// Maxima whose place rounding decides.
    undecided: u64,
}

/// Gradients of the batch in `step`, with bounds for kernels that compute in `f64`.
pub(super) fn double(model: &Model, step: &Step) -> Result<Exact, TrainError> {
    run_bounded::<53, 53>(model, step, Storage::default())
}

/// Gradients of the first batch in exact arithmetic, with bounds for kernels that compute as `real` does.
fn exact_gradients(model: &Model, step: &Step, real: Real, loss_scale: f64) -> Result<Exact, TrainError> {
    let half = |relative: f64, absolute: f64| Storage { relative, absolute: absolute / loss_scale };
    match real {
        Real::F32 => run_bounded::<24, 24>(model, step, Storage::default()),
        Real::Tf32 => run_bounded::<24, 11>(model, step, Storage::default()),
        Real::F16 => run_bounded::<24, 11>(model, step, half(2f64.powi(-11), 2f64.powi(-25))),
        Real::Bf16 => run_bounded::<24, 8>(model, step, half(2f64.powi(-8), 0.0)),
    }
}

fn run_bounded<const SUM: i32, const PRODUCT: i32>(
    model: &Model,
    step: &Step,
    storage: Storage,
) -> Result<Exact, TrainError> {
    let Step::Cpu(memory) = step else { unreachable!("the reference in f64 runs on a CPU") };
    let mut bounded = BoundedStep::<SUM, PRODUCT>::new(std::sync::Arc::clone(step.compiled()), storage);
    bounded.load_state(memory)?;
    let undecided = bounded.run(0, update_at(step))?;
    let program = &step.compiled().plan.program;
    let reals = |id: LValueId| bounded.reals(id).unwrap_or(&[]);
    let grad = |p: ParamId| {
        let slot = &program.params[p.0 as usize];
        let stored = slot.grad.map_or(&[][..], reals);
        slot.order.to_logical(stored).into_iter().map(Bound::from).collect()
    };
    let loss = reals(step.find("loss")?).first().copied().unwrap_or_default().into();
    Ok(Exact { grads: trained(model).map(grad).collect(), loss, undecided })
}

/// The share of its length by which a tensor may be off where its elements cannot be judged one by one.
pub(super) const fn tolerance(real: Real) -> f64 {
    match real {
        Real::F32 => 1e-3,
        Real::Tf32 | Real::F16 => 8e-2,
        Real::Bf16 => 3e-1,
    }
}

/// Rounding of activations and of their gradients beside that of parameters.
const ROUNDING: f64 = 4.0;

/// The nearest number with as many bits as products have of a type; for `f32` the next but one, as nothing is rounded there.
fn coarse(value: f64, real: Real) -> f64 {
    let bits = (value as f32).to_bits();
    let drop = match real {
        Real::F32 => return f64::from(f32::from_bits(bits ^ 2)),
        Real::Tf32 | Real::F16 => 13,
        Real::Bf16 => 16,
    };
    f64::from(f32::from_bits(bits.wrapping_add(1 << (drop - 1)) & !((1 << drop) - 1)))
}

fn length(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// Gradients in f64 where the parameters alone are rounded: how far a network's gradients move for that, and how many a relu turns the other way.
fn moved_gradients(model: &Model, real: Real, seed: u64) -> Result<Vec<Vec<f64>>, TrainError> {
    let (mut step, mut pool) = prepared(model, &Options::reference_f64(host_target(1)), seed)?;
    for p in trained(model) {
        let rounded: Vec<f64> = step.param::<f64>(p)?.iter().map(|v| coarse(*v, real)).collect();
        step.set_param(p, &rounded)?;
    }
    let update = update_at(&step);
    step.run_ops(0, update, &mut pool)?;
    trained(model).map(|p| Ok(step.grad::<f64>(p)?)).collect()
}

/// Tensors whose elements cannot be judged one by one, because their bounds are as large as the network's gradients or rounding decides the
/// place of a maximum: each is judged by its length.
struct ByLength<'a> {
    exact: &'a Exact,
    /// The length of the longest gradient.
    longest: f64,
    real: Real,
    moved: Vec<Vec<f64>>,
}

impl<'a> ByLength<'a> {
    fn new(exact: &'a Exact, real: Real) -> Self {
        let lengths = exact.grads.iter().map(|g| length(g.iter().map(|b| b.value)));
        Self { exact, longest: lengths.fold(0.0, f64::max), real, moved: Vec::new() }
    }

    /// Whether the bounds of a tensor say less than its length would.
    fn is_needed(&self, index: usize) -> bool {
        let bounds = length(self.exact.grads[index].iter().map(|b| b.error));
        bounds.is_nan() || bounds > tolerance(self.real) * self.longest
    }

    /// How far a tensor is off, and may be, as shares of its length or of a hundredth of the longest.
    fn judge(&mut self, model: &Model, seed: u64, index: usize, found: &[f64]) -> Result<(f64, f64), TrainError> {
        if self.moved.is_empty() {
            self.moved = moved_gradients(model, self.real, seed)?;
        }
        let exact = &self.exact.grads[index];
        let size = length(exact.iter().map(|b| b.value)).max(1e-2 * self.longest).max(f64::MIN_POSITIVE);
        let apart = |from: &[f64]| length(exact.iter().zip(from).map(|(b, v)| b.value - v)) / size;
        Ok((apart(found), tolerance(self.real).max(ROUNDING * apart(&self.moved[index]))))
    }
}

/// Loss and gradients of the fast kernels against f64, from the same parameters and batch.
pub(super) fn fast_against_reference(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "fast kernels against reference (f64)";
    let small = model.with_batch(model.batch.clamp(2, 2 * BATCH));
    let compiling = options.compiling();
    let (mut fast, mut pool) = prepared(&small, &compiling, options.seed)?;
    let (real, scale) = (fast.compiled().selection.real, f64::from(scale_of(&fast)?));
    let (seed, exact) = decided(&small, real, scale, options.seed)?;
    if seed != options.seed {
        (fast, pool) = prepared(&small, &compiling, seed)?;
    }
    let found = run_to_gradients(&mut fast, &mut pool, &small)?;
    let (mut worst, mut failures, mut lengths) = (Worst::default(), Vec::new(), 0);
    let mut by_length = ByLength::new(&exact, real);
    for (index, (p, grad)) in found.iter().enumerate() {
        let name = || small.param(*p).name.clone();
        let unscaled: Vec<f64> = grad.iter().map(|g| f64::from(*g) / scale).collect();
        let mut own = Worst::default();
        for (i, (g, bound)) in unscaled.iter().zip(&exact.grads[index]).enumerate() {
            own.meets(name, i, *g, *bound);
        }
        if by_length.is_needed(index) || (own.ratio > 1.0 && exact.undecided > 0) {
            let (error, allowed) = by_length.judge(&small, seed, index, &unscaled)?;
            lengths += 1;
            let ratio = if error.is_nan() { f64::INFINITY } else { error / allowed };
            let text = format!("{}: off by {error:.1e} of its length, bound {allowed:.1e}", name());
            own = Worst { ratio, text };
        }
        if own.ratio > 1.0 {
            failures.push((own.text.clone(), Some(culprit(&small, *p))));
        }
        if own.ratio > worst.ratio {
            worst = own;
        }
    }
    let loss = f64::from(fast.stored::<f32>(fast.find("loss")?)?[0]);
    let size = exact.loss.value.abs();
    let of_loss = if exact.loss.error <= size { exact.loss.error } else { tolerance(real) * size };
    if !worst.meets(|| "loss".into(), 0, loss, Bound { error: of_loss, ..exact.loss }) {
        failures.push((worst.text.clone(), None));
    }
    let passed = failures.is_empty();
    let whole = match lengths {
        0 => String::new(),
        n => format!("; {n} of {} tensors judged by their length", found.len()),
    };
    failures.truncate(8);
    Ok(Check::new(NAME, passed, format!("{}{whole}", worst.figures())).detail(failures))
}

/// The seed of a batch in which rounding decides no maximum, where one is found in a few draws, and its exact gradients.
fn decided(model: &Model, real: Real, scale: f64, first: u64) -> Result<(u64, Exact), TrainError> {
    let mut seed = first;
    loop {
        let (wide, _) = prepared(model, &Options::reference_f64(host_target(1)), seed)?;
        let exact = exact_gradients(model, &wide, real, scale)?;
        // In coarse types there are always some.
        if exact.undecided == 0 || real != Real::F32 || seed >= first + DRAWS {
            return Ok((seed, exact));
        }
        seed += 1;
    }
}

/// Every kernel of a CPU's step against the plain loops in f64, from the memory that the step itself gives it.
pub(super) fn each_kernel(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "each kernel against its reference (f64)";
    let small = model.with_batch(model.batch.clamp(2, 4 * BATCH));
    let (mut step, mut pool) = prepared(&small, &options.compiling(), options.seed)?;
    super::training::leave_start(&mut step, &mut pool)?;
    let compiled = std::sync::Arc::clone(step.compiled());
    let ops = &compiled.plan.program.ops;
    let (mut worst, mut failures, mut undecided) = (Worst::default(), Vec::new(), 0);
    for (index, op) in ops.iter().enumerate() {
        let Step::Cpu(memory) = &step else {
            return Ok(Check::skipped(NAME, "the step runs on a GPU"));
        };
        let mut bounded = BoundedStep::<24, 24>::new(std::sync::Arc::clone(&compiled), Storage::default());
        bounded.load_arguments(memory, index)?;
        let ties = bounded.run(index, index + 1)?;
        undecided += ties;
        step.run_ops(index, index + 1, &mut pool)?;
        let kernel = &compiled.selection.choices[index].kernel;
        let wrong = compare_op(&step, op, &bounded, ties > 0, kernel, &mut worst)?;
        failures.extend(wrong.map(|text| (format!("op {index} {text}"), Some(Culprit::Op(index)))));
    }
    let passed = failures.is_empty();
    let figures = format!("{} kernels, {}, {undecided} maxima left to rounding", ops.len(), worst.figures());
    failures.truncate(12);
    Ok(Check::new(NAME, passed, figures).detail(failures))
}

/// What is wrong with the results of an operation that has just run, where anything is.
fn compare_op(
    step: &Step,
    op: &Op,
    bounded: &BoundedStep<24, 24>,
    is_tied: bool,
    kernel: &str,
    worst: &mut Worst,
) -> Result<Option<String>, TrainError> {
    let program = &step.compiled().plan.program;
    for (slot, id) in op.bound(crate::lower::Dir::Out) {
        let value = program.value(id);
        let name = || format!("{kernel}: {slot} {}", value.name);
        if let (DType::F32, Some(bounds)) = (value.dtype, bounded.reals(id)) {
            let mut own = Worst::default();
            let found = step.stored::<f32>(id)?;
            for (i, (v, bound)) in found.iter().zip(bounds).enumerate() {
                own.meets(name, i, f64::from(*v), (*bound).into());
            }
            let failed = own.ratio > 1.0;
            let text = own.text.clone();
            if own.ratio > worst.ratio {
                *worst = own;
            }
            if failed {
                return Ok(Some(text));
            }
        } else if let (Step::Cpu(memory), Some(bytes)) = (step, bounded.raw(id)) {
            let different = memory.raw(id)?.iter().zip(bytes).filter(|(a, b)| a != b).count();
            if different > 0 && !is_tied {
                return Ok(Some(format!("{}: {different} of {} bytes differ", name(), bytes.len())));
            }
        }
    }
    Ok(None)
}
