//! What a run knows about its parameters other than their values, and what they were trained on before.

use super::nan_guard::check_parameters;
use super::tensor_writer::{Stream, write_streams};
use super::trained_on::{Division, TrainedOn};
use super::{DataFeed, Origin, Session, TrainError};
use crate::model::{Preset, TrainSpec};
use std::path::Path;

impl Session {
    /// The properties of this run's parameters other than their values.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let set = match &self.feed {
            DataFeed::Data { set, .. } => Some(set),
            _ => None,
        };
        let steps = usize::try_from(self.total()).unwrap_or(usize::MAX);
        let train = Some(TrainSpec { steps, seed: self.seed(), accumulate: self.model().accumulate });
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
    /// If a parameter or running statistic is not finite, or the file cannot be written.
    pub fn save_weights(&self, path: &Path) -> Result<(), TrainError> {
        check_parameters(&self.train, path)?;
        write_streams(path, &Stream::params(&self.train, self.model()), &self.origin().weights_metadata())
    }

    /// What parameters of this `origin` were trained on, except for what this run trains on; empty if that is not
    /// known.
    pub(super) fn past_of(&self, origin: Option<&Origin>) -> Vec<TrainedOn> {
        let theirs = origin.map(Origin::trained_on).unwrap_or_default();
        let own = match &self.feed {
            DataFeed::Data { set, .. } => TrainedOn {
                // All samples must be read for this, so it is done only if there is something to compare them with.
                data_digest: theirs
                    .iter()
                    .any(|t| t.data_digest.is_some())
                    .then(|| self.data_digest.get_or_init(|| set.digest()).clone()),
                seed: Some(self.seed()),
                division: self.preset.data.as_ref().map(Division::of),
            },
            _ => TrainedOn::default(),
        };
        theirs.into_iter().filter(|t| !t.is_as(&own)).collect()
    }

    /// Whether the held-out samples may have been trained on before: the run was resumed with other samples, or started
    /// from weights that were trained on other samples, or on others of the same data.
    #[must_use]
    pub fn is_maybe_trained(&self) -> bool {
        self.feed.holds_out() && !self.past.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Preprocessing;
    use crate::model::{BUNDLED, SplitKind, read_preset};
    use crate::tensor::temporary::temporary_file;
    use crate::train::file_keys::ORIGIN;
    use crate::train::{Overrides, SessionSpec, TensorFile, read_tensors};
    use std::collections::HashMap;

    fn session(name: &str, seed: u64) -> Session {
        let text = BUNDLED.iter().find(|b| b.name == name).unwrap().text;
        let spec = SessionSpec::new(read_preset(text).unwrap(), ".".into());
        Session::prepare(&SessionSpec { threads: 1, overrides: Overrides::seed(seed), ..spec }).unwrap()
    }

    #[test]
    fn weights_and_checkpoints_contain_how_their_samples_were_prepared() {
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
        // A changed letter in a checkpoint's description of its samples is found like one in its values.
        let mut file = read_tensors(&checkpoint).unwrap();
        let text = file.metadata[ORIGIN].replace("versicolor", "versicolour");
        file.metadata.insert(ORIGIN.into(), text);
        file.write(&checkpoint).unwrap();
        assert!(read_tensors(&checkpoint).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn weights_without_an_origin_are_assumed_to_be_of_the_presets_data() {
        let (_folder, path) = temporary_file("old.safetensors");
        let session = session("iris", 0);
        TensorFile { tensors: session.weights().unwrap(), metadata: HashMap::default() }.write(&path).unwrap();
        assert_eq!(Origin::read(&path).unwrap(), None);
        let used = &session.dataset().unwrap().0.preprocessing;
        let message = Origin::assumption(None, used, "old.safetensors").unwrap();
        assert!(message.starts_with("old.safetensors does not say how its samples were prepared"), "{message}");
        assert_eq!(Origin::assumption(Some(&session.origin()), used, "a"), None);
        assert_eq!(Origin::assumption(None, &Preprocessing::default(), "a"), None);
    }
}
