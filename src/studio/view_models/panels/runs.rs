//! What the Runs tab shows.

use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::view_models::readiness::EnabledCommands;
use crate::studio::view_models::runs::{RunsOrder, RunsView};
use crate::train::capsule::CapsuleReport;
use crate::train::runs::{FieldDifference, RunEntry};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// What the Runs tab shows.
#[derive(Clone, Debug)]
pub struct RunsPanelView<'a> {
    pub table: &'a RunsView,
    pub entries: &'a [RunEntry],
    /// Why there is no list.
    pub problem: Option<&'a str>,
    /// Ids of the runs that are compared, in the order in which they were selected.
    pub selected: &'a [String],
    /// The folder of the first of them.
    pub folder: Option<String>,
    pub order: RunsOrder,
    /// Whether curves are compared by time instead of by step.
    pub by_time: bool,
    pub log_axis: bool,
    pub loaded: &'a HashMap<String, Arc<LoadedRun>>,
    pub baseline: Option<&'a str>,
    /// The differences between the presets of the selected runs.
    pub differences: &'a [FieldDifference],
    /// The result of the last replay of a capsule.
    pub replayed: Option<(&'a Path, &'a CapsuleReport)>,
    pub shows_trash: bool,
    pub trash: Option<&'a RunsView>,
    /// Steps of the capsule that is being made or replayed.
    pub capsule_step: Option<u64>,
    /// The run on the Train tab, if it is paused.
    pub paused: Option<&'a str>,
    pub enabled: &'a EnabledCommands,
    /// Why the selected runs cannot be deleted.
    pub why_not_deleted: Option<String>,
}

impl RunsPanelView<'_> {
    /// The first selected run.
    #[must_use]
    pub fn first(&self) -> Option<&RunEntry> {
        self.selected.first().and_then(|id| self.entries.iter().find(|e| e.id == *id))
    }

    /// The name of a run.
    #[must_use]
    pub fn name(&self, id: &str) -> &str {
        self.entries.iter().find(|e| e.id == id).map_or("", RunEntry::name)
    }

    /// The letter of a selected run in the table and the plots.
    #[must_use]
    pub fn letter(&self, id: &str) -> Option<char> {
        let index = self.selected.iter().position(|s| s == id)?;
        char::from_u32('A' as u32 + index as u32)
    }
}
