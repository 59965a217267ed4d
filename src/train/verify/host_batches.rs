//! The batches of a run as the host finds them: from the data, the seed and the number of a batch alone.

use super::replay::still_there;
use crate::data::{Dataset, Position, RowPart, SHUFFLE_STREAM, Samples, Shuffle, Split, Target};
use crate::exec::{ExecError, Step};
use crate::lower::LValueId;
use crate::model::{LastBatch, Model, Preset};
use crate::tensor::{DType, Element};
use crate::train::batch_file::Labels;
use crate::train::batch_shape::{BatchShape, drawn_bucket};
use crate::train::data_feed::{rows_of, write_samples};
use crate::train::{DataFeed, Session, TrainError};

/// A batch as a step has it in memory.
pub(super) struct Batch {
    /// The values of all inputs of numbers.
    x: Vec<f32>,
    /// The bytes of everything else: tokens, then targets.
    y: Vec<u8>,
}

impl Batch {
    pub(super) fn read(step: &Step) -> Result<Self, ExecError> {
        let program = &step.compiled().plan.program;
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for id in program.all_samples() {
            if program.value(id).dtype == DType::I32 {
                y.extend_from_slice(step.tensor(id)?.bytes());
            } else {
                x.extend_from_slice(&step.stored::<f32>(id)?);
            }
        }
        if let Some(targets) = program.targets() {
            y.extend_from_slice(step.tensor(targets)?.bytes());
        }
        Ok(Self { x, y })
    }

    /// Whether another batch has the same bits; a NaN is equal to itself.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let is_equal = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        self.y == other.y && self.x.len() == other.x.len() && self.x.iter().zip(&other.x).all(is_equal)
    }
}

/// Whether the batch is still in its place when the step is over.
pub(super) fn batch_stays(step: &Step) -> bool {
    let plan = &step.compiled().plan;
    let stays = |id| plan.place(id).is_none_or(|place| still_there(plan, plan.buffer(place.buffer)));
    plan.program.all_samples().chain(plan.program.targets()).all(stays)
}

/// What the batches of a session use of their samples and positions, by the description of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchRule {
    /// All of them: the session is of whole batches.
    Whole,
    /// What `data.last_batch`, `data.buckets`, or the file of batches says.
    AsDescribed,
}

impl BatchRule {
    /// Writes the batch, counted from 0, that the host finds from data, seed and that number, for the step that was
    /// chosen, and gives what the batch uses. Where the step takes another number of samples or positions, nothing is
    /// written, and the inner error says so.
    ///
    /// # Errors
    /// Never for a step of the session's network.
    pub(super) fn write(self, session: &mut Session, number: u64) -> Result<Result<BatchShape, String>, TrainError> {
        match &session.feed {
            DataFeed::Data { .. } => self.write_data(session, number),
            DataFeed::Batches { .. } => self.write_given(session, number as usize),
            DataFeed::Resident => Ok(Ok(BatchShape::whole(&session.model))),
        }
    }

    fn write_data(self, session: &mut Session, number: u64) -> Result<Result<BatchShape, String>, TrainError> {
        let (model, seed) = (&session.model, session.seed());
        let DataFeed::Data { set, split, .. } = &session.feed else { return Ok(Ok(BatchShape::whole(model))) };
        let found = self.found(&session.preset, split, (model.batch, seed), number);
        let length = self.length_of(&session.preset, model, set, &found, seed)?;
        let shape = BatchShape { rows: found.samples.len(), length };
        let Session { train, feed, .. } = session;
        let DataFeed::Data { set, batches, .. } = feed else { return Ok(Ok(shape)) };
        // The feed does not pass to the next batch by itself.
        batches.next();
        let step = train.chosen_mut();
        if let Some(why) = misfit(step, shape) {
            return Ok(Err(why));
        }
        let inputs: Vec<LValueId> = step.compiled().plan.program.all_samples().collect();
        let whole = rows_of(set, &found.samples)?;
        let cut = |(id, samples): (LValueId, Samples)| first_of_each(samples, shape.rows, width(step, id, shape));
        let cut: Vec<Samples> = inputs.into_iter().zip(whole).map(cut).collect();
        write_samples(step, &cut)?;
        let Some(y) = step.compiled().plan.program.targets() else { return Ok(Ok(shape)) };
        let kept = width(step, y, shape);
        match &set.target {
            Target::Classes { shape: own, .. } => {
                step.write(y, &firsts(&set.target.labels(&found.samples)?, own.len(), kept))?;
            }
            Target::Windows(rows) => {
                let labels = rows.rows(&found.samples, RowPart::Target)?;
                step.write(y, &firsts(&labels, rows.target_shape().len(), kept))?;
            }
            Target::Values { values, shape: own } => {
                let of = |i: &u32| &values[*i as usize * own.len()..][..kept];
                step.write(y, &found.samples.iter().flat_map(of).copied().collect::<Vec<f32>>())?;
            }
        }
        Ok(Ok(shape))
    }

