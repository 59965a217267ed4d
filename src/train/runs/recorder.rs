//! Writes a run while it trains, on a separate thread.
//!
//! The caller that passes steps never waits: data that do not fit into the channel are kept by the caller and sent with
//! the next call. The thread writes several times a second, so that a program that is killed loses at most that much of
//! the curve.

use super::curve::EvaluationPoint;
use super::run_writer::{Message, RunWriter, failed, next_checkpoint};
use super::{LayerCurves, PlanDigest, ResumePoint, RunEnd, RunRecord, RunStore, RunsError};
use crate::compile::Compiled;
use crate::train::{Evaluation, Spans, StepReport};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Messages that may wait for the thread.
const BOUND: usize = 64;

/// Time until the first checkpoint of a run that continues, and the limits of the time between the next ones.
pub const FIRST_SAVE: Duration = Duration::from_secs(3);
pub const SAVE_EVERY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
/// Writing checkpoints takes at most one part in this many of a run's time.
pub const SAVE_SHARE: u32 = 30;

/// A run that is being written. When it is dropped, the remaining data are written, without waiting for that.
pub struct Recorder {
    /// Known once the run's folder exists.
    id: Arc<OnceLock<String>>,
    store: RunStore,
    outbox: Option<Sender<Message>>,
    taken: Arc<AtomicU64>,
    backlog: Vec<Message>,
    thread: Option<JoinHandle<Result<(), String>>>,
    /// Running time until the last pause, and the time at which the run continued.
    ran_ms: f64,
    since: Option<Instant>,
}

impl Recorder {
    /// Makes the run's folder and starts the thread. The recorder sets the record's state and closing metrics; `layers`
    /// are those of the network, empty.
    ///
    /// # Errors
    /// If nothing can be written there, or the system refuses to start a thread.
    pub fn begin(
        store: &RunStore,
        record: RunRecord,
        plan: &PlanDigest,
        layers: LayerCurves,
    ) -> Result<Self, RunsError> {
        let (id, writer) = RunWriter::open(store, record, plan, layers)?;
        Self::start(store, OnceLock::from(id), move |_, inbox| writer.serve(inbox))
    }

