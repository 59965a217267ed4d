//! A training run as the window sees it: the worker behind bounded channels, and everything it told, kept whole.

use super::widgets::series::Smoothed;
use crate::compile::Compiled;
use crate::model::Preset;
use crate::train::{Command, Event, RunState, SessionSpec, StepReport, Worker};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The curves of a run.
#[derive(Debug)]
pub struct History {
    pub loss: Smoothed,
    pub accuracy: Smoothed,
    /// Time of the step on the host, in microseconds.
    pub step_us: Smoothed,
    /// The largest change of any parameter.
    pub update_max: Smoothed,
    /// Held-out loss and accuracy by step.
    pub held_out_loss: Vec<[f64; 2]>,
    pub held_out_accuracy: Vec<[f64; 2]>,
    /// The largest change of each trained parameter in one recent step.
    pub layer_updates: Vec<f32>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            loss: Smoothed::default(),
            accuracy: Smoothed::default(),
            step_us: Smoothed::geometric(),
            update_max: Smoothed::default(),
            held_out_loss: Vec::new(),
            held_out_accuracy: Vec::new(),
            layer_updates: Vec::new(),
        }
    }
}

/// Steps over which medians are taken.
const RECENT: usize = 4096;
/// Time over which rates are taken.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Rates and times of the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    pub steps_per_s: f64,
    pub median_us: f32,
    pub p99_us: f32,
}

/// What the transport allows now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    pub train: bool,
    pub pause: bool,
    pub step: bool,
    pub stop: bool,
    pub reset: bool,
}

/// What pressing Train does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Begins the first run, or goes on after a pause.
    Train,
    /// Makes the finished run longer by this many steps.
    TrainOn(u64),
    /// Begins another run from new weights; the curves of the last one go.
    TrainAnew,
}

impl Next {
    /// The button's name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Train => "Train",
            Self::TrainOn(_) => "Train on",
            Self::TrainAnew => "Train anew",
        }
    }
}

/// One run after another.
pub struct Training {
    worker: Option<Worker>,
    pub state: Option<RunState>,
    /// The document that is trained.
    pub preset: Option<Arc<Preset>>,
    pub compiled: Option<Arc<Compiled>>,
    pub history: History,
    pub statistics: Statistics,
    pub notes: Vec<String>,
    pub problem: Option<String>,
    pub total: u64,
    pub lr: f32,
    smoothing: f32,
    /// Steps and the time at which they were known, over the last second.
    arrivals: Vec<(Instant, u64)>,
    measured: Option<Instant>,
}

impl Default for Training {
    fn default() -> Self {
        Self {
            worker: None,
            state: None,
            preset: None,
            compiled: None,
            history: History::default(),
            statistics: Statistics::default(),
            notes: Vec::new(),
            problem: None,
            total: 0,
            lr: 0.0,
            smoothing: 0.95,
            arrivals: Vec::new(),
            measured: None,
        }
    }
}

/// Drops a worker on a thread of its own: its last step may take a while, and a window does not wait.
fn let_go(worker: Option<Worker>) {
    if let Some(worker) = worker {
        // Where no thread is to be had, the closure is dropped here, and the worker with it.
        drop(std::thread::Builder::new().name("stepgraph-end".into()).spawn(move || drop(worker)));
    }
}

impl Training {
    /// Prepares a run and sends it a first command.
    pub fn start(&mut self, spec: SessionSpec, first: Command, wake: impl Fn() + Send + 'static) {
        self.reset();
        let preset = &spec.preset;
        self.lr = preset.optimizer.lr() as f32;
        self.total = preset.train.map_or(1000, |t| t.steps as u64);
        self.preset = Some(Arc::new(preset.clone()));
        self.state = Some(RunState::Preparing);
        match Worker::spawn(spec, wake) {
            Ok(worker) => {
                self.worker = Some(worker);
                self.send(first);
            }
            Err(error) => self.state = Some(RunState::Failed(error.to_string())),
        }
    }

