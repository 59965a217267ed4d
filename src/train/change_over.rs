//! A run that starts with general kernels continues with kernels that are compiled for its sizes.
//!
//! While the run trains, a thread compiles them and makes the recordings of the run again, with the same plan. The run
//! takes each recording over between two steps. Both kinds of kernels give the same results, bit for bit, so that no
//! step depends on the time at which this happens.

use super::step_cases::{Case, StepPlanner};
use super::training_step::TrainingStep;
use super::{SessionSpec, TrainError};
use crate::compile::Compiled;
use crate::exec::cuda::{compile_for, gpu};
use crate::exec::{Executor, HeldData, RecordingId, RecordingPool, Step};
use crate::lower::LValueId;
use crate::select::Kernels;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// The kernels of a run's steps on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelsOfRun {
    /// The kernels of its first step.
    pub first: Kernels,
    /// The first step with kernels that were compiled for its sizes, if the run changed over to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<u64>,
}

impl KernelsOfRun {
    /// The kernels of the run's last step so far.
    #[must_use]
    pub const fn now(self) -> Kernels {
        if self.changed_at.is_some() { Kernels::Interchangeable } else { self.first }
    }
}

/// How far a run is with the change from kernels for any size to kernels for its sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelChange {
    /// The run keeps its kernels.
    #[default]
    Keeps,
    /// Kernels for its sizes are not worthwhile yet: nothing was trained, or the rest of the run is short.
    Waits,
    /// Kernels for its sizes are compiled.
    Compiles,
    /// Steps run kernels for its sizes.
    Changed,
}

/// Where the plan of a recording comes from.
pub(super) enum Planned {
    /// The recording that the session owns.
    Whole(Arc<Compiled>),
    /// A recording of one of the cases in which steps differ, with one of its steps.
    Case(Arc<StepPlanner>, Case, u64),
}

/// A recording to be made again.
pub(super) struct Job {
    pub(super) id: RecordingId,
    pub(super) planned: Planned,
    /// The values that are read after each of its steps, if the session owns it.
    pub(super) watched: Vec<LValueId>,
    /// The data set that its steps fetch their batches from.
    pub(super) held: Option<HeldData>,
}

impl Job {
    /// The plan with kernels that are compiled for its sizes.
    fn compiled(&self) -> Result<Arc<Compiled>, TrainError> {
        let mut compiled = match &self.planned {
            Planned::Whole(compiled) => Compiled::clone(compiled),
            Planned::Case(planner, case, step) => Compiled::clone(&*planner.plan(*case, *step)?),
        };
        compiled.selection.target.kernels = Kernels::Interchangeable;
        Ok(Arc::new(compiled))
    }

    /// Makes the recording.
    fn make(&self, pool: &RecordingPool, goes_on: &AtomicBool) -> Result<(), TrainError> {
        let compiled = self.compiled()?;
        let Some(facts) = compiled.selection.target.as_cuda() else { return Ok(()) };
        let runs = || goes_on.load(Ordering::Relaxed);
        let device = gpu(facts.ordinal).map_err(crate::exec::ExecError::from)?;
        compile_for(&device, &compiled, runs)?;
        if !runs() {
            return Ok(());
        }
        let prepare = |step: &mut Step| -> Result<(), TrainError> {
            // The run must not lose what it has: a captured step, and batches from the device.
            if let Some(why) = step.recording().why_eager {
                return Err(TrainError::NoKernels(why));
            }
            if !self.watched.is_empty() {
                step.watch(&self.watched)?;
            }
            if let Some(held) = &self.held {
                if !step.share(held, &self.watched)? {
                    return Err(TrainError::NoKernels("the step cannot fetch its batches on the device".into()));
                }
                step.prepare_launches()?;
            }
            // Launches of another thread do not wait for the work of this one.
            Ok(step.synchronize()?)
        };
        if !pool.renew(self.id, compiled, prepare)? {
            log::debug!("a recording was dropped before its kernels were ready");
        }
        Ok(())
    }
}