    /// Like [`Self::begin`], for callers that must not wait: the thread makes the folder too, and [`Self::finish`]
    /// reports errors.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn begin_unseen(store: &RunStore, record: RunRecord, compiled: Arc<Compiled>) -> Result<Self, RunsError> {
        let place = store.clone();
        Self::start(store, OnceLock::new(), move |known, inbox| {
            let layers = LayerCurves::of(&compiled.model);
            let opened = RunWriter::open(&place, record, &PlanDigest::of(&compiled), layers);
            let (id, writer) = opened.map_err(|e| e.to_string())?;
            drop(compiled);
            let _ = known.set(id);
            writer.serve(inbox)
        })
    }

    /// Continues a kept run from `from`, like [`Self::begin_unseen`]: `record` describes how it is trained now.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn resume_unseen(
        store: &RunStore,
        from: &ResumePoint,
        record: RunRecord,
        compiled: Arc<Compiled>,
    ) -> Result<Self, RunsError> {
        let (place, point) = (store.clone(), from.clone());
        let mut recorder = Self::start(store, OnceLock::from(from.id.clone()), move |_, inbox| {
            let layers = LayerCurves::of(&compiled.model);
            let opened = RunWriter::reopen(&place, &point, record, &PlanDigest::of(&compiled), layers);
            let writer = opened.map_err(|e| e.to_string())?;
            drop(compiled);
            writer.serve(inbox)
        })?;
        recorder.ran_ms = from.ms;
        Ok(recorder)
    }

    fn start(
        store: &RunStore,
        id: OnceLock<String>,
        work: impl FnOnce(&OnceLock<String>, &Receiver<Message>) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, RunsError> {
        let (outbox, inbox) = bounded(BOUND);
        let id = Arc::new(id);
        let known = Arc::clone(&id);
        let thread = Builder::new().name("stepgraph-record".into()).spawn(move || work(&known, &inbox));
        let thread = thread.map_err(|e| failed(store.folder(), e))?;
        Ok(Self {
            id,
            store: store.clone(),
            outbox: Some(outbox),
            taken: Arc::default(),
            backlog: Vec::new(),
            thread: Some(thread),
            ran_ms: 0.0,
            since: None,
        })
    }

    /// The run's id; `None` until its folder exists.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.get().map(String::as_str)
    }

    /// The path of the run's next checkpoint; `None` until its folder exists. [`Self::take_checkpoint`] is called when
    /// it is written.
    #[must_use]
    pub fn next_checkpoint(&self) -> Option<PathBuf> {
        self.id().map(|id| next_checkpoint(&self.store.checkpoint(id)))
    }

    /// Renames the written checkpoint to its final name, once all steps that were passed on are on the disk.
    pub fn take_checkpoint(&mut self) {
        let taken = Arc::clone(&self.taken);
        self.push(Message::Checkpoint(taken));
    }

    /// The step of the last checkpoint that has its final name; `None` if there is none yet.
    #[must_use]
    pub fn taken(&self) -> Option<u64> {
        Some(self.taken.load(Ordering::Relaxed)).filter(|step| *step > 0)
    }

    /// Starts the running time, or stops it while the run is paused.
    pub fn set_running(&mut self, running: bool) {
        self.ran_ms = self.now();
        self.since = running.then(Instant::now);
    }

    fn now(&self) -> f64 {
        self.ran_ms + self.since.map_or(0.0, |s| s.elapsed().as_secs_f64() * 1e3)
    }

    /// Passes on steps that were just made.
    pub fn steps(&mut self, reports: &[StepReport]) {
        if self.since.is_none() {
            // For single steps the running time does not advance; their own times are added instead.
            self.ran_ms += reports.iter().map(|r| f64::from(r.step_us + r.feed_us)).sum::<f64>() * 1e-3;
        }
        let now = self.now();
        self.push(Message::Steps(reports.to_vec(), now));
    }

    /// Passes on how far parameters moved, over ranges of steps.
    pub fn moved(&mut self, spans: &[Spans]) {
        if !spans.is_empty() {
            self.push(Message::Moved(spans.to_vec()));
        }
    }

    /// Passes on an evaluation.
    pub fn evaluated(&mut self, step: u64, found: &Evaluation) {
        let accuracy = found.accuracy.unwrap_or(f64::NAN);
        let ms = self.now();
        self.push(Message::Evaluated(EvaluationPoint { step, ms, loss: found.loss, accuracy }));
    }

    /// The run has another length.
    pub fn set_total(&mut self, total: u64) {
        self.push(Message::Total(total));
    }

    /// The run has ended, or continues after an end.
    pub fn set_state(&mut self, state: RunEnd, error: Option<String>) {
        self.push(Message::State(state, error));
    }

    /// Data that the thread did not receive yet are sent again.
    pub fn push_out(&mut self) {
        let Some(outbox) = &self.outbox else { return };
        let mut waiting = std::mem::take(&mut self.backlog).into_iter();
        for message in waiting.by_ref() {
            // A thread that ended has reported why, and there is no receiver any more.
            if let Err(TrySendError::Full(message)) = outbox.try_send(message) {
                self.backlog.push(message);
                break;
            }
        }
        self.backlog.extend(waiting);
    }

    fn push(&mut self, message: Message) {
        if let (Message::Steps(more, now), Some(Message::Steps(waiting, until))) = (&message, self.backlog.last_mut()) {
            waiting.extend_from_slice(more);
            *until = *now;
        } else if let (Message::Moved(more), Some(Message::Moved(waiting))) = (&message, self.backlog.last_mut()) {
            waiting.extend_from_slice(more);
        } else {
            self.backlog.push(message);
        }
        self.push_out();
    }

    /// Ends the recording and waits until everything is on disk.
    ///
    /// # Errors
    /// What could not be written, as text.
    pub fn finish(mut self) -> Result<(), String> {
        self.close();
        let outcome = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err("the recorder failed".to_owned()),
            None => Ok(()),
        };
        // Nothing may have been written of it: neither a step nor weights.
        if outcome.is_err()
            && let Some(id) = self.id()
            && self.store.curves(id).is_ok_and(|curves| curves.is_empty())
            && !self.store.weights(id).exists()
        {
            let _ = std::fs::remove_dir_all(self.store.path(id));
        }
        outcome
    }

    /// True if the thread has stopped because something could not be written.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Passes everything on and closes the channel.
    fn close(&mut self) {
        if let Some(outbox) = self.outbox.take() {
            for message in self.backlog.drain(..) {
                // The thread receives messages as fast as a disk writes them; a thread that ended receives none.
                if outbox.send(message).is_err() {
                    break;
                }
            }
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}
