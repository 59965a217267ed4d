//! Fast kernels against plain loops in f64, each difference held against what rounding may cause: a bound for each element, from the arithmetic
//! that made it.

use super::gradient::{self, BATCH, culprit, run_to_gradients, scale_of, trained, update_at};
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

/// Loss and gradients of the fast kernels against f64, from the same parameters and batch.
pub(super) fn fast_against_reference(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "fast kernels against reference (f64)";
    let small = model.with_batch(model.batch.clamp(2, 2 * BATCH));
    let compiling = options.compiling();
    let mut seed = options.seed;
    let (mut fast, mut pool) = prepared(&small, &compiling, seed)?;
    let real = fast.compiled().selection.real;
    let scale = f64::from(scale_of(&fast)?);
    let mut exact;
    loop {
        let (wide, _) = prepared(&small, &Options::reference_f64(host_target(1)), seed)?;
        exact = exact_gradients(&small, &wide, real, scale)?;
        if exact.undecided == 0 || seed >= options.seed + DRAWS {
            break;
        }
        seed += 1;
    }
    if seed != options.seed {
        (fast, pool) = prepared(&small, &compiling, seed)?;
    }
    let found = run_to_gradients(&mut fast, &mut pool, &small)?;
    let mut worst = Worst::default();
    let mut failures = Vec::new();
    for ((p, grad), bounds) in found.iter().zip(&exact.grads) {
        let name = || small.param(*p).name.clone();
        let mut inside = true;
        let mut own = Worst::default();
        for (i, (g, bound)) in grad.iter().zip(bounds).enumerate() {
            inside &= own.meets(name, i, f64::from(*g) / scale, *bound);
        }
        // A maximum that is elsewhere moves single elements far: the whole tensor counts then.
        let whole = || gradient::apart_of(grad, scale, bounds.iter().map(|b| b.value)) <= gradient::tolerance(real);
        if !inside && !(exact.undecided > 0 && whole()) {
            failures.push((own.text.clone(), Some(culprit(&small, *p))));
        }
        if own.ratio > worst.ratio {
            worst = own;
        }
    }
    let loss = f64::from(fast.stored::<f32>(fast.find("loss")?)?[0]);
    if !worst.meets(|| "loss".into(), 0, loss, exact.loss) {
        failures.push((worst.text.clone(), None));
    }
    let passed = failures.is_empty();
    let undecided = match exact.undecided {
        0 => String::new(),
        n => format!("; rounding decides the place of {n} maxima"),
    };
    failures.truncate(8);
    Ok(Check::new(NAME, passed, format!("{}{undecided}", worst.figures())).detail(failures))
}

/// Every kernel of a CPU's step against the plain loops in f64, from the memory that the step itself gives it.
pub(super) fn each_kernel(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "each kernel against its reference (f64)";
    let small = model.with_batch(model.batch.clamp(2, 4 * BATCH));
    let (mut step, mut pool) = prepared(&small, &options.compiling(), options.seed)?;
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
