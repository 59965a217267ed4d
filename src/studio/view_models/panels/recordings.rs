//! What the Recordings tab shows.

use crate::train::RecordingsSeen;

/// What the Recordings tab shows.
#[derive(Clone, Copy, Debug)]
pub struct RecordingsPanelView<'a> {
    /// Nothing before a run is prepared.
    pub seen: Option<&'a RecordingsSeen>,
    /// The number of the recording that each step used.
    pub kinds: &'a [u16],
}
