//! What panels show of a plan: whether it is that of the document, and what is selected in it.

use crate::studio::commands::Selection;
use crate::studio::view_models::measured::Measured;
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::related::Related;

/// A recording that was chosen to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct RecordingOnScreen<'a> {
    /// What tells it from the other recordings of the run.
    pub name: &'a str,
    /// Why it has no plan to show.
    pub problem: Option<&'a str>,
    pub is_planning: bool,
}

/// A plan on screen with the selection.
#[derive(Clone, Copy, Debug)]
pub struct PlanOnScreen<'a> {
    pub plan: Option<&'a PlanView>,
    /// The revision of the document that it belongs to.
    pub revision: u64,
    /// The recording of the run whose plan this is, or is to be.
    pub recording: Option<RecordingOnScreen<'a>>,
    /// True where the document was edited since.
    pub is_stale: bool,
    /// True where it is that of the network before its problems.
    pub is_outdated: bool,
    pub selection: &'a Selection,
    pub related: &'a Related,
    /// Measured times of its operations.
    pub measured: Option<&'a Measured>,
    pub is_measuring: bool,
    pub can_measure: bool,
}