    /// The samples of a batch, and where it begins.
    fn found(self, preset: &Preset, split: &Split, (batch, seed): (usize, u64), number: u64) -> Found {
        let rows = split.train.len();
        let has_short = preset.data.as_ref().is_some_and(|data| data.last_batch == LastBatch::Short);
        // The last batch of an epoch has what is left, or is left out.
        let of_epoch = if has_short && self == Self::AsDescribed { rows.div_ceil(batch) } else { rows / batch };
        let (epoch, first) = (number / of_epoch as u64, number as usize % of_epoch * batch);
        let shuffle = Shuffle::new(rows as u32, seed, SHUFFLE_STREAM.wrapping_add(epoch));
        let all = first..(first + batch).min(rows);
        let samples = all.map(|at| split.train[shuffle.at(at as u32) as usize]).collect();
        Found { samples, at: Position { epoch, cursor: first } }
    }

    /// The positions that a batch uses: those of the smallest bucket in which each of its texts has room, or of a
    /// bucket that is drawn, where samples are pieces of one text. Nothing where all batches have the network's own.
    fn length_of(
        self,
        preset: &Preset,
        model: &Model,
        set: &Dataset,
        found: &Found,
        seed: u64,
    ) -> Result<Option<usize>, TrainError> {
        let buckets = preset.data.as_ref().map_or(&[][..], |data| data.buckets.as_slice());
        let (Self::AsDescribed, [input], Some(whole), false) =
            (self, &set.inputs[..], model.length(), buckets.is_empty())
        else {
            return Ok(None);
        };
        if matches!(input.values, Samples::Windows(_)) {
            return Ok(Some(buckets[drawn_bucket(seed, found.at, buckets.len())]));
        }
        let Samples::Tokens(tokens) = input.values.view().rows(input.sample.len(), &found.samples)? else {
            return Ok(None);
        };
        // A text is filled up with zeros.
        let used = |text: &[i32]| (1..=text.len()).rev().find(|length| text[length - 1] != 0).unwrap_or(1);
        let longest = tokens.chunks_exact(whole).map(used).max().unwrap_or(1);
        Ok(Some(buckets.iter().copied().find(|bucket| *bucket >= longest).unwrap_or(whole)))
    }

    fn write_given(self, session: &mut Session, number: usize) -> Result<Result<BatchShape, String>, TrainError> {
        let Session { train, feed, model, .. } = session;
        let whole = BatchShape::whole(model);
        let DataFeed::Batches { x, y: labels, count, next, batch, shapes } = feed else { return Ok(Ok(whole)) };
        *next = number + 1;
        let listed = shapes.as_ref().filter(|_| self == Self::AsDescribed);
        let shape = listed.map_or(whole, |shapes| shapes[number]);
        let step = train.chosen_mut();
        if let Some(why) = misfit(step, shape) {
            return Ok(Err(why));
        }
        let given = Given { number, count: *count, batch: *batch, shape };
        let inputs: Vec<LValueId> = step.compiled().plan.program.all_samples().collect();
        for (id, samples) in inputs.into_iter().zip(&*x) {
            match samples {
                Samples::Real(all) => given.write(step, id, all)?,
                Samples::Tokens(all) => given.write(step, id, all)?,
                // A file of batches holds its samples whole.
                Samples::Windows(_) => {}
            }
        }
        match (&*labels, step.compiled().plan.program.targets()) {
            (Labels::Classes(all), Some(y)) => given.write(step, y, all)?,
            (Labels::Values(all), Some(y)) => given.write(step, y, all)?,
            (_, None) => {}
        }
        Ok(Ok(shape))
    }
}

/// A batch of a data set.
struct Found {
    samples: Vec<u32>,
    /// Where it begins.
    at: Position,
}

/// A batch of a file.
struct Given {
    number: usize,
    /// Batches of the file.
    count: usize,
    /// Samples of each.
    batch: usize,
    shape: BatchShape,
}

impl Given {
    /// Writes what the batch uses of `all` values of the file.
    fn write<T: Element>(&self, step: &mut Step, id: LValueId, all: &[T]) -> Result<(), TrainError> {
        let own = &all[self.number * (all.len() / self.count)..][..all.len() / self.count];
        let (sample, kept) = (own.len() / self.batch, width(step, id, self.shape));
        Ok(step.write(id, &firsts(&own[..sample * self.shape.rows], sample, kept))?)
    }
}

/// Elements of one sample of a value of a step for batches of this shape.
fn width(step: &Step, id: LValueId, shape: BatchShape) -> usize {
    step.compiled().plan.program.value(id).shape.len() / shape.rows
}

/// The first `kept` elements of each `sample` elements.
fn firsts<T: Copy>(all: &[T], sample: usize, kept: usize) -> Vec<T> {
    all.chunks_exact(sample.max(1)).flat_map(|row| &row[..kept]).copied().collect()
}

/// The first `kept` elements of each of these samples, which are `rows`.
fn first_of_each(samples: Samples, rows: usize, kept: usize) -> Samples {
    match samples {
        Samples::Real(all) => Samples::Real(firsts(&all, all.len() / rows, kept)),
        Samples::Tokens(all) => Samples::Tokens(firsts(&all, all.len() / rows, kept)),
        Samples::Windows(rows) => Samples::Windows(rows),
    }
}

/// What is wrong with a step for batches of this shape, in words.
fn misfit(step: &Step, shape: BatchShape) -> Option<String> {
    let model = &step.compiled().model;
    let own = BatchShape { rows: model.batch, length: shape.length.and(model.length()) };
    (own != shape).then(|| format!("has {}, and runs with {}", shape.text(), own.text()))
}
