//! Counters, optimizers, their metrics, and dynamic loss scaling.

use super::geometry::{Scalar, Segment};
use serde::{Deserialize, Serialize};

/// `corr [2] = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)` with `t` the step of the counter, after `StepInc`, less the steps `skipped` for their overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasCorr {
    pub beta1: Scalar,
    pub beta2: Scalar,
}

/// Adam over the flat parameters. With `g` the gradient (plus `wd * p` unless `decoupled`): `m = b1 m + (1-b1) g`, `v = b2 v + (1-b2) g^2`,
/// `p -= lr wd p` first where `decoupled`, then `p -= lr corr0 m / (sqrt(v) corr1 + eps)`. `hyper [2]` is learning rate, weight decay.
/// Where bound: `update_max [segments]` is the largest |change| and `grad_norm_seg [segments]` the norm of the (undecayed) gradient of each segment,
/// `total_max` and `grad_norm` are those of `UpdateMetrics`, `shadow` is a copy of the parameters in the type that products read, and `scaler` is that of
/// `ScaleUpdate`: gradients are multiplied by its third value, and where its fourth is 1 nothing changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AdamStep {
    pub len: usize,
    pub segments: Vec<Segment>,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
}

/// Stochastic gradient descent over the flat parameters. `g += wd p`; with momentum `buf = momentum buf + g`, `g = nesterov ? g + momentum buf : buf`;
/// `p -= lr g`. Metrics as for Adam.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SgdStep {
    pub len: usize,
    pub segments: Vec<Segment>,
    pub momentum: Scalar,
    pub nesterov: bool,
}

/// `update_max [1]` = largest of the segments', `grad_norm [1]` = square root of the sum of the squares of the
/// segments' `grad_norm_seg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpdateMetrics {
    pub segments: usize,
}

/// The gradient `a [k, m]^T b [k, n]` of a dense layer's weight and its Adam step in one pass: the gradient is never in memory. Where bound, `parts`
/// holds the largest |change| and the norm of the gradients of tiles of `grain` by 16 elements, row by row, padded with zeros to a multiple of
/// 32 pairs; where a kernel's own tile is larger, its first pair stands for all of it. `together` counts the tiles of 96 by 64 elements of all such
/// operations that end a step at the same time; 0 of those in its middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WeightStep {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub grain: usize,
    pub together: usize,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
}

/// The gradient of a bias, the sum over the rows of `a [rows, cols]`, and its Adam step in one pass. `parts` as for `WeightStep`, of 32 columns each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BiasStep {
    pub rows: usize,
    pub cols: usize,
    pub beta1: Scalar,
    pub beta2: Scalar,
    pub eps: Scalar,
    pub decoupled: bool,
}

/// The metrics of a step from the `parts` of its updates, of which `segments[i]` is the stretch of parameter `i`, in pairs: `update_max_seg`,
/// `grad_norm_seg`, and, over all of them, `update_max` and `grad_norm`, each where bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepMetrics {
    pub segments: Vec<Segment>,
}

/// Dynamic loss scaling over the flat gradient. `scaler [5]` holds the scale of the next step's loss, the steps since the last overflow, one over
/// the scale of this step's gradients, 1 where this step overflowed, and the steps that did so far. An overflow halves the scale (not below 1), 2000 steps without one double it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScaleUpdate {
    pub len: usize,
}
