//! What a pool of recordings counts and reports.

use super::graph_key::GraphKey;
use super::pool_report::{EagerSteps, PoolCounts, PoolEventKind, PoolReport};
use super::pool_state::{Absence, Entry, Held, MOST_REASONS, RecordingId};
use super::recording_pool::RecordingPool;
use crate::tensor::Bytes;

impl RecordingPool {
    /// Why there is no recording with this id, as text.
    #[must_use]
    pub fn why_absent(&self, id: RecordingId) -> String {
        let state = self.state();
        let budget = Bytes(state.counts.budget_bytes);
        match state.known(id).map(|entry| &entry.held) {
            Some(Held::Absent(Absence::Evicted)) => format!("it was dropped to keep the budget of {budget}"),
            Some(Held::Absent(Absence::Outgrown)) => "it was dropped when the transient arena grew".into(),
            Some(Held::Absent(Absence::Unfit(bytes))) => {
                format!("its {} have no room in the budget of {budget}", Bytes(*bytes))
            }
            Some(Held::Absent(Absence::Failed(why))) => format!("it could not be made: {why}"),
            Some(Held::Making(_)) => "it is being made".into(),
            Some(Held::Lent) => "it is in use".into(),
            _ => "it was not made before this step".into(),
        }
    }

    /// Counts a step that ran op by op because its recording did not exist, with the reason.
    pub fn note_eager(&self, key: &GraphKey, why: &str, step: u64) {
        let mut state = self.state();
        // A step may consist of several batches.
        if std::mem::replace(&mut state.last_eager, step) == step {
            return;
        }
        state.counts.eager_steps += 1;
        state.event(PoolEventKind::Missed, key, format!("step {step} ran op by op: {why}"));
        let known = state.eager.iter_mut().find(|known| known.why == why && known.key == *key);
        if let Some(known) = known {
            (known.steps, known.last_step) = (known.steps + 1, step);
        } else if state.eager.len() < MOST_REASONS {
            let (key, why) = (key.clone(), why.to_owned());
            state.eager.push(EagerSteps { key, why, steps: 1, first_step: step, last_step: step });
        }
    }

    /// Counts a step that waited for its recording.
    pub fn note_wait(&self, key: &GraphKey, why: &str, step: u64) {
        let mut state = self.state();
        state.counts.waits += 1;
        state.event(PoolEventKind::Missed, key, format!("step {step} waited for its recording: {why}"));
    }

    /// The results of the look-ups so far, and the current content.
    #[must_use]
    pub fn counts(&self) -> PoolCounts {
        self.state().counted()
    }

    /// The counts with every key, and the reasons of eager steps.
    #[must_use]
    pub fn report(&self) -> PoolReport {
        let state = self.state();
        PoolReport {
            counts: state.counted(),
            eager: state.eager.clone(),
            keys: state.entries.iter().map(Entry::known).collect(),
            events: state.events.iter().cloned().collect(),
        }
    }
}
