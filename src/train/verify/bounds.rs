//! Bounds for what rounding may cause, a bound for each element from the arithmetic that made it, and every kernel of a
//! CPU held against them.

use super::diverges::has_large_arguments;
use super::gradient::{BATCH, trained, update_at};
use super::{Check, Culprit, VerifyOptions, prepared};
use crate::exec::Step;
use crate::exec::cpu::kernels::reference::bounded::Bounded;
use crate::exec::cpu::{BoundedStep, Storage};
use crate::lower::{LValueId, Op};
use crate::model::{Model, ParamId};
use crate::select::cuda::Real;
use crate::tensor::DType;
use crate::train::TrainError;

/// Batches that are drawn until no maximum has its place decided by rounding.
pub(super) const DRAWS: u64 = 6;
/// Below this a difference is that of numbers too small for `f32`.
const TINY: f64 = 1e-40;

/// An exact value with the bound for a kernel's error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl<const SUM: i32, const PRODUCT: i32> From<Bounded<SUM, PRODUCT>> for Bound {
    fn from(from: Bounded<SUM, PRODUCT>) -> Self {
        Self { value: from.value, error: from.error }
    }
}

/// The element whose error takes the largest part of its bound.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    /// Error over bound; infinite where a value is not a number and the exact one is.
    pub(super) ratio: f64,
    /// Such as `layers.0.weight[17]: error 1.2e-9, bound 3.4e-8, ratio 0.04`.
    pub(super) text: String,
}

/// Error over bound: 0 where there is no error, infinite where the error is not a number.
pub(super) fn ratio(error: f64, bound: f64) -> f64 {
    if error == 0.0 {
        0.0
    } else if error.is_nan() || bound.is_nan() {
        f64::INFINITY
    } else {
        error / (bound + TINY)
    }
}

/// An error with its bound, as every line of a check has them.
pub(super) fn told(error: f64, bound: f64) -> String {
    format!("error {error:.1e}, bound {bound:.1e}, ratio {}", ratio_text(ratio(error, bound)))
}

/// A ratio with two decimals, or with two digits where it is small or large.
pub(super) fn ratio_text(ratio: f64) -> String {
    if ratio == 0.0 || (0.01..100.0).contains(&ratio) { format!("{ratio:.2}") } else { format!("{ratio:.1e}") }
}

impl Worst {
    /// Takes the element in; true where it is within its bound.
    pub(super) fn meets(&mut self, name: impl Fn() -> String, index: usize, found: f64, bound: Bound) -> bool {
        // What may be beyond the range of `f32` may be infinite there.
        let leaves = found.is_infinite() && bound.value.abs() + bound.error >= f64::from(f32::MAX);
        let both_same = found == bound.value || (found.is_nan() && bound.value.is_nan()) || leaves;
        let error = if both_same { 0.0 } else { (found - bound.value).abs() };
        let ratio = ratio(error, bound.error);
        if ratio > self.ratio {
            self.ratio = ratio;
            let values = format!("{found:.6e} instead of {:.6e}", bound.value);
            self.text = format!("{}[{index}]: {} ({values})", name(), told(error, bound.error));
        }
        ratio <= 1.0
    }

    /// Takes the other in where its error takes a larger part of its bound.
    pub(super) fn join(&mut self, other: Self) {
        if other.ratio > self.ratio {
            *self = other;
        }
    }

    pub(super) fn figures(&self) -> String {
        if self.text.is_empty() {
            return "no difference (error 0, ratio 0.00)".into();
        }
        format!("largest error at {}", self.text)
    }
}

/// Exact gradients and the exact loss, with bounds.
pub(super) struct Exact {
    /// By trained parameter, in logical order.
    pub(super) grads: Vec<Vec<Bound>>,
    pub(super) loss: Bound,
    /// Maxima whose place rounding decides.
    pub(super) undecided: u64,
}

/// Gradients of the batch in `step`, with bounds for kernels that compute in `f64`.
pub(super) fn double(model: &Model, step: &Step) -> Result<Exact, TrainError> {
    run_bounded::<53, 53>(model, step, Storage::default())
}

/// Gradients of the first batch in exact arithmetic, with bounds for kernels that compute as `real` does.
pub(super) fn exact_gradients(model: &Model, step: &Step, real: Real, loss_scale: f64) -> Result<Exact, TrainError> {
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

/// Every kernel of a CPU's step against the plain loops in f64, from the memory that the step itself gives it.
pub(super) fn each_kernel(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = "each kernel against its reference (f64)";
    let small = model.with_batch(model.batch.min(4 * BATCH));
    let (mut step, mut pool) = prepared(&small, &options.compiling(), options.seed)?;
    super::training::leave_start(&mut step, &mut pool)?;
    let compiled = std::sync::Arc::clone(step.compiled());
    let ops = &compiled.plan.program.ops;
    let (mut worst, mut failures, mut undecided, mut beyond) = (Worst::default(), Vec::new(), 0, 0);
    for (index, op) in ops.iter().enumerate() {
        let Step::Cpu(memory) = &step else {
            return Ok(Check::skipped(NAME, "the step runs on a GPU"));
        };
        if has_large_arguments(&step, op)? {
            beyond += 1;
            step.run_ops(index, index + 1, &mut pool)?;
            continue;
        }
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
    let mut figures = format!("{} kernels, {}, {undecided} maxima left to rounding", ops.len(), worst.figures());
    if beyond > 0 {
        figures += &format!("; {beyond} kernels not judged, whose arguments have no squares in f32");
    }
    failures.truncate(12);
    Ok(Check::new(NAME, passed, figures).ratio(worst.ratio).detail(failures))
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
            worst.join(own);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_error_is_shown_with_its_bound_and_ratio() {
        assert_eq!(told(2e-3, 1e-3), "error 2.0e-3, bound 1.0e-3, ratio 2.00");
        assert_eq!(told(0.0, 0.0), "error 0.0e0, bound 0.0e0, ratio 0.00");
        let mut worst = Worst::default();
        assert!(worst.meets(|| "a".into(), 0, 1.5, Bound { value: 1.0, error: 1.0 }));
        assert!(!worst.meets(|| "b".into(), 3, 4.0, Bound { value: 1.0, error: 1.0 }));
        assert!(worst.meets(|| "c".into(), 1, f64::NAN, Bound { value: f64::NAN, error: 0.0 }));
        assert!(worst.figures().contains("b[3]: error 3.0e0, bound 1.0e0, ratio 3.00"), "{}", worst.figures());
        assert!(worst.meets(|| "e".into(), 2, f64::INFINITY, Bound { value: 3e38, error: 1e38 }));
        assert!(!worst.meets(|| "d".into(), 1, f64::NAN, Bound { value: 1.0, error: 0.0 }));
        assert!(worst.ratio.is_infinite());
    }
}
