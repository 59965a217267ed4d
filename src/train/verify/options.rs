//! What to verify with.

use crate::compile::Options;
use crate::exec::ExecError;
use crate::exec::cpu::host_target;
use crate::model::Preset;
use crate::select::{Target, Tuning};
use crate::train::{DataChoice, Overrides, Purpose, SessionSpec, Start, TrainError, known_gpu_times};
use std::path::PathBuf;
use std::sync::Arc;

/// What to verify with.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Replays of the endurance check; by default 10,000 for small networks, fewer where a step is long.
    pub replays: Option<u64>,
    pub threads: usize,
    /// The machine whose step is verified; this one's CPU where none is given.
    pub machine: Option<Target>,
    pub seed: u64,
    /// The folder that relative paths in the preset are taken from.
    pub base: PathBuf,
    pub batches: Option<PathBuf>,
    pub init: Option<PathBuf>,
    /// Kernel times remembered from this machine, so that what is verified is what is trained.
    pub tuning: Option<Arc<Tuning>>,
    /// Does without the memory that the checks of the recording are said to take: the user knows better.
    pub anyway: bool,
    /// Only checks whose names start with this; without any, the report is not passed.
    pub only: Option<String>,
}

impl VerifyOptions {
    /// How the training step is compiled.
    pub(super) fn compiling(&self) -> Options {
        let machine = self.machine();
        let gpu_times = known_gpu_times(&machine);
        Options { tuning: self.tuning.clone(), gpu_times, ..Options::train(machine) }
    }

    /// The machine whose step is verified.
    #[must_use]
    pub fn machine(&self) -> Target {
        self.machine.clone().unwrap_or_else(|| host_target(self.threads))
    }
}

impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            replays: None,
            threads: crate::exec::cpu::default_threads(),
            machine: None,
            seed: 0,
            base: PathBuf::from("."),
            batches: None,
            init: None,
            tuning: None,
            anyway: false,
            only: None,
        }
    }
}

/// The session and feed of a preset's own data, or a random batch where it names none.
pub(super) fn session_spec(preset: &Preset, options: &VerifyOptions) -> SessionSpec {
    let data = match (&options.batches, &preset.data) {
        (Some(path), _) => DataChoice::Batches(path.clone()),
        (None, Some(_)) => DataChoice::Preset,
        (None, None) => DataChoice::Resident,
    };
    SessionSpec {
        threads: options.threads,
        machine: options.machine.clone(),
        overrides: Overrides::seed(options.seed),
        start: Start { init: options.init.clone(), resume: None },
        tuning: options.tuning.clone(),
        purpose: if options.anyway { Purpose::Train } else { Purpose::Verify },
        data,
        ..SessionSpec::new(preset.clone(), options.base.clone())
    }
}

/// Whether memory did not suffice.
pub(super) const fn is_shortage(error: &TrainError) -> bool {
    matches!(error, TrainError::Shortage(_) | TrainError::Exec(ExecError::OutOfMemory { .. }))
}

/// Why a check is left out that needs a second session.
pub(super) fn no_room(error: &TrainError) -> String {
    format!("there is no room for a second session: {error}")
}
