//! A training run as the window sees it: the worker behind bounded channels, and everything it reported, kept whole.

mod previous;
mod shutdown;

use crate::compile::Compiled;
use crate::data::{Dataset, Split};
use crate::exec::{ReadyTimes, Recording};
use crate::model::{Diagnostic, Preset};
use crate::studio::commands::choices::DeviceChoice;
use crate::studio::run::kept::continuation::Continuation;
use crate::studio::run::kept::writer::RunWriter;
use crate::studio::run::rates::Rates;
use crate::studio::run::training::previous::PreviousRun;
use crate::studio::run::training::shutdown::{Shutdown, drop_in_background};
use crate::studio::view_models::curves::{History, TwoWays};
use crate::studio::view_models::sequences::writing::WritingView;
use crate::studio::view_models::status::RunProgress;
use crate::studio::view_models::transport::{Next, Transport};
use crate::train::runs::LayerCurves;
use crate::train::{Command, Event, Looked, Moment, RunArtefacts, RunState, SessionSpec, StepReport, Worker};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::{path::PathBuf, sync::Arc};

/// One run after another.
pub struct Training {
    worker: Option<Worker>,
    pub state: Option<RunState>,
    /// The document that is trained.
    pub preset: Option<Arc<Preset>>,
    pub compiled: Option<Arc<Compiled>>,
    /// How its step was recorded.
    pub recording: Option<Recording>,
    /// Its recordings, as last reported, and the number of the one that each step used.
    pub recordings: Option<Box<crate::train::RecordingsSeen>>,
    pub kinds: Vec<u16>,
    /// How long it took until its first step could be made.
    pub ready_times: Option<ReadyTimes>,
    /// The device that it is trained on.
    pub device: Option<DeviceChoice>,
    pub history: History,
    /// How fast it is.
    pub rates: Rates,
    pub notes: Vec<String>,
    /// What differs from the checkpoint that it was resumed from, until it is shown.
    resumed: Vec<String>,
    /// Whether what is held out may have been trained on before.
    pub maybe_trained: bool,
    pub problem: Option<String>,
    /// The run before, until this one is prepared.
    previous: Option<Box<PreviousRun>>,
    /// True where the curves are those of the run before: this one could not be prepared.
    pub shows_previous: bool,
    /// What went wrong and was not reported elsewhere yet.
    news: Option<String>,
    /// The preset of a run that could not be prepared, and what is wrong with it.
    mistakes: Option<(Arc<Preset>, Vec<Diagnostic>)>,
    /// The preset of a run that could not be prepared, and whether what was wrong is so no more.
    unprepared: Option<(Arc<Preset>, bool)>,
    /// All that some step of the run depended on, as last taken.
    pub snapshot: Option<Arc<Moment>>,
    pub total: u64,
    /// Steps between evaluations, once the run has chosen it.
    pub evaluated_every: Option<u64>,
    pub lr: f32,
    smoothing: f32,
    /// Rises with every run.
    pub run: u64,
    pub data: Option<(Arc<Dataset>, Arc<Split>)>,
    /// The newest answer to a question about the network, until it is taken.
    pub query_answer: Option<Box<Looked>>,
    /// The text that it writes, or wrote last.
    pub writing: WritingView,
    /// Steps timed eagerly and replayed, and whether more are being timed.
    pub both_ways: Option<TwoWays>,
    pub is_timing: bool,
    /// Steps made when the weights were last saved.
    saved_at: Option<u64>,
    /// What became of weights that were to be saved, oldest first.
    saves: VecDeque<Result<PathBuf, String>>,
    /// Keeps the run on disk.
    pub writer: RunWriter,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            worker: None,
            state: None,
            preset: None,
            compiled: None,
            recording: None,
            recordings: None,
            kinds: Vec::new(),
            ready_times: None,
            device: None,
            history: History::default(),
            rates: Rates::default(),
            notes: Vec::new(),
            resumed: Vec::new(),
            maybe_trained: false,
            problem: None,
            previous: None,
            shows_previous: false,
            news: None,
            mistakes: None,
            unprepared: None,
            snapshot: None,
            total: 0,
            evaluated_every: None,
            lr: 0.0,
            smoothing: 0.95,
            run: 0,
            data: None,
            query_answer: None,
            writing: WritingView::default(),
            both_ways: None,
            is_timing: false,
            saved_at: None,
            saves: VecDeque::new(),
            writer: RunWriter::default(),
        }
    }
}

