//! Evaluation on the held-out part: a forward-only step that shares the parameters.

use super::answer_sums::{AnswerSums, Evaluation, MAX_CONFUSION};
use super::data_feed::{as_stored, input_layouts};
use super::gather::gather_samples;
use super::{TrainError, gpu_times, plant};
use crate::compile::{Compiled, Options, compile};
use crate::data::{Dataset, Samples, SamplesRef};
use crate::exec::cpu::Pool;
use crate::exec::{Executor, GraphKey, LentStep, Step};
use crate::model::Model;
use crate::rewrite::LARGE_SCORES;
use crate::select::Target as Machine;
use std::sync::Arc;

/// The compiled evaluation of a network.
pub(super) struct Evaluator {
    step: LentStep,
    indices: Vec<u32>,
    /// Batches that it was used for.
    uses: u64,
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

    /// The number of batches that it was used for.
    pub(super) const fn uses(&self) -> u64 {
        self.uses
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
        compiled: Option<Arc<Compiled>>,
    ) -> Result<Self, TrainError> {
        let compiled = compiled.map_or_else(|| compiled_evaluation(model, machine).map(Arc::new), Ok)?;
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
        Ok(Self { step, indices, uses: 0 })
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
            self.uses += 1;
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

    /// Writes one sample of each input, in logical order, into the step, which must then be run. Counts the use.
    pub(super) fn place(&mut self, sample: Vec<Samples>) -> Result<(), TrainError> {
        let stored = self.as_stored(sample);
        let compiled = Arc::clone(self.step.compiled());
        self.indices.fill(0);
        let views = stored.iter().map(Samples::view);
        self.uses += 1;
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
        let mut sums = AnswerSums::new(model, set, MAX_CONFUSION);
        let mut failure = None;
        let batch = self.indices.len();
        let indices = &*plant::held_out(indices, batch);
        self.outputs(pool, stored, indices, |chunk, values| {
            if let Err(error) = sums.add(chunk, values) {
                failure = Some(error);
            }
        })?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        Ok(sums.divided_by(plant::divisor(indices.len(), batch)))
    }
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
