//! Normalisation over the batch.

use super::Operation;
use super::activation::activation_ps;
use super::chunks::row_chunks;
use super::geometry::{Epilogue, Scalar};
use super::operation::{dims, operation};
use crate::model::Activation;

/// Numbers that a CPU's kernel stores for each chunk of rows and channel: the rounded mean, its rounding error, and the
/// squared deviations.
pub const BATCH_NORM_MOMENTS: usize = 3;

operation! {
    /// Training-mode batch normalisation of `x [rows, channels]`: statistics of the batch, running statistics updated
    /// in place with the unbiased variance: `running = (1 - momentum) running + momentum batch`. If `residual [rows,
    /// channels]` is bound, it is added before the activation. `act` is applied last. `rows` is at least 2.
    pub struct BatchNorm {
        pub rows: usize,
        pub channels: usize,
        pub eps: Scalar,
        pub momentum: Scalar,
        pub act: Option<Activation>,
    }
    slots batch_norm(op) {
        X: in activation [op.rows * op.channels],
        GAMMA: in [op.channels],
        BETA: in [op.channels],
        MEAN_PREV: in [op.channels],
        VAR_PREV: in [op.channels],
        Y: out activation [op.rows * op.channels],
        MEAN: out [op.channels],
        RSTD: out [op.channels],
        RUNNING_MEAN: out [op.channels],
        RUNNING_VAR: out [op.channels],
        WORK: scratch,
        RESIDUAL: in activation [op.rows * op.channels] if OPTIONAL,
    }
    "batch_norm" => {
        epilogue: Epilogue { act: op.act, ..Epilogue::default() },
        dims: dims!(op: rows channels),
        flops: (7 * op.rows * op.channels) as u64,
        bytes_moved(elem): ((3 * op.rows * op.channels + 8 * op.channels) * elem) as u64,
        scratch_floats: BATCH_NORM_MOMENTS * row_chunks(op.rows, op.channels) * op.channels,
        work_ps: op.rows * op.channels * (130 + op.act.map_or(0, activation_ps)),
    }
}

operation! {
    /// Evaluation-mode batch normalisation with the running statistics.
    pub struct BatchNormEval { pub rows: usize, pub channels: usize, pub eps: Scalar, pub act: Option<Activation> }
    slots batch_norm_eval(op) {
        X: in activation [op.rows * op.channels],
        GAMMA: in [op.channels],
        BETA: in [op.channels],
        RUNNING_MEAN: in [op.channels],
        RUNNING_VAR: in [op.channels],
        Y: out activation [op.rows * op.channels],
    }
    "batch_norm_eval" => {
        epilogue: Epilogue { act: op.act, ..Epilogue::default() },
        dims: dims!(op: rows channels),
        flops: (3 * op.rows * op.channels) as u64,
        in_place: &[(batch_norm_eval::X, batch_norm_eval::Y)],
        work_ps: op.rows * op.channels * (60 + op.act.map_or(0, activation_ps)),
    }
}

operation! {
    /// Gradients of training-mode batch normalisation: of its input, `gamma` and `beta`. With `act_grad`, `dy` is first
    /// multiplied by that function's derivative at `saved` (a function that keeps its output).
    pub struct BatchNormBwd {
        pub rows: usize,
        pub channels: usize,
        pub act_grad: Option<Activation>,
        pub accumulate: bool,
    }
    slots batch_norm_bwd(op) {
        DY: in activation [op.rows * op.channels],
        X: in activation [op.rows * op.channels],
        GAMMA: in [op.channels],
        MEAN: in [op.channels],
        RSTD: in [op.channels],
        SAVED: in activation [op.rows * op.channels] if op.act_grad.is_some(),
        DGAMMA_PREV: in [op.channels] if op.accumulate,
        DBETA_PREV: in [op.channels] if op.accumulate,
        DX: out activation [op.rows * op.channels],
        DGAMMA: out [op.channels],
        DBETA: out [op.channels],
        WORK: scratch,
    }
    "batch_norm_bwd" => {
        epilogue: Epilogue { act_grad: op.act_grad, ..Epilogue::default() },
        dims: dims!(op: rows channels),
        flops: (9 * op.rows * op.channels) as u64,
        bytes_moved(elem): {
            let passes = 5 + 2 * usize::from(op.act_grad.is_some());
            let vectors = 5 + 2 * usize::from(op.accumulate);
            ((passes * op.rows * op.channels + vectors * op.channels) * elem) as u64
        },
        in_place: &[(batch_norm_bwd::DY, batch_norm_bwd::DX)],
        scratch_floats: 2 * row_chunks(op.rows, op.channels) * op.channels,
        work_ps: op.rows * op.channels * 220,
    }
}