impl Training {
    /// Prepares a run, or a kept one that is continued, and sends it a first command.
    pub fn start(
        &mut self,
        spec: SessionSpec,
        first: Command,
        from: Option<Continuation>,
        wake: impl Fn() + Send + 'static,
    ) {
        let previous = if from.is_none() { self.take_previous() } else { None };
        self.reset();
        self.previous = previous;
        self.writer.prepare(&spec, from.as_ref().map(|f| f.point.clone()));
        let preset = &spec.preset;
        self.lr = preset.optimizer.lr() as f32;
        self.total = spec.steps.or(preset.train.map(|t| t.steps)).unwrap_or(1000) as u64;
        if let Some(from) = from {
            self.history = from.history;
            self.lr = self.history.lr.last().filter(|lr| lr.is_finite()).unwrap_or(self.lr);
            self.set_smoothing(self.smoothing);
        }
        self.preset = Some(Arc::new(preset.clone()));
        self.state = Some(RunState::Preparing);
        match Worker::spawn(spec, wake) {
            Ok(worker) => {
                self.worker = Some(worker);
                self.send(first);
            }
            Err(error) => {
                self.news = Some(format!("Training failed: {error}"));
                self.state = Some(RunState::Failed(error.to_string()));
            }
        }
    }

    /// Ends the run, if there is one, and forgets its curves.
    pub fn reset(&mut self) {
        self.drain(Duration::from_millis(20));
        let (smoothing, run, end) = (self.smoothing, self.run + 1, self.end());
        // Where no thread is to be had, the run is dropped here, and what was handed over is kept.
        drop(std::thread::Builder::new().name("stepgraph-end".into()).spawn(move || end.finish()));
        let writer = std::mem::take(&mut self.writer);
        *self = Self::default();
        self.run = run;
        self.writer = writer;
        self.set_smoothing(smoothing);
    }

    /// Takes the run out of here, to be ended.
    fn end(&mut self) -> Shutdown {
        let (is_running, done) = (self.is_running(), self.done());
        Shutdown { worker: self.worker.take(), writer: self.writer.take(), is_running, done }
    }

    /// Takes out what the run has to show; `None` where it made no step.
    fn take_previous(&mut self) -> Option<Box<PreviousRun>> {
        (self.done() > 0).then(|| {
            Box::new(PreviousRun {
                preset: self.preset.take(),
                device: self.device.take(),
                history: std::mem::take(&mut self.history),
                rates: std::mem::take(&mut self.rates),
                both_ways: self.both_ways.take(),
                total: self.total,
                evaluated_every: self.evaluated_every,
                maybe_trained: self.maybe_trained,
                lr: self.lr,
            })
        })
    }

    /// Shows the previous run again, in place of one that could not be prepared.
    fn put_back(&mut self, previous: PreviousRun) {
        (self.preset, self.device, self.history) = (previous.preset, previous.device, previous.history);
        (self.rates, self.both_ways) = (previous.rates, previous.both_ways);
        (self.total, self.evaluated_every, self.lr) = (previous.total, previous.evaluated_every, previous.lr);
        self.maybe_trained = previous.maybe_trained;
        self.set_smoothing(self.smoothing);
    }

    /// Sends a command to the run.
    pub fn send(&mut self, command: Command) {
        if let Command::SetLr(lr) = command {
            self.lr = lr;
        }
        let sent = self.worker.as_ref().is_some_and(|w| w.send(command));
        if !sent {
            self.problem = Some("The run does not answer. Stop it and train again.".into());
        }
    }

    /// True where the run has weights that can be saved.
    #[must_use]
    pub fn has_weights(&self) -> bool {
        self.worker.is_some() && self.compiled.is_some()
    }

    /// True where steps were made since the weights were last saved, and their weights are still to be had.
    #[must_use]
    pub fn has_unsaved_weights(&self) -> bool {
        let done = self.done();
        self.has_weights() && done > 0 && self.saved_at != Some(done) && !self.writer.is_recording()
    }

