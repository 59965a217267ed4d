//! What a session says of its recordings.

use super::dispatch::Dispatch;
use super::{Names, RecordingsSeen, Session, StepDifference, TrainError};
use crate::compile::Compiled;
use crate::exec::{EagerSteps, Executor, GraphKey, PoolReport};
use std::sync::Arc;

impl Session {
    /// Whether its steps differ, each with a recording of its own.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.train.dispatch().is_some()
    }

    /// The names that reports of steps refer to by number.
    #[must_use]
    pub fn names(&self) -> Names {
        self.train.dispatch().map(|dispatch| dispatch.names().clone()).unwrap_or_default()
    }

    /// What became of the look-ups of its recordings, what they take, and why steps ran op by op.
    #[must_use]
    pub fn recordings(&self) -> PoolReport {
        let Some(pool) = self.train.last().pool() else { return PoolReport::default() };
        let mut report = pool.report();
        let made = self.made;
        let whole = GraphKey::of(self.compiled());
        let (hits, last_step) = match self.train.dispatch() {
            Some(dispatch) => dispatch.of_whole(),
            // Each of its steps found the one recording of each of its batches.
            None => (made * self.train.batches() as u64, self.done),
        };
        let lent = self.train.dispatch().and_then(Dispatch::lent_use);
        for (key, hits, last_step) in lent.into_iter().chain([(&whole, hits, last_step)]) {
            report.counts.hits += hits;
            if let Some(known) = report.keys.iter_mut().find(|known| known.key == *key) {
                known.facts.hits += hits;
                known.facts.last_step = known.facts.last_step.max(last_step);
            }
        }
        let why = self.recording().why_eager.filter(|_| !self.varies() && self.executor == Executor::Replay);
        if let Some(why) = why.filter(|_| made > 0) {
            let (first_step, last_step) = (self.done + 1 - made, self.done);
            let why = format!("it could not be captured: {why}");
            report.counts.eager_steps += made;
            report.eager.push(EagerSteps { key: whole, why, steps: made, first_step, last_step });
        }
        report
    }

    /// What the steps of two recordings have different, by the numbers that reports of steps name them by.
    ///
    /// # Errors
    /// Where no step had one of these numbers, and where a step cannot be planned.
    pub fn recordings_compared(&self, kinds: [u32; 2]) -> Result<StepDifference, TrainError> {
        let planned = |kind: u32| -> Result<Arc<Compiled>, TrainError> {
            let dispatch = self.train.dispatch();
            dispatch.and_then(|dispatch| dispatch.planned(kind)).unwrap_or(Err(TrainError::NoRecording(kind)))
        };
        let [a, b] = kinds;
        let (a, b) = (planned(a)?, planned(b)?);
        Ok(StepDifference::between([&a, &b]))
    }

    /// The recordings as a window shows them.
    #[must_use]
    pub fn recordings_seen(&self) -> RecordingsSeen {
        let kind = |key: &GraphKey| self.train.dispatch().map_or(0, |dispatch| dispatch.kind_of(key));
        RecordingsSeen::of(self.recordings(), self.done, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BUNDLED, read_preset};
    use crate::train::SessionSpec;

    #[test]
    fn two_recordings_of_a_run_are_compared_by_the_numbers_in_its_reports() {
        let bundled = BUNDLED.iter().find(|b| b.name == "early-exit").unwrap();
        let preset = read_preset(bundled.text).unwrap();
        let mut session =
            Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap();
        let kinds: Vec<u32> = (0..40).map(|_| session.step().unwrap().unwrap().kind).collect();
        let other = *kinds.iter().find(|kind| **kind != kinds[0]).unwrap();
        let found = session.recordings_compared([kinds[0], other]).unwrap();
        assert!(!found.is_empty() && found.figures[0] != found.figures[1], "{found:?}");
        assert!(session.recordings_compared([other, other]).unwrap().is_empty());
        let unknown = session.recordings_compared([kinds[0], 99]).err().unwrap().to_string();
        assert!(unknown.contains("99"), "{unknown}");
        // What a window shows has both numbers, with the steps that used them.
        let seen = session.recordings_seen();
        let hits = |kind: u32| seen.recordings.iter().find(|seen| seen.kind == kind).unwrap().facts.hits;
        assert_eq!(hits(kinds[0]) + hits(other), 40);
    }
}
