//! Evaluation on the held-out part: a forward-only step that shares the parameters.

use super::data_feed::{as_stored, input_layouts};
use super::gather::gather_samples;
use super::{TrainError, gpu_times, plant};
use crate::compile::{Compiled, Options, compile};
use crate::data::{Dataset, Samples, SamplesRef, Target};
use crate::exec::cpu::Pool;
use crate::exec::{Executor, GraphKey, LentStep, Step};
use crate::model::losses::is_right;
use crate::model::{Model, Targets};
use crate::rewrite::LARGE_SCORES;
use crate::select::Target as Machine;
use serde::Serialize;
use std::sync::Arc;

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    pub samples: usize,
    /// Mean loss, without label smoothing.
    pub loss: f64,
    /// Share of samples, or positions, classified correctly; absent for values.
    pub accuracy: Option<f64>,
    /// Share of samples whose positions are all classified correctly; absent if a sample has one class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<f64>,
    /// Samples, or positions, by true class (rows) and predicted class (columns).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u32>>,
}

/// The compiled evaluation of a network.
pub(super) struct Evaluator {
    step: LentStep,
    indices: Vec<u32>,
}

/// The network as it is evaluated on a machine. On a CPU the batch is limited so that the scores take at most as much
/// memory as a training step's, even with a large vocabulary.
#[must_use]
pub fn evaluated(model: &Model, machine: &Machine) -> Model {
    let sample_bytes = model.output.len() * size_of::<f32>();
    let most = if model.loss.wants_classes() && machine.as_cpu().is_some() {
        (LARGE_SCORES / sample_bytes.max(1)).max(1)
    } else {
        usize::MAX
    };
    model.with_batch(model.batch.min(most))
}

/// The step that evaluates a network on a machine.
///
/// # Errors
/// If it cannot be compiled.
pub(super) fn compiled_evaluation(model: &Model, machine: &Machine) -> Result<Compiled, TrainError> {
    let model = plant::evaluated(model);
    let (model, options) = (evaluated(&model, machine), Options::eval(machine.clone()));
    Ok(compile(&model, &Options { gpu_times: gpu_times(&model, &options)?, ..options })?)
}

/// With more classes than this, nobody can read the confusion matrix.
const MAX_CONFUSION: usize = 256;

impl Evaluator {
    /// Why evaluations run op by op, if they do.
    pub(super) fn why_eager(&self) -> Option<String> {
        self.step.recording().why_eager
    }

    /// The note for the user if evaluations run op by op.
    pub(super) fn eager_note(&self) -> Option<String> {
        self.why_eager().map(|why| format!("evaluations could not be captured and run op by op: {why}"))
    }

    /// The planned step of the evaluation.
    pub(super) fn compiled(&self) -> &Arc<Compiled> {
        self.step.compiled()
    }

    /// The evaluation's step.
    pub(super) fn step_mut(&mut self) -> &mut Step {
        &mut self.step
    }

    /// The evaluation that shares the parameters of `owner`, as it was compiled before, or compiled now.
    pub(super) fn new(
        model: &Model,
        machine: &Machine,
        owner: &LentStep,
        compiled: Option<Compiled>,
    ) -> Result<Self, TrainError> {
        let compiled = Arc::new(compiled.map_or_else(|| compiled_evaluation(model, machine), Ok)?);
        let key = GraphKey::of(&compiled);
        Self::over(key, compiled, owner)
    }

    /// An evaluation of a single sample, which answers queries.
    pub(super) fn of_one(model: &Model, machine: &Machine, owner: &LentStep) -> Result<Self, TrainError> {
        let compiled = Arc::new(compiled_evaluation(&model.with_batch(1), machine)?);
        let key = GraphKey::of_inference(&compiled);
        Self::over(key, compiled, owner)
    }

    fn over(key: GraphKey, compiled: Arc<Compiled>, owner: &LentStep) -> Result<Self, TrainError> {
        let step = match (plant::stale_owner(owner)?, owner.pool()) {
            (None, Some(pool)) => {
                let step = pool.lend(&key, || Ok::<_, TrainError>(compiled))?;
                pool.pin(&key, true);
                step
            }
            (stale, _) => LentStep::alone(Step::sharing(compiled, stale.as_ref().unwrap_or(owner))?),
        };
        let indices = vec![0; step.compiled().model.batch];
        Ok(Self { step, indices })
    }

