//! Where a step's batch comes from.

use super::batch_file::{GivenBatches, Labels, given_batches};
use super::batch_shape::{BatchShape, Lengths};
use super::gather::{FileBatch, gather, gather_targets};
use super::{TensorFile, TrainError};
use crate::data::{BatchPlace, BatchTargets, Batches, Dataset, Position, RowPart, Samples, SamplesRef, Split, Target};
use crate::exec::{Step, samples_to_stored};
use crate::lower::{LValueId, Layout, Program};
use crate::model::{Content, DataSpec, LastBatch, Model, Rng, Targets};
use crate::tensor::DType;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

/// The progress of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedPosition {
    Data(Position),
    /// The number of batches that were used.
    Batches(usize),
}

/// A source of batches, in the layout in which the step reads them.
pub enum DataFeed {
    /// Shuffled batches of a data set.
    Data {
        set: Arc<Dataset>,
        stored: StoredSamples,
        split: Arc<Split>,
        batches: Batches,
        /// The lengths of batches, if they differ.
        lengths: Option<Lengths>,
    },
    /// Given batches, in order.
    Batches {
        x: Vec<Samples>,
        y: Labels,
        count: usize,
        next: usize,
        /// Samples of a batch.
        batch: usize,
        /// What each batch uses, if batches differ in that.
        shapes: Option<Vec<BatchShape>>,
    },
    /// One random batch that stays in the step's memory: for benchmarks.
    Resident,
}

/// The samples of every input of a data set in the step's layout; those of the set itself if it has this layout.
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

