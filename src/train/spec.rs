//! The specification of a session: a preset, a machine, and where batches and parameters come from.

use crate::data::Preprocessing;
use crate::exec::cpu::host_target;
use crate::exec::{Allowance, Executor};
use crate::ir::Metrics;
use crate::model::Preset;
use crate::select::{Target as Machine, Tuning};
use std::path::PathBuf;
use std::sync::Arc;

/// The purpose of a session, which determines what else needs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// A run that trains, and writes its results.
    #[default]
    Train,
    /// Predictions for all samples.
    Predict,
    /// Steps that are timed from the same state.
    Time,
    /// The checks of a recording.
    Verify,
    /// A private copy from which values are read.
    Inspect,
    /// A run that is stored with its first and its last parameters.
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

impl DataChoice {
    /// The preset's data set, or one random batch if the preset names no data.
    #[must_use]
    pub const fn of(preset: &Preset) -> Self {
        if preset.data.is_some() { Self::Preset } else { Self::Resident }
    }
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
    /// Starts from given parameters.
    #[must_use]
    pub const fn from_weights(init: PathBuf) -> Self {
        Self { init: Some(init), resume: None }
    }

    /// Starts from a checkpoint.
    #[must_use]
    pub const fn from_checkpoint(resume: PathBuf) -> Self {
        Self { init: None, resume: Some(resume) }
    }
}

/// Settings of a session's recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingRules {
    /// The limit of their size and their transient memory, in bytes; without it, 256 MiB in addition to those of the
    /// whole step.
    pub bytes: Option<u64>,
    /// Whether a step that would run op by op ends the run.
    pub is_strict: bool,
}

/// What to train and how.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    pub preset: Preset,
    /// The folder that relative paths in the preset are relative to.
    pub base: PathBuf,
    pub executor: Executor,
    pub threads: usize,
    /// The machine that trains; without it, this machine's CPU.
    pub machine: Option<Machine>,
    pub overrides: Overrides,
    pub start: Start,
    pub data: DataChoice,
    /// How the preset's data are prepared; without it, as in the checkpoint to continue from, or by their own training
    /// part.
    pub preprocessing: Option<Preprocessing>,
    pub metrics: Metrics,
    /// Kernel times that are remembered for this machine.
    pub tuning: Option<Arc<Tuning>>,
    /// What else will need memory beside the session.
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

    /// Whether each step of the session takes its own path, as in a run; measurements use the whole step.
    pub(super) const fn takes_paths(&self) -> bool {
        matches!(self.purpose, Purpose::Train | Purpose::Capsule | Purpose::Verify)
    }

    /// Whether batches of the session use as many samples and positions as in a run; checks and measurements use whole
    /// batches.
    pub(super) const fn takes_shapes(&self) -> bool {
        matches!(self.purpose, Purpose::Train | Purpose::Capsule)
    }

    /// Whether it is for a run that trains, or for checks of one.
    pub(super) const fn trains(&self) -> bool {
        matches!(self.purpose, Purpose::Train | Purpose::Capsule | Purpose::Verify)
    }

    /// The limit of the size of recordings and their memory.
    pub(super) fn allowance(&self) -> Allowance {
        /// The limit of the size of a run's recordings in addition to that of its training step and its memory.
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

    /// The number of steps of the whole run, if there are batches for at most `limit` of them.
    #[must_use]
    pub fn total(&self, limit: Option<usize>) -> u64 {
        let steps = self.overrides.steps.or(self.preset.train.map(|t| t.steps)).or(limit).unwrap_or(1000);
        limit.map_or(steps, |limit| steps.min(limit)) as u64
    }

    /// Threads that share the step: those of the machine's plan, if a machine is given.
    #[must_use]
    pub fn shared_by(&self) -> usize {
        self.machine.as_ref().and_then(Machine::as_cpu).map_or(self.threads, |cpu| cpu.threads)
    }
}
