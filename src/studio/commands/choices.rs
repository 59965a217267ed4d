//! The arguments of commands: devices, jobs, weights and the tour.

use crate::select::Kernels;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The user's choice of a device, which is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChoice {
    /// The first GPU that works, or the CPU.
    #[default]
    Auto,
    Cpu,
    /// The GPU with this number.
    Gpu(u32),
    /// An NVIDIA H200 that does not exist here: its plan can be viewed.
    Absent,
}

impl DeviceChoice {
    /// The name in the list of devices.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Auto => "automatic".into(),
            Self::Cpu => "CPU".into(),
            Self::Gpu(number) => format!("cuda:{number}"),
            Self::Absent => "NVIDIA H200, plan only".into(),
        }
    }
}

/// The kernels that runs on a GPU start with, which the user chooses and the window remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstKernels {
    /// Kernels for any size, which exist at once; a long run changes over to kernels for its sizes.
    #[default]
    AtOnce,
    /// The fastest kernels, which are compiled and timed before the first step.
    Fastest,
}

impl FirstKernels {
    /// The kernels of the plan.
    #[must_use]
    pub const fn kernels(self) -> Kernels {
        match self {
            Self::AtOnce => Kernels::FirstGeneral,
            Self::Fastest => Kernels::Specialised,
        }
    }
}

/// A kind of background work; only one job of each kind runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    Compile,
    Data,
    Measure,
    Compare,
    /// Planning the recording that will be shown.
    Recording,
    /// Reading values in a private copy of the step.
    Values,
    /// Searching the step for a value that is not finite.
    Search,
    Prices,
    Verify,
    /// Timing the run's steps eagerly and replayed.
    Timing,
    Capsule,
    /// Compiling kernels that later networks need.
    Kernels,
    /// Writing a kept run to a file, or reading what it needs to continue.
    Runs,
    Files,
}

impl JobKind {
    /// The time after which a job is shown: shorter jobs would only flicker.
    pub const fn delay(self) -> Duration {
        match self {
            Self::Compile | Self::Data | Self::Recording | Self::Values | Self::Kernels | Self::Runs | Self::Files => {
                Duration::from_millis(300)
            }
            _ => Duration::ZERO,
        }
    }

    /// True if it can be cancelled. Writing a file cannot, and a run times its steps within a second.
    pub const fn can_be_cancelled(self) -> bool {
        !matches!(self, Self::Timing | Self::Runs | Self::Files)
    }
}

/// Which weights are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    #[default]
    Initial,
    /// Those of the run, from the last snapshot.
    Run,
}

/// A command of the tour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TourMove {
    Start,
    Next,
    Dismiss,
}
