//! Training that leaves the numbers of `f32` because the network does, and not because a kernel is wrong.

use super::prepared;
use crate::compile::Options;
use crate::exec::cpu::{BoundedStep, Pool, Storage, host_target};
use crate::exec::{Executor, Step};
use crate::lower::{Dir, Op};
use crate::model::{Model, ParamId, init_values};
use crate::tensor::DType;
use crate::train::TrainError;

/// Numbers from here on have no square in `f32`: what kernels make of them in between leaves its range.
const LARGE: f32 = 1e18;

/// Whether training on this machine's CPU leaves the numbers of `f32` within so many steps, and is right to: the first
/// operation whose results are not finite has arguments that have no squares in `f32`, or results on plain loops in
/// `f64` that are beyond its range.
pub(super) fn diverges(model: &Model, seed: u64, steps: u64) -> Result<bool, TrainError> {
    let (mut step, mut pool) = prepared(model, &Options::train(host_target(1)), seed)?;
    for (index, param) in model.params.iter().enumerate() {
        step.set_param(ParamId(index as u32), &init_values(param, index, seed))?;
    }
    let largest = step.find("update_max")?;
    for _ in 0..steps {
        let before = step.snapshot()?;
        step.run(Executor::Eager, &mut pool)?;
        if !step.stored::<f32>(largest)?[0].is_finite() {
            step.restore(&before)?;
            return leaves_rightly(&mut step, &mut pool);
        }
    }
    Ok(false)
}

/// Whether an operation that is about to run has arguments that have no squares in `f32`: what its kernel computes in
/// between may be infinite where the result is not.
pub(super) fn has_large_arguments(step: &Step, op: &Op) -> Result<bool, TrainError> {
    let program = &step.compiled().plan.program;
    for (_, id) in op.bound(Dir::In).filter(|(_, id)| program.value(*id).dtype == DType::F32) {
        // A NaN is not below anything.
        if !step.stored::<f32>(id)?.iter().all(|v| v.abs() < LARGE) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs a step operation by operation up to the first result that is not finite, and says whether that is right.
fn leaves_rightly(step: &mut Step, pool: &mut Pool) -> Result<bool, TrainError> {
    let compiled = std::sync::Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    for (index, op) in program.ops.iter().enumerate() {
        let Step::Cpu(memory) = &*step else { return Ok(false) };
        let mut bounded = BoundedStep::<24, 24>::new(std::sync::Arc::clone(&compiled), Storage::default());
        bounded.load_arguments(memory, index)?;
        let has_large = has_large_arguments(step, op)?;
        bounded.run(index, index + 1)?;
        step.run_ops(index, index + 1, pool)?;
        for (_, id) in op.bound(Dir::Out).filter(|(_, id)| program.value(*id).dtype == DType::F32) {
            let found = step.stored::<f32>(id)?;
            let Some(at) = found.iter().position(|v| !v.is_finite()) else { continue };
            let fits = |at: usize| {
                let exact = bounded.reals(id).map(|reals| reals[at]);
                exact.is_some_and(|exact| exact.value.abs() + exact.error < f64::from(f32::MAX))
            };
            return Ok(has_large || !fits(at));
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};

    fn model(lr: f64) -> Model {
        let text = format!(
            r#"{{"version": 1, "name": "wild", "input": {{"shape": [4], "batch": 4}},
            "layers": [{{"type": "dense", "units": 8}}, {{"type": "dense", "units": 8}},
                       {{"type": "dense", "units": 4}}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": {lr}}}}}"#
        );
        check(&read_preset(&text).unwrap()).model.unwrap()
    }

    #[test]
    fn a_network_that_leaves_the_numbers_of_its_type_is_told_from_one_that_does_not() {
        assert!(diverges(&model(1000.0), 1, 30).unwrap());
        assert!(!diverges(&model(0.01), 1, 30).unwrap());
    }

    #[test]
    fn a_result_that_should_be_finite_is_not_excused() {
        let model = model(0.01);
        let (mut step, mut pool) = prepared(&model, &Options::train(host_target(1)), 1).unwrap();
        assert!(!leaves_rightly(&mut step, &mut pool).unwrap());
        // Parameters whose products are beyond the range.
        let huge = vec![1e30f32; model.params[0].shape.len()];
        step.set_param(ParamId(0), &huge).unwrap();
        step.set_param(ParamId(2), &vec![1e30f32; model.params[2].shape.len()]).unwrap();
        assert!(leaves_rightly(&mut step, &mut pool).unwrap());
    }
}
