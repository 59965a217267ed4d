//! What is asked of a session: a preset, a machine, and where batches and parameters come from.

use crate::data::Preprocessing;
use crate::exec::{Allowance, Executor};
use crate::ir::Metrics;
use crate::model::Preset;
use crate::select::{Target as Machine, Tuning};
use std::path::PathBuf;
use std::sync::Arc;

/// What a session is prepared for: what else will be taken beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A run that trains, and writes what it finds.
    #[default]
    Train,
    /// Answers for all samples.
    Predict,
    /// Steps timed from one and the same state.
    Time,
    /// The proofs of a recording.
    Verify,
    /// A private copy that is looked into.
    Inspect,
    /// A run kept with its first and its last parameters.
    Capsule,
}

/// Where the batches come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DataChoice {
    /// The preset's data set.
    #[default]
    Preset,
    /// `batch.x` and `batch.y` of a file, in order.
    Batches(PathBuf),
    /// One random batch, for benchmarks.
    Resident,
}

/// What to train and how.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    pub preset: Preset,
    /// The folder that relative paths in the preset are taken from.
    pub base: PathBuf,
    pub executor: Executor,
    pub threads: usize,
    /// The machine that trains; this one's CPU where none is given.
    pub machine: Option<Machine>,
    /// Overrides of the preset's training length and seed.
    pub steps: Option<usize>,
    pub seed: Option<u64>,
    pub init: Option<PathBuf>,
    /// The checkpoint to continue from.
    pub resume: Option<PathBuf>,
    pub data: DataChoice,
    /// How the preset's data are prepared; where nothing is given, as the checkpoint to continue from says, or by their
    /// own training part.
    pub preprocessing: Option<Preprocessing>,
    pub metrics: Metrics,
    /// Kernel times remembered from this machine.
    pub tuning: Option<Arc<Tuning>>,
    /// What else will take memory beside the session.
    pub purpose: Purpose,
    /// Bytes that recordings and their transient memory may take; where none are given, 256 MiB besides the whole
    /// step's.
    pub recordings_bytes: Option<u64>,
    /// Whether a step that would run op by op ends the run.
    pub is_strict: bool,
}

impl SessionSpec {
    /// The preset as it is, replayed, on this machine's default number of threads.
    #[must_use]
    pub fn new(preset: Preset, base: PathBuf) -> Self {
        Self {
            preset,
            base,
            executor: Executor::Replay,
            threads: crate::exec::cpu::default_threads(),
            machine: None,
            steps: None,
            seed: None,
            init: None,
            resume: None,
            data: DataChoice::Preset,
            preprocessing: None,
            metrics: Metrics::default(),
            tuning: None,
            purpose: Purpose::Train,
            recordings_bytes: None,
            is_strict: false,
        }
    }

    /// Whether each step of the session takes its own path, as in a run; measurements are of the whole step.
    pub(super) const fn takes_paths(&self) -> bool {
        matches!(self.purpose, Purpose::Train | Purpose::Capsule | Purpose::Verify)
    }

    /// Whether batches of the session use as many samples and positions as they do in a run; proofs and measurements
    /// are of whole batches.
    pub(super) const fn takes_shapes(&self) -> bool {
        matches!(self.purpose, Purpose::Train | Purpose::Capsule)
    }

    /// Whether it is for a run that trains, or proves one.
    pub(super) const fn trains(&self) -> bool {
        matches!(self.purpose, Purpose::Train | Purpose::Capsule | Purpose::Verify)
    }

    /// What recordings and their memory may take.
    pub(super) fn allowance(&self) -> Allowance {
        /// What recordings of a run may take besides that of its training step and the memory that this runs in.
        const ROOM_BYTES: u64 = 256 << 20;
        self.recordings_bytes.map_or(Allowance::Beside(ROOM_BYTES), Allowance::Total)
    }

    /// Steps of the whole run, where there are batches for at most `limit` of them.
    pub(super) fn total(&self, limit: Option<usize>) -> u64 {
        let steps = self.steps.or(self.preset.train.map(|t| t.steps)).or(limit).unwrap_or(1000);
        limit.map_or(steps, |limit| steps.min(limit)) as u64
    }

    /// Threads that share the step: those that the machine's plan is made for, where one is given.
    #[must_use]
    pub fn shared_by(&self) -> usize {
        self.machine.as_ref().and_then(Machine::as_cpu).map_or(self.threads, |cpu| cpu.threads)
    }
}
