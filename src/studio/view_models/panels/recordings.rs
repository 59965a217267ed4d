//! What the Recordings tab shows.

use crate::train::{RecordingsSeen, StepDifference};

/// What the Recordings tab shows.
#[derive(Clone, Copy, Debug)]
pub struct RecordingsPanelView<'a> {
    /// Nothing before a run is prepared.
    pub seen: Option<&'a RecordingsSeen>,
    /// The number of the recording that each step used.
    pub kinds: &'a [u16],
    /// The numbers of those that are chosen to be compared.
    pub chosen: &'a [u32],
    /// What two chosen ones have different, once it is known.
    pub difference: Option<&'a StepDifference>,
}
