//! A thread that makes recordings while a run trains: those that coming steps need, and those that were missing for a
//! step.

use super::TrainError;
use super::step_cases::{Case, StepPlanner};
use crate::compile::Compiled;
use crate::exec::{RecordingId, RecordingPool};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// The largest number of recordings that wait to be made; further ones are requested again when they are needed.
const MOST_WAITING: usize = 64;

/// A recording to be made.
pub(super) struct Job {
    pub(super) id: RecordingId,
    pub(super) case: Case,
    /// A step that needs it.
    pub(super) step: u64,
    pub(super) why: &'static str,
    /// Its plan, if it was planned before.
    pub(super) plan: Option<Arc<Compiled>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    ends: bool,
}

#[derive(Default)]
struct JobQueue {
    queue: Mutex<Queue>,
    given: Condvar,
}

impl JobQueue {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next recording to make; `None` once the run is over.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if queue.ends {
                return None;
            }
            match queue.jobs.pop_front() {
                Some(job) => return Some(job),
                None => queue = self.given.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The thread, which ends when this is dropped.
pub(super) struct StepMaker {
    jobs: Arc<JobQueue>,
    thread: Option<JoinHandle<()>>,
}

impl StepMaker {
    /// Starts a thread that makes recordings in this pool.
    ///
    /// # Errors
    /// If the system refuses to start a thread.
    pub(super) fn start(pool: Arc<RecordingPool>, planner: Arc<StepPlanner>) -> Result<Self, TrainError> {
        let jobs = Arc::<JobQueue>::default();
        let own = Arc::clone(&jobs);
        let work = move || {
            while let Some(Job { id, case, step, why, plan }) = own.next() {
                let planned = || plan.map_or_else(|| planner.plan(case, step), Ok);
                // An error is stored in the pool, and reported by the step that needs the recording.
                if let Err(error) = pool.make(id, why, planned) {
                    log::warn!("a recording for step {step} could not be made: {error}");
                }
            }
        };
        let thread = Builder::new().name("stepgraph-recordings".into()).spawn(work).map_err(TrainError::Thread)?;
        Ok(Self { jobs, thread: Some(thread) })
    }

    /// Requests a recording, before all others if it `is_urgent`. A recording that is already waiting is not made
    /// twice.
    pub(super) fn ask(&self, job: Job, is_urgent: bool) {
        let mut queue = self.jobs.queue();
        if let Some(waiting) = queue.jobs.iter_mut().find(|waiting| waiting.id == job.id) {
            waiting.plan = job.plan.or_else(|| waiting.plan.take());
            return;
        }
        if is_urgent {
            queue.jobs.push_front(job);
            queue.jobs.truncate(MOST_WAITING);
        } else if queue.jobs.len() < MOST_WAITING {
            queue.jobs.push_back(job);
        }
        drop(queue);
        self.jobs.given.notify_one();
    }
}

impl Drop for StepMaker {
    fn drop(&mut self) {
        self.jobs.queue().ends = true;
        self.jobs.given.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
