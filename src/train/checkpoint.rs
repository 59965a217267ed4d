//! Checkpoints: everything that a run needs to go on as if it had never stopped.

use super::open_tensors::{Entry, OpenTensors};
use super::recipe::{Recipe, RecipeChange, refusal};
use super::streams::{Stream, checksum_of, write_streams};
use super::weights::{import, open_tensors};
use super::{Feed, FeedPosition, Origin, Session, TrainError, origin, plant};
use crate::model::{Preset, read_preset, write_preset};
use crate::tensor::HostTensor;
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
    /// Absent in checkpoints of earlier versions, whose preset says the same but for the number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recipe: Option<Recipe>,
}

impl Header {
    /// The recipe of the run that wrote the checkpoint, and a note where it says less than it should; `None` where this
    /// version cannot read it.
    fn recipe(&self) -> (Option<Recipe>, Option<&'static str>) {
        if self.recipe.is_some() {
            return (self.recipe.clone(), None);
        }
        let uses_data = matches!(self.position, FeedPosition::Data(_));
        match read_preset(&self.preset) {
            Ok(preset) => (
                Some(Recipe::of(&preset, self.seed, uses_data)),
                Some("an earlier version wrote the checkpoint; this run was compared with the preset in it"),
            ),
            Err(_) => {
                (None, Some("this version cannot read the checkpoint's recipe; only names and shapes were compared"))
            }
        }
    }
}

/// What a resumed run took from its checkpoint, and what not.
#[derive(Clone, Debug, Default)]
pub struct Resumed {
    /// Fields of the recipe that the run has otherwise than its checkpoint.
    pub changes: Vec<RecipeChange>,
    /// What a person should know of it, changes included.
    pub notes: Vec<String>,
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
    if !matches!(header.position, FeedPosition::Data(_)) {
        // Batches were given in place of the preset's data.
        preset.data = None;
    }
    Some(Origin::recorded(&preset, header.seed))
}

/// What is different in a run's recipe from that of a checkpoint.
///
/// # Errors
/// Where the run cannot go on from the checkpoint for it.
fn changes_of(theirs: Option<&Recipe>, own: &Recipe, path: &Path) -> Result<Vec<RecipeChange>, TrainError> {
    let changes = theirs.map(|theirs| theirs.changes(own)).unwrap_or_default();
    let Some(lines) = refusal(&changes) else { return Ok(changes) };
    let help = "resume with the values that it has, or begin a new run (docs/resume.md lists what may change)";
    Err(TrainError::file(path, format!("was made with another recipe:{lines}"), help))
}

