//! Where a step's batch comes from.

use super::batch_file::{GivenBatches, Labels, given_batches};
use super::{TensorFile, TrainError};
use crate::data::{
    BatchPlace, BatchTargets, Batches, Dataset, Position, RowPart, Samples, SamplesRef, Split, Target, TokenRows,
};
use crate::exec::{Step, samples_to_stored};
use crate::lower::{LValueId, Layout, Program};
use crate::model::{Content, Model, Rng, Targets};
use crate::tensor::{DType, Element};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// How far a feed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedPosition {
    Data(Position),
    /// The number of batches handed out.
    Batches(usize),
}

/// A source of batches, already in the layout in which the step reads them.
pub enum DataFeed {
    /// Shuffled batches of a data set.
    Data { set: Arc<Dataset>, stored: StoredSamples, split: Arc<Split>, batches: Batches },
    /// Given batches, in order.
    Batches { x: Vec<Samples>, y: Labels, count: usize, next: usize },
    /// One random batch that stays where it is: for benchmarks.
    Resident,
}

/// The samples of every input of a data set in the step's layout: those of the set where that is its own layout.
pub struct StoredSamples {
    set: Arc<Dataset>,
    relaid: Vec<Option<Samples>>,
}

impl StoredSamples {
    /// The samples of a set in the layout of each input, in the model's order.
    pub(super) fn new(set: Arc<Dataset>, layouts: &[Layout]) -> Self {
        let relaid = set.inputs.iter().zip(layouts).map(|(input, layout)| relaid(&input.values, *layout)).collect();
        Self { set, relaid }
    }

    /// The samples of each input.
    pub fn views(&self) -> impl Iterator<Item = SamplesRef<'_>> + Clone {
        let own = self.set.inputs.iter().map(|input| &input.values);
        own.zip(&self.relaid).map(|(own, relaid)| relaid.as_ref().unwrap_or(own).view())
    }
}

/// Samples in another layout than the logical one; nothing where that is the layout, as it is that of tokens.
fn relaid(logical: &Samples, layout: Layout) -> Option<Samples> {
    match logical {
        Samples::Real(values) => match samples_to_stored(values, layout) {
            Cow::Owned(relaid) => Some(Samples::Real(relaid)),
            Cow::Borrowed(_) => None,
        },
        Samples::Tokens(_) | Samples::Windows(_) => None,
    }
}

/// Samples of one input as a step with this layout stores them.
pub(super) fn as_stored(logical: Samples, layout: Layout) -> Samples {
    relaid(&logical, layout).unwrap_or(logical)
}

/// The layout of each input of a step, in the model's order.
pub(super) fn input_layouts(program: &Program) -> Vec<Layout> {
    program.all_samples().map(|id| program.value(id).layout).collect()
}

impl DataFeed {
    /// The feed of a data set.
    ///
    /// # Errors
    /// Where the training part is smaller than a batch.
    pub fn data(
        set: Arc<Dataset>,
        split: Arc<Split>,
        model: &Model,
        layouts: &[Layout],
        seed: u64,
    ) -> Result<Self, TrainError> {
        let batches = Batches::new(split.train.clone(), model.batch, seed)?;
        let stored = StoredSamples::new(Arc::clone(&set), layouts);
        Ok(Self::Data { set, stored, split, batches })
    }

    /// The feed of `batch.x`, or `batch.x.NAME` for each input, and `batch.y` of a file.
    ///
    /// # Errors
    /// Where they are missing, have the wrong shape or type, or labels or tokens out of range.
    pub fn batches(file: &TensorFile, path: &Path, model: &Model, layouts: &[Layout]) -> Result<Self, TrainError> {
        let GivenBatches { x, y, count } = given_batches(file, path, model)?;
        let x = x.into_iter().zip(layouts).map(|(x, layout)| as_stored(x, *layout)).collect();
        Ok(Self::Batches { x, y, count, next: 0 })
    }

    /// Whether it holds samples out.
    pub(super) fn holds_out(&self) -> bool {
        matches!(self, Self::Data { split, .. } if !split.held_out.is_empty())
    }

