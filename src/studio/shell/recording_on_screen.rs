//! Which plan the views show: the network's own, or that of a recording of the run.

use crate::studio::shell::selection_in_plan::selection_in_plan;
use crate::studio::shell::state::Studio;
use crate::studio::view_models::panels::plan::RecordingOnScreen;
use crate::studio::view_models::plan::PlanView;
use crate::train::RecordingSeen;
use std::sync::Arc;

impl Studio {
    /// The plan that the views show.
    #[must_use]
    pub fn plan_shown(&self) -> Option<&Arc<PlanView>> {
        self.recording.plan().or(self.plan.as_ref())
    }

    /// A revision for it, which differs for each plan, also for plans of one document for several devices.
    #[must_use]
    pub fn revision_shown(&self) -> u64 {
        if self.shows_recording() { self.recording.revision() } else { self.plan_number }
    }

    /// True if it is that of a recording.
    #[must_use]
    pub fn shows_recording(&self) -> bool {
        self.recording.plan().is_some()
    }

    /// The recording that the user chose to view.
    #[must_use]
    pub(super) fn recording_on_screen(&self) -> Option<RecordingOnScreen<'_>> {
        let name = self.recording.name()?;
        let (problem, is_planning) = (self.recording.problem(), self.recording.is_planning());
        Some(RecordingOnScreen { name, problem, is_planning })
    }

    /// The last report about the recording that the views show.
    #[must_use]
    pub(super) fn recording_seen(&self) -> Option<&RecordingSeen> {
        let key = self.recording.key()?;
        self.training.recordings.list().iter().find(|seen| seen.key == key)
    }

    /// True if recordings of the run belong to the network on screen.
    #[must_use]
    pub(super) fn can_show_recordings(&self) -> bool {
        self.training.recordings.plans.is_some() && !self.is_stale()
    }

    /// Makes every view show the recording with this key; without a key, the network's own plan.
    pub(super) fn show_recording(&mut self, key: Option<&str>) {
        let before = self.plan_shown().cloned();
        let recordings = &self.training.recordings;
        let seen = key.and_then(|key| recordings.list().iter().find(|seen| seen.key == key));
        match (seen, &recordings.plans) {
            (Some(seen), Some(plans)) => {
                let (name, asked) = (recordings.names.name(&seen.key), (plans.clone(), seen.clone()));
                if let Err(error) = self.recording.choose(self.training.run, name, asked, &self.wake) {
                    self.complain(format!(
                        "No thread could be started for this: {error}. Close other programs and try again."
                    ));
                }
            }
            _ => self.recording.clear(),
        }
        self.follow_plan(before.as_ref());
    }

    /// Receives the plan of a recording, and stops showing a recording that does not belong to the network on screen
    /// any more.
    pub(super) fn follow_recording(&mut self) {
        let before = self.plan_shown().cloned();
        self.recording.poll();
        if self.recording.run().is_some_and(|run| run != self.training.run || !self.can_show_recordings()) {
            self.recording.clear();
        }
        self.follow_plan(before.as_ref());
    }

    /// Selects in the new plan the same item that was selected in the previous one.
    pub(super) fn follow_plan(&mut self, before: Option<&Arc<PlanView>>) {
        let after = self.recording.plan().or(self.plan.as_ref());
        if let (Some(before), Some(after)) = (before, after)
            && !Arc::ptr_eq(before, after)
        {
            self.selection.replace(|s| selection_in_plan(s, before, after));
            self.measurements.scrub = self.measurements.scrub.filter(|op| *op < after.ops.len());
        }
    }
}
