//! Checkpoints: everything that a run needs to continue exactly.

mod checksum;
mod compared;
mod header;
mod resume;
#[cfg(test)]
mod tests;

pub(super) use checksum::{check_sum, checksum};
pub(super) use compared::Compared;
pub use compared::Resumed;
pub(super) use header::Header;
pub use header::{checkpoint_end, checkpoint_step};

use super::file_keys::{CHECKPOINT, CHECKSUM};
use super::nan_guard::check_parameters;
use super::tensor_writer::{Stream, checksum_of, write_streams};
use super::{KernelsOfRun, Session, TrainError, plant};
use crate::lower::LValueId;
use crate::model::{Preset, write_preset};
use crate::plan::{StateKey, StateKind};
use std::path::Path;

impl Session {
    /// Writes parameters, running statistics, optimizer state, counters, learning rate and data position.
    ///
    /// # Errors
    /// If a parameter or running statistic is not finite, or the file cannot be written; then an older checkpoint of
    /// that name is unchanged.
    pub fn save_checkpoint(&self, path: &Path, preset: &Preset) -> Result<(), TrainError> {
        check_parameters(&self.train, path)?;
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
            kernels: self.kernels().map(KernelsOfRun::now),
        };
        let text =
            serde_json::to_string(&header).map_err(|e| TrainError::file(path, e.to_string(), "this is a defect"))?;
        let origin = self.origin();
        let sum = checksum_of(&format!("{text}{}", origin.text()), &streams)
            .map_err(|e| TrainError::file(path, e.to_string(), "the values of the step cannot be read"))?;
        let mut metadata = origin.metadata();
        metadata.extend([(CHECKPOINT.to_owned(), text), (CHECKSUM.to_owned(), sum)]);
        write_streams(path, &streams, &metadata)
    }

    /// The values other than parameters that survive a step: moments by parameter, counters, hyperparameters.
    fn state_names(&self) -> Vec<String> {
        let program = &self.compiled().plan.program;
        let kinds = [StateKind::Counter, StateKind::Hyper, StateKind::Scaler];
        let moments = program.moments().map(|moment| moment.value);
        let mut saved: Vec<LValueId> = StateKey::values_of(program, &kinds).chain(moments).collect();
        saved.sort_unstable();
        let names = saved.into_iter().map(|id| program.value(id)).filter(|v| v.persistent).map(|v| v.name.clone());
        names.filter(|name| !plant::forgets(name)).collect()
    }
}
