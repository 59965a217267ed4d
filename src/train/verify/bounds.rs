//! Every kernel of a CPU's step against plain loops in f64, each difference held against what rounding may cause.

use super::bound::Worst;
use super::divergence::has_large_arguments;
use super::gradient_step::BATCH;
use super::{Check, Culprit, VerifyOptions};
use crate::exec::cpu::{BoundedStep, Storage};
use crate::exec::{MemoryOf, Step};
use crate::lower::Op;
use crate::model::Model;
use crate::tensor::{DType, counted};
use crate::train::TrainError;
use crate::train::prepared_step::prepared;

/// Every kernel of a CPU's step against the plain loops in f64, from the memory that the step itself gives it.
pub(super) fn each_kernel(model: &Model, options: &VerifyOptions) -> Result<Check, TrainError> {
    const NAME: &str = super::names::EACH_KERNEL;
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
    let kernels = counted(ops.len() as u64, "kernel");
    let mut figures = format!("{kernels}, {}; maxima whose place rounding decides: {undecided}", worst.figures());
    if beyond > 0 {
        figures += &format!("; kernels not checked, because their arguments have no squares in f32: {beyond}");
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
    use super::super::bound::{Bound, Worst, error_text};

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
