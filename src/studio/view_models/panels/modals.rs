//! The names in questions: the document, the run, and kept runs.

use crate::studio::view_models::runs::RunsView;
use crate::train::runs::RunEntry;

/// The names in questions.
#[derive(Clone, Debug)]
pub struct ModalsView<'a> {
    /// The document's title.
    pub document: String,
    /// Steps that the run has made.
    pub steps_done: u64,
    /// The id of the run on the Train tab, if it is kept.
    pub trained_run: Option<&'a str>,
    pub runs: &'a [RunEntry],
    pub trash: Option<&'a RunsView>,
}

impl ModalsView<'_> {
    /// The name of a kept run.
    #[must_use]
    pub fn run_name(&self, id: &str) -> Option<&str> {
        self.runs.iter().find(|e| e.id == id).map(RunEntry::name)
    }

    /// The name of a run in the trash.
    #[must_use]
    pub fn trashed_name(&self, id: &str) -> &str {
        let row = self.trash.iter().flat_map(|t| &t.rows).find(|r| r.id == id);
        row.map_or("1 run", |r| r.name.as_str())
    }
}
