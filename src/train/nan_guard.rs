//! Finds the operation that produced the first NaN.
//!
//! A step leaves no trace of where a value stopped being finite: activations are overwritten and parameters updated.
//! But a run is exactly repeatable, so it is enough to keep a snapshot every few hundred steps: when a loss or gradient
//! is no longer finite, the run goes back to the snapshot, replays up to the step in question, and runs that step op by
//! op, checking every output.

use super::kept_state::KeptState;
use super::training_step::TrainingStep;
use super::{DataFeed, FeedPosition, TrainError};
use crate::exec::cpu::Pool;
use crate::exec::{Executor, MemoryOf, Step};
use crate::ir::Role;
use crate::lower::{LValueId, Op};
use crate::ops::Dir;
use crate::tensor::DType;
use std::path::Path;

/// Steps between snapshots.
const INTERVAL: u64 = 256;

/// A rolling snapshot of a run.
pub(super) struct Guard {
    kept: KeptState,
    position: FeedPosition,
    step: u64,
}

impl Guard {
    /// A guard over a run that has made no step, which stores its snapshots in `kept`.
    ///
    /// # Errors
    /// If the device or the disk fails.
    pub(super) fn new(step: &mut Step, feed: &DataFeed, mut kept: KeptState) -> Result<Self, TrainError> {
        kept.save(step)?;
        Ok(Self { kept, position: feed.position(), step: 0 })
    }

    /// Restores the step's state at the last snapshot.
    ///
    /// # Errors
    /// If the device or the disk fails.
    pub(super) fn put_back(&self, step: &mut Step) -> Result<(), TrainError> {
        self.kept.put_back(step)
    }

    /// Renews the snapshot if it is old, or if something outside the step changed its state. Allocates nothing.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn renew(
        &mut self,
        step: &mut Step,
        feed: &DataFeed,
        steps_done: u64,
        force: bool,
    ) -> Result<(), TrainError> {
        if force || steps_done >= self.next(step) {
            self.kept.save(step)?;
            self.position = feed.position();
            self.step = steps_done;
        }
        Ok(())
    }

    /// The number of steps after which the next snapshot is due.
    pub(super) fn next(&self, step: &Step) -> u64 {
        // A snapshot is copied to the host; on a GPU that costs as much as many steps.
        self.step
            + match step.capabilities().memory {
                MemoryOf::Device => 16 * INTERVAL,
                MemoryOf::Host => INTERVAL,
            }
    }

    /// Finds where step `number` produced a value that is not finite, and leaves the run as it was before that step.
    pub(super) fn explain(
        &self,
        step: &mut TrainingStep,
        feed: &mut DataFeed,
        pool: &mut Pool,
        number: u64,
    ) -> Result<String, TrainError> {
        let (kept, from) = (&self.kept, self.position);
        let to_failed = |step: &mut TrainingStep, feed: &mut DataFeed, pool: &mut Pool| {
            kept.put_back(step)?;
            feed.resume(from)?;
            for number in self.step + 1..number {
                for batch in 0..step.batches() {
                    step.choose(number, batch, feed)?;
                    feed.next(step.chosen_mut())?;
                    step.run_chosen(Executor::Replay, pool)?;
                }
            }
            Ok::<_, TrainError>(feed.position())
        };
        let position = to_failed(step, feed, pool)?;
        // A state that is too large to be kept twice is computed again.
        let before = kept.is_memory().then(|| step.snapshot()).transpose()?;
        let mut origin = None;
        for batch in 0..step.batches() {
            step.choose(number, batch, feed)?;
            feed.next(step.chosen_mut())?;
            origin = first_bad_op(step.chosen_mut(), pool)?;
            if origin.is_some() {
                break;
            }
        }
        let origin = origin.unwrap_or_else(|| "run op by op, the step stays finite".into());
        match before {
            Some(before) => step.restore(&before)?,
            None => {
                to_failed(step, feed, pool)?;
            }
        }
        feed.resume(position)?;
        Ok(origin)
    }
}

/// Runs the step op by op and returns the first operation whose result is not finite; `None` if there is none.
fn first_bad_op(step: &mut Step, pool: &mut Pool) -> Result<Option<String>, TrainError> {
    let compiled = std::sync::Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    if !program.all_samples().all(|x| is_finite(step, x)) {
        return Ok(Some("the batch itself holds values that are not finite".into()));
    }
    for (index, op) in program.ops.iter().enumerate() {
        step.run_ops(index, index + 1, pool)?;
        // A metric may overflow `f32` while a run continues; the loss may not.
        let is_metric = |v: LValueId| program.value(v).role == Role::Metric && program.value(v).name != "loss";
        let bad = op.bound(Dir::Out).find(|(_, v)| !is_metric(*v) && !is_finite(step, *v));
        if let Some((slot, value)) = bad {
            let kernel = &compiled.selection.choices[index].kernel;
            let layer = compiled.owner(index);
            let large = largest_input(step, op)
                .map(|(name, v)| format!("; its largest input is {v:.1e} in {name}"))
                .unwrap_or_default();
            let name = &program.value(value).name;
            return Ok(Some(format!(
                "the first value that is not finite is {name} ({slot}), made by op {index} {kernel} of {layer}{large}; \
                 lower the learning rate or look at the data"
            )));
        }
    }
    Ok(None)
}

/// Whether every parameter and running statistic is finite.
///
/// # Errors
/// If the device fails.
pub(super) fn parameters_are_finite(step: &Step) -> Result<bool, TrainError> {
    first_infinite(step).map(|found| found.is_none())
}

/// The name of the first parameter or running statistic that contains NaN or infinite values.
fn first_infinite(step: &Step) -> Result<Option<&str>, TrainError> {
    let compiled = step.compiled();
    for (slot, param) in compiled.plan.program.params.iter().zip(&compiled.model.params) {
        if !step.stored::<f32>(slot.value)?.iter().all(|v| v.is_finite()) {
            return Ok(Some(&param.name));
        }
    }
    Ok(None)
}

/// Refuses to write parameters and running statistics that are not finite, because no run could start from them.
///
/// # Errors
/// If one of them is not finite, or if the device fails.
pub(super) fn check_parameters(step: &Step, path: &Path) -> Result<(), TrainError> {
    match first_infinite(step)? {
        Some(name) => Err(TrainError::Diverged { path: path.to_owned(), name: name.to_owned() }),
        None => Ok(()),
    }
}

/// Runs nothing; true if every element is finite. Values that are not floats are considered finite.
fn is_finite(step: &Step, id: LValueId) -> bool {
    match step.compiled().plan.program.value(id).dtype {
        DType::F32 | DType::F16 | DType::Bf16 => step.stored::<f32>(id).is_ok_and(|v| v.iter().all(|x| x.is_finite())),
        DType::F64 => step.stored::<f64>(id).is_ok_and(|v| v.iter().all(|x| x.is_finite())),
        _ => true,
    }
}

fn largest_input(step: &Step, op: &Op) -> Option<(String, f32)> {
    let program = &step.compiled().plan.program;
    let inputs = op.reads().filter(|v| program.value(*v).dtype == DType::F32);
    let largest = inputs.filter_map(|v| {
        let max = step.stored::<f32>(v).ok()?.iter().fold(0f32, |m, x| m.max(x.abs()));
        Some((program.value(v).name.clone(), max))
    });
    largest.max_by(|a, b| a.1.total_cmp(&b.1))
}
