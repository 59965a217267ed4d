//! Pooling over images and its gradients.

use super::{NodeType, Shapes, Window, must};
use serde::{Deserialize, Serialize};

/// Which value of its window a pooling layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolKind {
    Max,
    Avg,
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
        Some(match self.pool {
            PoolKind::Max => "MaxPool",
            PoolKind::Avg => "AvgPool",
        })
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        keeps_batch_and_channels(at)
    }
}

impl NodeType for PoolBwd {
    fn name(&self) -> Option<&'static str> {
        Some(match self.pool {
            PoolKind::Max => "MaxPoolBwd",
            PoolKind::Avg => "AvgPoolBwd",
        })
    }

    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        keeps_batch_and_channels(at)
    }
}

impl NodeType for GlobalAvgPool {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        keeps_batch_and_channels(at)
    }
}

impl NodeType for GlobalAvgPoolBwd {
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        keeps_batch_and_channels(at)
    }
}

fn keeps_batch_and_channels(at: &Shapes<'_>) -> Result<(), String> {
    must(at.input(0)[..2] == at.output(0)[..2], "pooling keeps batch and channels")
}
