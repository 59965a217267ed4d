//! A checkpoint's recipe beside that of a run which is to continue from it.

use super::Header;
use crate::train::TrainError;
use crate::train::file_header::metadata_of;
use crate::train::file_keys::CHECKPOINT;
use crate::train::recipe::{Recipe, RecipeChange, refusal};
use std::path::Path;

/// What a resumed run took from its checkpoint, and what not.
#[derive(Clone, Debug, Default)]
pub struct Resumed {
    /// Fields of the recipe that the run has otherwise than its checkpoint.
    pub changes: Vec<RecipeChange>,
    /// A note about it, changes included.
    pub notes: Vec<String>,
}

/// What the comparison of a run with a checkpoint's recipe found.
#[derive(Clone, Debug)]
pub(in crate::train) struct Compared {
    /// The checkpoint's header: another file may take its place before its tensors are read.
    pub(super) text: String,
    pub(super) header: Header,
    /// `None` where this version cannot read it.
    pub(super) theirs: Option<Recipe>,
    pub(super) note: Option<&'static str>,
    pub(super) changes: Vec<RecipeChange>,
}

impl Compared {
    /// Compares the header `text` of the checkpoint at `path` with a run's recipe.
    ///
    /// # Errors
    /// If the run cannot continue from the checkpoint for it, or the header is broken.
    pub(super) fn new(text: &str, own: &Recipe, path: &Path) -> Result<Self, TrainError> {
        let help = "give a file that was written as a checkpoint";
        let header: Header = serde_json::from_str(text)
            .map_err(|e| TrainError::file(path, format!("has a broken header: {e}"), help))?;
        let (theirs, note) = header.recipe();
        let changes = theirs.as_ref().map(|theirs| theirs.changes(own)).unwrap_or_default();
        if let Some(lines) = refusal(&changes) {
            let help = "resume with the values that it has, or begin a new run (docs/resume.md lists what may change)";
            return Err(TrainError::file(path, format!("was made with another recipe:{lines}"), help));
        }
        Ok(Self { text: text.to_owned(), header, theirs, note, changes })
    }

    /// Compares the checkpoint at `path` by its header alone, before data are prepared as it says; nothing for a file
    /// that is no checkpoint, which is refused where it is read.
    ///
    /// # Errors
    /// As [`super::Session::load_checkpoint`], for the recipe.
    pub(in crate::train) fn ahead(path: &Path, own: &Recipe) -> Result<Option<Self>, TrainError> {
        let text = metadata_of(path).and_then(|mut metadata| metadata.remove(CHECKPOINT));
        text.map(|text| Self::new(&text, own, path)).transpose()
    }
}
