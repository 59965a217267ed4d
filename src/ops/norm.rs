//! Normalisations over the batch and over rows.

use super::geometry::Scalar;
use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// Training-mode batch normalisation of `x [rows, channels]`: statistics of the batch, running statistics updated in
/// place with the unbiased variance: `running = (1 - momentum) running + momentum batch`. Where `residual [rows,
/// channels]` is bound, it is added before the activation. `act` is applied last. `rows` is at least 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchNorm {
    pub rows: usize,
    pub channels: usize,
    pub eps: Scalar,
    pub momentum: Scalar,
    pub act: Option<Activation>,
}

/// Evaluation-mode batch normalisation with the running statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchNormEval {
    pub rows: usize,
    pub channels: usize,
    pub eps: Scalar,
    pub act: Option<Activation>,
}

/// Gradients of training-mode batch normalisation: of its input, `gamma` and `beta`. With `act_grad`, `dy` is first
/// multiplied by that function's derivative at `saved` (a function that keeps its output).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchNormBwd {
    pub rows: usize,
    pub channels: usize,
    pub act_grad: Option<Activation>,
    pub accumulate: bool,
}

/// Normalisation of each row of `x [rows, cols]` with biased variance, then `gamma`, `beta [cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerNorm {
    pub rows: usize,
    pub cols: usize,
    pub eps: Scalar,
}

/// Gradients of layer normalisation: of its input, `gamma` and `beta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerNormBwd {
    pub rows: usize,
    pub cols: usize,
    pub accumulate: bool,
}
