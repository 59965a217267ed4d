//! Checkpoints: everything that a run needs to go on as if it had never stopped.

use super::open_tensors::{Entry, OpenTensors};
use super::streams::{Stream, checksum_of, write_streams};
use super::weights::{import, open_tensors};
use super::{Feed, FeedPosition, Origin, Session, TrainError, origin};
use crate::model::{DataSpec, Model, Preset, SplitKind, read_preset, write_loss, write_preset};
use crate::tensor::{HostTensor, Shape};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The key of a checkpoint's metadata, and the version of its contents.
const KEY: &str = "stepgraph.checkpoint.1";
/// The key of the sum over header and tensors: a file of the right length may still have lost a bit.
const SUM_KEY: &str = "stepgraph.checksum";

/// What a checkpoint says besides its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Header {
    preset: String,
    step: u64,
    seed: u64,
    position: FeedPosition,
    /// Absent in checkpoints of the first versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    /// Absent in checkpoints of the first versions, and where batches are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    division: Option<Division>,
}

/// How a run's samples are divided into those that train and those held out, as the preset or the command says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Division {
    pub(super) held_out: f64,
    split: String,
}

impl Division {
    pub(super) fn of(data: &DataSpec) -> Self {
        Self { held_out: data.held_out, split: data.split.name().to_owned() }
    }

    /// Which samples are held out.
    pub(super) fn kind(&self) -> SplitKind {
        if self.split == SplitKind::Last.name() { SplitKind::Last } else { SplitKind::Shuffled }
    }

    /// Where nothing is held out, it does not matter which samples would be.
    fn is_as(&self, other: &Self) -> bool {
        self.held_out == other.held_out && (self.held_out == 0.0 || self.split == other.split)
    }
}

impl std::fmt::Display for Division {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "held_out {} and split \"{}\"", self.held_out, self.split)
    }
}

/// What makes a network the same one: parameters fit many. Learning rate and data may change from one part of a run to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Network {
    input: Vec<usize>,
    /// The outermost layers as they stand in a preset, with what is inside them.
    layers: Vec<Value>,
    loss: Value,
    optimizer: String,
}

impl Network {
    fn of(model: &Model) -> Self {
        Self {
            input: model.input.0.clone(),
            layers: model.roots.iter().map(|&l| Value::Object(model.layer(l).spec.write())).collect(),
            loss: write_loss(model.loss),
            optimizer: model.optimizer.name().to_owned(),
        }
    }

    /// The first thing in which a checkpoint's network differs from this run's; `None` where they are the same.
    fn difference(&self, own: &Self) -> Option<String> {
        let differs = |what: &str, theirs: &dyn std::fmt::Display, ours: &dyn std::fmt::Display| {
            Some(format!("{what} is {theirs} there and {ours} here"))
        };
        if self.input != own.input {
            return Some(format!("the input is {:?} there and {:?} here", self.input, own.input));
        }
        if self.layers.len() != own.layers.len() {
            return Some(format!("it has {} layers and this one {}", self.layers.len(), own.layers.len()));
        }
        let mut layers = self.layers.iter().zip(&own.layers).enumerate();
        if let Some((index, (theirs, ours))) = layers.find(|(_, (a, b))| a != b) {
            return differs(&format!("layers[{index}]"), theirs, ours);
        }
        if self.loss != own.loss {
            return differs("the loss", &self.loss, &own.loss);
        }
        if self.optimizer != own.optimizer {
            return differs("the optimizer", &self.optimizer, &own.optimizer);
        }
        None
    }
}

/// The checksum over the header and every tensor in order of the names, in hexadecimal.
pub(super) fn checksum(header: &str, tensors: &[(String, HostTensor)]) -> String {
    let streams: Vec<Stream> = tensors.iter().map(|(name, t)| Stream::held(name, t)).collect();
    // What is in memory can always be had.
    checksum_of(header, &streams).unwrap_or_default()
}

