//! What is asked of a session: a preset, a machine, and where batches and parameters come from.

use crate::data::Preprocessing;
use crate::exec::cpu::host_target;
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

/// Overrides of the preset's training length and seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub steps: Option<usize>,
    pub seed: Option<u64>,
}

impl Overrides {
    /// Another training length.
    #[must_use]
    pub const fn steps(steps: usize) -> Self {
        Self { steps: Some(steps), seed: None }
    }

    /// Another seed.
    #[must_use]
    pub const fn seed(seed: u64) -> Self {
        Self { steps: None, seed: Some(seed) }
    }
}

/// The start of a run: newly initialised parameters if neither file is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The file of the initial parameters.
    pub init: Option<PathBuf>,
    /// The checkpoint to continue from.
    pub resume: Option<PathBuf>,
}

impl Start {
    /// From given parameters.
    #[must_use]
    pub const fn from_weights(init: PathBuf) -> Self {
        Self { init: Some(init), resume: None }
    }

    /// From a checkpoint.
    #[must_use]
    pub const fn from_checkpoint(resume: PathBuf) -> Self {
        Self { init: None, resume: Some(resume) }
    }
}

/// Settings of a session's recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingRules {
    /// Bytes that they and their transient memory may take; where none are given, 256 MiB besides the whole step's.
    pub bytes: Option<u64>,
    /// Whether a step that would run op by op ends the run.
    pub is_strict: bool,
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
    pub overrides: Overrides,
    pub start: Start,
    pub data: DataChoice,
    /// How the preset's data are prepared; where nothing is given, as the checkpoint to continue from says, or by their
    /// own training part.
    pub preprocessing: Option<Preprocessing>,
    pub metrics: Metrics,
    /// Kernel times remembered from this machine.
    pub tuning: Option<Arc<Tuning>>,
    /// What else will take memory beside the session.
    pub purpose: Purpose,
    pub recordings: RecordingRules,
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
            overrides: Overrides::default(),
            start: Start::default(),
            data: DataChoice::Preset,
            preprocessing: None,
            metrics: Metrics::default(),
            tuning: None,
            purpose: Purpose::Train,
            recordings: RecordingRules::default(),
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
        self.recordings.bytes.map_or(Allowance::Beside(ROOM_BYTES), Allowance::Total)
    }

    /// The machine that trains.
    pub(super) fn trains_on(&self) -> Machine {
        self.machine.clone().unwrap_or_else(|| host_target(self.threads))
    }

    /// The run's seed.
    pub(super) fn seed(&self) -> u64 {
        self.overrides.seed.or(self.preset.train.map(|t| t.seed)).unwrap_or(0)
    }

    /// Steps of the whole run, where there are batches for at most `limit` of them.
    #[must_use]
    pub fn total(&self, limit: Option<usize>) -> u64 {
        let steps = self.overrides.steps.or(self.preset.train.map(|t| t.steps)).or(limit).unwrap_or(1000);
        limit.map_or(steps, |limit| steps.min(limit)) as u64
    }

    /// Threads that share the step: those that the machine's plan is made for, where one is given.
    #[must_use]
    pub fn shared_by(&self) -> usize {
        self.machine.as_ref().and_then(Machine::as_cpu).map_or(self.threads, |cpu| cpu.threads)
    }
}
