//! Checkpoints: everything that a run needs to continue as if it had never stopped.

mod header;
mod resume;
#[cfg(test)]
mod tests;

pub use header::{check_header, checkpoint_end, checkpoint_step};
pub(super) use header::{metadata_of, origin_of_checkpoint, read_header};
pub(super) use resume::Compared;
pub use resume::Resumed;

use super::streams::{Stream, checksum_of, write_streams};
use super::{Session, TrainError, origin, plant};
use crate::lower::{LValue, LValueId};
use crate::model::{Preset, write_preset};
use crate::tensor::HostTensor;
use header::Header;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The key of a checkpoint's metadata, and the version of its contents.
const KEY: &str = "stepgraph.checkpoint.1";
/// The key of the sum over header and tensors: a file of the right length may still have lost a bit.
const SUM_KEY: &str = "stepgraph.checksum";

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
            loss: self.last_loss,
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

    /// The values besides parameters that survive a step and count: moments by parameter, counters, hyperparameters.
    fn state_names(&self) -> Vec<String> {
        let program = &self.compiled().plan.program;
        let moments: HashSet<LValueId> = program.moments().map(|moment| moment.value).collect();
        let counts = |(index, v): &(usize, &LValue)| {
            let counts =
                matches!(&*v.name, "counter" | "hyper" | "scaler") || moments.contains(&LValueId(*index as u32));
            v.persistent && counts && !plant::forgets(&v.name)
        };
        program.values.iter().enumerate().filter(counts).map(|(_, v)| v.name.clone()).collect()
    }
}
