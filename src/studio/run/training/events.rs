//! Processes the reports of a run's worker.

use crate::studio::run::training::Training;
use crate::studio::run::training::shutdown::drop_in_background;
use crate::studio::view_models::curves::TwoWays;
use crate::train::runs::LayerCurves;
use crate::train::{Command, Event, RunArtefacts, RunState, StepReport, Worker};
use std::time::{Duration, Instant};

impl Training {
    /// Processes reports of the worker, for at most `budget`; returns true if some are left.
    pub fn drain(&mut self, budget: Duration) -> bool {
        let started = Instant::now();
        while let Some(event) = self.worker.as_ref().and_then(Worker::try_event) {
            self.take(event);
            if started.elapsed() > budget {
                return true;
            }
        }
        if let Some(path) = self.writer.wants_checkpoint(self.state.as_ref(), self.done()) {
            // If the run cannot accept it now, it is queried again after its next steps.
            let _ = self.worker.as_ref().is_some_and(|w| w.send(Command::SaveCheckpoint(path)));
        }
        self.rates.measure(self.history.curves.step_us.raw.values());
        false
    }

    fn take(&mut self, event: Event) {
        if self.writer.hear(&event) {
            return;
        }
        match event {
            Event::State(state) => self.take_state(state),
            Event::Prepared { run, recording, ready_times, total, notes, resumed, maybe_trained, lr } => {
                let artefacts = self.worker.as_ref().and_then(|worker| worker.artefacts(run));
                let Some(RunArtefacts { compiled, plans, data }) = artefacts else { return };
                self.recordings.plans = Some(plans);
                self.writer.begin(&compiled, total, maybe_trained);
                (self.recording, self.ready_times, self.previous) = (Some(recording), Some(ready_times), None);
                (self.changed_kernels_at, self.kernel_change) = Default::default();
                let before = std::mem::take(&mut self.history.layers);
                self.history.layers = LayerCurves::of(&compiled.model).after(before);
                self.data = data;
                self.compiled = Some(compiled);
                self.total = total;
                (self.notes, self.resumed, self.lr) = (notes, resumed, lr);
                self.maybe_trained = maybe_trained;
            }
            Event::Kernels(change) => self.kernel_change = change,
            Event::Steps(reports) => self.steps(&reports),
            Event::LayerUpdates { values, spans, .. } => {
                spans.iter().for_each(|s| self.history.layers.push(s));
                self.history.layer_updates = values;
            }
            Event::Evaluated { step, result } => {
                self.history.curves.push_held_out(step, result.loss, result.accuracy);
            }
            Event::EvaluatedEvery(steps) => self.evaluated_every = Some(steps),
            Event::Problem(text) => {
                self.is_timing = false;
                self.news = Some(text.clone());
                self.problem = Some(text);
            }
            Event::Mistakes(found) => {
                self.mistakes = self.preset.clone().filter(|_| !found.is_empty()).zip(Some(found))
            }
            Event::Snapshot(snapshot) => self.snapshot = Some(snapshot.into()),
            Event::Saved(path) => {
                self.saved_at = Some(self.done());
                self.saves.push_back(Ok(path));
            }
            Event::NotSaved(_, why) => self.saves.push_back(Err(why)),
            Event::Recordings(seen) => self.recordings.take(seen),
            Event::RecordingsCompared(kinds, difference) => self.recordings.compared(kinds, difference),
            Event::QueryResult(answer) => self.query_answer = Some(answer),
            Event::Writing(event) => self.writing.take(event),
            Event::TimedBothWays(times) => (self.both_ways, self.is_timing) = (Some(TwoWays::of(&times)), false),
            // The window only sends queries.
            Event::Predicted { .. } => {}
        }
    }

    /// Receives another state. A run that has failed ignores all further commands; a finished one may be made longer,
    /// and one that was stopped may continue.
    fn take_state(&mut self, state: RunState) {
        if let RunState::Failed(why) = &state {
            self.is_timing = false;
            self.news = Some(format!("Training failed: {why}"));
            let is_unprepared = self.state == Some(RunState::Preparing);
            self.unprepared = self.preset.clone().filter(|_| is_unprepared).map(|preset| (preset, false));
            drop_in_background(self.worker.take());
            if let Some(previous) = self.previous.take() {
                self.shows_previous = true;
                self.put_back(*previous);
            }
        }
        self.change(state);
    }

    /// Starts or stops computing rates with the run.
    fn change(&mut self, state: RunState) {
        self.rates.change((state == RunState::Running).then(|| self.done()));
        self.state = Some(state);
    }

    /// Receives reports of steps.
    pub fn steps(&mut self, reports: &[StepReport]) {
        let h = &mut self.history;
        for r in reports {
            if r.kernels.is_some() {
                self.changed_kernels_at = Some(r.step);
            }
            h.curves.loss.push(r.loss);
            h.curves.accuracy.push(r.accuracy);
            h.curves.step_us.push(r.step_us);
            h.curves.update_max.push(r.update_max);
            h.lr.push(r.lr);
        }
        self.recordings.steps(reports);
        if self.is_running() {
            self.rates.steps(reports, self.done());
        }
    }
}