/// Samples in a layout other than the logical one; `None` if that is the layout, as for tokens.
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
    /// If the training part is smaller than a batch, and this is not allowed.
    pub fn data(
        set: Arc<Dataset>,
        split: Arc<Split>,
        model: &Model,
        layouts: &[Layout],
        seed: u64,
        last_batch: LastBatch,
    ) -> Result<Self, TrainError> {
        let of = match last_batch {
            LastBatch::Drop => Batches::new,
            LastBatch::Short => Batches::with_short_last,
        };
        let batches = of(split.train.clone(), model.batch, seed)?;
        let stored = StoredSamples::new(Arc::clone(&set), layouts);
        Ok(Self::Data { set, stored, split, batches, lengths: None })
    }

    /// Lets the batches of a data set have different lengths, as its description says.
    ///
    /// # Errors
    /// If the network or the source does not support that.
    pub(super) fn vary(&mut self, spec: &DataSpec, model: &Model, seed: u64) -> Result<(), TrainError> {
        let Self::Data { set, lengths, .. } = self else { return Ok(()) };
        *lengths = match &set.inputs[..] {
            [x] => Lengths::new(spec, model, &x.values, seed)?,
            _ => None,
        };
        Ok(())
    }

    /// The feed of `batch.x`, or `batch.x.NAME` for each input, and `batch.y` of a file.
    ///
    /// # Errors
    /// If they are missing, have the wrong shape or type, or contain labels or tokens out of range.
    pub fn batches(file: &TensorFile, path: &Path, model: &Model, layouts: &[Layout]) -> Result<Self, TrainError> {
        let GivenBatches { x, y, count, shapes } = given_batches(file, path, model)?;
        let x = x.into_iter().zip(layouts).map(|(x, layout)| as_stored(x, *layout)).collect();
        Ok(Self::Batches { x, y, count, next: 0, batch: model.batch, shapes })
    }

    /// Uses all samples and positions of every batch, even if a file says that batches use fewer.
    pub(super) fn take_whole_batches(&mut self) {
        if let Self::Batches { shapes, .. } = self {
            *shapes = None;
        }
    }

    /// Whether there is a held-out part.
    pub(super) fn holds_out(&self) -> bool {
        matches!(self, Self::Data { split, .. } if !split.held_out.is_empty())
    }

    /// Writes one random batch into the step, where it stays: for benchmarks and checks. Its numbers are those of
    /// `f32`, so that a step in `f64` computes with the same ones.
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
                    let samples: Vec<f64> = (0..len).map(|_| f64::from(rng.normal() as f32)).collect();
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
                    let targets: Vec<f64> =
                        (0..model.batch * model.output.len()).map(|_| f64::from(rng.normal() as f32)).collect();
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

    /// Whether its batches differ in how much they use.
    #[must_use]
    pub const fn varies(&self) -> bool {
        match self {
            Self::Data { batches, lengths, .. } => lengths.is_some() || batches.short_last().is_some(),
            Self::Batches { shapes, .. } => shapes.is_some(),
            Self::Resident => false,
        }
    }

    /// What the next batch uses; `None` if it uses everything, as all batches do.
    pub(super) fn shape_of_next(&mut self) -> Option<BatchShape> {
        match self {
            Self::Data { batches, lengths, .. } => {
                let length = lengths.as_ref().map(|lengths| lengths.of_next(batches));
                let rows = batches.upcoming().0;
                (length.is_some() || batches.short_last().is_some()).then_some(BatchShape { rows, length })
            }
            Self::Batches { shapes, next, .. } => shapes.as_ref()?.get(*next).copied(),
            Self::Resident => None,
        }
    }

    /// Whether what each batch uses is listed in a file.
    pub(super) const fn is_listed(&self) -> bool {
        matches!(self, Self::Batches { shapes: Some(_), .. })
    }

    /// What the batch at this distance from the next one will use, if that is known; `whole` is a whole batch.
    pub(super) fn shape_ahead(&self, distance: usize, whole: &BatchShape) -> Option<BatchShape> {
        match self {
            Self::Data { lengths, .. } => lengths.is_none().then_some(*whole),
            Self::Batches { shapes: Some(shapes), next, .. } => shapes.get(*next + distance).copied(),
            Self::Batches { shapes: None, .. } | Self::Resident => Some(*whole),
        }
    }

    /// What the batch at this distance from the next one may use.
    pub(super) fn shapes_ahead(&self, distance: usize, whole: &BatchShape) -> Vec<BatchShape> {
        let Self::Data { batches, lengths, .. } = self else {
            return self.shape_ahead(distance, whole).into_iter().collect();
        };
        let all = lengths.as_ref().map_or_else(|| vec![None], |l| l.all().iter().copied().map(Some).collect());
        let rows = std::iter::once(batches.batch()).chain(batches.short_last());
        let of_rows = |rows: usize| all.iter().map(move |length| BatchShape { rows, length: *length });
        rows.flat_map(of_rows).collect()
    }

    /// Copies the next batch, as much of it as the step uses, to the memory that the step reads; returns false if there
    /// is none left. Allocates nothing.
    ///
    /// # Errors
    /// Never for a step of the model that the feed was made for.
    ///
    /// # Panics
    /// If the step has another number of samples than the batch.
    pub fn next(&mut self, step: &mut Step) -> Result<bool, TrainError> {
        let compiled = Arc::clone(step.compiled());
        let (inputs, y) = (compiled.plan.program.all_samples(), compiled.plan.program.targets());
        match self {
            Self::Resident => {}
            Self::Data { set, stored, batches, .. } => {
                let indices = batches.next();
                let (found, expected) = (indices.len(), compiled.model.batch);
                assert!(found == expected, "a batch of {found} samples for a step of {expected}");
                for ((x, stored), input) in inputs.zip(stored.views()).zip(&set.inputs) {
                    gather(step, x, stored, indices, Some(input.sample.len()))?;
                }
                gather_targets(step, y, &set.target, indices, set.len())?;
            }
            Self::Batches { x: samples, y: labels, count, next, batch, .. } => {
                if *next >= *count {
                    return Ok(false);
                }
                let given = FileBatch { number: *next, count: *count, rows: compiled.model.batch, whole: *batch };
                for (x, samples) in inputs.zip(&*samples) {
                    match samples {
                        Samples::Real(values) => given.write(step, x, values)?,
                        Samples::Tokens(tokens) => given.write(step, x, tokens)?,
                        // A file of batches contains whole samples.
                        Samples::Windows(_) => {}
                    }
                }
                match (labels, y) {
                    (Labels::Classes(v), Some(y)) => given.write(step, y, v)?,
                    (Labels::Values(v), Some(y)) => given.write(step, y, v)?,
                    (_, None) => {}
                }
                *next += 1;
            }
        }
        Ok(true)
    }

    /// Everything that its batches consist of, with samples in the step's layout; `None` if a batch stays in the step's
    /// memory, and if the network has other inputs than one of numbers.
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

    /// The samples of [`Self::whole`] that batches are drawn from, if they are shuffled.
    #[must_use]
    pub fn shuffled_rows(&self) -> Option<&[u32]> {
        match self {
            Self::Data { batches, .. } => Some(batches.train()),
            _ => None,
        }
    }

    /// Appends the positions of the next `steps` batches of `batch` samples, and advances.
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

    /// The largest number of steps for which there are batches, if it is limited; the argument is the number of batches
    /// in a step.
    #[must_use]
    pub const fn limit(&self, batches_a_step: usize) -> Option<usize> {
        match self {
            Self::Batches { count, .. } => Some(*count / batches_a_step),
            _ => None,
        }
    }

    /// A note about given batches at the end that do not make a whole step.
    pub(super) fn left_out(&self, batches_a_step: usize) -> Option<String> {
        let Self::Batches { count, .. } = self else { return None };
        let left = count % batches_a_step;
        let what = || format!("data: the last {left} of {count} batches are left out; {batches_a_step} make a step");
        (left > 0).then(what)
    }

    /// Its progress.
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
    /// If the position belongs to another feed.
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

    /// The number of samples in one pass over the training part, for a data set.
    #[must_use]
    pub fn epoch_len(&self) -> Option<usize> {
        match self {
            Self::Data { split, .. } => Some(split.train.len()),
            _ => None,
        }
    }
}

/// Writes samples of each input, given in logical order, in the step's precision and layout.
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

/// Writes real values in the step's precision.
pub(super) fn write_real(step: &mut Step, id: LValueId, real: DType, values: &[f64]) -> Result<(), TrainError> {
    if real == DType::F64 {
        step.write(id, values)?;
    } else {
        let narrow: Vec<f32> = values.iter().map(|&v| v as f32).collect();
        step.write(id, &narrow)?;
    }
    Ok(())
}
