//! What belongs to weights besides their values: the network, how its samples were prepared, and which of them it was
//! trained on.
//!
//! Every file of weights (a kept run's, a checkpoint, what `--save` and exports write) holds it as one JSON object in
//! the metadata of safetensors, so that whoever has the file can give answers as the run did.

use super::checkpoint::{metadata_of, origin_of_checkpoint};
use super::file_contents::Holding;
use super::runs::{RunEntry, RunRecord, RunStore};
use super::tensor_writer::{Stream, write_streams};
use super::trained_on::{Division, TrainedOn};
use super::{DataFeed, Session, TrainError};
use crate::data::Preprocessing;
use crate::model::{DataSpec, Preset, SplitKind, TrainSpec, read_preset, write_preset};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The key in a file's metadata, and the version of its contents.
pub(super) const KEY: &str = "stepgraph.weights.1";

/// Where weights come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// The preset's document, with the run's seed and steps. It names data only where those were trained on.
    preset: Value,
    /// The seed of the run, from which its split follows; `None` where it is not known.
    pub seed: Option<u64>,
    /// How the samples were divided; `None` where batches were given, or where it is not known.
    division: Option<Division>,
    /// How the samples were prepared; `None` where batches were given, or where an older version wrote the file.
    pub preprocessing: Option<Preprocessing>,
    /// The checksum of the samples as they were trained on.
    data_digest: Option<String>,
    /// Other samples, or others of the same, that the run trained on before it was resumed or begun from other weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    trained_before: Vec<TrainedOn>,
}

impl Origin {
    /// The origin that a file's metadata holds: in the header of a checkpoint of an older version a part of it; nothing
    /// in any other file.
    ///
    /// # Errors
    /// Where it is there and damaged.
    pub fn of_metadata(metadata: &HashMap<String, String>, path: &Path) -> Result<Option<Self>, TrainError> {
        let Some(text) = metadata.get(KEY) else { return Ok(origin_of_checkpoint(metadata)) };
        let origin = serde_json::from_str::<Self>(text).ok();
        let origin = origin.filter(|o| o.preprocessing.as_ref().is_none_or(Preprocessing::is_sound));
        let damaged = || {
            let message = "is damaged: what it says of its network and its samples cannot be read";
            TrainError::file(path, message, "go back to an older copy, or save the weights again")
        };
        origin.map(Some).ok_or_else(damaged)
    }

    /// The origin that a safetensors file holds, read from the file's first bytes alone. A file that cannot be read has
    /// none: whoever reads the weights says why.
    ///
    /// # Errors
    /// As [`Self::of_metadata`].
    pub fn read(path: &Path) -> Result<Option<Self>, TrainError> {
        metadata_of(path).map_or(Ok(None), |metadata| Self::of_metadata(&metadata, path))
    }

    /// The origin of a kept run's weights, from its record where the weights are of an older version.
    ///
    /// # Errors
    /// As [`Self::of_metadata`].
    pub fn of_run(store: &RunStore, entry: &RunEntry) -> Result<Self, TrainError> {
        let own = Self::read(&store.weights(&entry.id))?;
        Ok(own.unwrap_or_else(|| Self::of_record(&entry.record)))
    }

    /// What the record of a run says of its samples.
    pub(super) fn of_record(record: &RunRecord) -> Self {
        let unread = || Self { seed: Some(record.seed), ..Self::default() };
        record.read_preset().map_or_else(unread, |preset| Self::recorded(&preset, record.seed))
    }

