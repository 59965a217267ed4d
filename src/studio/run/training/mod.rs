//! A training run in the window: the worker behind bounded channels, and all of its reports.

mod events;
mod orders;
mod previous;
mod recordings;
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
pub use crate::studio::run::training::recordings::RunRecordings;
use crate::studio::run::training::shutdown::{Shutdown, drop_in_background};
use crate::studio::view_models::curves::{History, TwoWays};
use crate::studio::view_models::sequences::writing::WritingView;
use crate::train::{Command, KernelChange, Looked, Moment, RunState, SessionSpec, Worker};
use std::collections::VecDeque;
use std::time::Duration;
use std::{path::PathBuf, sync::Arc};

/// The current run, and the state that is kept from one run to the next.
pub struct Training {
    worker: Option<Worker>,
    pub state: Option<RunState>,
    /// The document that is trained.
    pub preset: Option<Arc<Preset>>,
    pub compiled: Option<Arc<Compiled>>,
    /// How its step was recorded.
    pub recording: Option<Recording>,
    pub recordings: RunRecordings,
    /// The time until its first step could run.
    pub ready_times: Option<ReadyTimes>,
    /// The first step with kernels for its sizes, if the run started with kernels for any size and changed over.
    pub changed_kernels_at: Option<u64>,
    /// How far it is with that change.
    pub kernel_change: KernelChange,
    /// The device that it is trained on.
    pub device: Option<DeviceChoice>,
    pub history: History,
    /// Its speed.
    pub rates: Rates,
    pub notes: Vec<String>,
    /// What differs from the checkpoint that it was resumed from, until it is shown.
    resumed: Vec<String>,
    /// Whether the held-out samples may have been trained on before.
    pub maybe_trained: bool,
    pub problem: Option<String>,
    /// The previous run, until this one is prepared.
    previous: Option<Box<PreviousRun>>,
    /// True if the curves are those of the previous run, because this one could not be prepared.
    pub shows_previous: bool,
    /// An error that was not reported elsewhere yet.
    news: Option<String>,
    /// The preset of a run that could not be prepared, and the reason.
    mistakes: Option<(Arc<Preset>, Vec<Diagnostic>)>,
    /// The preset of a run that could not be prepared, and whether the reason no longer applies.
    unprepared: Option<(Arc<Preset>, bool)>,
    /// The last snapshot of everything that survives a step.
    pub snapshot: Option<Arc<Moment>>,
    pub total: u64,
    /// Steps between evaluations, once the run has chosen the interval.
    pub evaluated_every: Option<u64>,
    pub lr: f32,
    smoothing: f32,
    /// Increases with every run.
    pub run: u64,
    pub data: Option<(Arc<Dataset>, Arc<Split>)>,
    /// The newest answer to a query about the network, until it is taken.
    pub query_answer: Option<Box<Looked>>,
    /// The text that it writes, or wrote last.
    pub writing: WritingView,
    /// Steps timed eagerly and replayed, and whether more are being timed.
    pub both_ways: Option<TwoWays>,
    pub is_timing: bool,
    /// Steps made when the weights were last saved.
    saved_at: Option<u64>,
    /// The results of saving weights, oldest first.
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
            recordings: RunRecordings::default(),
            ready_times: None,
            changed_kernels_at: None,
            kernel_change: KernelChange::default(),
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
        self.total = spec.total(None);
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

    /// Ends the run, if there is one, and drops its curves.
    pub fn reset(&mut self) {
        self.drain(Duration::from_millis(20));
        let (smoothing, run, end) = (self.smoothing, self.run + 1, self.end());
        // If no thread can be started, the run is dropped here, and its remaining data are kept.
        drop(std::thread::Builder::new().name("stepgraph-end".into()).spawn(move || end.finish()));
        let writer = std::mem::take(&mut self.writer);
        *self = Self::default();
        self.run = run;
        self.writer = writer;
        self.set_smoothing(smoothing);
    }

    /// Takes the run, in order to end it.
    fn end(&mut self) -> Shutdown {
        let (is_running, done) = (self.is_running(), self.done());
        Shutdown { worker: self.worker.take(), writer: self.writer.take(), is_running, done }
    }

    /// Takes the curves and other results of the run; `None` if it made no step.
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

    /// Shows the previous run again, instead of one that could not be prepared.
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

    /// True if steps were made since the weights were last saved, and the new weights are still available.
    #[must_use]
    pub fn has_unsaved_weights(&self) -> bool {
        let done = self.done();
        self.has_weights() && done > 0 && self.saved_at != Some(done) && !self.writer.is_recording()
    }

    /// Makes the run write its weights; [`Self::take_saved`] reports the result. Returns false if there is no run.
    #[must_use]
    pub fn save_weights(&self, path: PathBuf) -> bool {
        self.worker.as_ref().is_some_and(|w| w.send(Command::SaveWeights(path)))
    }

    /// Makes the run time steps eagerly and replayed; it then continues from its previous state.
    pub fn time_both_ways(&mut self, steps: usize) {
        self.is_timing = self.worker.as_ref().is_some_and(|w| w.send(Command::TimeBothWays(steps)));
    }

    /// Selects a recording for comparison with another one, or deselects it.
    pub fn compare_recording(&mut self, kind: u32) {
        if let Some(kinds) = self.recordings.toggle(kind) {
            self.send(Command::CompareRecordings(kinds));
        }
    }

    /// Queries the current network; returns false if there is no worker to answer.
    #[must_use]
    pub fn query(&self, query: crate::train::Look) -> bool {
        self.worker.as_ref().is_some_and(|w| w.send(Command::Query(query)))
    }

    /// The result of saving weights; returned once: the file, or an error.
    pub fn take_saved(&mut self) -> Option<Result<PathBuf, String>> {
        self.saves.pop_front()
    }

    /// What differs from the checkpoint that the run was resumed from; returned once.
    pub fn take_resumed(&mut self) -> Option<String> {
        let notes = std::mem::take(&mut self.resumed);
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// An error; returned once. The Train tab shows it for longer.
    pub fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// What is wrong with this preset, if a run of it could not be prepared.
    #[must_use]
    pub fn mistakes_of(&self, preset: &Preset) -> &[Diagnostic] {
        self.mistakes.as_ref().filter(|(of, _)| **of == *preset).map_or(&[], |(_, found)| found)
    }

    /// True if the run has a failure or a problem that concerns the user who views `preset`: a failure to prepare a run
    /// does not concern another network.
    #[must_use]
    pub fn failure_applies(&self, preset: &Preset) -> bool {
        let holds = |(of, is_over): &(Arc<Preset>, bool)| !is_over && **of == *preset;
        let has_failed = matches!(self.state, Some(RunState::Failed(_))) && self.unprepared.as_ref().is_none_or(holds);
        has_failed || self.problem.is_some()
    }

    /// The reason why the run could not be prepared no longer applies.
    pub fn end_failure(&mut self) {
        if let (Some(RunState::Failed(_)), Some((_, is_over))) = (&self.state, &mut self.unprepared) {
            (*is_over, self.mistakes) = (true, None);
        }
    }

    #[must_use]
    pub const fn smoothing(&self) -> f32 {
        self.smoothing
    }

    pub fn set_smoothing(&mut self, weight: f32) {
        self.smoothing = weight;
        self.history.curves.set_smoothing(weight);
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        self.drain(Duration::from_millis(20));
        // The program ends: kept data must be on disk before that.
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
