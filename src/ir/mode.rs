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

/// Which of the batches that make a step together a training step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Its gradients overwrite those of the step before.
    First,
    /// Its gradients are added.
    Middle,
    /// Its gradients are added, and the parameters updated.
    Last,
}

impl Share {
    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Middle => "middle",
            Self::Last => "last",
        }
    }

    /// The share of batch `number`, from 0, of `count` that make a step.
    #[must_use]
    pub const fn of(number: usize, count: usize) -> Self {
        match number {
            _ if number + 1 >= count => Self::Last,
            0 => Self::First,
            _ => Self::Middle,
        }
    }

    /// Those before the last that a step of `count` batches has.
    #[must_use]
    pub fn before_last(count: usize) -> &'static [Self] {
        match count {
            0 | 1 => &[],
            2 => &[Self::First],
            _ => &[Self::First, Self::Middle],
        }
    }
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