    /// Ends the run, if there is one, and forgets its curves.
    pub fn reset(&mut self) {
        let_go(self.worker.take());
        let smoothing = self.smoothing;
        *self = Self::default();
        self.set_smoothing(smoothing);
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

    /// What pressing Train would do; `stale` tells that the document is no longer the one that was trained.
    #[must_use]
    pub fn next(&self, stale: bool) -> Next {
        match (&self.state, &self.preset) {
            (Some(RunState::Finished), Some(preset)) if self.worker.is_some() && !stale => {
                Next::TrainOn(preset.train.map_or(1000, |t| t.steps as u64))
            }
            (Some(RunState::Finished | RunState::Stopped | RunState::Failed(_)), _) => Next::TrainAnew,
            _ => Next::Train,
        }
    }

    /// Makes a finished run longer, and has it go on.
    pub fn extend(&mut self, steps: u64, order: Command) {
        self.total += steps;
        self.send(Command::SetTotal(self.total));
        self.send(order);
    }

    /// True where the run obeys: while it can go on, and after its last step, because it may be made longer.
    #[must_use]
    pub fn obeys(&self) -> bool {
        self.is_alive() || (self.worker.is_some() && matches!(self.state, Some(RunState::Finished)))
    }

    /// True while there is a run that can go on.
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

    /// What may be pressed; `ready` tells whether the document could be trained.
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

    /// Takes in what the worker told, for at most `budget`; true where something is left.
    pub fn drain(&mut self, budget: Duration) -> bool {
        let started = Instant::now();
        while let Some(event) = self.worker.as_ref().and_then(Worker::try_event) {
            self.take(event);
            if started.elapsed() > budget {
                return true;
            }
        }
        self.measure();
        false
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::State(state) => {
                let over = matches!(state, RunState::Stopped | RunState::Failed(_));
                // A run that was ended or has failed answers no more commands of use; its results stay. A finished one may be made longer.
                if over {
                    let_go(self.worker.take());
                }
                self.state = Some(state);
            }
            Event::Prepared { compiled, total, notes, .. } => {
                self.compiled = Some(compiled);
                self.total = total;
                self.notes = notes;
            }
            Event::Steps(reports) => self.steps(&reports),
            Event::LayerUpdates { values, .. } => self.history.layer_updates = values,
            Event::Evaluated { step, result } => {
                self.history.held_out_loss.push([step as f64, result.loss]);
                self.history.held_out_accuracy.extend(result.accuracy.map(|a| [step as f64, a]));
            }
            Event::Problem(text) => self.problem = Some(text),
            // Nothing here asks for predictions or files yet.
            Event::Predicted { .. } | Event::Saved(_) => {}
        }
    }

    /// Takes in reports of steps.
    pub fn steps(&mut self, reports: &[StepReport]) {
        let h = &mut self.history;
        for r in reports {
            h.loss.push(r.loss);
            h.accuracy.push(r.accuracy);
            h.step_us.push(r.step_us);
            h.update_max.push(r.update_max);
        }
        let now = Instant::now();
        self.arrivals.push((now, self.done()));
        self.arrivals.retain(|(t, _)| now - *t <= RATE_WINDOW);
    }

    fn measure(&mut self) {
        const EVERY: Duration = Duration::from_millis(250);
        if self.measured.is_some_and(|t| t.elapsed() < EVERY) {
            return;
        }
        self.measured = Some(Instant::now());
        if let (Some((t0, n0)), Some((t1, n1))) = (self.arrivals.first(), self.arrivals.last())
            && t1 > t0
        {
            self.statistics.steps_per_s = (n1 - n0) as f64 / (*t1 - *t0).as_secs_f64();
        }
        let values = self.history.step_us.raw.values();
        let mut recent = values[values.len().saturating_sub(RECENT)..].to_vec();
        if !recent.is_empty() {
            recent.sort_by(f32::total_cmp);
            self.statistics.median_us = recent[recent.len() / 2];
            self.statistics.p99_us = recent[(recent.len() * 99 / 100).min(recent.len() - 1)];
        }
    }
}

impl Drop for Training {
    fn drop(&mut self) {
        let_go(self.worker.take());
    }
}
