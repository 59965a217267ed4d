//! Where a step's batch comes from.

use super::{TensorFile, TrainError};
use crate::data::{BatchPlace, BatchTargets, Batches, Dataset, Position, Split, Target};
use crate::exec::{Step, samples_to_stored};
use crate::lower::{LValueId, Layout};
use crate::model::{Model, Rng, Targets};
use crate::tensor::{DType, HostTensor, plural};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Deref;
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
    Data { set: Arc<Dataset>, stored: Samples, split: Arc<Split>, batches: Batches },
    /// Given batches, in order.
    Batches { x: Vec<f32>, y: Labels, count: usize, next: usize },
    /// One random batch that stays where it is: for benchmarks.
    Resident,
}

/// The samples of a data set in the step's layout: those of the set where that is its own layout.
pub struct Samples {
    set: Arc<Dataset>,
    relaid: Option<Vec<f32>>,
}

impl Samples {
    fn new(set: Arc<Dataset>, layout: Layout) -> Self {
        let relaid = relaid(&set.x, layout);
        Self { set, relaid }
    }
}

impl Deref for Samples {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.relaid.as_deref().unwrap_or(&self.set.x)
    }
}

/// Samples in another layout than the logical one; nothing where that is the layout.
fn relaid(logical: &[f32], layout: Layout) -> Option<Vec<f32>> {
    match samples_to_stored(logical, layout) {
        Cow::Owned(relaid) => Some(relaid),
        Cow::Borrowed(_) => None,
    }
}

/// Targets of given batches.
pub enum Labels {
    Classes(Vec<i32>),
    Values(Vec<f32>),
}

/// A file of batches, whose mistakes are reported with its path.
struct BatchFile<'a> {
    file: &'a TensorFile,
    path: &'a Path,
}

