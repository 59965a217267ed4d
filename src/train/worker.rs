//! The thread that trains while a window draws.
//!
//! Commands go in and events come out over bounded channels. The worker never waits for its listener: reports that do not fit into the channel
//! stay with the worker and go with the next event, so that none is lost and none delays a step.

use super::schedule::Schedule;
use super::{BothWays, Evaluation, Look, Looked, Moment, Pace, Session, SessionSpec, Spans, StepReport, TrainError};
use crate::compile::Compiled;
use crate::data::{Dataset, Split};
use crate::exec::Recording;
use crate::model::Diagnostic;
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What a person asks of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Trains on, from the start or from a pause.
    Start,
    /// Stops after the current step and keeps everything.
    Pause,
    /// Makes this many steps, then pauses.
    Step(u64),
    /// Ends the run; its result stays, and it can be started again from there.
    Stop,
    SetLr(f32),
    /// The run's length in steps.
    SetTotal(u64),
    Evaluate,
    /// The network's outputs for these samples of the data set.
    Predict(Vec<u32>),
    /// A question about the network as it is now. While running it is answered when time allows, in place of an older one that still waits.
    Look(Look),
    /// Times this many steps eagerly and as many replayed, and puts everything back.
    TimeBothWays(usize),
    SaveWeights(PathBuf),
    SaveCheckpoint(PathBuf),
    LoadCheckpoint(PathBuf),
    /// A copy of all that the next step depends on.
    TakeMoment,
}

/// Where a run stands.
#[derive(Clone, Debug, PartialEq)]
pub enum RunState {
    /// Data is loaded, the step compiled and recorded.
    Preparing,
    /// Nothing has been trained yet.
    Ready,
    Running,
    Paused,
    /// All steps are made.
    Finished,
    /// Ended by a person.
    Stopped,
    /// Ended by an error, which the text tells.
    Failed(String),
}

/// What a run tells.
#[derive(Clone, Debug)]
pub enum Event {
    State(RunState),
    /// The run is ready: its step, its data, its length.
    Prepared {
        compiled: Arc<Compiled>,
        recording: Recording,
        data: Option<(Arc<Dataset>, Arc<Split>)>,
        total: u64,
        notes: Vec<String>,
        /// What differs from the checkpoint that the run was resumed from.
        resumed: Vec<String>,
        /// Whether what is held out may have been trained on before.
        maybe_trained: bool,
        /// The learning rate of the first step.
        lr: f32,
    },
    /// Steps made since the last report, in order.
    Steps(Vec<StepReport>),
    /// The largest change of each trained parameter in step `step`, and its extremes since the last time they were told, in stretches of steps.
    LayerUpdates {
        step: u64,
        values: Vec<f32>,
        spans: Vec<Spans>,
    },
    Evaluated {
        step: u64,
        result: Evaluation,
    },
    /// Steps between evaluations, chosen once.
    EvaluatedEvery(u64),
    Predicted {
        step: u64,
        indices: Vec<u32>,
        outputs: Vec<f32>,
    },
    Looked(Box<Looked>),
    TimedBothWays(BothWays),
    Saved(PathBuf),
    /// Weights or a checkpoint that could not be written, and why.
    NotSaved(PathBuf, String),
    /// What is wrong with the preset of a run that cannot be prepared; may be nothing.
    Mistakes(Vec<Diagnostic>),
    /// A copy of all that the next step depends on; comes unasked before a run fails at that step.
    Moment(Arc<Moment>),
    /// A command that failed; the run goes on.
    Problem(String),
}

/// Events that may wait for the listener.
const EVENT_BOUND: usize = 256;
/// Commands that may wait for the worker.
const COMMAND_BOUND: usize = 64;
/// Time between reports.
const REPORT_EVERY: Duration = Duration::from_millis(16);
/// Time between looks at what is asked.
const LOOK_UP_EVERY: Duration = Duration::from_millis(8);

/// A run on its own thread. Dropping it stops the run.
pub struct Worker {
    commands: Option<Sender<Command>>,
    events: Receiver<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts preparing a run. `wake` is called whenever there is an event to fetch; it must be quick and may be called from the worker's thread.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn spawn(spec: SessionSpec, wake: impl Fn() + Send + 'static) -> Result<Self, TrainError> {
        let (commands, inbox) = bounded(COMMAND_BOUND);
        let (outbox, events) = bounded(EVENT_BOUND);
        let link = Link {
            inbox,
            outbox,
            wake: Box::new(wake),
            reports: Vec::new(),
            moved: Instant::now(),
            question: None,
            pace: Pace::default(),
            backlog: Vec::new(),
            sent: Instant::now(),
        };
        let thread = Builder::new()
            .name("stepgraph-train".into())
            .spawn(move || run(&spec, link))
            .map_err(TrainError::Thread)?;
        Ok(Self { commands: Some(commands), events, thread: Some(thread) })
    }

    /// Sends a command; false where the worker has ended or is drowning in commands.
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
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Closing the channel is the order to end; what the worker still tells is thrown away so that it cannot wait.
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Link {
    inbox: Receiver<Command>,
    outbox: Sender<Event>,
    wake: Box<dyn Fn() + Send>,
    reports: Vec<StepReport>,
    /// When changes of the parameters were last told.
    moved: Instant,
    /// The question that waits for an answer.
    question: Option<Look>,
    pace: Pace,
    /// Events that found the channel full, oldest first.
    backlog: Vec<Event>,
    sent: Instant,
}

