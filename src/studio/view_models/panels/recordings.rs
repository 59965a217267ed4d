//! What the Recordings tab shows.

use crate::studio::view_models::panels::plan::RecordingOnScreen;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::recordings::KeyNames;
use crate::studio::view_models::step_kinds::StepKinds;
use crate::train::{RecordingsSeen, StepDifference};

/// What the Recordings tab shows.
#[derive(Clone, Copy, Debug)]
pub struct RecordingsPanelView<'a> {
    pub readiness: Readiness,
    /// `None` before a run is prepared.
    pub seen: Option<&'a RecordingsSeen>,
    /// Their names.
    pub names: &'a KeyNames,
    /// The key of the one whose plan the views show.
    pub shown: Option<&'a str>,
    pub on_screen: Option<RecordingOnScreen<'a>>,
    /// False if the run trains another network than the one on screen.
    pub can_show: bool,
    /// The number of the recording that each step used.
    pub kinds: &'a StepKinds,
    /// The numbers of those that are compared.
    pub chosen: &'a [u32],
    /// The differences of the compared ones, once they are known.
    pub difference: Option<&'a StepDifference>,
}