    /// Has the run write its weights; [`Self::take_saved`] reports what came of it. False where there is no run to do
    /// it.
    #[must_use]
    pub fn save_weights(&self, path: PathBuf) -> bool {
        self.worker.as_ref().is_some_and(|w| w.send(Command::SaveWeights(path)))
    }

    /// Has the run time steps eagerly and replayed; it continues from where it was.
    pub fn time_both_ways(&mut self, steps: usize) {
        self.is_timing = self.worker.as_ref().is_some_and(|w| w.send(Command::TimeBothWays(steps)));
    }

    /// Asks about the network as it is now; false where there is nobody to answer.
    #[must_use]
    pub fn query(&self, query: crate::train::Look) -> bool {
        self.worker.as_ref().is_some_and(|w| w.send(Command::Query(query)))
    }

    /// What became of weights that were to be saved, once: their file, or why there is none.
    pub fn take_saved(&mut self) -> Option<Result<PathBuf, String>> {
        self.saves.pop_front()
    }

    /// What differs from the checkpoint that the run was resumed from, once.
    pub fn take_resumed(&mut self) -> Option<String> {
        let notes = std::mem::take(&mut self.resumed);
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// What went wrong, once: the Train tab shows it for longer.
    pub fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// What is wrong with this preset, where a run of it could not be prepared.
    #[must_use]
    pub fn mistakes_of(&self, preset: &Preset) -> &[Diagnostic] {
        self.mistakes.as_ref().filter(|(of, _)| **of == *preset).map_or(&[], |(_, found)| found)
    }

    /// True where the run has a failure or a problem that a person who looks at `preset` should know of: one that could
    /// not be prepared says nothing about another network.
    #[must_use]
    pub fn failure_stands(&self, preset: &Preset) -> bool {
        let holds = |(of, is_over): &(Arc<Preset>, bool)| !is_over && **of == *preset;
        let has_failed = matches!(self.state, Some(RunState::Failed(_))) && self.unprepared.as_ref().is_none_or(holds);
        has_failed || self.problem.is_some()
    }

    /// What kept the run from being prepared is so no more.
    pub fn end_failure(&mut self) {
        if let (Some(RunState::Failed(_)), Some((_, is_over))) = (&self.state, &mut self.unprepared) {
            (*is_over, self.mistakes) = (true, None);
        }
    }

    /// What pressing Train would do; `stale` says that the document is no longer the one that was trained, `steps` is
    /// what it asks for.
    #[must_use]
    pub fn next(&self, stale: bool, steps: u64) -> Next {
        match self.state {
            // The document's steps are the end where they were raised above what the run has made, else as many more.
            Some(RunState::Finished) if self.worker.is_some() && !stale => {
                Next::TrainOn(steps.checked_sub(self.total).filter(|more| *more > 0).unwrap_or(steps))
            }
            Some(RunState::Finished | RunState::Stopped | RunState::Failed(_)) => Next::TrainAnew,
            _ => Next::Train,
        }
    }

    /// Makes a finished run longer, and has it continue.
    pub fn extend(&mut self, steps: u64, order: Command) {
        self.total += steps;
        self.writer.set_total(self.total);
        self.send(Command::SetTotal(self.total));
        self.send(order);
    }

    /// True where the run obeys: while it can continue, and after its last step, because it may be made longer.
    #[must_use]
    pub fn obeys(&self) -> bool {
        self.is_alive() || self.is_stopped() || (self.worker.is_some() && self.state == Some(RunState::Finished))
    }

    /// True where a person ended the run, and it can continue from there.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.worker.is_some() && self.state == Some(RunState::Stopped)
    }

