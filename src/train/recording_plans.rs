//! Plans the steps of a run's recordings again in order to show them, on any thread.

use super::TrainError;
use super::batch_shape::BatchShape;
use super::evaluate::compiled_evaluation;
use super::recordings_seen::{RecordingSeen, SeenStep};
use super::step_cases::{Case, StepPlanner};
use crate::compile::Compiled;
use crate::model::Model;
use std::fmt;
use std::sync::Arc;

/// Plans the steps of a run's recordings as the run does, without the run. Several threads may use it.
#[derive(Clone)]
pub struct RecordingPlans {
    /// The steps that the session owns, by the text of their keys.
    kept: Vec<(String, Arc<Compiled>)>,
    /// How the steps of the run differ, if they do.
    planner: Option<Arc<StepPlanner>>,
    /// The whole network.
    model: Arc<Model>,
}

impl fmt::Debug for RecordingPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.kept.iter().map(|(key, _)| key.as_str()).collect();
        f.debug_struct("RecordingPlans").field("kept", &keys).finish_non_exhaustive()
    }
}

impl RecordingPlans {
    /// Plans the steps of a run of a network. The first step that the session owns is the training step.
    pub(super) fn new(kept: Vec<(String, Arc<Compiled>)>, planner: Option<Arc<StepPlanner>>, model: &Model) -> Self {
        Self { kept, planner, model: Arc::new(model.clone()) }
    }

    /// The planned step of a recording of the run.
    ///
    /// # Errors
    /// If the step cannot be planned, or the run has no such recording.
    pub fn plan(&self, seen: &RecordingSeen) -> Result<Arc<Compiled>, TrainError> {
        let kept = self.kept.iter().find(|(key, _)| *key == seen.key);
        match (kept, seen.of, &self.planner) {
            (Some((_, compiled)), ..) => Ok(Arc::clone(compiled)),
            (None, SeenStep::Batch { step, rows, length, share }, Some(planner)) => {
                let case = Case { shape: BatchShape { rows, length }, code: planner.paths().code_at(step), share };
                planner.plan(case, step)
            }
            (None, SeenStep::Answers, _) => {
                let machine = self.kept.first().map(|(_, compiled)| compiled.selection.target.clone());
                let machine = machine.ok_or(TrainError::NoRecording(seen.kind))?;
                Ok(Arc::new(compiled_evaluation(&self.model.with_batch(1), &machine)?))
            }
            _ => Err(TrainError::NoRecording(seen.kind)),
        }
    }
}