/// Refuses a checkpoint whose recipe a run cannot go on with, by its header alone: before data are prepared as it says. A file that is no
/// checkpoint is refused where it is read.
///
/// # Errors
/// As [`Session::load_checkpoint`], for the recipe.
pub(super) fn check_recipe(path: &Path, own: &Recipe) -> Result<(), TrainError> {
    let header = metadata_of(path).and_then(|m| serde_json::from_str::<Header>(m.get(KEY)?).ok());
    header.map_or(Ok(()), |header| changes_of(header.recipe().0.as_ref(), own, path).map(drop))
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
            recipe: Some(self.recipe.clone().of_steps(self.total)),
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
        let (theirs, note) = header.recipe();
        let changes = self.compare(theirs.as_ref(), path)?;
        let of_data = self.check_data(&file.metadata, path)?;
        let notes = note.map(str::to_owned).into_iter().chain(changes.iter().map(RecipeChange::note));
        let resumed = Resumed { notes: notes.chain(of_data).collect(), changes };
        // What the checkpoint lacks begins at zero.
        let mut wanted: Vec<(String, Option<Entry>)> = Vec::new();
        for name in self.state_names() {
            let shape = &self.compiled().plan.program.value(self.train.find(&name)?).shape;
            let found = file.get(&format!("state.{name}")).filter(|t| t.shape == *shape);
            if found.is_none() && name == "scaler" {
                // Written by a step that scales no loss: this one starts with the scale that it has.
                continue;
            }
            if found.is_none()
                && name.starts_with("momentum.")
                && theirs.as_ref().is_some_and(Recipe::is_without_momentum)
            {
                // Written by a step without momentum: it begins with none.
                wanted.push((name, None));
                continue;
            }
            let Some(found) = found else {
                return Err(TrainError::file(
                    path,
                    format!("lacks the state {name} {shape}"),
                    "give a checkpoint of this network and optimizer",
                ));
            };
            wanted.push((name, Some(found.clone())));
        }
        let model = self.model().clone();
        // The session is changed only from here on: parameters are checked as a whole before the first is set.
        self.state_changed()?;
        let result = self.apply(&file, &model, &wanted, path).and_then(|()| {
            let resumed = self.renew_rates(resumed)?;
            self.feed.resume(plant::resumed_at(header.position)).map(|()| resumed)
        });
        self.resumed = match result {
            Ok(resumed) => Some(resumed),
            Err(error) => {
                self.guard.put_back(&mut self.train)?;
                return Err(error);
            }
        };
        self.done = header.step;
        self.state_changed()?;
        Ok(())
    }

    /// What is different in this run's recipe from that of a checkpoint.
    fn compare(&self, theirs: Option<&Recipe>, path: &Path) -> Result<Vec<RecipeChange>, TrainError> {
        changes_of(theirs, &self.recipe.clone().of_steps(self.total), path)
    }

    /// Refuses a checkpoint whose samples were prepared otherwise than this run's; a note where they are others.
    fn check_data(&self, metadata: &HashMap<String, String>, path: &Path) -> Result<Option<String>, TrainError> {
        let (Some(theirs), Feed::Data { set, .. }) = (Origin::of_metadata(metadata, path)?, &self.feed) else {
            return Ok(None);
        };
        if theirs.preprocessing.as_ref().is_some_and(|p| !p.is_as(&set.preprocessing)) {
            return Err(TrainError::file(
                path,
                "was made with samples that were prepared otherwise: mean, deviation or the order of classes differ",
                "begin a run that goes on from it, which prepares its samples as the checkpoint says",
            ));
        }
        // What is held out now may have been trained on.
        let is_other = theirs.is_of(self.data_digest.get_or_init(|| set.digest())) == Some(false);
        Ok(is_other.then(|| {
            "data: the samples are not those of the checkpoint; those that are held out now may have been trained on"
                .to_owned()
        }))
    }

    /// Sets the learning rate and weight decay that the recipe changed. What a person set while the run was trained
    /// stays.
    fn renew_rates(&mut self, mut resumed: Resumed) -> Result<Resumed, TrainError> {
        let stored = self.train.stored::<f32>(self.watched.hyper)?;
        let mut rates = [stored[0], stored[1]];
        let optimizer = self.model().optimizer;
        let wanted = [("optimizer.lr", optimizer.lr()), ("optimizer.weight_decay", optimizer.weight_decay())];
        for (rate, (field, wanted)) in rates.iter_mut().zip(wanted) {
            if resumed.changes.iter().any(|c| c.field == field) {
                *rate = wanted as f32;
            } else if *rate != wanted as f32 {
                let note = format!(
                    "{field}: this run continues with {rate}, the checkpoint's last value; the preset has {wanted}"
                );
                resumed.notes.push(note);
            }
        }
        self.train.write(self.watched.hyper, &rates)?;
        Ok(resumed)
    }

    fn apply(
        &mut self,
        file: &OpenTensors,
        model: &crate::model::Model,
        wanted: &[(String, Option<Entry>)],
        path: &Path,
    ) -> Result<(), TrainError> {
        import(&mut self.train, model, file, path)?;
        for (name, entry) in wanted {
            let id = self.train.find(name)?;
            let dtype = self.train.tensor_dtype(id);
            let Some(entry) = entry else {
                let shape = self.compiled().plan.program.value(id).shape.clone();
                self.train.set_tensor(id, &HostTensor::zeros(dtype, shape))?;
                continue;
            };
            if entry.dtype != dtype {
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
        let counts = |n: &str| counts(n) && !plant::forgets(n);
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

    /// What a session of `text` says of the checkpoint at `path`.
    fn resumed(text: &str, path: &Path) -> Session {
        let mut session = session(text);
        session.load_checkpoint(path).unwrap();
        session
    }

    fn refused(text: &str, path: &Path) -> String {
        let error = session(text).load_checkpoint(path).unwrap_err();
        assert!(error.is_user() && error.to_string().contains("was made with another recipe"), "{error}");
        error.to_string()
    }

    #[test]
    fn what_a_checkpoint_cannot_go_on_with_is_refused_with_both_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
        assert_eq!(checkpoint_step(&path).unwrap(), 0);
        session(TEXT).save_weights(&folder.path().join("weights")).unwrap();
        assert!(checkpoint_step(&folder.path().join("weights")).unwrap_err().to_string().contains("not a checkpoint"));
        for (from, to, wanted) in [
            ("\"relu\"", "\"tanh\"", "layers[0].activation is relu there and tanh here"),
            ("\"units\": 8}]", "\"units\": 8, \"activation\": \"silu\"}]", "layers[1].layers[0].activation is "),
            (
                "cross_entropy\"",
                "cross_entropy\", \"label_smoothing\": 0.1",
                "loss.label_smoothing is – there and 0.1 here",
            ),
            ("\"adam\"", "\"adamw\"", "optimizer.type is adam there and adamw here"),
            ("\"batch\": 16", "\"batch\": 8", "input.batch is 16 there and 8 here"),
            ("\"seed\": 0", "\"seed\": 1", "train.seed is 0 there and 1 here"),
            ("\"digits\"", "\"digits\", \"held_out\": 0.1", "data.held_out is 0.2 there and 0.1 here"),
            ("\"digits\"", "\"digits\", \"split\": \"last\"", "data.split is shuffled there and last here"),
        ] {
            let text = TEXT.replace(from, to);
            assert_ne!(text, TEXT);
            let told = refused(&text, &path);
            assert!(told.contains(wanted), "{told}");
        }
    }

    #[test]
    fn what_may_change_is_applied_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let mut first = session(TEXT);
        first.step().unwrap();
        first.save_checkpoint(&path, &preset(TEXT)).unwrap();
        for (from, to, field) in [
            ("0.01", "0.5", "optimizer.lr"),
            ("0.01", "0.01, \"weight_decay\": 0.25", "optimizer.weight_decay"),
            ("0.01", "0.01, \"betas\": [0.8, 0.9]", "optimizer.betas"),
            ("0.01", "0.01, \"eps\": 1e-6", "optimizer.eps"),
            ("\"steps\": 9", "\"steps\": 90", "train.steps"),
            ("\"data\"", "\"precision\": \"bf16\", \"data\"", "precision"),
        ] {
            let text = TEXT.replace(from, to);
            let run = resumed(&text, &path);
            let found = run.resumed().unwrap();
            assert!(found.changes.len() == 1 && found.changes[0].field == field, "{:?}", found.changes);
            assert!(found.notes.len() == 1 && found.notes[0].starts_with(field), "{:?}", found.notes);
            assert_eq!(run.lr().unwrap(), if field == "optimizer.lr" { 0.5 } else { 0.01 });
            let decay = run.train.stored::<f32>(run.watched.hyper).unwrap()[1];
            assert_eq!(decay, if field == "optimizer.weight_decay" { 0.25 } else { 0.0 });
        }
        let same = resumed(&TEXT.replace("\"relu\"", "\"relu\", \"bias\": true"), &path);
        assert_eq!((&same.resumed().unwrap().notes, same.done()), (&Vec::new(), 1));
    }

    #[test]
    fn a_rate_that_was_set_while_the_run_lasted_stays_until_the_preset_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let mut first = session(TEXT);
        first.set_lr(0.002).unwrap();
        first.save_checkpoint(&path, &preset(TEXT)).unwrap();
        let run = resumed(TEXT, &path);
        let found = run.resumed().unwrap();
        assert_eq!((run.lr().unwrap(), found.changes.len()), (0.002, 0));
        assert!(found.notes[0].contains("continues with 0.002") && found.notes[0].contains("preset has 0.01"));
        assert_eq!(resumed(&TEXT.replace("0.01", "0.03"), &path).lr().unwrap(), 0.03);
    }

    #[test]
    fn momentum_that_the_checkpoint_lacks_begins_with_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        let plain = TEXT.replace("adam", "sgd");
        let with = plain.replace("0.01", "0.01, \"momentum\": 0.9");
        session(&plain).save_checkpoint(&path, &preset(&plain)).unwrap();
        let mut run = session(&with);
        for _ in 0..3 {
            run.step().unwrap();
        }
        run.load_checkpoint(&path).unwrap();
        assert_eq!(run.resumed().unwrap().changes[0].field, "optimizer.momentum");
        let moments = run.state_names().into_iter().filter(|n| n.starts_with("momentum."));
        let moments: Vec<HostTensor> =
            moments.map(|n| run.train.tensor(run.train.find(&n).unwrap()).unwrap()).collect();
        assert!(!moments.is_empty() && moments.iter().all(|m| m.to_f64().unwrap().iter().all(|v| *v == 0.0)));
        run.save_checkpoint(&path, &preset(&with)).unwrap();
        resumed(&plain, &path);
    }

    #[test]
    fn a_checkpoint_of_an_earlier_version_is_compared_by_its_preset() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old.ckpt");
        session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
        let rewrite = |change: &dyn Fn(&mut Header)| {
            let mut file = read_tensors(&path).unwrap();
            let mut header: Header = serde_json::from_str(&file.metadata[KEY]).unwrap();
            change(&mut header);
            let text = serde_json::to_string(&header).unwrap();
            file.metadata.insert(SUM_KEY.into(), checksum(&text, &file.tensors));
            file.metadata.insert(KEY.into(), text);
            file.metadata.remove(origin::KEY);
            file.write(&path).unwrap();
        };
        rewrite(&|header| header.recipe = None);
        let run = resumed(&TEXT.replace("0.01", "0.5").replace("\"steps\": 9", "\"steps\": 90"), &path);
        let notes = &run.resumed().unwrap().notes;
        assert!(
            run.lr().unwrap() == 0.5 && notes.len() == 2 && notes[0].starts_with("an earlier version"),
            "{notes:?}"
        );
        refused(&TEXT.replace("\"relu\"", "\"tanh\""), &path);
        rewrite(&|header| header.preset = "{\"version\": 99}".to_owned());
        let run = resumed(TEXT, &path);
        assert!(run.resumed().unwrap().notes[0].starts_with("this version cannot read"));
    }
}