impl Link {
    fn tell(&mut self, event: Event) {
        self.backlog.push(event);
        self.push_out();
    }

    fn push_out(&mut self) {
        let mut told = false;
        while !self.backlog.is_empty() {
            match self.outbox.try_send(self.backlog.remove(0)) {
                Ok(()) => told = true,
                Err(TrySendError::Full(event)) => {
                    self.backlog.insert(0, event);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => self.backlog.clear(),
            }
        }
        if told {
            (self.wake)();
        }
    }

    /// Sends the collected reports where it is time, or at once. They stay together while the channel is full.
    fn report(&mut self, now: bool) {
        if self.reports.is_empty() || !(now || self.sent.elapsed() >= REPORT_EVERY) {
            return;
        }
        if self.outbox.is_full() && !now {
            return;
        }
        self.sent = Instant::now();
        let reports = std::mem::take(&mut self.reports);
        self.tell(Event::Steps(reports));
    }
}

fn run(spec: &SessionSpec, mut link: Link) {
    link.tell(Event::State(RunState::Preparing));
    match Session::prepare(spec) {
        Err(error) => {
            link.tell(Event::Mistakes(error.mistakes(&spec.preset)));
            link.tell(Event::State(RunState::Failed(error.to_string())));
        }
        Ok(mut session) => {
            session.collect_updates();
            let data = session.dataset().map(|(d, s)| (Arc::clone(d), Arc::clone(s)));
            let (compiled, total, notes) = (Arc::clone(session.compiled()), session.total(), session.notes().to_vec());
            let resumed = session.resumed().map(|r| r.notes.clone()).unwrap_or_default();
            let lr = session.lr().unwrap_or(f32::NAN);
            let (recording, maybe_trained) = (session.recording(), session.is_maybe_trained());
            link.tell(Event::Prepared { compiled, recording, data, total, notes, resumed, maybe_trained, lr });
            link.tell(Event::State(RunState::Ready));
            serve(&mut session, spec, &mut link);
        }
    }
    while !link.backlog.is_empty()
        && !link.outbox.is_empty()
        && link.inbox.try_recv() != Err(TryRecvError::Disconnected)
    {
        std::thread::sleep(REPORT_EVERY);
        link.push_out();
    }
}

/// Steps left before the next pause: none while paused, all while running.
fn serve(session: &mut Session, spec: &SessionSpec, link: &mut Link) {
    let mut budget = 0u64;
    let mut schedule = Schedule::default();
    loop {
        look(session, link, budget == 0);
        let command = if budget == 0 {
            match link.inbox.recv_timeout(Duration::from_millis(50)) {
                Ok(command) => Some(command),
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                    link.push_out();
                    continue;
                }
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match link.inbox.try_recv() {
                Ok(command) => Some(command),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return,
            }
        };
        if let Some(command) = command {
            obey(session, spec, link, command, &mut budget);
            continue;
        }
        // Between steps that are launched one by one there is time to look at each layer's update.
        let most = if session.streams() { budget.min(schedule.room(session.done())) } else { 1 };
        let began = Instant::now();
        let made = session.steps(most, LOOK_UP_EVERY, |report| link.reports.push(*report));
        match made {
            Ok(0) => {
                budget = 0;
                link.report(true);
                link.tell(Event::State(RunState::Finished));
            }
            Ok(made) => {
                budget -= made;
                schedule.made(made, began.elapsed());
                let over = session.done() >= session.total();
                layer_updates(session, link, budget == 0 || over);
                link.report(budget == 0 || over);
                choose_interval(session, link, &mut schedule);
                if over || schedule.is_due(session.done()) {
                    evaluate(session, link);
                }
                budget = if over { 0 } else { budget };
                if budget == 0 {
                    link.tell(Event::State(if over { RunState::Finished } else { RunState::Paused }));
                }
            }
            Err(error) => {
                budget = 0;
                link.report(true);
                // The session stands before the step that failed: whoever looks into it makes the same step again.
                tell_moment(session, link);
                link.tell(Event::State(RunState::Failed(error.to_string())));
            }
        }
    }
}

/// Writes weights or a checkpoint, and tells what came of it.
fn save(
    session: &Session,
    link: &mut Link,
    path: PathBuf,
    write: impl FnOnce(&Session, &Path) -> Result<(), TrainError>,
) {
    // The steps come first: whoever hears of the file knows which step it holds.
    link.report(true);
    link.tell(match write(session, &path) {
        Ok(()) => Event::Saved(path),
        Err(error) => Event::NotSaved(path, error.to_string()),
    });
}

/// Tells how far each layer moved, where it is time; while the listener lags behind, only before a rest, which nothing follows.
fn layer_updates(session: &mut Session, link: &mut Link, rests: bool) {
    if !rests && (link.moved.elapsed() < REPORT_EVERY || link.outbox.is_full()) {
        return;
    }
    link.moved = Instant::now();
    let (step, spans) = (session.done(), session.take_updates());
    if let (Ok(values), false) = (session.layer_updates(), spans.is_empty()) {
        let values = values.to_vec();
        link.tell(Event::LayerUpdates { step, values, spans });
    }
}

/// Answers the question that waits, where there is one: at once where the run rests, otherwise when it has not been asked much of late.
fn look(session: &mut Session, link: &mut Link, rests: bool) {
    if link.question.is_none() {
        return;
    }
    let started = Instant::now();
    if !rests && (link.outbox.is_full() || !link.pace.allows(started)) {
        return;
    }
    let Some(question) = link.question.take() else { return };
    // The steps come first: whoever hears the answer knows the step that it belongs to.
    link.report(true);
    match session.look(question) {
        Ok(looked) => link.tell(Event::Looked(Box::new(looked))),
        Err(error) => link.tell(Event::Problem(error.to_string())),
    }
    let ended = Instant::now();
    link.pace.spent(ended, ended - started);
}

/// The longest that both ways are timed for.
const TIME_LIMIT: Duration = Duration::from_secs(4);

fn time_both_ways(session: &mut Session, link: &mut Link, steps: usize) {
    link.report(true);
    match session.time_both_ways(steps, TIME_LIMIT) {
        Ok(times) => link.tell(Event::TimedBothWays(times)),
        Err(error) => link.tell(Event::Problem(error.to_string())),
    }
}

fn tell_moment(session: &mut Session, link: &mut Link) {
    match session.moment() {
        Ok(moment) => link.tell(Event::Moment(Arc::new(moment))),
        Err(error) => link.tell(Event::Problem(error.to_string())),
    }
}

/// Chooses how often the run is evaluated, once its steps were timed.
fn choose_interval(session: &mut Session, link: &mut Link, schedule: &mut Schedule) {
    if !schedule.wants_cost() {
        return;
    }
    let began = Instant::now();
    let found = session.evaluate();
    let every = schedule.choose(began.elapsed(), session.total());
    if matches!(found, Ok(Some(_))) {
        link.tell(Event::EvaluatedEvery(every));
    }
}

fn evaluate(session: &mut Session, link: &mut Link) {
    // The steps come first: whoever hears of an evaluation knows the step it belongs to.
    link.report(true);
    match session.evaluate() {
        Ok(Some(result)) => link.tell(Event::Evaluated { step: session.done(), result }),
        Ok(None) => {}
        Err(error) => link.tell(Event::Problem(error.to_string())),
    }
}

/// Carries out one command.
fn obey(session: &mut Session, spec: &SessionSpec, link: &mut Link, command: Command, budget: &mut u64) {
    let outcome = match command {
        Command::Start | Command::Step(_) if session.done() >= session.total() => {
            link.tell(Event::State(RunState::Finished));
            Ok(())
        }
        Command::Start => {
            *budget = u64::MAX;
            link.tell(Event::State(RunState::Running));
            Ok(())
        }
        Command::Step(count) => {
            *budget = count;
            Ok(())
        }
        Command::Pause => {
            *budget = 0;
            layer_updates(session, link, true);
            link.report(true);
            link.tell(Event::State(RunState::Paused));
            Ok(())
        }
        Command::Stop => {
            *budget = 0;
            layer_updates(session, link, true);
            link.report(true);
            evaluate(session, link);
            link.tell(Event::State(RunState::Stopped));
            Ok(())
        }
        Command::SetLr(lr) => session.set_lr(lr),
        Command::SetTotal(steps) => {
            session.set_total(steps);
            Ok(())
        }
        Command::Evaluate => {
            evaluate(session, link);
            Ok(())
        }
        Command::Predict(indices) => session.predict(&indices).map(|outputs| {
            let step = session.done();
            link.tell(Event::Predicted { step, indices, outputs });
        }),
        Command::Look(question) => {
            link.question = Some(question);
            Ok(())
        }
        Command::TimeBothWays(steps) => {
            time_both_ways(session, link, steps);
            Ok(())
        }
        Command::SaveWeights(path) => {
            save(session, link, path, Session::save_weights);
            Ok(())
        }
        Command::SaveCheckpoint(path) => {
            save(session, link, path, |session, path| session.save_checkpoint(path, &spec.preset));
            Ok(())
        }
        Command::TakeMoment => {
            tell_moment(session, link);
            Ok(())
        }
        Command::LoadCheckpoint(path) => session.load_checkpoint(&path).map(|()| {
            *budget = 0;
            link.tell(Event::State(RunState::Paused));
        }),
    };
    if let Err(error) = outcome {
        link.tell(Event::Problem(error.to_string()));
    }
}
