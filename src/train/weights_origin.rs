//! The properties of weights other than their values: the network, how its samples were prepared, and which of them it
//! was trained on.
//!
//! Every file of weights (a kept run's, a checkpoint, what `--save` and exports write) contains it as one JSON object
//! in the metadata of safetensors, so that the file alone is enough to evaluate the network as the run did.

use super::checkpoint::Header;
use super::file_contents::Holding;
use super::file_header::metadata_of;
use super::file_keys::{CHECKPOINT, ORIGIN};
use super::runs::{RunEntry, RunRecord, RunStore};
use super::trained_on::{Division, TrainedOn};
use super::{FeedPosition, TrainError};
use crate::data::Preprocessing;
use crate::model::{DataSpec, Preset, SplitKind, read_preset, write_preset};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The origin of weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The preset's document, with the run's seed and steps. It names data only if the weights were trained on those.
    pub(super) preset: Value,
    /// The seed of the run, which determines its split; `None` if it is not known.
    pub seed: Option<u64>,
    /// How the samples were divided; `None` if batches were given, or if it is not known.
    pub(super) division: Option<Division>,
    /// How the samples were prepared; `None` if batches were given, or if an older version wrote the file.
    pub preprocessing: Option<Preprocessing>,
    /// The checksum of the samples as they were used for training.
    pub(super) data_digest: Option<String>,
    /// Other samples, or others of the same data, that the run trained on before it was resumed or started from other
    /// weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) trained_before: Vec<TrainedOn>,
}

impl Origin {
    /// The origin in a file's metadata; in the header of a checkpoint of an older version it is incomplete; `None` in
    /// any other file.
    ///
    /// # Errors
    /// If it exists and is damaged.
    pub fn of_metadata(metadata: &HashMap<String, String>, path: &Path) -> Result<Option<Self>, TrainError> {
        let Some(text) = metadata.get(ORIGIN) else { return Ok(origin_of_checkpoint(metadata)) };
        let origin = serde_json::from_str::<Self>(text).ok();
        let origin = origin.filter(|o| o.preprocessing.as_ref().is_none_or(Preprocessing::is_sound));
        let damaged = || {
            let message = "is damaged: what it says of its network and its samples cannot be read";
            TrainError::file(path, message, "restore an older copy, or save the weights again")
        };
        origin.map(Some).ok_or_else(damaged)
    }

    /// The origin in a safetensors file, read only from the file's first bytes. A file that cannot be read has none:
    /// the code that reads the weights reports why.
    ///
    /// # Errors
    /// As [`Self::of_metadata`].
    pub fn read(path: &Path) -> Result<Option<Self>, TrainError> {
        metadata_of(path).map_or(Ok(None), |metadata| Self::of_metadata(&metadata, path))
    }

    /// The origin of a kept run's weights, from its record if an older version wrote the weights.
    ///
    /// # Errors
    /// As [`Self::of_metadata`].
    pub fn of_run(store: &RunStore, entry: &RunEntry) -> Result<Self, TrainError> {
        let own = Self::read(&store.weights(&entry.id))?;
        Ok(own.unwrap_or_else(|| Self::of_record(&entry.record)))
    }

    /// What the record of a run says about its samples.
    pub(super) fn of_record(record: &RunRecord) -> Self {
        let unread = || Self { seed: Some(record.seed), ..Self::default() };
        record.read_preset().map_or_else(unread, |preset| Self::recorded(&preset, record.seed))
    }

    /// What is known without the samples: the network, and how the preset divides its data.
    pub(super) fn recorded(preset: &Preset, seed: u64) -> Self {
        // The preset's name and description do not affect the network's outputs.
        let named = Preset { about: String::new(), ..preset.clone() };
        Self {
            preset: serde_json::from_str(&write_preset(&named)).unwrap_or_default(),
            seed: Some(seed),
            division: preset.data.as_ref().map(Division::of),
            ..Self::default()
        }
    }

    /// As JSON in one line.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The metadata of a file that contains only weights.
    #[must_use]
    pub fn weights_metadata(&self) -> HashMap<String, String> {
        let mut metadata = Holding::Weights.metadata();
        metadata.extend(self.metadata());
        metadata
    }

    /// The origin as metadata of a file.
    #[must_use]
    pub fn metadata(&self) -> HashMap<String, String> {
        [(ORIGIN.to_owned(), self.text())].into()
    }

    /// The network; `None` if it is of another version, or not known.
    #[must_use]
    pub fn preset(&self) -> Option<Preset> {
        (!self.preset.is_null()).then(|| read_preset(&self.preset.to_string()).ok()).flatten()
    }

    /// The share or count of held-out samples, and which ones, if that is known.
    #[must_use]
    pub fn division(&self) -> Option<(f64, SplitKind)> {
        self.division.as_ref().map(|d| (d.held_out, d.kind()))
    }

    /// Divides data as for the weights, if that is known.
    pub fn divide(&self, data: &mut DataSpec) {
        if let Some((held_out, split)) = self.division() {
            (data.held_out, data.split) = (held_out, split);
        }
    }

    /// Whether samples with this checksum are those that the weights were trained on; `None` if unknown.
    #[must_use]
    pub fn is_of(&self, digest: &str) -> Option<bool> {
        self.data_digest.as_ref().map(|own| own == digest)
    }

    /// Everything that the weights were trained on, the newest last, as far as it is known.
    pub(super) fn trained_on(&self) -> Vec<TrainedOn> {
        let mut all = self.trained_before.clone();
        // A preset without data belongs to a run on the batches of a file.
        let is_known = self.division.is_some() || (self.preset.is_object() && self.preset["data"].is_null());
        let (data_digest, seed, division) = (self.data_digest.clone(), self.seed, self.division.clone());
        let own = TrainedOn { data_digest, seed, division };
        if is_known && !all.contains(&own) {
            all.push(own);
        }
        all
    }

    /// Whether samples that the weights' run held out may have been trained on before, with other data or another
    /// split.
    #[must_use]
    pub const fn is_maybe_trained(&self) -> bool {
        !self.trained_before.is_empty()
    }

    /// Whether the run trained on samples with this checksum before it was resumed, or started from other weights.
    #[must_use]
    pub fn has_trained_on(&self, digest: &str) -> bool {
        self.trained_before.iter().any(|t| t.data_digest.as_deref() == Some(digest))
    }

    /// A note about what is assumed of weights that do not say how their samples were prepared, if it matters for data
    /// that are prepared like this; `whose` names the weights.
    #[must_use]
    pub fn assumption(of: Option<&Self>, used: &Preprocessing, whose: &str) -> Option<String> {
        let is_known = of.is_some_and(|origin| origin.preprocessing.is_some());
        (!is_known && used.matters()).then(|| {
            format!(
                "{whose} does not say how its samples were prepared; the mean, the deviation and the order of classes \
                 are \
                 taken from the training part of the preset's data, which must be the data that it was trained on"
            )
        })
    }
}

/// What the header of a checkpoint says about the samples; checkpoints of older versions contain nothing more.
fn origin_of_checkpoint(metadata: &HashMap<String, String>) -> Option<Origin> {
    let header: Header = serde_json::from_str(metadata.get(CHECKPOINT)?).ok()?;
    let mut preset = read_preset(&header.preset).ok()?;
    if !matches!(header.position, FeedPosition::Data(_)) {
        // Batches were given instead of the preset's data.
        preset.data = None;
    }
    Some(Origin::recorded(&preset, header.seed))
}
