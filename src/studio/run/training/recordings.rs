//! The window's state of a run's recordings: the last report, which one ran at each step, and which two are compared.

use crate::studio::view_models::recordings::KeyNames;
use crate::studio::view_models::step_kinds::StepKinds;
use crate::train::{RecordingPlans, RecordingSeen, RecordingsSeen, StepDifference, StepReport};

/// The recordings of a run.
#[derive(Default)]
pub struct RunRecordings {
    /// The last report.
    pub seen: Option<Box<RecordingsSeen>>,
    /// Their names.
    pub names: KeyNames,
    /// What plans their steps, once the run is prepared.
    pub plans: Option<RecordingPlans>,
    /// The number of the recording that each step used.
    pub kinds: StepKinds,
    /// The numbers of the recordings that are compared, at most two.
    pub chosen: Vec<u32>,
    /// The difference of the two, once it is known.
    pub difference: Option<Box<StepDifference>>,
}

impl RunRecordings {
    /// Receives which recordings these steps used.
    pub(super) fn steps(&mut self, reports: &[StepReport]) {
        self.kinds.extend(reports.iter().map(|report| u16::try_from(report.kind).unwrap_or(u16::MAX)));
    }

    /// Receives a report about the recordings.
    pub(super) fn take(&mut self, seen: Box<RecordingsSeen>) {
        let keys = seen.recordings.iter().map(|recording| &*recording.key);
        if !self.list().iter().map(|recording| &*recording.key).eq(keys.clone()) {
            self.names = KeyNames::of(keys);
        }
        self.seen = Some(seen);
    }

    /// The recordings, from the last report; empty before the first report.
    #[must_use]
    pub fn list(&self) -> &[RecordingSeen] {
        self.seen.as_ref().map_or(&[], |seen| &seen.recordings)
    }

    /// Selects a recording, or deselects it; if there would be three, the first one is deselected. Returns the two that
    /// are to be compared, if there are two.
    pub(super) fn toggle(&mut self, kind: u32) -> Option<[u32; 2]> {
        self.difference = None;
        match self.chosen.iter().position(|chosen| *chosen == kind) {
            Some(at) => drop(self.chosen.remove(at)),
            None => {
                self.chosen.push(kind);
                let surplus = self.chosen.len().saturating_sub(2);
                self.chosen.drain(..surplus);
            }
        }
        <[u32; 2]>::try_from(self.chosen.as_slice()).ok()
    }

    /// Receives the difference of two recordings, unless others have been selected since.
    pub(super) fn compared(&mut self, kinds: [u32; 2], difference: Box<StepDifference>) {
        self.difference = (self.chosen == kinds).then_some(difference);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_recordings_are_compared_at_a_time() {
        let mut recordings = RunRecordings::default();
        assert_eq!(recordings.toggle(3), None);
        assert_eq!(recordings.toggle(5), Some([3, 5]));
        recordings.compared([3, 5], Box::default());
        assert!(recordings.difference.is_some());
        assert_eq!(recordings.toggle(7), Some([5, 7]));
        assert!(recordings.difference.is_none());
        // An answer about the previous pair is not shown for this one.
        recordings.compared([3, 5], Box::default());
        assert!(recordings.difference.is_none());
        assert_eq!(recordings.toggle(5), None);
        assert_eq!(recordings.chosen, [7]);
    }
}
