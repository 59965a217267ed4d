//! Training that leaves the numbers of `f32` because the network does, and not because a kernel is wrong.

use super::options::{VerifyOptions, session_spec};
use crate::exec::cpu::{BoundedStep, Pool, Storage, host_target};
use crate::exec::{MemoryOf, Step};
use crate::lower::{LValueId, Op};
use crate::model::Preset;
use crate::ops::Dir;
use crate::tensor::DType;
use crate::train::{FeedPosition, Session, TrainError};

/// Numbers from here on have no square in `f32`: what kernels make of them in between leaves its range.
const LARGE: f64 = 1e18;

/// Whether training on this machine's CPU leaves the numbers of `f32` within so many steps, and is right to: the first
/// operation whose results are not finite has arguments that have no squares in `f32`, or results on plain loops in
/// `f64` that are beyond its range.
pub(super) fn diverges(preset: &Preset, options: &VerifyOptions, steps: u64) -> Result<bool, TrainError> {
    let options = VerifyOptions { machine: Some(host_target(1)), threads: 1, tuning: None, ..options.clone() };
    let mut session = Session::prepare(&session_spec(preset, &options))?;
    let Session { train, pool, feed, .. } = &mut session;
    let batches = train.batches();
    for number in (0..steps).flat_map(|_| 0..batches) {
        let step = train.of_batch(number);
        // Given batches start over at their end.
        if !feed.next(step)? {
            feed.resume(FeedPosition::Batches(0))?;
            feed.next(step)?;
        }
        if let Some(is_right) = first_not_finite(step, pool)? {
            return Ok(is_right);
        }
    }
    Ok(false)
}

