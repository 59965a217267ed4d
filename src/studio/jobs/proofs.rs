//! Checks of the document's step, run on a separate thread and reported one by one.

use crate::exec::available_bytes;
use crate::model::Preset;
use crate::studio::jobs::background::Background;
use crate::studio::view_models::proofs::{Estimate, Proved};
use crate::train::{Check, Progress, Proof, TrainError, VerifyOptions, price, verify_some};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Instant;

/// Messages of the thread.
enum ProofEvent {
    Begins(Proof, &'static str),
    /// A check and its duration, in seconds.
    Done(Proof, Box<Check>, f64),
    /// The end, with the reason if it ended early.
    Over(Option<String>),
}

/// A running verification.
struct Run {
    events: Receiver<ProofEvent>,
    cancel: Arc<AtomicBool>,
    revision: u64,
    document: String,
    begun: Instant,
    /// The number of requested checks, and of those that were started.
    wanted: Vec<Proof>,
    seen: Vec<Proof>,
}

/// A document, given by its revision, for which the cost of checks is to be estimated.
type Asked = (u64, Arc<Preset>, VerifyOptions);

fn estimate((revision, preset, options): Asked) -> Option<Estimate> {
    let replays = options.replays;
    Some(Estimate { revision, replays, price: price(&preset, &options).ok()?, free: available_bytes() })
}

/// What the Verify tab shows.
#[derive(Default)]
pub struct Proofs {
    /// The thread that estimates the cost of checks, started at the first request.
    pricer: Option<Background<Asked, Option<Estimate>>>,
    estimate: Option<Estimate>,
    /// The revision of the last request, with the number of replays.
    asked: Option<(u64, Option<u64>)>,
    run: Option<Run>,
    /// The check that runs now.
    pub current: Option<(Proof, &'static str)>,
    /// The newest result of every check, in the order in which they were first run.
    pub proved: Vec<Proved>,
    /// Why the last verification ended early.
    pub problem: Option<String>,
}

/// The number of messages that may wait for the window; then the thread waits.
const BOUND: usize = 32;

impl Proofs {
    /// Starts a verification; a running one is cancelled.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn start(
        &mut self,
        preset: Arc<Preset>,
        options: VerifyOptions,
        proofs: Vec<Proof>,
        revision: u64,
        wake: Arc<dyn Fn() + Send + Sync>,
    ) -> std::io::Result<()> {
        self.cancel();
        let (outbox, events) = bounded(BOUND);
        let cancel = Arc::new(AtomicBool::new(false));
        let (document, stop, wanted) = (preset.name.clone(), Arc::clone(&cancel), proofs.clone());
        let work = move || prove(&preset, &options, &proofs, &stop, &outbox, &*wake);
        Builder::new().name("stepgraph-verify".into()).spawn(work)?;
        self.run = Some(Run { events, cancel, revision, document, begun: Instant::now(), wanted, seen: Vec::new() });
        (self.current, self.problem) = (None, None);
        Ok(())
    }

    /// Requests an estimate of the cost of a document's checks, unless that was requested before. Without a thread
    /// there is no estimate, but everything else works.
    pub fn want_price(
        &mut self,
        revision: u64,
        preset: &Arc<Preset>,
        options: VerifyOptions,
        wake: &Arc<dyn Fn() + Send + Sync>,
    ) {
        let asked = (revision, options.replays);
        if self.asked.replace(asked) == Some(asked) {
            return;
        }
        if self.pricer.is_none() {
            self.pricer = Background::spawn("stepgraph-estimate", Arc::clone(wake), estimate).ok();
        }
        if let Some(pricer) = &mut self.pricer {
            pricer.ask((revision, Arc::clone(preset), options));
        }
    }

    /// An estimate of the cost of all checks of the document of this revision with this number of replays, if it is
    /// known.
    #[must_use]
    pub fn estimate(&self, revision: u64, replays: Option<u64>) -> Option<Estimate> {
        self.estimate.filter(|e| (e.revision, e.replays) == (revision, replays))
    }

