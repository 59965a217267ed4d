//! The header of a checkpoint, read from the first bytes of the file.

use crate::model::read_preset;
use crate::select::Kernels;
use crate::train::file_header::read_header;
use crate::train::file_keys::CHECKPOINT;
use crate::train::recipe::Recipe;
use crate::train::{FeedPosition, TrainError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The data of a checkpoint other than its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::train) struct Header {
    pub(in crate::train) preset: String,
    pub(super) step: u64,
    pub(in crate::train) seed: u64,
    pub(in crate::train) position: FeedPosition,
    /// Absent in checkpoints of earlier versions, whose preset contains the same except for the number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recipe: Option<Recipe>,
    /// The loss of the last step, as in its log, which shows whether a log belongs to the run. Absent before the first
    /// step, and in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) loss: Option<f32>,
    /// The kernels of the last step, on a GPU. Absent in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kernels: Option<Kernels>,
}

impl Header {
    /// A note about kernels of `run` that give other results than those of the checkpoint's steps.
    pub(super) fn kernels_note(&self, run: Option<Kernels>) -> Option<String> {
        let (was, is) = self.kernels.zip(run).filter(|(was, is)| !was.gives_results_of(*is))?;
        Some(format!(
            "the steps before the checkpoint ran {} kernels, and those of this run are {}: results may differ in their \
             last digits from those of a run without a pause; STEPGRAPH_KERNELS={} continues with the same",
            was.name(),
            is.name(),
            was.name()
        ))
    }

    /// The recipe of the run that wrote the checkpoint, with a note if it is incomplete; `None` if this version cannot
    /// read it.
    pub(super) fn recipe(&self) -> (Option<Recipe>, Option<&'static str>) {
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

/// The step after which a checkpoint was written, read only from the file's first bytes.
///
/// # Errors
/// If the file cannot be read, or is not a checkpoint.
pub fn checkpoint_step(path: &Path) -> Result<u64, TrainError> {
    checkpoint_end(path).map(|(step, _)| step)
}

/// Like [`checkpoint_step`], with the loss of that step, if the checkpoint contains it.
///
/// # Errors
/// As [`checkpoint_step`].
pub fn checkpoint_end(path: &Path) -> Result<(u64, Option<f32>), TrainError> {
    let help = "give a file that was written as a checkpoint";
    let advice = "check the path; `stepgraph runs show RUN` names the folder of a kept run, which has its checkpoint";
    let unread = |e: std::io::Error| TrainError::file(path, format!("cannot be read: {e}"), advice);
    let (file, _) = read_header(path).map_err(unread)?;
    let header = file["__metadata__"][CHECKPOINT].as_str().and_then(|t| serde_json::from_str::<Header>(t).ok());
    header.map(|h| (h.step, h.loss)).ok_or_else(|| TrainError::file(path, "is not a checkpoint", help))
}
