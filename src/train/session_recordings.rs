//! The report of a session about its recordings.

use super::coming_evaluation::ComingEvaluation;
use super::dispatch::Dispatch;
use super::evaluate::Evaluator;
use super::{Names, RecordingPlans, RecordingsSeen, SeenStep, Session, StepDifference, TrainError};
use crate::compile::Compiled;
use crate::exec::{EagerSteps, Executor, GraphKey, PoolReport, StepVariant};
use std::sync::Arc;

impl Session {
    /// Whether its steps differ, each with its own recording.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.train.dispatch().is_some()
    }

    /// The names that reports of steps refer to by number.
    #[must_use]
    pub fn names(&self) -> Names {
        self.train.dispatch().map(|dispatch| dispatch.names().clone()).unwrap_or_default()
    }

    /// The results of the look-ups of its recordings, their memory, and why steps ran op by op.
    #[must_use]
    pub fn recordings(&self) -> PoolReport {
        let Some(pool) = self.train.last().pool() else { return PoolReport::default() };
        let mut report = pool.report();
        let made = self.made;
        let whole = GraphKey::of(self.compiled());
        let (hits, last_step) = match self.train.dispatch() {
            Some(dispatch) => dispatch.of_whole(),
            // Each of its steps found the single recording of each of its batches.
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
        // Hits are counted of steps; the batches of evaluations are only uses of their own recordings.
        let evaluated = self.evaluator.as_ref().map(|own| (GraphKey::of(own.compiled()), own.uses()));
        let alone = self.alone.as_ref().map(|own| (GraphKey::of_inference(own.compiled()), own.uses()));
        for (key, uses) in evaluated.into_iter().chain(alone) {
            if let Some(known) = report.keys.iter_mut().find(|known| known.key == key) {
                known.facts.hits += uses;
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

    /// The difference between the steps of two recordings, by their numbers in step reports.
    ///
    /// # Errors
    /// If no step had one of these numbers, or a step cannot be planned.
    pub fn recordings_compared(&self, kinds: [u32; 2]) -> Result<StepDifference, TrainError> {
        let planned = |kind: u32| -> Result<Arc<Compiled>, TrainError> {
            let dispatch = self.train.dispatch();
            dispatch.and_then(|dispatch| dispatch.planned(kind)).unwrap_or(Err(TrainError::NoRecording(kind)))
        };
        let [a, b] = kinds;
        let (a, b) = (planned(a)?, planned(b)?);
        Ok(StepDifference::between([&a, &b]))
    }

    /// What plans the steps of its recordings.
    #[must_use]
    pub fn recording_plans(&self) -> RecordingPlans {
        let trained = self.train.recordings().map(|(step, _)| step.compiled());
        let coming = self.coming.as_ref().map(ComingEvaluation::compiled);
        let evaluated = self.evaluator.as_ref().map(Evaluator::compiled).or(coming);
        let kept = trained.chain(evaluated).map(|step| (GraphKey::of(step).to_string(), Arc::clone(step)));
        let planner = self.train.dispatch().map(|dispatch| Arc::clone(dispatch.planner()));
        RecordingPlans::new(kept.collect(), planner, &self.model)
    }

    /// The recordings as a window shows them.
    #[must_use]
    pub fn recordings_seen(&self) -> RecordingsSeen {
        let known = |key: &GraphKey| match (key.variant(), self.train.dispatch()) {
            (StepVariant::Inference, _) => (0, SeenStep::Answers),
            (_, Some(dispatch)) => dispatch.seen(key),
            (_, None) => (0, SeenStep::Kept),
        };
        RecordingsSeen::of(self.recordings(), self.done, known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BUNDLED, read_preset};
    use crate::train::SessionSpec;

    #[test]
    fn two_recordings_of_a_run_are_compared_by_the_numbers_in_its_reports() {
        let mut session = session("early-exit");
        let kinds: Vec<u32> = (0..40).map(|_| session.step().unwrap().unwrap().kind).collect();
        let other = *kinds.iter().find(|kind| **kind != kinds[0]).unwrap();
        let found = session.recordings_compared([kinds[0], other]).unwrap();
        assert!(!found.is_empty() && found.figures[0] != found.figures[1], "{found:?}");
        assert!(session.recordings_compared([other, other]).unwrap().is_empty());
        let unknown = session.recordings_compared([kinds[0], 99]).err().unwrap().to_string();
        assert!(unknown.contains("99"), "{unknown}");
        // The window shows both numbers with the steps that used them.
        let seen = session.recordings_seen();
        let hits = |kind: u32| seen.recordings.iter().find(|seen| seen.kind == kind).unwrap().facts.hits;
        assert_eq!(hits(kinds[0]) + hits(other), 40);
    }

    #[test]
    fn batches_of_evaluations_are_uses_of_their_recording() {
        let mut session = session("digits-mlp");
        let uses = |session: &Session| {
            let seen = session.recordings_seen().recordings;
            seen.iter().find(|seen| seen.key.ends_with(", evaluation")).unwrap().facts.hits
        };
        assert_eq!(uses(&session), 0);
        session.evaluate().unwrap();
        let samples = session.evaluate().unwrap().unwrap().samples;
        let batch = session.evaluator.as_ref().unwrap().compiled().model.batch;
        assert_eq!(uses(&session), 2 * samples.div_ceil(batch) as u64);
        assert_eq!(session.recordings().counts.hits, 0);
    }

    fn session(name: &str) -> Session {
        let bundled = BUNDLED.iter().find(|b| b.name == name).unwrap();
        let preset = read_preset(bundled.text).unwrap();
        Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset, ".".into()) }).unwrap()
    }

    #[test]
    fn planning_a_recording_again_gives_the_recorded_plan() {
        for name in ["early-exit", "short-batches", "stochastic-depth", "digits-mlp"] {
            let mut session = session(name);
            let plans = session.recording_plans();
            for _ in 0..30 {
                session.step().unwrap();
            }
            session.evaluate().unwrap();
            let seen = session.recordings_seen().recordings;
            assert!(seen.len() >= 2, "{name}: {seen:#?}");
            for recording in &seen {
                let compiled = plans.plan(recording).unwrap();
                assert_eq!(GraphKey::of(&compiled).to_string(), recording.key, "{name}");
                let calls = recording.facts.calls;
                assert!(calls == 0 || calls == compiled.plan.program.ops.len(), "{name}: {}", recording.key);
            }
        }
    }

    #[test]
    fn a_recording_of_another_run_is_refused() {
        let (mut other, plans) = (session("early-exit"), session("digits-mlp").recording_plans());
        other.step().unwrap();
        let seen = other.recordings_seen().recordings;
        let of_path = seen.iter().find(|seen| matches!(seen.of, SeenStep::Batch { .. })).unwrap();
        assert!(matches!(plans.plan(of_path), Err(TrainError::NoRecording(_))));
    }
}
