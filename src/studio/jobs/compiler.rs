//! The thread that checks and compiles the edited document.
//!
//! One request may wait; a newer one replaces it, and answers to older revisions are dropped by the receiver. Neither
//! side ever waits for the other.

use crate::compile::{CompileError, Compiled, CpuOnly, Front, Options};
use crate::model::{Checked, Model, Preset, check};
use crate::studio::commands::choices::DeviceChoice;
use crate::studio::jobs::devices::Machine;
use crate::studio::view_models::changes::PlanChanges;
use crate::studio::view_models::plan::PlanView;
use crate::train::known_gpu_times;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// A document to compile.
struct Request {
    revision: u64,
    preset: Arc<Preset>,
    machine: Arc<Machine>,
    /// The plan on screen, for reporting the differences.
    before: Option<Arc<PlanView>>,
}

/// The result for a document.
#[derive(Debug)]
pub struct Answer {
    pub revision: u64,
    pub device: DeviceChoice,
    /// The device, adapted to the document.
    pub machine: Arc<Machine>,
    pub checked: Checked,
    /// The compiled step with its views, if the document has no mistakes.
    pub plan: Option<Arc<PlanView>>,
    /// Why a valid document could not be compiled.
    pub error: Option<String>,
    /// Why no GPU can run the network; `None` if a GPU can.
    pub cpu_only: Option<String>,
    /// The differences from the plan that was on screen at the time of the request.
    pub changes: Option<PlanChanges>,
    /// The time from request to answer.
    pub took: Duration,
}

/// The compile thread. When it is dropped, the thread ends once its document is compiled; no other thread waits for
/// that.
pub struct Compiler {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    /// The newest request, while the channel is full.
    waiting: Option<Request>,
    asked: u64,
    answered: u64,
    /// True if the answer to the newest request is not needed any more.
    cancelled: bool,
    /// The device that documents are compiled for.
    machine: Arc<Machine>,
}

impl Compiler {
    /// Starts the thread; `wake` is called for each answer. Documents are compiled for `machine`.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub fn spawn(machine: Arc<Machine>, wake: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (requests, inbox) = bounded::<Request>(1);
        let (outbox, answers) = bounded(2);
        let work = move || {
            while let Ok(mut request) = inbox.recv() {
                if let Ok(newer) = inbox.try_recv() {
                    request = newer;
                }
                if outbox.send(answer(&request)).is_err() {
                    return;
                }
                wake();
            }
        };
        Builder::new().name("stepgraph-compile".into()).spawn(work)?;
        Ok(Self { requests, answers, waiting: None, asked: 0, answered: 0, cancelled: false, machine })
    }

    /// Compiles for another device from now on; the newest document is requested again.
    pub fn set_machine(&mut self, machine: Arc<Machine>) {
        self.machine = machine;
        self.asked = u64::MAX;
    }

    /// Requests that a document is compiled; this replaces a waiting request. Each revision is requested once.
    pub fn ask(&mut self, revision: u64, preset: &Arc<Preset>, before: Option<&Arc<PlanView>>) {
        if revision != self.asked {
            (self.asked, self.cancelled) = (revision, false);
            let machine = Arc::clone(&self.machine);
            self.waiting = Some(Request { revision, preset: Arc::clone(preset), machine, before: before.cloned() });
        }
        if let Some(request) = self.waiting.take()
            && let Err(TrySendError::Full(request)) = self.requests.try_send(request)
        {
            self.waiting = Some(request);
        }
    }

    /// Cancels the newest request; the next revision is compiled as usual.
    pub fn cancel(&mut self) {
        (self.waiting, self.cancelled) = (None, true);
    }

    /// The answer to the newest request; returned once. Answers to older ones are dropped.
    pub fn poll(&mut self) -> Option<Answer> {
        let newest = self.answers.try_iter().last()?;
        // An answer for another device is as outdated as one for another document.
        let is_wanted = !self.cancelled && newest.revision == self.asked && newest.device == self.machine.choice;
        if is_wanted {
            self.answered = newest.revision;
        }
        is_wanted.then_some(newest)
    }

    /// True while the newest request has no answer.
    #[must_use]
    pub const fn is_busy(&self) -> bool {
        self.asked != self.answered && !self.cancelled
    }
}

fn answer(request: &Request) -> Answer {
    let started = Instant::now();
    let checked = check(&request.preset);
    let (revision, device, machine) = (request.revision, request.machine.choice, Arc::clone(&request.machine));
    let (plan, error, cpu_only, changes, took) = (None, None, None, None, Duration::ZERO);
    let mut out = Answer { revision, device, machine, checked, plan, error, cpu_only, changes, took };
    if let Some(model) = &out.checked.model {
        match compiled(model, &mut out.machine) {
            Ok(compiled) => {
                out.cpu_only = CpuOnly::find(&compiled.program, model).map(|found| found.to_string());
                let plan = PlanView::new(Arc::new(compiled));
                out.changes = request.before.as_ref().map(|before| PlanChanges::between(before, &plan));
                out.plan = Some(Arc::new(plan));
            }
            Err(error) => {
                out.cpu_only = error.is_user().then(|| error.to_string());
                out.error = Some(error.to_string());
            }
        }
    }
    out.took = started.elapsed();
    out
}

/// Compiles a training step for a device, which is adapted to it.
fn compiled(model: &Model, machine: &mut Arc<Machine>) -> Result<Compiled, CompileError> {
    // Times measured on this GPU are used here in the same way as by a run.
    let gpu_times = known_gpu_times(&machine.target);
    let front = Front::new(model, Options { gpu_times, ..Options::train(machine.target.clone()) })?;
    *machine = machine.suited(front.rewritten());
    front.on(machine.target.clone(), machine.tuning.clone()).compile()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::document::presets::digits;

    #[test]
    fn only_the_newest_revision_is_answered() {
        let (sender, bell) = bounded(64);
        let mut compiler = Compiler::spawn(Arc::new(Machine::cpu(None)), move || {
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
