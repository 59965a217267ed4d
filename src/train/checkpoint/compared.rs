//! Compares a checkpoint's recipe with that of a run that continues from it.

use super::Header;
use crate::train::TrainError;
use crate::train::file_header::metadata_of;
use crate::train::file_keys::CHECKPOINT;
use crate::train::recipe::{Recipe, RecipeChange, refusal};
use std::path::Path;

/// What a resumed run used of its checkpoint, and what not.
#[derive(Clone, Debug, Default)]
pub struct Resumed {
    /// Fields of the recipe whose values differ from the checkpoint's.
    pub changes: Vec<RecipeChange>,
    /// A note about it, including the changes.
    pub notes: Vec<String>,
}

/// The result of comparing a run with a checkpoint's recipe.
#[derive(Clone, Debug)]
pub(in crate::train) struct Compared {
    /// The checkpoint's header, because another file may replace it before its tensors are read.
    pub(super) text: String,
    pub(super) header: Header,
    /// `None` if this version cannot read it.
    pub(super) theirs: Option<Recipe>,
    pub(super) note: Option<&'static str>,
    pub(super) changes: Vec<RecipeChange>,
}

impl Compared {
    /// Compares the header `text` of the checkpoint at `path` with a run's recipe.
    ///
    /// # Errors
    /// If the difference does not allow the run to continue from the checkpoint, or the header is damaged.
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

    /// Compares the checkpoint at `path` by its header only, before data are prepared as it says; `None` for a file
    /// that is not a checkpoint, which is refused when it is read.
    ///
    /// # Errors
    /// As for [`super::Session::load_checkpoint`], for the recipe.
    pub(in crate::train) fn ahead(path: &Path, own: &Recipe) -> Result<Option<Self>, TrainError> {
        let text = metadata_of(path).and_then(|mut metadata| metadata.remove(CHECKPOINT));
        text.map(|text| Self::new(&text, own, path)).transpose()
    }
}