    /// True while an estimate is being made.
    #[must_use]
    pub fn is_pricing(&self) -> bool {
        self.pricer.as_ref().is_some_and(Background::is_busy)
    }

    /// Cancels the running verification; results so far are kept.
    pub fn cancel(&mut self) {
        if let Some(run) = self.run.take() {
            run.cancel.store(true, Ordering::Relaxed);
            self.current = None;
        }
    }

    /// Drops all results, because another document is open.
    pub fn clear(&mut self) {
        self.cancel();
        (self.proved, self.problem) = (Vec::new(), None);
        // Another document may have the same revision.
        (self.estimate, self.asked) = (None, None);
    }

    /// Another device was chosen: the running verification is cancelled, and neither results nor the estimate are those
    /// of the new device.
    pub fn change_device(&mut self) {
        self.cancel();
        self.proved.iter_mut().for_each(|proved| proved.revision = None);
        (self.estimate, self.asked) = (None, None);
    }

    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.run.is_some()
    }

    /// The share of the requested checks that is done, from 0 to 1; `None` if none run or only one was requested.
    #[must_use]
    pub fn progress(&self) -> Option<f32> {
        let run = self.run.as_ref().filter(|r| r.wanted.len() > 1)?;
        Some(run.seen.len().saturating_sub(1) as f32 / run.wanted.len() as f32)
    }

    /// The time since the current check began, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.run.as_ref().map_or(0.0, |r| r.begun.elapsed().as_secs_f64())
    }

    /// Receives messages from the thread.
    pub fn poll(&mut self) {
        if let Some(estimate) = self.pricer.as_mut().and_then(Background::poll) {
            self.estimate = estimate;
        }
        let Some(run) = &mut self.run else { return };
        let mut over = false;
        while let Ok(event) = run.events.try_recv() {
            match event {
                ProofEvent::Begins(proof, name) => {
                    self.current = Some((proof, name));
                    if !run.seen.contains(&proof) {
                        run.seen.push(proof);
                    }
                    run.begun = Instant::now();
                }
                ProofEvent::Done(proof, check, seconds) => {
                    let (revision, document) = (Some(run.revision), run.document.clone());
                    let made = Proved { proof, check: *check, revision, document, seconds };
                    match self.proved.iter_mut().find(|p| p.check.name == made.check.name) {
                        Some(old) => *old = made,
                        None => self.proved.push(made),
                    }
                    self.proved.sort_by_key(|p| Proof::ALL.iter().position(|q| *q == p.proof));
                }
                ProofEvent::Over(why) => {
                    self.problem = why;
                    over = true;
                }
            }
        }
        if over {
            (self.run, self.current) = (None, None);
        }
    }
}

impl Drop for Proofs {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn prove(
    preset: &Preset,
    options: &VerifyOptions,
    proofs: &[Proof],
    cancel: &Arc<AtomicBool>,
    outbox: &Sender<ProofEvent>,
    wake: &dyn Fn(),
) {
    let report = |event: ProofEvent| {
        // If there is no receiver any more, the verification ends.
        if outbox.send(event).is_err() {
            cancel.store(true, Ordering::Relaxed);
        }
        wake();
    };
    let mut begun = Instant::now();
    let outcome = verify_some(preset, options, proofs, cancel, |progress| match progress {
        Progress::Begins(proof, name) => {
            begun = Instant::now();
            report(ProofEvent::Begins(proof, name));
        }
        Progress::Done(proof, check) => {
            report(ProofEvent::Done(proof, Box::new(check.clone()), begun.elapsed().as_secs_f64()));
        }
    });
    report(ProofEvent::Over(match outcome {
        Ok(_) => None,
        Err(TrainError::Cancelled) => Some("Cancelled. Results that were already known remain.".into()),
        Err(error) => Some(error.to_string()),
    }));
}