/// Holds a checkpoint's tensors against its checksum. Any other file has none of its kind.
///
/// # Errors
/// Where they do not match.
pub(super) fn check_sum(
    path: &Path,
    metadata: &HashMap<String, String>,
    streams: &[Stream<'_>],
) -> Result<(), TrainError> {
    let Some(header) = metadata.get(KEY) else { return Ok(()) };
    let origin = metadata.get(origin::KEY).map_or("", String::as_str);
    let text = format!("{header}{origin}");
    if metadata.get(SUM_KEY).is_some_and(|sum| checksum_of(&text, streams).is_ok_and(|own| own == *sum)) {
        return Ok(());
    }
    Err(TrainError::file(path, "is damaged: its contents do not match its checksum", "go back to an older checkpoint"))
}

/// The header of a safetensors file, null where it has none, and the bytes before the tensors.
pub(super) fn read_header(path: &Path) -> std::io::Result<(Value, u64)> {
    /// A header that is longer is no header.
    const MOST: u64 = 100 << 20;
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    let mut text = Vec::new();
    if length <= MOST {
        file.take(length).read_to_end(&mut text)?;
    }
    Ok((serde_json::from_slice(&text).unwrap_or_default(), length.saturating_add(8)))
}

/// The metadata of a safetensors file, read from its first bytes alone; `None` where it is no such file.
pub(super) fn metadata_of(path: &Path) -> Option<HashMap<String, String>> {
    // What is no file may have no end, or wait for a writer.
    let (header, _) = path.is_file().then(|| read_header(path).ok())??;
    serde_json::from_value(header["__metadata__"].clone()).ok()
}

/// What the header of a checkpoint says of the samples; checkpoints of older versions say nothing more.
pub(super) fn origin_of_checkpoint(metadata: &HashMap<String, String>) -> Option<Origin> {
    let header: Header = serde_json::from_str(metadata.get(KEY)?).ok()?;
    let mut preset = read_preset(&header.preset).ok()?;
    // Without a division, batches were given or nobody wrote it down.
    match (&header.division, &mut preset.data) {
        (Some(division), Some(data)) => (data.held_out, data.split) = (division.held_out, division.kind()),
        _ => preset.data = None,
    }
    Some(Origin::recorded(&preset, header.seed))
}

/// Looks at a safetensors file's header alone: whether there is one, and the file is as long as it says.
///
/// # Errors
/// What is wrong with the file, in words.
pub fn check_header(path: &Path) -> Result<(), String> {
    let (header, before) = read_header(path).map_err(|e| e.to_string())?;
    let tensors = header.as_object().ok_or("its first bytes are no header of safetensors")?;
    let ends = tensors.values().filter_map(|t| t["data_offsets"][1].as_u64());
    let wanted = before.saturating_add(ends.max().unwrap_or(0));
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?.len();
    if found < wanted { Err(format!("it ends after {found} of {wanted} bytes")) } else { Ok(()) }
}

/// The step after which a checkpoint was written, read from the file's first bytes alone.
///
/// # Errors
/// Where the file cannot be read, or is no checkpoint.
pub fn checkpoint_step(path: &Path) -> Result<u64, TrainError> {
    let help = "give a file that was written as a checkpoint";
    let unread = |e: std::io::Error| TrainError::file(path, format!("cannot be read: {e}"), "check the path");
    let (file, _) = read_header(path).map_err(unread)?;
    let header = file["__metadata__"][KEY].as_str().and_then(|t| serde_json::from_str::<Header>(t).ok());
    header.map(|h| h.step).ok_or_else(|| TrainError::file(path, "is not a checkpoint", help))
}

impl Session {
    /// Writes parameters, running statistics, optimizer state, counters, learning rate and data position.
    ///
    /// # Errors
    /// Where the file cannot be written; an older checkpoint of that name is untouched then.
    pub fn save_checkpoint(&self, path: &Path, preset: &Preset) -> Result<(), TrainError> {
        let mut streams = Stream::params(&self.train, self.model());
        for name in self.state_names() {
            streams.push(Stream::value(&format!("state.{name}"), &self.train, self.train.find(&name)?));
        }
        let header = Header {
            preset: write_preset(preset),
            step: self.done,
            seed: self.seed(),
            position: self.feed.position(),
            network: Some(Network::of(self.model())),
            division: self.division.clone(),
        };
        let text =
            serde_json::to_string(&header).map_err(|e| TrainError::file(path, e.to_string(), "this is a defect"))?;
        let origin = self.origin();
        let sum = checksum_of(&format!("{text}{}", origin.text()), &streams)
            .map_err(|e| TrainError::file(path, e.to_string(), "the step's values cannot be had"))?;
        let mut metadata = origin.metadata();
        metadata.extend([(KEY.to_owned(), text), (SUM_KEY.to_owned(), sum)]);
        write_streams(path, &streams, &metadata)
    }

    /// Takes the run back to a checkpoint of the same network and data.
    ///
    /// # Errors
    /// Where the file is no checkpoint, or one of another network.
    pub fn load_checkpoint(&mut self, path: &Path) -> Result<(), TrainError> {
        let file = open_tensors(path)?;
        let help = "give a file that was written as a checkpoint";
        let text = file.metadata.get(KEY).ok_or_else(|| TrainError::file(path, "is not a checkpoint", help))?;
        let header: Header = serde_json::from_str(text)
            .map_err(|e| TrainError::file(path, format!("has a broken header: {e}"), help))?;
        let own = Network::of(self.model());
        if let Some(difference) = header.network.as_ref().and_then(|theirs| theirs.difference(&own)) {
            let message = format!("is a checkpoint of another network: {difference}");
            return Err(TrainError::file(path, message, "resume with the preset that it was made with"));
        }
        if matches!(self.feed, Feed::Data { .. }) && header.seed != self.seed() {
            let message = format!("was made with seed {}, and this run has seed {}", header.seed, self.seed());
            return Err(TrainError::file(
                path,
                message,
                "resume with the seed it was made with: batches and split follow from it",
            ));
        }
        if let (Some(theirs), Some(ours)) = (&header.division, &self.division)
            && !theirs.is_as(ours)
        {
            return Err(TrainError::file(
                path,
                format!("was made with {theirs}, and this run has {ours}"),
                "resume with those it was made with: otherwise samples that it trained on are held out",
            ));
        }
        let origin = Origin::of_metadata(&file.metadata, path)?;
        if let (Some(theirs), Feed::Data { set, .. }) = (origin.and_then(|o| o.preprocessing), &self.feed)
            && !theirs.is_as(&set.preprocessing)
        {
            return Err(TrainError::file(
                path,
                "was made with samples that were prepared otherwise: mean, deviation or the order of classes differ",
                "begin a run that goes on from it, which prepares its samples as the checkpoint says",
            ));
        }
        let mut wanted: Vec<(String, Entry)> = Vec::new();
        for name in self.state_names() {
            let shape: Shape = self.compiled().plan.program.value(self.train.find(&name)?).shape.clone();
            let found = file.get(&format!("state.{name}")).filter(|t| t.shape == shape);
            if found.is_none() && name == "scaler" {
                // Written by a step that scales no loss: this one starts with the scale that it has.
                continue;
            }
            let Some(found) = found else {
                return Err(TrainError::file(
                    path,
                    format!("lacks the state {name} {shape}"),
                    "give a checkpoint of this network and optimizer",
                ));
            };
            wanted.push((name, found.clone()));
        }
        let model = self.model().clone();
        // The session is changed only from here on: parameters are checked as a whole before the first is set.
        self.state_changed()?;
        let result = self.apply(&file, &model, &wanted, path).and_then(|()| self.feed.resume(header.position));
        if let Err(error) = result {
            self.guard.put_back(&mut self.train)?;
            return Err(error);
        }
        self.done = header.step;
        self.state_changed()?;
        Ok(())
    }

    fn apply(
        &mut self,
        file: &OpenTensors,
        model: &crate::model::Model,
        wanted: &[(String, Entry)],
        path: &Path,
    ) -> Result<(), TrainError> {
        import(&mut self.train, model, file, path)?;
        for (name, entry) in wanted {
            let id = self.train.find(name)?;
            if entry.dtype != self.train.tensor_dtype(id) {
                let message = format!("holds {} for the state {name}", entry.dtype);
                return Err(TrainError::file(path, message, "the checkpoint is damaged"));
            }
            self.train.set_tensor(id, &file.read(entry)?)?;
        }
        Ok(())
    }

    /// The values besides parameters that survive a step and count: moments by parameter, counters, hyperparameters.
    fn state_names(&self) -> Vec<String> {
        let program = &self.compiled().plan.program;
        let moment = |n: &str| ["m.", "v.", "momentum."].iter().any(|p| n.starts_with(p)) && !n.ends_with(".new");
        let counts = |n: &str| matches!(n, "counter" | "hyper" | "scaler") || moment(n);
        program.values.iter().filter(|v| v.persistent && counts(&v.name)).map(|v| v.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read_preset;
    use crate::train::{SessionSpec, read_tensors};
    use std::path::PathBuf;

    const TEXT: &str = r#"{"version": 1, "name": "n", "input": {"shape": [64], "batch": 16},
        "layers": [{"type": "dense", "units": 8, "activation": "relu"}, {"type": "residual", "layers": [{"type": "dense", "units": 8}]},
            {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}, "data": {"type": "digits"}, "train": {"steps": 9, "seed": 0}}"#;

    fn preset(text: &str) -> Preset {
        read_preset(text).unwrap()
    }

    fn session(text: &str) -> Session {
        Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset(text), PathBuf::from(".")) }).unwrap()
    }

    #[test]
    fn another_network_of_the_same_shapes_is_refused_and_another_rate_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
        assert_eq!(checkpoint_step(&path).unwrap(), 0);
        session(TEXT).save_weights(&folder.path().join("weights")).unwrap();
        assert!(checkpoint_step(&folder.path().join("weights")).unwrap_err().to_string().contains("not a checkpoint"));
        for (from, to, wanted) in [
            ("\"relu\"", "\"tanh\"", "layers[0] is {"),
            ("\"units\": 8}]", "\"units\": 8, \"activation\": \"silu\"}]", "layers[1] is {"),
            ("cross_entropy\"", "cross_entropy\", \"label_smoothing\": 0.1", "the loss is {"),
            ("\"adam\"", "\"adamw\"", "the optimizer is adam there and adamw here"),
        ] {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT);
            let error = session(&text).load_checkpoint(&path).unwrap_err();
            let told = error.to_string();
            assert!(error.is_user() && told.contains("another network") && told.contains(wanted), "{told}");
        }
        for (from, to) in [("0.01", "0.5"), ("\"steps\": 9", "\"steps\": 90"), ("\"relu\"", "\"relu\", \"bias\": true")]
        {
            session(&TEXT.replace(from, to)).load_checkpoint(&path).unwrap();
        }
    }

    #[test]
    fn another_division_of_the_samples_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
        let divided = |fields: &str| TEXT.replace("\"digits\"", &format!("\"digits\", {fields}"));
        for fields in ["\"held_out\": 0.1", "\"held_out\": 0", "\"split\": \"last\""] {
            let error = session(&divided(fields)).load_checkpoint(&path).unwrap_err();
            let told = error.to_string();
            assert!(error.is_user() && told.contains("was made with held_out 0.2 and split \"shuffled\""), "{told}");
        }
        session(&divided("\"held_out\": 0.2, \"split\": \"shuffled\"")).load_checkpoint(&path).unwrap();
        let none = divided("\"held_out\": 0");
        session(&none).save_checkpoint(&path, &preset(&none)).unwrap();
        session(&divided("\"held_out\": 0, \"split\": \"last\"")).load_checkpoint(&path).unwrap();
    }

    #[test]
    fn a_checkpoint_of_the_first_versions_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.ckpt");
        session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
        let mut file = read_tensors(&path).unwrap();
        let mut header: Header = serde_json::from_str(&file.metadata[KEY]).unwrap();
        (header.network, header.division) = (None, None);
        let text = serde_json::to_string(&header).unwrap();
        assert!(!text.contains("network") && !text.contains("division"));
        file.metadata.insert(SUM_KEY.into(), checksum(&text, &file.tensors));
        file.metadata.insert(KEY.into(), text);
        file.metadata.remove(origin::KEY);
        file.write(&path).unwrap();
        session(TEXT).load_checkpoint(&path).unwrap();
        let divided = TEXT.replace("\"digits\"", "\"digits\", \"held_out\": 0.1");
        session(&divided).load_checkpoint(&path).unwrap();
    }
}