    /// True while there is a run that can continue.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.state, Some(RunState::Preparing | RunState::Ready | RunState::Running | RunState::Paused))
    }

    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self.state, Some(RunState::Running))
    }

    /// Steps made.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.history.loss.raw.len() as u64
    }

    /// How far the run is; `None` where there is none.
    #[must_use]
    pub fn progress(&self) -> Option<RunProgress> {
        let batch = self.preset.as_ref()?.samples_a_step();
        let steps_per_s = self.rates.statistics.steps_per_s;
        Some(RunProgress { is_running: self.is_running(), done: self.done(), total: self.total, steps_per_s, batch })
    }

    /// What may be pressed; `ready` says whether the document could be trained.
    #[must_use]
    pub fn transport(&self, ready: bool) -> Transport {
        let idle = matches!(self.state, Some(RunState::Ready | RunState::Paused));
        let fresh = !self.is_alive() && ready;
        Transport {
            train: idle || fresh,
            pause: self.is_running(),
            step: idle || fresh,
            stop: self.is_running() || idle,
            reset: self.state.is_some(),
        }
    }

    #[must_use]
    pub const fn smoothing(&self) -> f32 {
        self.smoothing
    }

    pub fn set_smoothing(&mut self, weight: f32) {
        self.smoothing = weight;
        let h = &mut self.history;
        for curve in [&mut h.loss, &mut h.accuracy, &mut h.step_us, &mut h.update_max] {
            curve.set_weight(weight);
        }
    }

    /// Takes in what the worker reported, for at most `budget`; true where something is left.
    pub fn drain(&mut self, budget: Duration) -> bool {
        let started = Instant::now();
        while let Some(event) = self.worker.as_ref().and_then(Worker::try_event) {
            self.take(event);
            if started.elapsed() > budget {
                return true;
            }
        }
        if let Some(path) = self.writer.wants_checkpoint(self.state.as_ref(), self.done()) {
            // Where the run cannot take it now, it is asked again after its next steps.
            let _ = self.worker.as_ref().is_some_and(|w| w.send(Command::SaveCheckpoint(path)));
        }
        self.rates.measure(self.history.step_us.raw.values());
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
                let Some(RunArtefacts { compiled, data }) = artefacts else { return };
                self.writer.begin(&compiled, total, maybe_trained);
                (self.recording, self.ready_times, self.previous) = (Some(recording), Some(ready_times), None);
                let before = std::mem::take(&mut self.history.layers);
                self.history.layers = LayerCurves::of(&compiled.model).after(before);
                self.data = data;
                self.compiled = Some(compiled);
                self.total = total;
                (self.notes, self.resumed, self.lr) = (notes, resumed, lr);
                self.maybe_trained = maybe_trained;
            }
            Event::Steps(reports) => self.steps(&reports),
            Event::LayerUpdates { values, spans, .. } => {
                spans.iter().for_each(|s| self.history.layers.push(s));
                self.history.layer_updates = values;
            }
            Event::Evaluated { step, result } => {
                self.history.held_out_loss.push([step as f64, result.loss]);
                self.history.held_out_accuracy.extend(result.accuracy.map(|a| [step as f64, a]));
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
            Event::Recordings(seen) => self.recordings = Some(seen),
            Event::QueryResult(answer) => self.query_answer = Some(answer),
            Event::Writing(event) => self.writing.take(event),
            Event::TimedBothWays(times) => (self.both_ways, self.is_timing) = (Some(TwoWays::of(&times)), false),
            // The window asks with queries only.
            Event::Predicted { .. } => {}
        }
    }

    /// Takes in another state. A run that has failed answers no more commands of use; a finished one may be made
    /// longer, and one that was stopped may continue.
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

    /// Begins or ends the taking of rates with the run.
    fn change(&mut self, state: RunState) {
        self.rates.change((state == RunState::Running).then(|| self.done()));
        self.state = Some(state);
    }

    /// Takes in reports of steps.
    pub fn steps(&mut self, reports: &[StepReport]) {
        let h = &mut self.history;
        for r in reports {
            h.loss.push(r.loss);
            h.accuracy.push(r.accuracy);
            h.step_us.push(r.step_us);
            h.update_max.push(r.update_max);
            h.lr.push(r.lr);
            self.kinds.push(u16::try_from(r.kind).unwrap_or(u16::MAX));
        }
        if self.is_running() {
            self.rates.steps(reports, self.done());
        }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        self.drain(Duration::from_millis(20));
        // The program ends: what is kept must be on disk before.
        let waits = self.writer.is_recording();
        let end = self.end();
        if waits { end.finish() } else { drop_in_background(end.worker) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_run_there_is_no_progress() {
        assert_eq!(Training::default().progress(), None);
    }
}