    /// The network's outputs for samples by index, `[indices.len(), output]`, passed to `each` batch by batch with the
    /// number of valid rows.
    pub(super) fn outputs(
        &mut self,
        pool: &mut Pool,
        stored: &[SamplesRef<'_>],
        indices: &[u32],
        mut each: impl FnMut(&[u32], &[f32]),
    ) -> Result<(), TrainError> {
        let compiled = Arc::clone(self.step.compiled());
        let program = &compiled.plan.program;
        for chunk in indices.chunks(self.indices.len()) {
            // The last batch is padded with its first sample; those rows are not valid.
            self.indices.fill(chunk[0]);
            self.indices[..chunk.len()].copy_from_slice(chunk);
            gather_samples(&mut self.step, program.all_samples().zip(stored.iter().copied()), &self.indices)?;
            self.step.run(Executor::Replay, pool)?;
            let values = self.step.stored::<f32>(program.output)?;
            let width = values.len() / self.indices.len();
            each(chunk, &values[..chunk.len() * width]);
        }
        Ok(())
    }

    /// The network's outputs for `count` samples of each input in logical order, `[count, output]`.
    pub(super) fn answer(
        &mut self,
        pool: &mut Pool,
        samples: Vec<Samples>,
        count: usize,
    ) -> Result<Vec<f32>, TrainError> {
        let stored = self.as_stored(samples);
        let stored: Vec<SamplesRef<'_>> = stored.iter().map(Samples::view).collect();
        let indices: Vec<u32> = (0..count as u32).collect();
        let mut out = Vec::new();
        self.outputs(pool, &stored, &indices, |_, values| out.extend_from_slice(values))?;
        Ok(out)
    }

    /// Samples of each input in the layout of the step.
    fn as_stored(&self, samples: Vec<Samples>) -> Vec<Samples> {
        let layouts = input_layouts(&self.step.compiled().plan.program);
        samples.into_iter().zip(layouts).map(|(x, layout)| as_stored(x, layout)).collect()
    }

    /// Writes one sample of each input, in logical order, into the step, which must then be run.
    pub(super) fn place(&mut self, sample: Vec<Samples>) -> Result<(), TrainError> {
        let stored = self.as_stored(sample);
        let compiled = Arc::clone(self.step.compiled());
        self.indices.fill(0);
        let views = stored.iter().map(Samples::view);
        gather_samples(&mut self.step, compiled.plan.program.all_samples().zip(views), &self.indices)
    }

    /// Loss and accuracy over `indices`.
    pub(super) fn evaluate(
        &mut self,
        pool: &mut Pool,
        model: &Model,
        set: &Dataset,
        stored: &[SamplesRef<'_>],
        indices: &[u32],
    ) -> Result<Evaluation, TrainError> {
        let (width, kinds, positions) = (model.output.len(), model.classes(), model.labels().len());
        let classes = model.loss.wants_classes();
        let has_accuracy = model.loss.has_accuracy();
        let mut confusion = if classes && kinds <= MAX_CONFUSION { vec![vec![0u32; kinds]; kinds] } else { Vec::new() };
        let (mut loss, mut right, mut whole) = (0.0f64, 0usize, 0usize);
        let mut failure = None;
        let batch = self.indices.len();
        let indices = &*plant::held_out(indices, batch);
        self.outputs(pool, stored, indices, |chunk, values| {
            let labels = set.target.labels(chunk).unwrap_or_else(|error| {
                failure = Some(error);
                vec![0; chunk.len() * positions]
            });
            for (at, (&i, row)) in chunk.iter().zip(values.chunks_exact(width)).enumerate() {
                match &set.target {
                    Target::Classes { .. } | Target::Windows(_) => {
                        let before = right;
                        for (row, label) in row.chunks_exact(kinds).zip(&labels[at * positions..][..positions]) {
                            let (label, guess) = (*label as usize, argmax(row));
                            loss += cross_entropy(row, label);
                            right += usize::from(guess == label && !row[guess].is_nan());
                            count_answer(&mut confusion, label, guess);
                        }
                        whole += usize::from(right - before == positions);
                    }
                    Target::Values { values, .. } => {
                        let target = &values[i as usize * width..][..width];
                        loss += model.loss.of_values(row, target).unwrap_or(f64::NAN);
                        if has_accuracy {
                            right += row.iter().zip(target).filter(|(y, t)| is_right(**y, **t)).count();
                        }
                    }
                }
            }
        })?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        // For classes a sample is one prediction, for yes-or-no outputs each output is one.
        let answers = if model.loss.targets() == Targets::Binary { width.max(1) } else { 1 } as f64;
        let samples = indices.len();
        // If there is a class for each position, the mean is over all positions.
        let each = if classes { positions } else { 1 };
        let n = (plant::divisor(samples, batch).max(1) * each) as f64;
        Ok(Evaluation {
            samples,
            loss: loss / n,
            accuracy: has_accuracy.then(|| right as f64 / (n * answers)),
            exact: (classes && positions > 1).then(|| whole as f64 / (n / positions as f64)),
            confusion,
        })
    }
}

/// Counts a prediction, if every class has its row.
fn count_answer(confusion: &mut [Vec<u32>], label: usize, guess: usize) {
    if let Some(cell) = confusion.get_mut(label).and_then(|row| row.get_mut(guess)) {
        *cell += 1;
    }
}

/// The index of the largest value, the first among equals; 0 for an empty row.
#[must_use]
pub fn argmax(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, &v)| if v > row[best] { i } else { best })
}

/// The negative log probability of a label by a row of logits.
pub(super) fn cross_entropy(row: &[f32], label: usize) -> f64 {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(f64::from(v)));
    let sum: f64 = row.iter().map(|&v| (f64::from(v) - max).exp()).sum();
    max + sum.ln() - f64::from(row[label])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset};
    use crate::select::Isa;

    #[test]
    fn large_vocabularies_are_evaluated_a_few_samples_at_once() {
        let of = |vocab: usize, batch: usize| {
            let text = format!(
                r#"{{"name": "v", "input": {{"type": "tokens", "shape": [32], "vocab": {vocab}, "batch": {batch}}},
                "layers": [{{"type": "embedding", "units": 4}}, {{"type": "dense", "units": {vocab}}}],
                "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
            );
            let model = check(&read_preset(&text).unwrap()).model.unwrap();
            evaluated(&model, &Machine::cpu(Isa::Avx2, 2)).batch
        };
        assert_eq!((of(1_000, 16), of(20_000, 16), of(200_000, 16)), (16, 6, 1));
    }
}
