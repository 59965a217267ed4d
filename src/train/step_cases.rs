//! How the steps of one run differ, and how the step of each case is planned.

use super::TrainError;
use super::batch_shape::BatchShape;
use super::run_paths::RunPaths;
use crate::compile::{Compiled, Options, compile};
use crate::exec::{GraphKey, InputSignature};
use crate::ir::Share;
use crate::model::Model;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// Shapes whose networks are kept; those of others are made when they are needed.
const MOST_SHAPES: usize = 64;

/// How a batch of a run differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Case {
    pub(super) shape: BatchShape,
    /// The code of its path.
    pub(super) code: u64,
    pub(super) share: Share,
}

/// A map with an entry for each case.
pub(super) type ByCase<T> = HashMap<Case, T, BuildHasherDefault<Mix>>;

/// Hashes a few small numbers by multiplication: cases come from a run's own steps, and are not chosen to collide.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }
}

/// Plans the steps of a run's cases; several threads may use it.
pub(super) struct StepPlanner {
    /// The whole network.
    model: Model,
    options: Options,
    paths: RunPaths,
    /// The keys of the whole step, by its shares.
    whole: Vec<(Share, GraphKey)>,
    /// The networks of shapes that came up.
    shaped: Mutex<Vec<(BatchShape, Arc<Model>)>>,
}

impl StepPlanner {
    /// Plans steps like those of `wholes`: the step that updates the parameters, and those of the batches before it.
    pub(super) fn new(model: &Model, options: Options, seed: u64, wholes: &[Arc<Compiled>]) -> Self {
        let of = |compiled: &Arc<Compiled>| {
            let share = compiled.graph.share.unwrap_or(Share::Last);
            (share, GraphKey::of(compiled))
        };
        let whole = wholes.iter().map(of).collect();
        // All steps store the parameters as the first one does.
        let orders = wholes.first().map(|first| first.plan.program.params.iter().map(|slot| slot.order).collect());
        let options = Options { orders, ..options };
        let (paths, shaped) = (RunPaths::new(model, seed), Mutex::default());
        Self { model: model.clone(), options, paths, whole, shaped }
    }

    pub(super) const fn paths(&self) -> &RunPaths {
        &self.paths
    }

    pub(super) const fn model(&self) -> &Model {
        &self.model
    }

    /// The path of a step by its name.
    fn path_name(&self, step: u64) -> String {
        self.paths.name_at(&self.model, step)
    }

    /// The network of a case; `step` is one of its steps.
    fn model_of(&self, case: Case, step: u64) -> Result<Model, TrainError> {
        Ok(self.paths.along(&self.shaped(case.shape)?, step))
    }

    /// The whole network for batches of a shape.
    fn shaped(&self, shape: BatchShape) -> Result<Arc<Model>, TrainError> {
        let mut shaped = self.shaped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, model)) = shaped.iter().find(|(known, _)| *known == shape) {
            return Ok(Arc::clone(model));
        }
        let model = Arc::new(shape.of(&self.model)?);
        if shaped.len() < MOST_SHAPES {
            shaped.push((shape, Arc::clone(&model)));
        }
        Ok(model)
    }

    /// The key of a case; `step` is one of its steps.
    ///
    /// # Errors
    /// If the network does not suit the case's shape.
    pub(super) fn key(&self, case: Case, step: u64) -> Result<GraphKey, TrainError> {
        let model = self.shaped(case.shape)?;
        let whole = self.whole.iter().find(|(share, _)| *share == case.share).or(self.whole.first());
        let Some((_, whole)) = whole else { return Err(TrainError::NoData) };
        let own = |input: &InputSignature| {
            let samples = model.inputs.iter().find(|own| own.value_name(&model.inputs) == input.name);
            let sample = match samples {
                Some(input) => input.shape.clone(),
                None if model.loss.wants_classes() => model.labels(),
                None => model.output.clone(),
            };
            InputSignature { shape: sample.batched(model.batch), ..input.clone() }
        };
        Ok(whole.resized(whole.signature().inputs.iter().map(own).collect(), &self.path_name(step)))
    }

    /// Whether this is the key of the whole step, or of one of its shares.
    pub(super) fn is_whole(&self, key: &GraphKey) -> bool {
        self.whole.iter().any(|(_, whole)| whole == key)
    }

    /// The planned step of a case; `step` is one of its steps.
    ///
    /// # Errors
    /// If it cannot be planned.
    pub(super) fn plan(&self, case: Case, step: u64) -> Result<Arc<Compiled>, TrainError> {
        let options = Options { share: case.share, ..self.options.clone() };
        Ok(Arc::new(compile(&self.model_of(case, step)?, &options)?))
    }
}
