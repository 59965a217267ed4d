//! Fast kernels against plain loops in f64, each difference held against what rounding may cause: a bound for each
//! element, from the arithmetic that made it.

use super::bound::{Bound, Worst, error_text, ratio, tolerance};
use super::divergence::has_large_arguments;
use super::exact::{DRAWS, Exact, exact_gradients};
use super::gradient_step::{BATCH, culprit, run_to_gradients, scale_of, trained, update_at};
use super::{Check, Culprit, VerifyOptions};
use crate::compile::Options;
use crate::exec::cpu::{BoundedStep, Storage, host_target};
use crate::exec::{MemoryOf, Step};
use crate::lower::Op;
use crate::model::{Model, ParamId};
use crate::select::cuda::Real;
use crate::tensor::DType;
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// Rounding of activations and of their gradients beside that of parameters.
const ROUNDING: f64 = 4.0;

/// The nearest number with as many bits as products have of a type; for `f32` the next but one, as nothing is rounded
/// there.
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

/// Gradients in f64 where the parameters alone are rounded: how far a network's gradients move for that, and how many
/// a relu turns the other way.
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

/// Tensors whose elements cannot be judged one by one, because their bounds are as large as the network's gradients or
/// rounding decides the
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

    /// Whether elements of a tensor cannot be judged by their bounds. In `f32` that is where one has none; in coarser
    /// types
    /// also where the bounds say less than the tensor's length.
    fn is_needed(&self, index: usize) -> bool {
        let bounds = || self.exact.grads[index].iter().map(|b| b.error);
        let is_unlimited = bounds().any(|error| !error.is_finite());
        is_unlimited || (self.real != Real::F32 && length(bounds()) > tolerance(self.real) * self.longest)
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

/// The gradients of a step by trained parameter, scaled as the step scales them.
type Gradients = Vec<(ParamId, Vec<f32>)>;

/// Loss and gradients of the fast kernels against f64, from the same parameters and batch.
pub(super) fn fast_against_reference(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    judged(model, options, |_, _| {})
}

/// As [`fast_against_reference`]; `spoil` gets hold of the fast step's gradients before they are judged, so that a test
/// can see the check fail.
fn judged(
    model: &Model,
    options: &VerifyOptions,
    spoil: impl FnOnce(&mut Gradients, &Exact),
) -> Result<Check, TrainError> {
    const NAME: &str = "fast kernels against reference (f64)";
    let small = model.with_batch(model.batch.min(2 * BATCH));
    let compiling = options.compiling();
    let (mut fast, mut pool) = prepared(&small, &compiling, options.seed)?;
    let (real, scale) = (fast.compiled().selection.real, f64::from(scale_of(&fast)?));
    let (seed, exact) = decided(&small, real, scale, options.seed)?;
    if seed != options.seed {
        (fast, pool) = prepared(&small, &compiling, seed)?;
    }
    let mut found = run_to_gradients(&mut fast, &mut pool, &small)?;
    spoil(&mut found, &exact);
    let (mut worst, mut failures, mut lengths) = (Worst::default(), Vec::new(), 0);
    let mut by_length = ByLength::new(&exact, real);
    for (index, (p, grad)) in found.iter().enumerate() {
        let name = || small.param(*p).name.clone();
        let unscaled: Vec<f64> = grad.iter().map(|g| f64::from(*g) / scale).collect();
        let mut own = Worst::default();
        for (i, (g, bound)) in unscaled.iter().zip(&exact.grads[index]).enumerate() {
            own.meets(name, i, *g, *bound);
        }
        let is_needed = by_length.is_needed(index);
        if is_needed || (own.ratio > 1.0 && exact.undecided > 0) {
            let (error, allowed) = by_length.judge(&small, seed, index, &unscaled)?;
            lengths += 1;
            let text = format!("{}: of its length {}", name(), error_text(error, allowed));
            let whole = Worst { ratio: ratio(error, allowed), text };
            // In `f32`, elements that have a bound must keep to it beside others that have none.
            if real == Real::F32 && is_needed && exact.undecided == 0 {
                own.join(whole);
            } else {
                own = whole;
            }
        }
        if own.ratio > 1.0 {
            failures.push((own.text.clone(), Some(culprit(&small, *p))));
        }
        worst.join(own);
    }
    let loss = f64::from(fast.stored::<f32>(fast.find("loss")?)?[0]);
    let size = exact.loss.value.abs();
    let is_bounded = if real == Real::F32 { exact.loss.error.is_finite() } else { exact.loss.error <= size };
    let of_loss = if is_bounded { exact.loss.error } else { tolerance(real) * size };
    let mut own = Worst::default();
    if !own.meets(|| "loss".into(), 0, loss, Bound { error: of_loss, ..exact.loss }) {
        failures.push((own.text.clone(), None));
    }
    worst.join(own);
    let passed = failures.is_empty();
    let whole = match lengths {
        0 => String::new(),
        n => format!("; {n} of {} tensors judged by their length", found.len()),
    };
    failures.truncate(8);
    Ok(Check::new(NAME, passed, format!("{}{whole}", worst.figures())).ratio(worst.ratio).detail(failures))
}

/// The seed of a batch in which rounding decides no maximum, where one is found in a few draws, and its exact
/// gradients.
fn decided(model: &Model, real: Real, scale: f64, first: u64) -> Result<(u64, Exact), TrainError> {
    let mut draw = 0;
    loop {
        let seed = first.wrapping_add(draw);
        let (wide, _) = prepared(model, &Options::reference_f64(host_target(1)), seed)?;
        let exact = exact_gradients(model, &wide, real, scale)?;
        // In coarse types there are always some.
        if exact.undecided == 0 || real != Real::F32 || draw >= DRAWS {
            return Ok((seed, exact));
        }
        draw += 1;
    }
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
        if step.capabilities().memory == MemoryOf::Device {
            return Ok(Check::skipped(NAME, "the step runs on a GPU"));
        }
        if has_large_arguments(&step, op)? {
            beyond += 1;
            step.run_ops(index, index + 1, &mut pool)?;
            continue;
        }
        let mut bounded = BoundedStep::<24, 24>::new(std::sync::Arc::clone(&compiled), Storage::default());
        bounded.load_arguments(step.backend(), index)?;
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
    for (slot, id) in op.bound(crate::ops::Dir::Out) {
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
        } else if let Some(bytes) = bounded.raw(id) {
            let different = step.backend().bytes(id)?.iter().zip(bytes).filter(|(a, b)| a != b).count();
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
    use crate::model::random::{Size, random_preset};
    use crate::model::{Precision, check};

    /// The model of a random network in `f32`, and what to verify it with.
    fn network(seed: u64) -> (Model, VerifyOptions) {
        let preset = crate::model::Preset { precision: Precision::F32, ..random_preset(seed, Size::SMALL) };
        (check(&preset).model.unwrap(), VerifyOptions { threads: 1, seed, ..VerifyOptions::default() })
    }

    #[test]
    fn an_error_of_ten_times_the_bound_fails_in_every_tensor() {
        let (mut planted, mut tensors) = (0, 0);
        for seed in 0..12 {
            let (model, options) = network(seed);
            for index in 0..trained(&model).count() {
                let mut place = None;
                let check = judged(&model, &options, |found, exact| {
                    // The element whose bound is largest: the one in which an error is least likely to be seen.
                    let bounds = exact.grads[index].iter().map(|b| b.error).enumerate();
                    let finite = bounds.filter(|(_, b)| b.is_finite() && *b > 0.0 && exact.undecided == 0);
                    place = finite.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
                    if let Some(at) = place {
                        let Bound { value, error } = exact.grads[index][at];
                        found[index].1[at] = (value + 10.0 * error) as f32;
                    }
                });
                let check = check.unwrap();
                tensors += 1;
                let Some(at) = place else { continue };
                planted += 1;
                let name = &model.param(trained(&model).nth(index).unwrap()).name;
                let lines = check.detail.join("\n");
                assert!(check.passed == Some(false) && lines.contains(&format!("{name}[{at}]: error")), "{check:?}");
                // Rounding the planted value to `f32` takes a little of it.
                assert!(check.ratio > Some(9.0), "{check:?}");
            }
        }
        assert!(planted * 2 > tensors, "errors in {planted} of {tensors} tensors");
    }

    #[test]
    fn elements_in_f32_are_judged_by_their_bounds_wherever_they_have_one() {
        // Bounds far above the network's longest gradient.
        let exact = |error: f64| Exact {
            grads: vec![vec![Bound { value: 1.0, error: 0.5 }, Bound { value: 0.1, error }]],
            loss: Bound::default(),
            undecided: 0,
        };
        let is_needed = |error: f64, real: Real| ByLength::new(&exact(error), real).is_needed(0);
        assert!(!is_needed(100.0, Real::F32) && is_needed(100.0, Real::Bf16) && !is_needed(1e-3, Real::F32));
        assert!([f64::INFINITY, f64::NAN].iter().all(|e| is_needed(*e, Real::F32) && is_needed(*e, Real::F16)));
    }

    #[test]
    fn a_planted_error_is_shown_with_its_bound_and_ratio() {
        assert_eq!(error_text(2e-3, 1e-3), "error 2.0e-3, bound 1.0e-3, ratio 2.00");
        assert_eq!(error_text(0.0, 0.0), "error 0.0e0, bound 0.0e0, ratio 0.00");
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
