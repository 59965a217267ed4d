//! Normalisation over the batch.

use super::Operation;
use super::activation::activation_ps;
use super::chunks::row_chunks;
use super::geometry::{Epilogue, Scalar};
use super::slots::{slots, table};
use crate::model::Activation;
use serde::{Deserialize, Serialize};

/// Numbers that a CPU's kernel keeps for each chunk of rows and channel: the rounded mean, what it was rounded by,
/// and the squared deviations.
pub const BATCH_NORM_MOMENTS: usize = 3;

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

slots! {
    pub mod batch_norm(op: BatchNorm) {
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
}

impl Operation for BatchNorm {
    table!(batch_norm);

    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn epilogue(&self) -> Epilogue {
        Epilogue { act: self.act, ..Epilogue::default() }
    }

    fn dims(&self) -> String {
        format!("rows={} channels={}", self.rows, self.channels)
    }

    fn flops(&self) -> u64 {
        (7 * self.rows * self.channels) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((3 * self.rows * self.channels + 8 * self.channels) * elem) as u64
    }

    fn scratch_floats(&self) -> usize {
        BATCH_NORM_MOMENTS * row_chunks(self.rows, self.channels) * self.channels
    }

    fn work_ps(&self) -> usize {
        self.rows * self.channels * (130 + self.act.map_or(0, activation_ps))
    }
}

/// Evaluation-mode batch normalisation with the running statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchNormEval {
    pub rows: usize,
    pub channels: usize,
    pub eps: Scalar,
    pub act: Option<Activation>,
}

slots! {
    pub mod batch_norm_eval(op: BatchNormEval) {
        X: in activation [op.rows * op.channels],
        GAMMA: in [op.channels],
        BETA: in [op.channels],
        RUNNING_MEAN: in [op.channels],
        RUNNING_VAR: in [op.channels],
        Y: out activation [op.rows * op.channels],
    }
}

impl Operation for BatchNormEval {
    table!(batch_norm_eval);

    fn name(&self) -> &'static str {
        "batch_norm_eval"
    }

    fn epilogue(&self) -> Epilogue {
        Epilogue { act: self.act, ..Epilogue::default() }
    }

    fn dims(&self) -> String {
        format!("rows={} channels={}", self.rows, self.channels)
    }

    fn flops(&self) -> u64 {
        (3 * self.rows * self.channels) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        ((2 * self.rows * self.channels + 4 * self.channels) * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(batch_norm_eval::X, batch_norm_eval::Y)]
    }

    fn work_ps(&self) -> usize {
        self.rows * self.channels * (60 + self.act.map_or(0, activation_ps))
    }
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

slots! {
    pub mod batch_norm_bwd(op: BatchNormBwd) {
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
}

impl Operation for BatchNormBwd {
    table!(batch_norm_bwd);

    fn name(&self) -> &'static str {
        "batch_norm_bwd"
    }

    fn epilogue(&self) -> Epilogue {
        Epilogue { act_grad: self.act_grad, ..Epilogue::default() }
    }

    fn dims(&self) -> String {
        format!("rows={} channels={}", self.rows, self.channels)
    }

    fn flops(&self) -> u64 {
        (9 * self.rows * self.channels) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let passes = 5 + 2 * usize::from(self.act_grad.is_some());
        let vectors = 5 + 2 * usize::from(self.accumulate);
        ((passes * self.rows * self.channels + vectors * self.channels) * elem) as u64
    }

    fn in_place(&self) -> &'static [(usize, usize)] {
        &[(batch_norm_bwd::DY, batch_norm_bwd::DX)]
    }

    fn scratch_floats(&self) -> usize {
        2 * row_chunks(self.rows, self.channels) * self.channels
    }

    fn work_ps(&self) -> usize {
        self.rows * self.channels * 220
    }
}
