//! The thread that trains while a window draws.
//!
//! Commands go in and events come out over bounded channels. The worker never waits for its listener while it trains:
//! reports that do not fit into the channel stay with the worker and are sent with the next event, so that none is lost
//! and none delays a step. At the end it waits until the listener has received the last events.

use super::kernels_ahead::KernelsAhead;
use super::pen::Pen;
use super::schedule::Schedule;
use super::{
    Command, Event, KernelChange, Pace, Query, RunArtefacts, RunKey, RunState, Session, SessionSpec, StepReport,
    TrainError,
};
use crate::model::Preset;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Events that may wait for the listener.
const EVENT_BOUND: usize = 256;
/// Commands that may wait for the worker.
const COMMAND_BOUND: usize = 64;
/// Time between reports.
const REPORT_EVERY: Duration = Duration::from_millis(16);
/// Time between reports of the recordings.
const RECORDINGS_EVERY: Duration = Duration::from_millis(500);
/// Time between checks for commands.
const CHECK_EVERY: Duration = Duration::from_millis(8);

/// A run on its own thread. Dropping it stops the run.
pub struct Worker {
    commands: Option<Sender<Command>>,
    events: Receiver<Event>,
    artefacts: Arc<OnceLock<(RunKey, RunArtefacts)>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts preparing a run. `wake` is called whenever there is an event to fetch; it must be quick and may be called
    /// on the worker's thread.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn(spec: SessionSpec, wake: impl Fn() + Send + 'static) -> Result<Self, TrainError> {
        let (commands, inbox) = bounded(COMMAND_BOUND);
        let (outbox, events) = bounded(EVENT_BOUND);
        let artefacts = Arc::new(OnceLock::new());
        let link = Link {
            inbox,
            outbox,
            artefacts: Arc::clone(&artefacts),
            wake: Box::new(wake),
            reports: Vec::new(),
            updates_sent: Instant::now(),
            recordings_sent: Instant::now(),
            query: None,
            pace: Pace::default(),
            backlog: Vec::new(),
            reports_sent: Instant::now(),
        };
        let thread = Builder::new()
            .name("stepgraph-train".into())
            .spawn(move || run(&spec, link))
            .map_err(TrainError::Thread)?;
        Ok(Self { commands: Some(commands), events, artefacts, thread: Some(thread) })
    }

    /// Sends a command; returns false if the worker has ended or too many commands wait.
    #[must_use]
    pub fn send(&self, command: Command) -> bool {
        self.commands.as_ref().is_some_and(|c| c.try_send(command).is_ok())
    }

    /// The next event, if there is one; never waits.
    #[must_use]
    pub fn try_event(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The next event; waits at most this long.
    #[must_use]
    pub fn wait_event(&self, timeout: Duration) -> Option<Event> {
        self.events.recv_timeout(timeout).ok()
    }

    /// The compiled step and the data of a run that was reported as prepared under this key.
    #[must_use]
    pub fn artefacts(&self, run: RunKey) -> Option<RunArtefacts> {
        self.artefacts.get().filter(|(key, _)| *key == run).map(|(_, artefacts)| artefacts.clone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closing the channel makes the worker end; its remaining events are discarded so that it cannot wait.
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The worker's side of the channels.
struct Link {
    inbox: Receiver<Command>,
    outbox: Sender<Event>,
    artefacts: Arc<OnceLock<(RunKey, RunArtefacts)>>,
    wake: Box<dyn Fn() + Send>,
    /// Reports of steps that were not sent yet.
    reports: Vec<StepReport>,
    reports_sent: Instant,
    /// When changes of the parameters were last sent.
    updates_sent: Instant,
    /// When the recordings were last sent.
    recordings_sent: Instant,
    /// The query that is waiting for an answer.
    query: Option<Query>,
    pace: Pace,
    /// Events that did not fit into the channel, oldest first.
    backlog: Vec<Event>,
}

impl Link {
    fn send(&mut self, event: Event) {
        self.backlog.push(event);
        self.push_out();
    }

    /// Sends an event, or an error as a problem instead.
    fn send_outcome(&mut self, outcome: Result<Event, TrainError>) {
        self.send(outcome.unwrap_or_else(|error| Event::Problem(error.to_string())));
    }

    fn push_out(&mut self) {
        let mut any = false;
        while !self.backlog.is_empty() {
            match self.outbox.try_send(self.backlog.remove(0)) {
                Ok(()) => any = true,
                Err(TrySendError::Full(event)) => {
                    self.backlog.insert(0, event);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => self.backlog.clear(),
            }
        }
        if any {
            (self.wake)();
        }
    }

    /// Sends the collected reports if it is time, or immediately. They stay together while the channel is full.
    fn send_reports(&mut self, now: bool) {
        if self.reports.is_empty() || !(now || self.reports_sent.elapsed() >= REPORT_EVERY) {
            return;
        }
        if self.outbox.is_full() && !now {
            return;
        }
        self.reports_sent = Instant::now();
        let reports = std::mem::take(&mut self.reports);
        self.send(Event::Steps(reports));
    }

    /// Waits until the listener has received all events, or was dropped.
    fn drain(&mut self) {
        while !self.backlog.is_empty()
            && !self.outbox.is_empty()
            && self.inbox.try_recv() != Err(TryRecvError::Disconnected)
        {
            std::thread::sleep(REPORT_EVERY);
            self.push_out();
        }
    }
}

fn run(spec: &SessionSpec, mut link: Link) {
    link.send(Event::State(RunState::Preparing));
    match Session::prepare(spec) {
        Err(error) => {
            link.send(Event::Mistakes(error.mistakes(&spec.preset)));
            link.send(Event::State(RunState::Failed(error.to_string())));
            link.drain();
        }
        Ok(mut session) => {
            session.collect_updates();
            let prepared = prepared(&session, &link.artefacts);
            link.send(prepared);
            link.send(Event::Recordings(Box::new(session.recordings_seen())));
            link.send(Event::State(RunState::Ready));
            let _ahead = KernelsAhead::start(&spec.preset, spec.machine.as_ref());
            let (schedule, pen) = Default::default();
            let kernels = KernelChange::default();
            let mut service = RunService { session, preset: &spec.preset, link, budget: 0, schedule, pen, kernels };
            service.serve();
            service.link.drain();
        }
    }
}

/// Shares what a window in this process shows of a prepared run, and describes the run.
fn prepared(session: &Session, artefacts: &OnceLock<(RunKey, RunArtefacts)>) -> Event {
    let run = RunKey::new(session.plan_key());
    let data = session.dataset().map(|(set, split)| (Arc::clone(set), Arc::clone(split)));
    let shared = RunArtefacts { compiled: Arc::clone(session.compiled()), plans: session.recording_plans(), data };
    // A worker prepares one run.
    let _ = artefacts.set((run, shared));
    Event::Prepared {
        run,
        recording: session.recording(),
        ready_times: session.ready_times().clone(),
        total: session.total(),
        notes: session.notes().to_vec(),
        resumed: session.resumed().map(|r| r.notes.clone()).unwrap_or_default(),
        maybe_trained: session.is_maybe_trained(),
        lr: session.lr().unwrap_or(f32::NAN),
    }
}

/// The longest time for timing both ways.
const TIME_LIMIT: Duration = Duration::from_secs(4);

/// A prepared run with its commands.
struct RunService<'a> {
    session: Session,
    preset: &'a Preset,
    link: Link,
    /// Steps left before the next pause: 0 while paused, the largest number while running.
    budget: u64,
    schedule: Schedule,
    pen: Pen,
    /// What was last reported of the change of kernels.
    kernels: KernelChange,
}

impl RunService<'_> {
    /// Runs steps and executes commands until the listener is dropped.
    fn serve(&mut self) {
        loop {
            self.answer();
            self.write();
            self.send_kernel_change();
            let command = if self.budget == 0 {
                let wait = if self.pen.is_writing() { Duration::ZERO } else { Duration::from_millis(50) };
                match self.link.inbox.recv_timeout(wait) {
                    Ok(command) => Some(command),
                    Err(RecvTimeoutError::Timeout) => {
                        self.link.push_out();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match self.link.inbox.try_recv() {
                    Ok(command) => Some(command),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return,
                }
            };
            match command {
                Some(command) => {
                    if let Err(error) = self.obey(command) {
                        self.link.send(Event::Problem(error.to_string()));
                    }
                }
                None => self.make_steps(),
            }
        }
    }

    /// Makes steps for a short time.
    fn make_steps(&mut self) {
        let Self { session, link, budget, schedule, .. } = self;
        // Between steps that are launched one by one there is time to read each layer's update.
        let most = if session.streams() { (*budget).min(schedule.room(session.done())) } else { 1 };
        let began = Instant::now();
        let made = session.steps(most, CHECK_EVERY, |report| link.reports.push(*report));
        match made {
            Ok(0) => {
                self.budget = 0;
                self.link.send_reports(true);
                self.send_state(RunState::Finished);
            }
            Ok(made) => {
                self.budget -= made;
                self.schedule.made(made, began.elapsed());
                self.after_steps();
            }
            Err(error) => {
                self.budget = 0;
                self.link.send_reports(true);
                // The session is in its state before the step that failed: a private copy of the snapshot makes the
                // same step again.
                self.send_snapshot();
                self.send_state(RunState::Failed(error.to_string()));
            }
        }
    }

    /// Reports steps that were made, and evaluates if it is time.
    fn after_steps(&mut self) {
        let over = self.session.done() >= self.session.total();
        let is_idle = self.budget == 0 || over;
        self.send_layer_updates(is_idle);
        self.link.send_reports(is_idle);
        self.send_recordings(is_idle);
        self.choose_interval();
        if over || self.schedule.is_due(self.session.done()) {
            self.evaluate();
        }
        if over {
            self.budget = 0;
        }
        if is_idle {
            self.send_state(if over { RunState::Finished } else { RunState::Paused });
        }
    }

    fn send_kernel_change(&mut self) {
        let now = self.session.kernel_change();
        if now != std::mem::replace(&mut self.kernels, now) {
            self.link.send(Event::Kernels(now));
        }
    }

    fn send_state(&mut self, state: RunState) {
        self.link.send(Event::State(state));
    }

    /// Performs one command.
    fn obey(&mut self, command: Command) -> Result<(), TrainError> {
        match command {
            Command::Start | Command::Step(_) if self.session.done() >= self.session.total() => {
                self.send_state(RunState::Finished);
            }
            Command::Start => {
                self.budget = u64::MAX;
                self.send_state(RunState::Running);
            }
            Command::Step(count) => self.budget = count,
            Command::Pause => {
                self.rest();
                self.send_state(RunState::Paused);
            }
            Command::Stop => {
                self.rest();
                self.evaluate();
                self.send_state(RunState::Stopped);
            }
            Command::SetLr(lr) => self.session.set_lr(lr)?,
            Command::SetTotal(steps) => self.session.set_total(steps)?,
            Command::Evaluate => self.evaluate(),
            Command::Predict(indices) => {
                let outputs = self.session.predict(&indices)?;
                self.link.send(Event::Predicted { step: self.session.done(), indices, outputs });
            }
            Command::CompareRecordings(kinds) => {
                let difference = self.session.recordings_compared(kinds);
                self.link.send_outcome(difference.map(|found| Event::RecordingsCompared(kinds, Box::new(found))));
            }
            Command::Query(query) => self.link.query = Some(query),
            Command::Write(asked) => {
                let begun = self.pen.begin(&mut self.session, &asked);
                self.link.send(Event::Writing(begun));
            }
            Command::StopWriting => {
                let events = self.pen.stop(&self.session);
                events.into_iter().for_each(|event| self.link.send(Event::Writing(event)));
            }
            Command::TimeBothWays(steps) => {
                self.link.send_reports(true);
                let times = self.session.time_both_ways(steps, TIME_LIMIT);
                self.link.send_outcome(times.map(Event::TimedBothWays));
            }
            Command::SaveWeights(path) => self.save(path, |session, _, path| session.save_weights(path)),
            Command::SaveCheckpoint(path) => {
                self.save(path, |session, preset, path| session.save_checkpoint(path, preset));
            }
            Command::TakeSnapshot => self.send_snapshot(),
            Command::LoadCheckpoint(path) => {
                self.session.load_checkpoint(&path)?;
                self.budget = 0;
                self.send_state(RunState::Paused);
            }
        }
        Ok(())
    }

    /// Makes no more steps, and sends the reports that were not sent yet.
    fn rest(&mut self) {
        self.budget = 0;
        self.send_layer_updates(true);
        self.link.send_reports(true);
    }

    /// Writes weights or a checkpoint, and reports the outcome.
    fn save(&mut self, path: PathBuf, write: impl FnOnce(&Session, &Preset, &Path) -> Result<(), TrainError>) {
        // The steps are sent first, so that a listener that gets the file's name knows which step it contains.
        self.link.send_reports(true);
        self.link.send(match write(&self.session, self.preset, &path) {
            Ok(()) => Event::Saved(path),
            Err(error) => Event::NotSaved(path, error.to_string()),
        });
    }

    /// Reports how far each layer moved, if it is time; while the listener is slow, only before a pause, after which
    /// nothing follows.
    fn send_layer_updates(&mut self, is_idle: bool) {
        let (session, link) = (&mut self.session, &mut self.link);
        if !is_idle && (link.updates_sent.elapsed() < REPORT_EVERY || link.outbox.is_full()) {
            return;
        }
        link.updates_sent = Instant::now();
        let (step, spans) = (session.done(), session.take_updates());
        if let (Ok(values), false) = (session.layer_updates(), spans.is_empty()) {
            let values = values.to_vec();
            link.send(Event::LayerUpdates { step, values, spans });
        }
    }

    /// Reports the recordings, if it is time; while the listener is slow, only before a pause.
    fn send_recordings(&mut self, is_idle: bool) {
        let (session, link) = (&self.session, &mut self.link);
        if !is_idle && (link.recordings_sent.elapsed() < RECORDINGS_EVERY || link.outbox.is_full()) {
            return;
        }
        link.recordings_sent = Instant::now();
        link.send(Event::Recordings(Box::new(session.recordings_seen())));
    }

    /// Answers the waiting query, if there is one: immediately while the run is paused, otherwise only if queries have
    /// taken little time recently.
    fn answer(&mut self) {
        let link = &mut self.link;
        if link.query.is_none() {
            return;
        }
        let started = Instant::now();
        if self.budget > 0 && (link.outbox.is_full() || !link.pace.allows(started)) {
            return;
        }
        let Some(query) = link.query.take() else { return };
        // The steps are sent first, so that a listener that gets the answer knows the step that it belongs to.
        link.send_reports(true);
        let result = self.session.query(query);
        link.send_outcome(result.map(|result| Event::QueryResult(Box::new(result))));
        let ended = Instant::now();
        link.pace.spent(ended, ended - started);
    }

    /// Continues the requested text, if there is one and the listener is fast enough.
    fn write(&mut self) {
        if !self.pen.is_writing() || self.link.outbox.is_full() {
            return;
        }
        for event in self.pen.write(&mut self.session, self.budget > 0) {
            self.link.send(Event::Writing(event));
        }
    }

    fn send_snapshot(&mut self) {
        let snapshot = self.session.snapshot();
        self.link.send_outcome(snapshot.map(|snapshot| Event::Snapshot(Box::new(snapshot))));
    }

    /// Chooses how often the run is evaluated, once its steps were timed.
    fn choose_interval(&mut self) {
        if !self.schedule.wants_cost() {
            return;
        }
        let began = Instant::now();
        let found = self.session.evaluate();
        let every = self.schedule.choose(began.elapsed(), self.session.total());
        if matches!(found, Ok(Some(_))) {
            self.link.send(Event::EvaluatedEvery(every));
        }
    }

    fn evaluate(&mut self) {
        // The steps are sent first, so that a listener that gets an evaluation knows the step that it belongs to.
        self.link.send_reports(true);
        if let Some(outcome) = self.session.evaluate().transpose() {
            let step = self.session.done();
            self.link.send_outcome(outcome.map(|result| Event::Evaluated { step, result }));
        }
    }
}
