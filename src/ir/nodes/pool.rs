//! Pooling over images and its gradients.

use super::node_type::{NodeType, Shapes, must, shape_rules};
use super::window::{Window, image_dims};
use serde::{Deserialize, Serialize};

/// Which value of its window a pooling layer returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolKind {
    Max,
    Avg,
}

impl PoolKind {
    /// The name for this kind, given those for the maximum and for the mean.
    const fn of(self, [max, avg]: [&'static str; 2]) -> &'static str {
        match self {
            Self::Max => max,
            Self::Avg => avg,
        }
    }
}

/// `x -> y, [index]` (index for the maximum, in training)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub pool: PoolKind,
    pub window: Window,
}

/// `dy, [index] -> dx`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolBwd {
    pub pool: PoolKind,
    pub window: Window,
}

/// `x -> y`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlobalAvgPool {}

/// `dy -> dx`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlobalAvgPoolBwd {}

impl NodeType for Pool {
    fn name(&self) -> Option<&'static str> {
        Some(self.pool.of(["MaxPool", "AvgPool"]))
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        keeps_batch_and_channels(at)
    }
}

impl NodeType for PoolBwd {
    fn name(&self) -> Option<&'static str> {
        Some(self.pool.of(["MaxPoolBwd", "AvgPoolBwd"]))
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        keeps_batch_and_channels(at)
    }
}

shape_rules! {
    GlobalAvgPool, GlobalAvgPoolBwd: |at| keeps_batch_and_channels(at);
}

/// For a global mean, one side has neither rows nor columns nor positions.
fn keeps_batch_and_channels(at: &Shapes<'_>) -> Result<(), String> {
    let ends = |dims: &[usize]| match image_dims(dims) {
        Some([n, c, ..]) => Some([n, c]),
        None => <[usize; 2]>::try_from(dims).ok(),
    };
    let (x, y) = (ends(at.input(0)), ends(at.output(0)));
    must(x.is_some() && x == y, "pooling keeps batch and channels")
}