    /// Writes one random batch into the step, to stay: for benchmarks and checks.
    ///
    /// # Errors
    /// Never for a training step of this model.
    pub fn resident(step: &mut Step, model: &Model, seed: u64) -> Result<Self, TrainError> {
        let mut rng = Rng::new(seed, 0xBEEF);
        let compiled = Arc::clone(step.compiled());
        let program = &compiled.plan.program;
        let real = program.real;
        for (input, x) in model.inputs.iter().zip(program.all_samples()) {
            let len = model.batch * input.shape.len();
            match input.content {
                Content::Real => {
                    let samples: Vec<f64> = (0..len).map(|_| rng.normal()).collect();
                    write_real(step, x, real, &samples)?;
                }
                Content::Tokens { vocab } => {
                    let tokens: Vec<i32> = (0..len).map(|_| rng.below(vocab) as i32).collect();
                    step.write(x, &tokens)?;
                }
            }
        }
        if let Some(y) = program.targets() {
            match model.loss.targets() {
                Targets::Classes => {
                    let (classes, len) = (model.classes(), model.batch * model.labels().len());
                    let labels: Vec<i32> = (0..len).map(|_| rng.below(classes) as i32).collect();
                    step.write(y, &labels)?;
                }
                Targets::Values => {
                    let targets: Vec<f64> = (0..model.batch * model.output.len()).map(|_| rng.normal()).collect();
                    write_real(step, y, real, &targets)?;
                }
                Targets::Binary => {
                    let len = model.batch * model.output.len();
                    let targets: Vec<f64> = (0..len).map(|_| rng.below(2) as f64).collect();
                    write_real(step, y, real, &targets)?;
                }
            }
        }
        Ok(Self::Resident)
    }

    /// Copies the next batch to where the step reads it; false where there is none left. Allocates nothing.
    ///
    /// # Errors
    /// Never for a step of the model that the feed was made for.
    pub fn next(&mut self, step: &mut Step) -> Result<bool, TrainError> {
        let compiled = Arc::clone(step.compiled());
        let (inputs, y) = (compiled.plan.program.all_samples(), compiled.plan.program.targets());
        match self {
            Self::Resident => {}
            Self::Data { set, stored, batches, .. } => {
                let indices = batches.next();
                gather_samples(step, inputs.zip(stored.views()), indices)?;
                gather_targets(step, y, &set.target, indices)?;
            }
            Self::Batches { x: samples, y: labels, count, next } => {
                if *next >= *count {
                    return Ok(false);
                }
                let stretch = |len: usize| *next * (len / *count)..(*next + 1) * (len / *count);
                for (x, samples) in inputs.zip(&*samples) {
                    match samples {
                        Samples::Real(values) => step.write(x, &values[stretch(values.len())])?,
                        Samples::Tokens(tokens) => step.write(x, &tokens[stretch(tokens.len())])?,
                        // A file of batches holds its samples whole.
                        Samples::Windows(_) => {}
                    }
                }
                match (labels, y) {
                    (Labels::Classes(v), Some(y)) => step.write(y, &v[stretch(v.len())])?,
                    (Labels::Values(v), Some(y)) => step.write(y, &v[stretch(v.len())])?,
                    (_, None) => {}
                }
                *next += 1;
            }
        }
        Ok(true)
    }

    /// Everything that its batches are made of, samples in the step's layout; `None` where a batch stays where it is,
    /// and where the network has other inputs than one of numbers.
    #[must_use]
    pub fn whole(&self) -> Option<(&[f32], BatchTargets<'_>)> {
        fn only<'a>(mut views: impl Iterator<Item = SamplesRef<'a>>) -> Option<&'a [f32]> {
            match (views.next(), views.next()) {
                (Some(SamplesRef::Real(values)), None) => Some(values),
                _ => None,
            }
        }
        match self {
            Self::Data { set, stored, .. } => Some((
                only(stored.views())?,
                match &set.target {
                    Target::Classes { labels, .. } => BatchTargets::Classes(labels),
                    Target::Values { values, .. } => BatchTargets::Values(values),
                    Target::Windows(_) => return None,
                },
            )),
            Self::Batches { x, y, .. } => Some((
                only(x.iter().map(Samples::view))?,
                match y {
                    Labels::Classes(labels) => BatchTargets::Classes(labels),
                    Labels::Values(values) => BatchTargets::Values(values),
                },
            )),
            Self::Resident => None,
        }
    }

    /// The samples of [`Self::whole`] that batches are drawn from, where these are shuffled.
    #[must_use]
    pub fn shuffled_rows(&self) -> Option<&[u32]> {
        match self {
            Self::Data { batches, .. } => Some(batches.train()),
            _ => None,
        }
    }

    /// Appends where the next `steps` batches of `batch` samples are, and passes them.
    pub fn places(&mut self, steps: usize, batch: usize, out: &mut Vec<BatchPlace>) {
        for _ in 0..steps {
            match self {
                Self::Data { batches, .. } => out.push(batches.next_place()),
                Self::Batches { next, .. } => {
                    out.push(BatchPlace::in_order((*next * batch) as u32));
                    *next += 1;
                }
                Self::Resident => {}
            }
        }
    }

    /// The number of steps that there are batches for, where it is limited and so many make a step.
    #[must_use]
    pub const fn limit(&self, batches_a_step: usize) -> Option<usize> {
        match self {
            Self::Batches { count, .. } => Some(*count / batches_a_step),
            _ => None,
        }
    }

    /// What a person should know of given batches at the end that make no whole step.
    pub(super) fn left_out(&self, batches_a_step: usize) -> Option<String> {
        let Self::Batches { count, .. } = self else { return None };
        let left = count % batches_a_step;
        let what = || format!("data: the last {left} of {count} batches are left out; {batches_a_step} make a step");
        (left > 0).then(what)
    }

    /// How far it has come.
    #[must_use]
    pub const fn position(&self) -> FeedPosition {
        match self {
            Self::Data { batches, .. } => FeedPosition::Data(batches.position()),
            Self::Batches { next, .. } => FeedPosition::Batches(*next),
            Self::Resident => FeedPosition::Batches(0),
        }
    }

    /// Continues from a saved position.
    ///
    /// # Errors
    /// Where the position belongs to another feed.
    pub fn resume(&mut self, position: FeedPosition) -> Result<(), TrainError> {
        match (self, position) {
            (Self::Data { batches, .. }, FeedPosition::Data(p)) => Ok(batches.resume(p)?),
            (Self::Batches { next, count, .. }, FeedPosition::Batches(n)) if n <= *count => {
                *next = n;
                Ok(())
            }
            (Self::Resident, _) => Ok(()),
            _ => Err(TrainError::file(
                Path::new("checkpoint"),
                "was made with other data",
                "resume with the data it was made with",
            )),
        }
    }

    /// Samples in one pass over the training part, where it is a data set.
    #[must_use]
    pub fn epoch_len(&self) -> Option<usize> {
        match self {
            Self::Data { split, .. } => Some(split.train.len()),
            _ => None,
        }
    }
}

