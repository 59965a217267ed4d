//! Which samples `predict` evaluates: those that the weights' own run held out, prepared as that run prepared them, or
//! other data as a whole.

use super::args::PredictArgs;
use super::error::wrong;
use super::presets::Loaded;
use super::text_progress::TextProgress;
use crate::data::{self, Dataset, Preprocessing, Request};
use crate::model::{DataSpec, Model};
use crate::train::export::ExportError;
use crate::train::runs::{RunEntry, RunStore};
use crate::train::{Origin, TrainError};
use std::path::{Path, PathBuf};

/// The weights to evaluate.
pub struct Weights {
    pub path: PathBuf,
    /// What is known about them in addition to their values.
    origin: Option<Origin>,
    /// Their name in messages.
    name: String,
}

impl Weights {
    /// The weights of a kept run, or of a file.
    ///
    /// # Errors
    /// If there is no such run, it has no weights, or their file is damaged.
    pub fn of(init: Option<&Path>, run: Option<&str>) -> anyhow::Result<Self> {
        if let Some(path) = init {
            let name = path.display().to_string();
            return Ok(Self { path: path.to_owned(), origin: Origin::read(path)?, name });
        }
        let store = RunStore::of_user()?;
        let run = store.find(run.unwrap_or("last"))?;
        Self::of_run(&store, &run)
    }

    /// The weights of a kept run.
    ///
    /// # Errors
    /// If it has none, or their file is damaged.
    pub fn of_run(store: &RunStore, run: &RunEntry) -> anyhow::Result<Self> {
        if !run.has_weights {
            return Err(wrong(ExportError::NoWeights(run.name().to_owned()).to_string()));
        }
        let (path, name) = (store.weights(&run.id), format!("run {}", run.id));
        Ok(Self { path, origin: Some(Origin::of_run(store, run)?), name })
    }

    /// How the samples that they were trained on were prepared, if that is known.
    pub fn preprocessing(&self) -> Option<&Preprocessing> {
        self.origin.as_ref()?.preprocessing.as_ref()
    }
}

/// The part of the data that the samples belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    HeldOut,
    /// Nothing is held out.
    Train,
    /// The weights were trained on other data.
    All,
    /// Samples that an earlier part of the weights' run may have trained on: those that the last part held out, or all
    /// of them if the last part trained on other data.
    MaybeTrained,
}

impl Part {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HeldOut => "held_out",
            Self::Train => "train",
            Self::All => "all",
            Self::MaybeTrained => "maybe_trained",
        }
    }
}

/// Samples to evaluate.
pub struct Chosen {
    pub set: Dataset,
    pub samples: Vec<u32>,
    pub part: Part,
    /// A note about the choice of samples.
    pub notes: Vec<String>,
}

/// How data are divided.
#[derive(Clone)]
struct Division {
    data: DataSpec,
    seed: u64,
}

impl Division {
    /// The split with the options applied; everything that they do not mention stays as it is.
    fn asked(mut self, args: &PredictArgs) -> Self {
        self.data.held_out = args.held_out.unwrap_or(self.data.held_out);
        self.data.split = args.split.map_or(self.data.split, |split| split.kind());
        self.seed = args.seed.unwrap_or(self.seed);
        self
    }

    fn split(&self, set: &Dataset) -> Result<data::Split, TrainError> {
        Ok(data::split(set.len(), &self.data, self.seed)?)
    }

    fn text(&self) -> String {
        format!("seed {}, held_out {} and split \"{}\"", self.seed, self.data.held_out, self.data.split.name())
    }
}

