//! Normalisation of rows.

use super::Operation;
use super::chunks::row_chunks;
use super::geometry::Scalar;
use super::operation::{dims, operation};

operation! {
    /// Normalisation of each row of `x [rows, cols]` with biased variance, then `gamma`, `beta [cols]`; if `rms`, each
    /// row is divided by its root mean square and multiplied by `gamma`.
    pub struct LayerNorm {
        pub rows: usize,
        pub cols: usize,
        pub eps: Scalar,
        /// Whether rows are not centred; then there is neither a mean nor a shift.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub rms: bool,
    }
    slots layer_norm(op) {
        X: in activation [op.rows * op.cols],
        GAMMA: in [op.cols],
        BETA: in [op.cols] if !op.rms,
        Y: out activation [op.rows * op.cols],
        MEAN: out [op.rows] if !op.rms,
        RSTD: out [op.rows],
    }
    if op.rms { "rms_norm" } else { "layer_norm" } => {
        dims: dims!(op: rows cols),
        flops: ((if op.rms { 4 } else { 7 }) * op.rows * op.cols) as u64,
        work_ps: row_norm_ps(op.rows, op.cols),
    }
}

operation! {
    /// Gradients of [`LayerNorm`]: of its input, `gamma` and `beta`. If `residual [rows, cols]` is bound, which only
    /// kernels for GPUs support, it is added to that of the input.
    pub struct LayerNormBwd {
        pub rows: usize,
        pub cols: usize,
        pub accumulate: bool,
        /// As in [`LayerNorm`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub rms: bool,
    }
    slots layer_norm_bwd(op) {
        DY: in activation [op.rows * op.cols],
        X: in activation [op.rows * op.cols],
        GAMMA: in [op.cols],
        MEAN: in [op.rows] if !op.rms,
        RSTD: in [op.rows],
        DGAMMA_PREV: in [op.cols] if op.accumulate,
        DBETA_PREV: in [op.cols] if op.accumulate && !op.rms,
        DX: out activation [op.rows * op.cols],
        DGAMMA: out [op.cols],
        DBETA: out [op.cols] if !op.rms,
        WORK: scratch,
        RESIDUAL: in activation [op.rows * op.cols] if OPTIONAL,
    }
    if op.rms { "rms_norm_bwd" } else { "layer_norm_bwd" } => {
        dims: dims!(op: rows cols),
        flops: ((if op.rms { 9 } else { 13 }) * op.rows * op.cols) as u64,
        scratch_floats: op.parameters() * row_chunks(op.rows, op.cols) * op.cols,
        work_ps: row_norm_ps(op.rows, op.cols),
    }
}

impl LayerNormBwd {
    /// Parameters whose gradients are computed.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        if self.rms { 1 } else { 2 }
    }
}

/// Picoseconds of the normalisation of rows, or of its derivative.
const fn row_norm_ps(rows: usize, cols: usize) -> usize {
    rows * (cols * 130 + 6_000)
}