/// Whether an operation that is about to run has arguments that have no squares in `f32`: what its kernel computes in
/// between may be infinite where the result is not.
pub(super) fn has_large_arguments(step: &Step, op: &Op) -> Result<bool, TrainError> {
    for (_, id) in op.bound(Dir::In) {
        if reals_of(step, id)?.into_iter().any(is_large) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a number has no square in `f32`, or is none.
pub(super) fn is_large(value: f64) -> bool {
    value.is_nan() || value.abs() >= LARGE
}

/// The numbers of a value; none of one that holds no reals.
fn reals_of(step: &Step, id: LValueId) -> Result<Vec<f64>, TrainError> {
    Ok(match step.compiled().plan.program.value(id).dtype {
        DType::F32 => step.stored::<f32>(id)?.iter().map(|v| f64::from(*v)).collect(),
        DType::F64 => step.stored::<f64>(id)?.to_vec(),
        _ => Vec::new(),
    })
}

/// Runs operations `0..until` of a step, and says whether they come to results that are not finite, and are right to:
/// the first operation that does has arguments that have no squares in `f32`.
pub(super) fn leaves_numbers(step: &mut Step, pool: &mut Pool, until: usize) -> Result<bool, TrainError> {
    let compiled = std::sync::Arc::clone(step.compiled());
    let mut is_right = None;
    for (index, op) in compiled.plan.program.ops.iter().enumerate().take(until) {
        let has_large = is_right.is_none() && has_large_arguments(step, op)?;
        step.run_ops(index, index + 1, pool)?;
        for (_, id) in op.bound(Dir::Out) {
            if is_right.is_none() && reals_of(step, id)?.iter().any(|v| !v.is_finite()) {
                is_right = Some(has_large);
            }
        }
    }
    Ok(is_right == Some(true))
}

/// Runs a step operation by operation up to the first result that is not finite, and says whether that is right;
/// nothing where all results are finite.
fn first_not_finite(step: &mut Step, pool: &mut Pool) -> Result<Option<bool>, TrainError> {
    let compiled = std::sync::Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    for (index, op) in program.ops.iter().enumerate() {
        if step.capabilities().memory == MemoryOf::Device {
            return Ok(Some(false));
        }
        let mut bounded = BoundedStep::<24, 24>::new(std::sync::Arc::clone(&compiled), Storage::default());
        bounded.load_arguments(step.backend(), index)?;
        let has_large = has_large_arguments(step, op)?;
        step.run_ops(index, index + 1, pool)?;
        for (_, id) in op.bound(Dir::Out).filter(|(_, id)| program.value(*id).dtype == DType::F32) {
            let found = step.stored::<f32>(id)?;
            let Some(at) = found.iter().position(|v| !v.is_finite()) else { continue };
            bounded.run(index, index + 1)?;
            let exact = bounded.reals(id).map(|reals| reals[at]);
            let fits = exact.is_some_and(|exact| exact.value.abs() + exact.error < f64::from(f32::MAX));
            return Ok(Some(has_large || !fits));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Options;
    use crate::model::{ParamId, check, read_preset};
    use crate::train::prepared_step::prepared;

    fn preset(lr: f64, data: &str) -> Preset {
        let text = format!(
            r#"{{"version": 1, "name": "wild", "input": {{"shape": [4], "batch": 4}},
            "layers": [{{"type": "dense", "units": 8}}, {{"type": "dense", "units": 8}},
                       {{"type": "dense", "units": 4}}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": {lr}}}{data}}}"#
        );
        read_preset(&text).unwrap()
    }

    #[test]
    fn a_network_that_leaves_the_numbers_of_its_type_is_distinguished_from_one_that_does_not() {
        let options = VerifyOptions { seed: 1, ..VerifyOptions::default() };
        for data in ["", r#", "data": {"type": "regression", "samples": 40, "noise": 0.1}"#] {
            assert!(diverges(&preset(1000.0, data), &options, 30).unwrap());
            assert!(!diverges(&preset(0.01, data), &options, 30).unwrap());
        }
    }

    /// Where several batches make a step, the sum of their gradients is what updates.
    #[test]
    fn a_step_of_several_batches_is_followed_through_all_of_them() {
        let norms = r#"{"type": "batch_norm"}, {"type": "batch_norm"}"#;
        let text = format!(
            r#"{{"name": "wild", "input": {{"shape": [4, 1, 1], "batch": 3}}, "layers": [
            {{"type": "dense", "units": 1}}, {{"type": "repeat", "times": 2, "layers": [
            {{"type": "repeat", "times": 3, "layers": [{norms}]}}]}},
            {{"type": "flatten"}}], "loss": {{"type": "softmax_cross_entropy"}},
            "optimizer": {{"type": "sgd", "lr": 0.1}}, "data": {{"type": "iris", "split": "last"}},
            "train": {{"steps": 9, "accumulate": 3}}}}"#
        );
        let options = VerifyOptions { seed: 911_843, ..VerifyOptions::default() };
        let preset = read_preset(&text).unwrap();
        assert!(diverges(&preset, &options, 5).unwrap() && !diverges(&preset, &options, 1).unwrap());
    }

    #[test]
    fn a_result_that_should_be_finite_is_not_excused() {
        let model = check(&preset(0.01, "")).model.unwrap();
        let (mut step, mut pool) = prepared(&model, &Options::train(host_target(1)), 1).unwrap();
        assert_eq!(first_not_finite(&mut step, &mut pool).unwrap(), None);
        // Parameters whose products are beyond the range.
        for index in [0, 2] {
            let huge = vec![1e30f32; model.params[index].shape.len()];
            step.set_param(ParamId(index as u32), &huge).unwrap();
        }
        assert_eq!(first_not_finite(&mut step, &mut pool).unwrap(), Some(true));
    }

    #[test]
    fn only_large_arguments_excuse_a_step_on_plain_loops_that_leaves_the_numbers() {
        let model = check(&preset(0.01, "")).model.unwrap();
        let leaves = |weight: f64| {
            let (mut step, mut pool) = prepared(&model, &Options::reference_f64(host_target(1)), 1).unwrap();
            for index in [0, 2, 4] {
                step.set_param(ParamId(index), &vec![weight; model.params[index as usize].shape.len()]).unwrap();
            }
            let until = step.compiled().plan.program.ops.len();
            leaves_numbers(&mut step, &mut pool, until).unwrap()
        };
        assert_eq!([1e-3, 1e10, 1e150, f64::NAN].map(leaves), [false, false, true, true]);
    }
}