/// Loads the preset's data and chooses the samples.
///
/// # Errors
/// If the data cannot be read, do not fit the weights, or the options contradict what the weights were trained with.
pub fn choose(found: &Loaded, model: &Model, weights: &Weights, args: &PredictArgs) -> anyhow::Result<Chosen> {
    let data = found.preset.data.clone().ok_or(TrainError::NoData)?;
    let origin = weights.origin.as_ref();
    let seed = origin.and_then(|o| o.seed).or(found.preset.train.map(|t| t.seed)).unwrap_or(0);
    let of_preset = Division { data, seed };
    let mut own = of_preset.clone();
    origin.iter().for_each(|origin| origin.divide(&mut own.data));
    let asked = own.clone().asked(args);
    let request = Request::of(model, asked.seed);
    let progress = TextProgress::start();
    let set = match origin.and_then(|o| o.preprocessing.as_ref()) {
        Some(known) => data::load_as(&asked.data, &request, &found.base, known),
        None => data::load(&asked.data, &request, &found.base),
    };
    drop(progress);
    let set = set.map_err(TrainError::from)?;
    let mut notes = set.notes.clone();
    notes.extend(Origin::assumption(origin, &set.preprocessing, &weights.name));
    // Synthetic data of another seed are other data.
    let drawn_anew = own.data.source.is_drawn() && asked.seed != own.seed;
    let digest = origin.map(|_| set.digest()).unwrap_or_default();
    let is_own = origin.filter(|o| o.division().is_some()).map(|o| o.is_of(&digest).unwrap_or(!drawn_anew));
    if is_own != Some(false) {
        let trained_on = if is_own.is_some() { &own } else { &asked };
        notes.extend(data::training_notes(&set, &trained_on.split(&set)?.train));
    }
    let (samples, part) = match is_own {
        _ if is_own != Some(true) && origin.is_some_and(|o| o.has_trained_on(&digest)) => {
            notes.push(format!(
                "{} was trained on these data before it was trained on others, so all samples are evaluated, and any \
                 of them may have been trained on",
                weights.name
            ));
            ((0..set.len() as u32).collect(), Part::MaybeTrained)
        }
        Some(true) => held_out_of(&own, &asked, &set, weights, &mut notes)?,
        Some(false) if args.held_out.is_none() && args.split.is_none() => {
            notes.push(format!("{} was trained on other data, so all samples are evaluated", weights.name));
            ((0..set.len() as u32).collect(), Part::All)
        }
        Some(false) => parts(&of_preset.asked(args), &set, Part::All)?,
        None => parts(&asked, &set, Part::Train)?,
    };
    if part == Part::Train {
        notes.push("nothing is held out, so these are predictions for the training samples".to_owned());
    }
    Ok(Chosen { set, samples, part, notes })
}

/// The samples that the weights' own run held out.
fn held_out_of(
    own: &Division,
    asked: &Division,
    set: &Dataset,
    weights: &Weights,
    notes: &mut Vec<String>,
) -> anyhow::Result<(Vec<u32>, Part)> {
    let own_split = own.split(set)?;
    if asked.split(set).ok() != Some(own_split) {
        return Err(wrong(format!(
            "{} was trained with {}, and the options ask for {}: samples that it was trained on would be reported as \
             held out; leave out --seed, --held-out and --split",
            weights.name,
            own.text(),
            asked.text()
        )));
    }
    let chosen = parts(own, set, Part::Train)?;
    if chosen.1 != Part::HeldOut {
        return Ok(chosen);
    }
    let (name, with) = (&weights.name, own.text());
    if weights.origin.as_ref().is_some_and(Origin::is_maybe_trained) {
        notes.push(format!(
            "these samples were held out by the last part of {name}, with {with}; earlier parts trained on other data \
             or used another split, so the network may have been trained on some of these samples"
        ));
        return Ok((chosen.0, Part::MaybeTrained));
    }
    notes.push(format!("the samples are those that {name} held out, with {with}"));
    Ok(chosen)
}

/// The held-out part, or all samples as `otherwise` if nothing is held out.
fn parts(division: &Division, set: &Dataset, otherwise: Part) -> anyhow::Result<(Vec<u32>, Part)> {
    let split = division.split(set)?;
    Ok(if split.held_out.is_empty() { (split.train, otherwise) } else { (split.held_out, Part::HeldOut) })
}