/// The thread that makes recordings again.
pub(super) struct Maker {
    jobs: Option<Sender<Job>>,
    /// Recordings that were requested, including those that are ready.
    pub(super) asked: HashSet<RecordingId>,
    /// The number of jobs that ended.
    ended: Arc<AtomicUsize>,
    goes_on: Arc<AtomicBool>,
    /// Why the last recording that failed could not be made.
    failure: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Maker {
    pub(super) fn start(pool: Arc<RecordingPool>) -> Result<Self, TrainError> {
        let (jobs, inbox) = channel::<Job>();
        let (ended, goes_on) = (Arc::<AtomicUsize>::default(), Arc::new(AtomicBool::new(true)));
        let failure = Arc::<Mutex<Option<String>>>::default();
        let (count, runs, reason) = (Arc::clone(&ended), Arc::clone(&goes_on), Arc::clone(&failure));
        let work = move || {
            for job in inbox {
                if !runs.load(Ordering::Relaxed) {
                    break;
                }
                // The run keeps its general kernels, which give the same results.
                if let Err(error) = job.make(&pool, &runs) {
                    log::warn!("kernels for the sizes of the run could not be prepared: {error}");
                    *reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                }
                count.fetch_add(1, Ordering::Release);
            }
        };
        let thread = Builder::new().name("stepgraph-kernels".into()).spawn(work).map_err(TrainError::Thread)?;
        Ok(Self { jobs: Some(jobs), asked: HashSet::new(), ended, goes_on, failure, thread: Some(thread) })
    }

    pub(super) fn ask(&mut self, job: Job) {
        if self.asked.insert(job.id)
            && let Some(jobs) = &self.jobs
        {
            // The receiver lives as long as the thread, which ends when this is dropped.
            let _ = jobs.send(job);
        }
    }

    /// Whether it was ended.
    pub(super) fn is_ended(&self) -> bool {
        !self.goes_on.load(Ordering::Relaxed)
    }

    /// Whether all requested recordings are ready, or could not be made.
    pub(super) fn is_idle(&self) -> bool {
        self.ended.load(Ordering::Acquire) == self.asked.len()
            || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How far a run is with its change of kernels.
pub(super) enum Stage {
    /// It keeps its kernels.
    Keeps,
    /// It has not been worthwhile yet.
    Waits,
    Makes(Maker),
}

/// The change of a run's kernels.
pub(super) struct ChangeOver {
    pub(super) stage: Stage,
    /// The duration of the last step, and the smaller one of the last two, in microseconds.
    last_us: f32,
    pub(super) step_us: f32,
    pub(super) kernels: KernelsOfRun,
    /// Whether the next step is the first one with other kernels.
    pub(super) is_new: bool,
}

impl ChangeOver {
    /// For a session whose steps are `train`.
    pub(super) fn new(spec: &SessionSpec, train: &TrainingStep) -> Self {
        let first = train.compiled().selection.target.kernels;
        let changes = first == Kernels::FirstGeneral && spec.executor == Executor::Replay;
        let stage = if changes { Stage::Waits } else { Stage::Keeps };
        let kernels = KernelsOfRun { first, changed_at: None };
        Self { stage, last_us: f32::INFINITY, step_us: 0.0, kernels, is_new: false }
    }

    /// Notes the duration of a step; returns its kernels if it is the first step that runs them.
    pub(super) fn made(&mut self, step: u64, step_us: f32) -> Option<Kernels> {
        (self.step_us, self.last_us) = (step_us.min(self.last_us), step_us);
        if !std::mem::take(&mut self.is_new) || self.kernels.changed_at.is_some() {
            return None;
        }
        self.kernels.changed_at = Some(step);
        Some(Kernels::Interchangeable)
    }

    /// How far the change is.
    pub(super) fn progress(&self) -> KernelChange {
        let has_changed = self.is_new || self.kernels.changed_at.is_some();
        match &self.stage {
            Stage::Makes(maker) if maker.failure().is_some() => KernelChange::Keeps,
            // A run with several recordings has changed over when all of them have.
            Stage::Makes(maker) if !(maker.is_ended() || has_changed && maker.is_idle()) => KernelChange::Compiles,
            _ if has_changed => KernelChange::Changed,
            Stage::Keeps => KernelChange::Keeps,
            Stage::Waits | Stage::Makes(_) => KernelChange::Waits,
        }
    }

    /// Ends the thread after its current kernel, because the run is at its end.
    pub(super) fn end(&self) {
        if let Stage::Makes(maker) = &self.stage {
            maker.goes_on.store(false, Ordering::Relaxed);
        }
    }
}
