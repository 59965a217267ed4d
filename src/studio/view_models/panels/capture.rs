//! What the Capture plan tab shows.

use crate::studio::view_models::network::{NetworkView, Row};
use crate::studio::view_models::panels::plan::PlanOnScreen;

/// What the Capture plan tab shows.
#[derive(Clone, Debug)]
pub struct CapturePanelView<'a> {
    pub shown: PlanOnScreen<'a>,
    pub network: &'a NetworkView,
    /// The folds of the list of layers.
    pub rows: &'a [Row],
    /// Revisions of plan, document and folds, which the rows depend on.
    pub made_of: (u64, u64, u64),
    /// Whether the step is recorded, and what the recording contains.
    pub recorded: String,
    pub recording: String,
}
