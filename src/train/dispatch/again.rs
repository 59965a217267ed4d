//! Recordings and steps that are made on request, and not for the next batch.

use super::Dispatch;
use crate::exec::{LentStep, Presence, RecordingId, Ways};
use crate::train::step_cases::Case;
use crate::train::{TrainError, plant};
use std::sync::Arc;

impl Dispatch {
    /// Makes the recording of a case if it does not exist. The inner error is the reason why it could not be made.
    ///
    /// # Errors
    /// If the step cannot be planned.
    pub(in crate::train) fn record(&mut self, case: Case, step: u64) -> Result<Result<(), String>, TrainError> {
        let number = self.number_of(case, step)?;
        if self.known[number as usize].is_whole {
            return Ok(Ok(()));
        }
        let (id, planner) = (self.id_of(number), Arc::clone(&self.planner));
        // The recording that is lent may be dropped to make room for it.
        if self.lent_for != number {
            self.lent = None;
        }
        self.pool.wait(id);
        self.pool.make(id, "it was asked for", || planner.plan(case, step))?;
        let is_there = self.pool.presence(id) == Some(Presence::There);
        Ok(if is_there { Ok(()) } else { Err(self.pool.why_absent(id)) })
    }

    /// The recording of a case by its number, even if the pool no longer knows its key.
    pub(super) fn id_of(&mut self, number: u32) -> RecordingId {
        let first = self.known.iter().find(|known| !known.is_whole).filter(|_| plant::takes_other_after_eviction());
        let id = self.pool.id_of(&first.unwrap_or(&self.known[number as usize]).key);
        self.known[number as usize].id = id;
        id
    }

    /// Drops the recordings of all cases that occurred, and makes those of the first `most` cases again. Returns their
    /// number.
    ///
    /// # Errors
    /// If a step cannot be planned or recorded.
    pub(in crate::train) fn record_again(&mut self, most: usize) -> Result<usize, TrainError> {
        self.lent = None;
        self.pool.drop_idle();
        // Whoever is found first for a case says where its metrics are.
        self.known.iter_mut().for_each(|known| known.reported = None);
        let before = self.pool.counts().recordings;
        for (case, step) in self.cases().into_iter().take(most) {
            // A step whose recording does not fit runs op by op.
            let _ = self.record(case, step)?;
        }
        Ok(self.pool.counts().recordings.saturating_sub(before))
    }

    /// A step of a case, planned and bound now, to be run in these ways.
    ///
    /// # Errors
    /// If it cannot be planned, or does not fit.
    pub(in crate::train) fn planned_now(&self, case: Case, step: u64, ways: Ways) -> Result<LentStep, TrainError> {
        Ok(self.pool.apart(self.planner.plan(case, step)?, ways)?)
    }
}
