//! Which step is built, and which metrics it computes.

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

/// The part of a training step that one of its batches has, if several batches make one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Its gradients overwrite those of the previous step.
    First,
    /// Its gradients are added.
    Middle,
    /// Its gradients are added, and the parameters are updated.
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

    /// The share of batch `number`, from 0, of the `count` batches of a step.
    #[must_use]
    pub const fn of(number: usize, count: usize) -> Self {
        match number {
            _ if number + 1 >= count => Self::Last,
            0 => Self::First,
            _ => Self::Middle,
        }
    }

    /// The shares of the batches before the last, in a step of `count` batches.
    #[must_use]
    pub fn before_last(count: usize) -> &'static [Self] {
        match count {
            0 | 1 => &[],
            2 => &[Self::First],
            _ => &[Self::First, Self::Middle],
        }
    }
}

/// The groups of metrics that the step computes in addition to the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Metrics {
    /// The share of the batch that is classified correctly.
    pub accuracy: bool,
    /// The size of the update, in total and for each parameter, and the gradient norm.
    pub updates: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { accuracy: true, updates: true }
    }
}