impl BatchFile<'_> {
    fn tensor(&self, name: &str) -> Result<&HostTensor, TrainError> {
        let help = "a file of batches holds batch.x [S, B, ...] and batch.y";
        self.file.get(name).ok_or_else(|| TrainError::file(self.path, format!("has no tensor {name}"), help))
    }

    /// The number of batches in a tensor `[S, tail..]`.
    fn batch_count(&self, name: &str, found: &HostTensor, tail: &[usize]) -> Result<usize, TrainError> {
        match &found.shape.0[..] {
            [count, rest @ ..] if *count > 0 && rest == tail => Ok(*count),
            _ => {
                let dims = tail.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let found = &found.shape;
                let message = format!("{name} has shape {found}, the network needs [S, {dims}] with S at least 1");
                Err(TrainError::file(self.path, message, "give batches made for this preset"))
            }
        }
    }

    fn floats(&self, name: &str, tensor: &HostTensor) -> Result<Vec<f32>, TrainError> {
        let values = match tensor.dtype {
            DType::F32 => tensor.to_vec::<f32>().ok(),
            DType::F64 => tensor.to_f64().map(|v| v.into_iter().map(|x| x as f32).collect()),
            _ => None,
        };
        let refused = |message: String, help: &str| TrainError::file(self.path, message, help);
        let values = values.ok_or_else(|| refused(format!("{name} holds {}", tensor.dtype), "expected f32"))?;
        match values.iter().position(|v| !v.is_finite()) {
            Some(at) => {
                Err(refused(format!("{name} holds {} at element {at}", values[at]), "every value must be finite"))
            }
            None => Ok(values),
        }
    }

    /// Refuses targets that the loss does not take.
    fn check_targets(&self, values: &[f32], model: &Model) -> Result<(), TrainError> {
        let is_wrong = |v: &f32| model.loss.targets() == Targets::Binary && *v != 0.0 && *v != 1.0;
        let Some(at) = values.iter().position(is_wrong) else { return Ok(()) };
        let (batch, sample) = (at / (model.batch * model.output.len()), at / model.output.len() % model.batch);
        let message = format!("batch.y holds {} in batch {batch}, sample {sample}", values[at]);
        let help = format!("the loss {} takes targets of 0 or 1; for other values use mse", model.loss.name());
        Err(TrainError::file(self.path, message, help))
    }

    fn classes(&self, tensor: &HostTensor, model: &Model) -> Result<Vec<i32>, TrainError> {
        let values: Option<Vec<i32>> = match tensor.dtype {
            DType::I32 => tensor.to_vec::<i32>().ok(),
            DType::I64 | DType::U8 | DType::U16 => tensor.to_f64().map(|v| v.into_iter().map(|x| x as i32).collect()),
            _ => None,
        };
        let values = values.ok_or_else(|| {
            TrainError::file(self.path, format!("batch.y holds {}", tensor.dtype), "expected i32 classes")
        })?;
        let classes = model.output.len() as i32;
        if let Some(at) = values.iter().position(|l| !(0..classes).contains(l)) {
            let (batch, sample) = (at / model.batch, at % model.batch);
            let message = format!("batch.y holds class {} in batch {batch}, sample {sample}", values[at]);
            return Err(TrainError::file(self.path, message, format!("classes must lie in 0..{classes}")));
        }
        Ok(values)
    }
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
        layout: Layout,
        seed: u64,
    ) -> Result<Self, TrainError> {
        let batches = Batches::new(split.train.clone(), model.batch, seed)?;
        let stored = Samples::new(Arc::clone(&set), layout);
        Ok(Self::Data { set, stored, split, batches })
    }

    /// The feed of `batch.x` and `batch.y` of a file.
    ///
    /// # Errors
    /// Where they are missing, have the wrong shape or type, or labels out of range.
    pub fn batches(file: &TensorFile, path: &Path, model: &Model, layout: Layout) -> Result<Self, TrainError> {
        let file = BatchFile { file, path };
        let x = file.tensor("batch.x")?;
        let y = file.tensor("batch.y")?;
        let count = file.batch_count("batch.x", x, &model.inputs[0].shape.batched(model.batch).0)?;
        let samples = file.floats("batch.x", x)?;
        let y = match model.loss.targets() {
            Targets::Values | Targets::Binary => {
                let steps = file.batch_count("batch.y", y, &model.output.batched(model.batch).0)?;
                same_count(path, count, steps)?;
                let values = file.floats("batch.y", y)?;
                file.check_targets(&values, model)?;
                Labels::Values(values)
            }
            Targets::Classes => {
                let steps = file.batch_count("batch.y", y, &[model.batch])?;
                same_count(path, count, steps)?;
                Labels::Classes(file.classes(y, model)?)
            }
        };
        Ok(Self::Batches { x: relaid(&samples, layout).unwrap_or(samples), y, count, next: 0 })
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
        let program = &step.compiled().plan.program;
        let (x, y, real) = (program.samples(), program.targets(), program.real);
        let len = model.batch * model.sample_len();
        let samples: Vec<f64> = (0..len).map(|_| rng.normal()).collect();
        write_real(step, x, real, &samples)?;
        if let Some(y) = y {
            match model.loss.targets() {
                Targets::Classes => {
                    let classes = model.output.len();
                    let labels: Vec<i32> = (0..model.batch).map(|_| rng.below(classes) as i32).collect();
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
    pub fn next(&mut self, step: &mut Step, x: LValueId, y: Option<LValueId>) -> Result<bool, TrainError> {
        match self {
            Self::Resident => {}
            Self::Data { set, stored, batches, .. } => {
                let indices = batches.next();
                gather(step, x, y, stored, &set.target, indices)?;
            }
            Self::Batches { x: samples, y: labels, count, next } => {
                if *next >= *count {
                    return Ok(false);
                }
                let stretch = |len: usize| *next * (len / *count)..(*next + 1) * (len / *count);
                step.write(x, &samples[stretch(samples.len())])?;
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

    /// Everything that its batches are made of, samples in the step's layout; `None` where a batch stays where it is.
    #[must_use]
    pub fn whole(&self) -> Option<(&[f32], BatchTargets<'_>)> {
        match self {
            Self::Data { set, stored, .. } => Some((
                stored,
                match &set.target {
                    Target::Classes { labels, .. } => BatchTargets::Classes(labels),
                    Target::Values { values, .. } => BatchTargets::Values(values),
                },
            )),
            Self::Batches { x, y: Labels::Classes(labels), .. } => Some((x, BatchTargets::Classes(labels))),
            Self::Batches { x, y: Labels::Values(values), .. } => Some((x, BatchTargets::Values(values))),
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

    /// The number of batches, where it is limited.
    #[must_use]
    pub const fn limit(&self) -> Option<usize> {
        match self {
            Self::Batches { count, .. } => Some(*count),
            _ => None,
        }
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

    /// Goes on from a saved position.
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

fn same_count(path: &Path, x: usize, y: usize) -> Result<(), TrainError> {
    if x == y {
        return Ok(());
    }
    Err(TrainError::file(
        path,
        format!("batch.x holds {x} {} and batch.y {y}", plural(x as u64, "batch")),
        "both need the same number",
    ))
}

/// Copies samples, by index, to where a step reads them.
pub(super) fn gather_samples(step: &mut Step, x: LValueId, stored: &[f32], indices: &[u32]) -> Result<(), TrainError> {
    step.fill(x, |out: &mut [f32]| {
        let width = out.len() / indices.len().max(1);
        for (row, &i) in out.chunks_exact_mut(width).zip(indices) {
            row.copy_from_slice(&stored[i as usize * width..][..width]);
        }
    })?;
    Ok(())
}

/// Copies samples and targets, by index, to where a step reads them.
pub(super) fn gather(
    step: &mut Step,
    x: LValueId,
    y: Option<LValueId>,
    stored: &[f32],
    target: &Target,
    indices: &[u32],
) -> Result<(), TrainError> {
    gather_samples(step, x, stored, indices)?;
    let Some(y) = y else { return Ok(()) };
    match target {
        Target::Classes { labels, .. } => {
            step.fill(y, |out: &mut [i32]| {
                for (out, &i) in out.iter_mut().zip(indices) {
                    *out = labels[i as usize];
                }
            })?;
        }
        Target::Values { values, shape } => {
            let width = shape.len();
            step.fill(y, |out: &mut [f32]| {
                for (row, &i) in out.chunks_exact_mut(width).zip(indices) {
                    row.copy_from_slice(&values[i as usize * width..][..width]);
                }
            })?;
        }
    }
    Ok(())
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
