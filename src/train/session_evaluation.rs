//! The evaluations of a session: on the held-out part, on samples by index, and on single samples.

use super::answer_sums::Evaluation;
use super::evaluate::Evaluator;
use super::{DataFeed, Session, TrainError};
use crate::compile::Compiled;
use crate::data;
use crate::exec::Executor;
use crate::exec::cpu::Pool;
use crate::select::Target;
use std::sync::Arc;

impl Session {
    /// Loss and accuracy on the held-out part; `None` if nothing is held out.
    ///
    /// # Errors
    /// If there is too little memory for the evaluation.
    pub fn evaluate(&mut self) -> Result<Option<Evaluation>, TrainError> {
        self.take_coming_evaluation()?;
        let (Some(evaluator), DataFeed::Data { set, stored, split, .. }) = (&mut self.evaluator, &self.feed) else {
            return Ok(None);
        };
        if split.held_out.is_empty() {
            return Ok(None);
        }
        let stored: Vec<_> = stored.views().collect();
        evaluator.evaluate(&mut self.pool, &self.model, set, &stored, &split.held_out).map(Some)
    }

    /// Waits for the evaluation that is recorded beside the run, if there is one.
    fn take_coming_evaluation(&mut self) -> Result<(), TrainError> {
        let Some(coming) = self.coming.take() else { return Ok(()) };
        self.place_evaluator(Some(coming.wait()))?;
        if let Some(note) = self.evaluator.as_ref().and_then(Evaluator::eager_note) {
            log::warn!("{note}");
        }
        Ok(())
    }

    /// The machine with the kernels that the run started with: compiling others would stop the run.
    fn first_target(&self) -> Target {
        self.train.compiled().selection.target.clone().with_kernels(self.change_over.kernels.first)
    }

    /// Places the evaluation as it was compiled before, or compiled now.
    fn place_evaluator(&mut self, compiled: Option<Arc<Compiled>>) -> Result<(), TrainError> {
        let machine = self.first_target();
        self.evaluator = Some(Evaluator::new(&self.model, &machine, self.train.last(), compiled)?);
        Ok(())
    }

    /// Compiles the evaluation if none exists yet, because nothing is held out.
    pub(super) fn make_evaluator(&mut self) -> Result<(), TrainError> {
        self.take_coming_evaluation()?;
        if self.evaluator.is_none() { self.place_evaluator(None) } else { Ok(()) }
    }

    /// The evaluation of a single sample: with a batch of one, so that it is fast.
    pub(super) fn alone(&mut self) -> Result<Option<(&mut Evaluator, &mut Pool)>, TrainError> {
        let is_batch = self.model.batch == 1;
        if is_batch {
            self.make_evaluator()?;
        } else if self.alone.is_none() {
            let machine = self.first_target();
            self.alone = Some(Evaluator::of_one(&self.model, &machine, self.train.last())?);
        }
        let own = if is_batch { &mut self.evaluator } else { &mut self.alone };
        Ok(own.as_mut().map(|evaluator| (evaluator, &mut self.pool)))
    }

    /// Calls `each` with the network's outputs for one sample of each input, in logical order.
    pub(super) fn answer_alone(
        &mut self,
        sample: Vec<data::Samples>,
        each: impl FnOnce(&[f32]),
    ) -> Result<(), TrainError> {
        let Some((evaluator, pool)) = self.alone()? else { return Ok(()) };
        evaluator.place(sample)?;
        let step = evaluator.step_mut();
        step.run(Executor::Replay, pool)?;
        let output = step.compiled().plan.program.output;
        let width = step.compiled().model.output.len();
        each(&step.stored::<f32>(output)?[..width]);
        Ok(())
    }

    /// The network's outputs for samples of the data set, `[indices.len(), output]`.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn predict(&mut self, indices: &[u32]) -> Result<Vec<f32>, TrainError> {
        self.take_coming_evaluation()?;
        let mut out = Vec::new();
        if let (Some(evaluator), DataFeed::Data { stored, .. }) = (&mut self.evaluator, &self.feed) {
            let stored: Vec<_> = stored.views().collect();
            evaluator.outputs(&mut self.pool, &stored, indices, |_, values| out.extend_from_slice(values))?;
        }
        Ok(out)
    }
}
