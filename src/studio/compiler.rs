//! The thread that checks and compiles what is edited.
//!
//! One request may wait; a newer one takes its place, and answers to older revisions are dropped by the receiver. Neither side ever waits for the other.

use super::view_models::PlanView;
use super::view_models::changes::PlanChanges;
use crate::compile::{Options, compile};
use crate::exec::cpu::{default_threads, host_target};
use crate::model::{Checked, Preset, check};
use crate::select::Tuning;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A document to compile.
struct Request {
    revision: u64,
    preset: Arc<Preset>,
    /// The plan on screen, to tell what changes about it.
    before: Option<Arc<PlanView>>,
}

/// What became of a document.
#[derive(Debug)]
pub struct Answer {
    pub revision: u64,
    pub checked: Checked,
    /// The compiled step with its views, where the document has no mistakes.
    pub plan: Option<Arc<PlanView>>,
    /// Why a sound document could not be compiled.
    pub error: Option<String>,
    /// What the plan changes about the one that was on screen when it was asked for.
    pub changes: Option<PlanChanges>,
    /// From request to answer.
    pub took: Duration,
}

/// The compile thread. Dropping it ends the thread.
pub struct Compiler {
    requests: Option<Sender<Request>>,
    answers: Receiver<Answer>,
    /// The newest request, while the channel is full.
    waiting: Option<Request>,
    asked: u64,
    answered: u64,
    thread: Option<JoinHandle<()>>,
}

impl Compiler {
    /// Starts the thread; `wake` is called when there is an answer. Kernels are chosen by `tuning` where it has times.
    ///
    /// # Errors
    /// Where the system refuses a thread.
    pub fn spawn(tuning: Option<Arc<Tuning>>, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (requests, inbox) = bounded::<Request>(1);
        let (outbox, answers) = bounded(2);
        let work = move || {
            while let Ok(mut request) = inbox.recv() {
                if let Ok(newer) = inbox.try_recv() {
                    request = newer;
                }
                if outbox.send(answer(&request, tuning.as_ref())).is_err() {
                    return;
                }
                wake();
            }
        };
        let thread = Builder::new().name("stepgraph-compile".into()).spawn(work)?;
        Ok(Self { requests: Some(requests), answers, waiting: None, asked: 0, answered: 0, thread: Some(thread) })
    }

    /// Asks for a document to be compiled, in place of whatever was asked before; each revision is asked for once.
    pub fn ask(&mut self, revision: u64, preset: &Arc<Preset>, before: Option<&Arc<PlanView>>) {
        if revision != self.asked {
            self.asked = revision;
            self.waiting = Some(Request { revision, preset: Arc::clone(preset), before: before.cloned() });
        }
        if let (Some(request), Some(requests)) = (self.waiting.take(), &self.requests)
            && let Err(TrySendError::Full(request)) = requests.try_send(request)
        {
            self.waiting = Some(request);
        }
    }

    /// The answer to the newest request, once; answers to older ones are dropped.
    pub fn poll(&mut self) -> Option<Answer> {
        let newest = self.answers.try_iter().last()?;
        self.answered = newest.revision;
        (newest.revision == self.asked).then_some(newest)
    }

    /// True while the newest request has no answer.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.asked != self.answered
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        self.requests = None;
        // An answer may wait for room; taking the receiver away lets the thread see that nobody listens.
        self.answers = crossbeam_channel::never();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(request: &Request, tuning: Option<&Arc<Tuning>>) -> Answer {
    let started = Instant::now();
    let checked = check(&request.preset);
    let mut out =
        Answer { revision: request.revision, checked, plan: None, error: None, changes: None, took: Duration::ZERO };
    if let Some(model) = &out.checked.model {
        let options = Options { tuning: tuning.cloned(), ..Options::train(host_target(default_threads())) };
        match compile(model, &options) {
            Ok(compiled) => {
                let plan = PlanView::new(Arc::new(compiled));
                out.changes = request.before.as_ref().map(|before| PlanChanges::between(before, &plan));
                out.plan = Some(Arc::new(plan));
            }
            Err(error) => out.error = Some(error.to_string()),
        }
    }
    out.took = started.elapsed();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::presets::digits;

    #[test]
    fn only_the_newest_revision_is_answered() {
        let (sender, bell) = bounded(64);
        let mut compiler = Compiler::spawn(None, move || {
            let _ = sender.try_send(());
        })
        .unwrap();
        let mut preset = digits();
        for revision in 1..=40 {
            preset.input.batch = revision;
            compiler.ask(revision as u64, &Arc::new(preset.clone()), None);
        }
        let newest = loop {
            compiler.ask(40, &Arc::new(preset.clone()), None);
            bell.recv_timeout(Duration::from_secs(20)).unwrap();
            if let Some(answer) = compiler.poll() {
                break answer;
            }
        };
        assert_eq!(newest.revision, 40);
        assert_eq!(newest.plan.unwrap().compiled.model.batch, 40);
        assert!(!compiler.is_busy());
    }
}