/// Copies samples of each input, by index, to where a step reads them.
pub(super) fn gather_samples<'a>(
    step: &mut Step,
    inputs: impl Iterator<Item = (LValueId, SamplesRef<'a>)>,
    indices: &[u32],
) -> Result<(), TrainError> {
    for (x, stored) in inputs {
        match stored {
            SamplesRef::Real(values) => gather_rows(step, x, values, indices)?,
            SamplesRef::Tokens(tokens) => gather_rows(step, x, tokens, indices)?,
            SamplesRef::Windows(rows) => gather_windows(step, x, (rows, RowPart::Sample), indices)?,
        }
    }
    Ok(())
}

/// Copies rows, by index, to where a step reads them.
fn gather_rows<T: Element>(step: &mut Step, to: LValueId, all: &[T], indices: &[u32]) -> Result<(), TrainError> {
    step.fill(to, |out: &mut [T]| {
        let width = out.len() / indices.len().max(1);
        for (row, &i) in out.chunks_exact_mut(width).zip(indices) {
            row.copy_from_slice(&all[i as usize * width..][..width]);
        }
    })?;
    Ok(())
}

/// Copies a part of rows of tokens, by index, to where a step reads it.
fn gather_windows(
    step: &mut Step,
    to: LValueId,
    (rows, part): (&TokenRows, RowPart),
    indices: &[u32],
) -> Result<(), TrainError> {
    let mut outcome = Ok(());
    step.fill(to, |out: &mut [i32]| outcome = rows.fill(indices, part, out))?;
    Ok(outcome?)
}

/// Copies targets, by index, to where a step reads them.
fn gather_targets(step: &mut Step, y: Option<LValueId>, target: &Target, indices: &[u32]) -> Result<(), TrainError> {
    match (target, y) {
        (Target::Classes { labels, .. }, Some(y)) => gather_rows(step, y, labels, indices),
        (Target::Values { values, .. }, Some(y)) => gather_rows(step, y, values, indices),
        (Target::Windows(rows), Some(y)) => gather_windows(step, y, (rows, RowPart::Target), indices),
        (_, None) => Ok(()),
    }
}

/// Writes samples of each input in logical order, in the step's own precision and layout.
pub(super) fn write_samples(step: &mut Step, samples: &[Samples]) -> Result<(), TrainError> {
    let compiled = Arc::clone(step.compiled());
    let program = &compiled.plan.program;
    for (x, samples) in program.all_samples().zip(samples) {
        match samples {
            Samples::Real(values) if program.real == DType::F64 => {
                let wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
                step.set_input(x, &wide)?;
            }
            Samples::Real(values) => step.set_input(x, values)?,
            Samples::Tokens(tokens) => step.set_input(x, tokens)?,
            Samples::Windows(rows) => {
                let all: Vec<u32> = (0..rows.len() as u32).collect();
                step.set_input(x, &rows.rows(&all, RowPart::Sample)?)?;
            }
        }
    }
    Ok(())
}

/// The samples of each input of a set with these numbers, in logical order.
pub(super) fn rows_of(set: &Dataset, indices: &[u32]) -> Result<Vec<Samples>, TrainError> {
    let rows = set.inputs.iter().map(|input| input.values.view().rows(input.sample.len(), indices));
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes real values in the step's own precision.
pub(super) fn write_real(step: &mut Step, id: LValueId, real: DType, values: &[f64]) -> Result<(), TrainError> {
    if real == DType::F64 {
        step.write(id, values)?;
    } else {
        let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        step.write(id, &narrow)?;
    }
    Ok(())
}
