//! Normalisation of rows.

use super::Operation;
use super::chunks::row_chunks;
use super::geometry::Scalar;
use super::slots::{slots, table};
use serde::{Deserialize, Serialize};

/// Normalisation of each row of `x [rows, cols]` with biased variance, then `gamma`, `beta [cols]`; where `rms`, each
/// row is divided by its root mean square, then `gamma`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerNorm {
    pub rows: usize,
    pub cols: usize,
    pub eps: Scalar,
    /// Whether rows are not centred: there is neither a mean nor a shift.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rms: bool,
}

slots! {
    pub mod layer_norm(op: LayerNorm) {
        X: in activation [op.rows * op.cols],
        GAMMA: in [op.cols],
        BETA: in [op.cols] if !op.rms,
        Y: out activation [op.rows * op.cols],
        MEAN: out [op.rows] if !op.rms,
        RSTD: out [op.rows],
    }
}

impl Operation for LayerNorm {
    table!(layer_norm);

    fn name(&self) -> &'static str {
        if self.rms { "rms_norm" } else { "layer_norm" }
    }

    fn dims(&self) -> String {
        format!("rows={} cols={}", self.rows, self.cols)
    }

    fn flops(&self) -> u64 {
        ((if self.rms { 4 } else { 7 }) * self.rows * self.cols) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let vectors = if self.rms { 1 } else { 2 };
        ((2 * self.rows * self.cols + vectors * (self.cols + self.rows)) * elem) as u64
    }

    fn work_ps(&self) -> usize {
        row_norm_ps(self.rows, self.cols)
    }
}

/// Gradients of [`LayerNorm`]: of its input, `gamma` and `beta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerNormBwd {
    pub rows: usize,
    pub cols: usize,
    pub accumulate: bool,
    /// As in [`LayerNorm`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rms: bool,
}

impl LayerNormBwd {
    /// Parameters whose gradients are computed.
    #[must_use]
    pub const fn parameters(&self) -> usize {
        if self.rms { 1 } else { 2 }
    }
}

slots! {
    pub mod layer_norm_bwd(op: LayerNormBwd) {
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
    }
}

impl Operation for LayerNormBwd {
    table!(layer_norm_bwd);

    fn name(&self) -> &'static str {
        if self.rms { "rms_norm_bwd" } else { "layer_norm_bwd" }
    }

    fn dims(&self) -> String {
        format!("rows={} cols={}", self.rows, self.cols)
    }

    fn flops(&self) -> u64 {
        ((if self.rms { 9 } else { 13 }) * self.rows * self.cols) as u64
    }

    fn bytes_moved(&self, elem: usize) -> u64 {
        let parameters = self.parameters();
        let vectors = 1 + parameters * (1 + usize::from(self.accumulate));
        ((3 * self.rows * self.cols + vectors * self.cols + parameters * self.rows) * elem) as u64
    }

    fn scratch_floats(&self) -> usize {
        self.parameters() * row_chunks(self.rows, self.cols) * self.cols
    }

    fn work_ps(&self) -> usize {
        row_norm_ps(self.rows, self.cols)
    }
}

/// Picoseconds of the normalisation of rows, or of its derivative.
const fn row_norm_ps(rows: usize, cols: usize) -> usize {
    rows * (cols * 130 + 6_000)
}
