//! Evaluation on the held-out part: a forward-only step that shares the parameters.

use super::data_feed::gather_samples;
use super::{TrainError, gpu_times, plant};
use crate::compile::{Compiled, Options, compile};
use crate::data::{Dataset, Target};
use crate::exec::cpu::Pool;
use crate::exec::{CachedStep, Executor, Step, StepKey, WHOLE, samples_to_stored};
use crate::model::{LossSpec, Model};
use crate::select::Target as Machine;
use serde::Serialize;
use std::sync::Arc;

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    pub samples: usize,
    /// Mean loss, without label smoothing.
    pub loss: f64,
    /// Share of samples classified right; absent for values.
    pub accuracy: Option<f64>,
    /// Samples by true class (rows) and predicted class (columns).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u32>>,
}

/// The compiled evaluation of a network.
pub(super) struct Evaluator {
    step: CachedStep,
    indices: Vec<u32>,
}

/// The step that evaluates a network on a machine.
///
/// # Errors
/// Where it cannot be compiled.
pub(super) fn compiled_evaluation(model: &Model, machine: &Machine) -> Result<Compiled, TrainError> {
    let options = Options::eval(machine.clone());
    Ok(compile(model, &Options { gpu_times: gpu_times(model, &options)?, ..options })?)
}

/// More classes than this make a confusion matrix that nobody reads.
const MAX_CONFUSION: usize = 256;

impl Evaluator {
    /// Why evaluations run op by op, where they do.
    pub(super) fn why_eager(&self) -> Option<String> {
        self.step.recording().why_eager
    }

    /// The evaluation's step.
    pub(super) fn step_mut(&mut self) -> &mut Step {
        &mut self.step
    }

    /// The evaluation that shares the parameters of `owner`, as it was compiled before, or compiled now.
    pub(super) fn new(
        model: &Model,
        machine: &Machine,
        owner: &CachedStep,
        compiled: Option<Compiled>,
    ) -> Result<Self, TrainError> {
        let compiled = Arc::new(compiled.map_or_else(|| compiled_evaluation(model, machine), Ok)?);
        let step = match (plant::stale_owner(owner)?, owner.home()) {
            (None, Some((cache, _))) => {
                let key = StepKey::of(&compiled, WHOLE);
                let step = cache.lend(&key, || Ok::<_, TrainError>(compiled))?;
                cache.pin(&key, true);
                step
            }
            (stale, _) => CachedStep::alone(Step::sharing(compiled, stale.as_ref().unwrap_or(owner))?),
        };
        Ok(Self { step, indices: vec![0; model.batch] })
    }

    /// The network's outputs for samples by index, `[indices.len(), output]`, handed to `each` batch by batch with the
    /// number of rows that count.
    pub(super) fn outputs(
        &mut self,
        pool: &mut Pool,
        stored: &[f32],
        indices: &[u32],
        mut each: impl FnMut(&[u32], &[f32]),
    ) -> Result<(), TrainError> {
        let (x, output) = (self.step.compiled().plan.program.samples(), self.step.compiled().plan.program.output);
        for chunk in indices.chunks(self.indices.len()) {
            // The last batch is filled up with its first sample; those rows do not count.
            self.indices.fill(chunk[0]);
            self.indices[..chunk.len()].copy_from_slice(chunk);
            gather_samples(&mut self.step, x, stored, &self.indices)?;
            self.step.run(Executor::Replay, pool)?;
            let values = self.step.stored::<f32>(output)?;
            let width = values.len() / self.indices.len();
            each(chunk, &values[..chunk.len() * width]);
        }
        Ok(())
    }

    /// The network's outputs for points in logical order, `[points, output]`.
    pub(super) fn answer(&mut self, pool: &mut Pool, points: &[f32]) -> Result<Vec<f32>, TrainError> {
        let program = &self.step.compiled().plan.program;
        let (x, width) = (program.value(program.samples()), self.step.compiled().model.input.len().max(1));
        let stored = samples_to_stored(points, x.layout);
        let indices: Vec<u32> = (0..(points.len() / width) as u32).collect();
        let mut out = Vec::new();
        self.outputs(pool, &stored, &indices, |_, values| out.extend_from_slice(values))?;
        Ok(out)
    }

    /// Loss and accuracy over `indices`.
    pub(super) fn evaluate(
        &mut self,
        pool: &mut Pool,
        model: &Model,
        set: &Dataset,
        stored: &[f32],
        indices: &[u32],
    ) -> Result<Evaluation, TrainError> {
        let width = model.output.len();
        let classes = matches!(model.loss, LossSpec::SoftmaxCrossEntropy { .. });
        let mut confusion = if classes && width <= MAX_CONFUSION { vec![vec![0u32; width]; width] } else { Vec::new() };
        let (mut loss, mut right) = (0.0f64, 0usize);
        let indices = &*plant::held_out(indices, model.batch);
        self.outputs(pool, stored, indices, |chunk, values| {
            for (&i, row) in chunk.iter().zip(values.chunks_exact(width)) {
                match &set.target {
                    Target::Classes { labels, .. } => {
                        let label = labels[i as usize] as usize;
                        let guess = argmax(row);
                        loss += cross_entropy(row, label);
                        right += usize::from(guess == label);
                        if let Some(cell) = confusion.get_mut(label).and_then(|r| r.get_mut(guess)) {
                            *cell += 1;
                        }
                    }
                    Target::Values { values, .. } => {
                        let target = &values[i as usize * width..][..width];
                        let square: f64 = row.iter().zip(target).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                        loss += square / width as f64;
                    }
                }
            }
        })?;
        let samples = indices.len();
        let n = plant::divisor(samples, model.batch).max(1) as f64;
        Ok(Evaluation { samples, loss: loss / n, accuracy: classes.then(|| right as f64 / n), confusion })
    }
}

/// The position of the largest value, the first of equals; 0 for an empty row.
#[must_use]
pub fn argmax(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, &v)| if v > row[best] { i } else { best })
}

fn cross_entropy(row: &[f32], label: usize) -> f64 {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(f64::from(v)));
    let sum: f64 = row.iter().map(|&v| (f64::from(v) - max).exp()).sum();
    max + sum.ln() - f64::from(row[label])
}
