//! The evaluation of a run on a GPU is recorded while the first steps run.

use super::evaluate::{Evaluator, compiled_evaluation};
use super::{DataFeed, Purpose, SessionSpec, TrainError};
use crate::compile::Compiled;
use crate::exec::{GraphKey, LentStep, MemoryOf};
use crate::model::Model;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The evaluation of a run, which a thread records while the run trains. Dropping it waits for the thread.
pub(super) struct ComingEvaluation {
    compiled: Arc<Compiled>,
    thread: Option<JoinHandle<()>>,
}

impl ComingEvaluation {
    /// Starts to record in the pool of `owner`; `None` if it has none.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    fn start(compiled: Arc<Compiled>, owner: &LentStep) -> Result<Option<Self>, TrainError> {
        let Some(pool) = owner.pool().map(Arc::clone) else { return Ok(None) };
        let (key, planned) = (GraphKey::of(&compiled), Arc::clone(&compiled));
        let work = move || {
            let id = pool.id_of(&key);
            match pool.make(id, "evaluations need it", || Ok::<_, TrainError>(planned)) {
                Ok(_) => pool.pin(&key, true),
                // The evaluation that needs it tries again, and fails if it must.
                Err(error) => log::warn!("the evaluation could not be recorded beside the run: {error}"),
            }
        };
        let thread = Builder::new().name("stepgraph-evaluation".into()).spawn(work).map_err(TrainError::Thread)?;
        Ok(Some(Self { compiled, thread: Some(thread) }))
    }

    /// Its planned step.
    pub(super) const fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Waits until it is recorded.
    pub(super) fn wait(mut self) -> Arc<Compiled> {
        self.join();
        Arc::clone(&self.compiled)
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ComingEvaluation {
    fn drop(&mut self) {
        self.join();
    }
}

/// The evaluation over the parameters of `owner`, as it was compiled before, or compiled now, if something is held out
/// or the session answers queries. On a device, whose kernels take long to compile, a training run gets it later.
///
/// # Errors
/// If it cannot be compiled or recorded, or there is too little memory.
pub(super) fn evaluation_of(
    spec: &SessionSpec,
    feed: &DataFeed,
    model: &Model,
    owner: &LentStep,
    compiled: Option<Compiled>,
) -> Result<(Option<Evaluator>, Option<ComingEvaluation>), TrainError> {
    if !feed.holds_out() && spec.purpose != Purpose::Predict {
        return Ok((None, None));
    }
    let machine = owner.compiled().selection.target.clone();
    let mut compiled = compiled.map(Arc::new);
    if owner.capabilities().memory == MemoryOf::Device && spec.purpose != Purpose::Predict {
        // Kernels are timed before the run, which would disturb the times.
        let planned = compiled.map_or_else(|| compiled_evaluation(model, &machine).map(Arc::new), Ok)?;
        if let Some(coming) = ComingEvaluation::start(Arc::clone(&planned), owner)? {
            return Ok((None, Some(coming)));
        }
        compiled = Some(planned);
    }
    Ok((Some(Evaluator::new(model, &machine, owner, compiled)?), None))
}
