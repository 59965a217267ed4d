//! What a checkpoint says before its tensors, read from the first bytes of the file.

use super::KEY;
use crate::model::read_preset;
use crate::train::recipe::Recipe;
use crate::train::{FeedPosition, Origin, TrainError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What a checkpoint says besides its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) preset: String,
    pub(super) step: u64,
    pub(super) seed: u64,
    pub(super) position: FeedPosition,
    /// Absent in checkpoints of earlier versions, whose preset says the same but for the number of steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) recipe: Option<Recipe>,
    /// The loss of the last step, as its log has it: it shows whether a log belongs to the run. Absent before
    /// the first step, and in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) loss: Option<f32>,
}

impl Header {
    /// The recipe of the run that wrote the checkpoint, and a note where it says less than it should; `None` where this
    /// version cannot read it.
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

/// The header of a safetensors file, null where it has none, and the bytes before the tensors.
pub(in crate::train) fn read_header(path: &Path) -> std::io::Result<(Value, u64)> {
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
pub(in crate::train) fn metadata_of(path: &Path) -> Option<HashMap<String, String>> {
    // What is no file may have no end, or wait for a writer.
    let (header, _) = path.is_file().then(|| read_header(path).ok())??;
    serde_json::from_value(header["__metadata__"].clone()).ok()
}

/// What the header of a checkpoint says of the samples; checkpoints of older versions say nothing more.
pub(in crate::train) fn origin_of_checkpoint(metadata: &HashMap<String, String>) -> Option<Origin> {
    let header: Header = serde_json::from_str(metadata.get(KEY)?).ok()?;
    let mut preset = read_preset(&header.preset).ok()?;
    if !matches!(header.position, FeedPosition::Data(_)) {
        // Batches were given in place of the preset's data.
        preset.data = None;
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
    checkpoint_end(path).map(|(step, _)| step)
}

/// As [`checkpoint_step`], with the loss of that step, where the checkpoint says it.
///
/// # Errors
/// As [`checkpoint_step`].
pub fn checkpoint_end(path: &Path) -> Result<(u64, Option<f32>), TrainError> {
    let help = "give a file that was written as a checkpoint";
    let unread = |e: std::io::Error| TrainError::file(path, format!("cannot be read: {e}"), "check the path");
    let (file, _) = read_header(path).map_err(unread)?;
    let header = file["__metadata__"][KEY].as_str().and_then(|t| serde_json::from_str::<Header>(t).ok());
    header.map(|h| (h.step, h.loss)).ok_or_else(|| TrainError::file(path, "is not a checkpoint", help))
}
