//! Checkpoints: everything that a run needs to go on as if it had never stopped.

use super::weights::{export, import};
use super::{Feed, FeedPosition, Session, TensorFile, TrainError, read_tensors};
use crate::model::{Preset, write_preset};
use crate::tensor::{HostTensor, Shape};
use serde::{Deserialize, Serialize};
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
}

/// FNV-1a (Fowler, Noll and Vo, 64 bits) over the header and every tensor in order of the names, in hexadecimal.
fn checksum(header: &str, tensors: &[(String, HostTensor)]) -> String {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |bytes: &[u8]| bytes.iter().for_each(|b| sum = (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    add(header.as_bytes());
    let mut sorted: Vec<_> = tensors.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, tensor) in sorted {
        add(name.as_bytes());
        add(tensor.bytes());
    }
    format!("{sum:016x}")
}

fn check_sum(path: &Path, header: &str, file: &TensorFile) -> Result<(), TrainError> {
    if file.metadata.get(SUM_KEY).is_some_and(|sum| *sum == checksum(header, &file.tensors)) {
        return Ok(());
    }
    Err(TrainError::file(path, "is damaged: its contents do not match its checksum", "go back to an older checkpoint"))
}

impl Session {
    /// Writes parameters, running statistics, optimizer state, counters, learning rate and data position.
    ///
    /// # Errors
    /// Where the file cannot be written; an older checkpoint of that name is untouched then.
    pub fn save_checkpoint(&self, path: &Path, preset: &Preset) -> Result<(), TrainError> {
        let mut tensors = export(&self.train, self.model())?;
        for name in self.state_names() {
            let tensor = self.train.tensor(self.train.find(&name)?)?;
            tensors.push((format!("state.{name}"), tensor));
        }
        let header =
            Header { preset: write_preset(preset), step: self.done, seed: self.seed(), position: self.feed.position() };
        let text =
            serde_json::to_string(&header).map_err(|e| TrainError::file(path, e.to_string(), "this is a defect"))?;
        let sum = checksum(&text, &tensors);
        TensorFile { tensors, metadata: [(KEY.to_owned(), text), (SUM_KEY.to_owned(), sum)].into() }.write(path)
    }

    /// Takes the run back to a checkpoint of the same network and data.
    ///
    /// # Errors
    /// Where the file is no checkpoint, or one of another network.
    pub fn load_checkpoint(&mut self, path: &Path) -> Result<(), TrainError> {
        let file = read_tensors(path)?;
        let help = "give a file that was written as a checkpoint";
        let text = file.metadata.get(KEY).ok_or_else(|| TrainError::file(path, "is not a checkpoint", help))?;
        let header: Header = serde_json::from_str(text)
            .map_err(|e| TrainError::file(path, format!("has a broken header: {e}"), help))?;
        if matches!(self.feed, Feed::Data { .. }) && header.seed != self.seed() {
            let message = format!("was made with seed {}, and this run has seed {}", header.seed, self.seed());
            return Err(TrainError::file(
                path,
                message,
                "resume with the seed it was made with: batches and split follow from it",
            ));
        }
        let mut wanted: Vec<(String, HostTensor)> = Vec::new();
        for name in self.state_names() {
            let shape: Shape = self.compiled().plan.program.value(self.train.find(&name)?).shape.clone();
            let found = file.get(&format!("state.{name}")).filter(|t| t.shape == shape);
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
        check_sum(path, text, &file)?;
        // The session is changed only from here on: parameters are checked as a whole before the first is set.
        let before = self.train.snapshot()?;
        let result = self.apply(&file, &model, &wanted, path).and_then(|()| self.feed.resume(header.position));
        if let Err(error) = result {
            self.train.restore(&before)?;
            return Err(error);
        }
        self.done = header.step;
        self.state_changed()?;
        Ok(())
    }

    fn apply(
        &mut self,
        file: &TensorFile,
        model: &crate::model::Model,
        wanted: &[(String, HostTensor)],
        path: &Path,
    ) -> Result<(), TrainError> {
        import(&mut self.train, model, file, path)?;
        for (name, tensor) in wanted {
            self.set_state(name, tensor)?;
        }
        Ok(())
    }

    fn set_state(&mut self, name: &str, tensor: &HostTensor) -> Result<(), TrainError> {
        let id = self.train.find(name)?;
        if let Ok(values) = tensor.to_vec::<i64>() {
            return Ok(self.train.write(id, &values)?);
        }
        let values = tensor
            .to_vec::<f32>()
            .map_err(|e| TrainError::file(Path::new(name), e.to_string(), "the checkpoint is damaged"))?;
        let value = self.compiled().plan.program.value(id);
        let order = value.param.map(|p| self.compiled().plan.program.params[p.0 as usize].order).unwrap_or_default();
        Ok(self.train.write(id, &order.to_stored(&values))?)
    }

    /// The values besides parameters that survive a step and count: moments by parameter, counters, hyperparameters.
    fn state_names(&self) -> Vec<String> {
        let program = &self.compiled().plan.program;
        let moment = |n: &str| ["m.", "v.", "momentum."].iter().any(|p| n.starts_with(p)) && !n.ends_with(".new");
        let counts = |n: &str| matches!(n, "counter" | "hyper") || moment(n);
        program.values.iter().filter(|v| v.persistent && counts(&v.name)).map(|v| v.name.clone()).collect()
    }
}
