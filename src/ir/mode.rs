//! Which step is built, and what is measured in it.

use serde::{Deserialize, Serialize};

/// Which step to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Forward, loss, backward, optimizer, metrics.
    Train,
    /// Forward only, with running statistics and without dropout.
    Eval,
}

/// The groups of metrics that are computed inside the step besides the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Metrics {
    /// Share of the batch that is classified right.
    pub accuracy: bool,
    /// Update magnitude in whole and per parameter, and gradient norm.
    pub updates: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { accuracy: true, updates: true }
    }
}