    /// What is known where the samples are not: the network, and how the preset divides its data.
    pub(super) fn recorded(preset: &Preset, seed: u64) -> Self {
        // What a preset says about itself has no part in its answers.
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

    /// The metadata of a file that holds nothing but weights.
    #[must_use]
    pub fn weights_metadata(&self) -> HashMap<String, String> {
        let mut metadata = Holding::Weights.metadata();
        metadata.extend(self.metadata());
        metadata
    }

    /// The origin as metadata of a file.
    #[must_use]
    pub fn metadata(&self) -> HashMap<String, String> {
        [(KEY.to_owned(), self.text())].into()
    }

    /// The network; `None` where it is of another version, or not known.
    #[must_use]
    pub fn preset(&self) -> Option<Preset> {
        (!self.preset.is_null()).then(|| read_preset(&self.preset.to_string()).ok()).flatten()
    }

    /// The share or count of samples that were held out, and which ones, where that is known.
    #[must_use]
    pub fn division(&self) -> Option<(f64, SplitKind)> {
        self.division.as_ref().map(|d| (d.held_out, d.kind()))
    }

    /// Divides data as the weights' were, where that is known.
    pub fn divide(&self, data: &mut DataSpec) {
        if let Some((held_out, split)) = self.division() {
            (data.held_out, data.split) = (held_out, split);
        }
    }

    /// Whether samples with this checksum are those that the weights were trained on; `None` where nobody knows.
    #[must_use]
    pub fn is_of(&self, digest: &str) -> Option<bool> {
        self.data_digest.as_ref().map(|own| own == digest)
    }

    /// All that the weights were trained on, the newest last, as far as it is known.
    pub(super) fn trained_on(&self) -> Vec<TrainedOn> {
        let mut all = self.trained_before.clone();
        // A preset without data is that of a run on the batches of a file.
        let is_known = self.division.is_some() || (self.preset.is_object() && self.preset["data"].is_null());
        let (data_digest, seed, division) = (self.data_digest.clone(), self.seed, self.division.clone());
        let own = TrainedOn { data_digest, seed, division };
        if is_known && !all.contains(&own) {
            all.push(own);
        }
        all
    }

    /// Whether samples that the weights' run held out may have been trained on before, with other data or as a part of
    /// other divisions.
    #[must_use]
    pub const fn is_maybe_trained(&self) -> bool {
        !self.trained_before.is_empty()
    }

    /// Whether the run trained on samples with this checksum before it was resumed, or begun from other weights.
    #[must_use]
    pub fn has_trained_on(&self, digest: &str) -> bool {
        self.trained_before.iter().any(|t| t.data_digest.as_deref() == Some(digest))
    }

    /// What is assumed of weights that do not say how their samples were prepared, where it makes a difference for data
    /// that are prepared so; `whose` names the weights.
    #[must_use]
    pub fn assumption(of: Option<&Self>, used: &Preprocessing, whose: &str) -> Option<String> {
        let is_known = of.is_some_and(|origin| origin.preprocessing.is_some());
        (!is_known && used.matters()).then(|| {
            format!(
                "{whose} does not say how its samples were prepared; the mean, the deviation and the order of classes are \
                 taken from the training part of the preset's data, which must be the data that it was trained on"
            )
        })
    }
}

impl Session {
    /// What belongs to the parameters of this run besides their values.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let set = match &self.feed {
            DataFeed::Data { set, .. } => Some(set),
            _ => None,
        };
        let steps = usize::try_from(self.total()).unwrap_or(usize::MAX);
        let train = Some(TrainSpec { steps, seed: self.seed() });
        let data = self.preset.data.clone().filter(|_| set.is_some());
        Origin {
            preprocessing: set.map(|set| set.preprocessing.clone()),
            data_digest: set.map(|set| self.data_digest.get_or_init(|| set.digest()).clone()),
            trained_before: self.past.clone(),
            ..Origin::recorded(&Preset { train, data, ..self.preset.clone() }, self.seed())
        }
    }

    /// Writes the parameters and running statistics, with their origin.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn save_weights(&self, path: &Path) -> Result<(), TrainError> {
        write_streams(path, &Stream::params(&self.train, self.model()), &self.origin().weights_metadata())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BUNDLED;
    use crate::train::{SessionSpec, TensorFile, read_tensors};

    fn session(name: &str, seed: u64) -> Session {
        let text = BUNDLED.iter().find(|b| b.name == name).unwrap().text;
        let spec = SessionSpec::new(read_preset(text).unwrap(), ".".into());
        Session::prepare(&SessionSpec { threads: 1, seed: Some(seed), ..spec }).unwrap()
    }

    #[test]
    fn weights_and_checkpoints_say_how_their_samples_were_prepared() {
        let folder = tempfile::tempdir().unwrap();
        let (weights, checkpoint) = (folder.path().join("w.safetensors"), folder.path().join("c.ckpt"));
        let session = session("iris", 4);
        session.save_weights(&weights).unwrap();
        session.save_checkpoint(&checkpoint, &session.preset).unwrap();
        let set = session.dataset().unwrap().0;
        for path in [&weights, &checkpoint] {
            let origin = Origin::read(path).unwrap().unwrap();
            assert_eq!(origin, session.origin());
            assert_eq!(Origin::of_metadata(&read_tensors(path).unwrap().metadata, path).unwrap().unwrap(), origin);
            let known = origin.preprocessing.as_ref().unwrap();
            assert_eq!(known, &set.preprocessing);
            assert_eq!((known.scaling.as_ref().unwrap().mean.len(), known.classes[1].as_str()), (4, "versicolor"));
            assert_eq!((origin.seed, origin.division()), (Some(4), Some((30.0, SplitKind::Shuffled))));
            assert_eq!(origin.is_of(&set.digest()), Some(true));
            assert_eq!(origin.preset().unwrap().train.unwrap().seed, 4);
        }
        // A letter changed in what a checkpoint says of its samples is found as one changed in its values.
        let mut file = read_tensors(&checkpoint).unwrap();
        let text = file.metadata[KEY].replace("versicolor", "versicolour");
        file.metadata.insert(KEY.into(), text);
        file.write(&checkpoint).unwrap();
        assert!(read_tensors(&checkpoint).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn weights_without_an_origin_are_assumed_to_be_of_the_presets_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.safetensors");
        let session = session("iris", 0);
        TensorFile { tensors: session.weights().unwrap(), metadata: HashMap::default() }.write(&path).unwrap();
        assert_eq!(Origin::read(&path).unwrap(), None);
        let used = &session.dataset().unwrap().0.preprocessing;
        let told = Origin::assumption(None, used, "old.safetensors").unwrap();
        assert!(told.starts_with("old.safetensors does not say how its samples were prepared"), "{told}");
        assert_eq!(Origin::assumption(Some(&session.origin()), used, "a"), None);
        assert_eq!(Origin::assumption(None, &Preprocessing::default(), "a"), None);
    }
}
