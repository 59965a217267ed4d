//! Normalisation of rows.

use super::Operation;
use super::chunks::row_chunks;
use super::geometry::Scalar;
use super::operation::{dims, operation};
use serde::{Deserialize, Serialize};

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

/// Which gradients an operation computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GradientPart {
    /// That of the input and those of the parameters.
    #[default]
    All,
    /// That of the input alone.
    Input,
    /// Those of the parameters alone.
    Parameters,
}

impl GradientPart {
    /// Whether it is [`Self::All`], which texts leave out.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether the gradient of the input is computed.
    #[must_use]
    pub const fn has_input(self) -> bool {
        !matches!(self, Self::Parameters)
    }

    /// Whether the gradients of the parameters are computed.
    #[must_use]
    pub const fn has_parameters(self) -> bool {
        !matches!(self, Self::Input)
    }
}

operation! {
    /// Gradients of [`LayerNorm`]: of its input, `gamma` and `beta`, or a part of them. Where `residual [rows, cols]` is
    /// bound, which only kernels for GPUs know, it is added to that of the input.
    pub struct LayerNormBwd {
        pub rows: usize,
        pub cols: usize,
        pub accumulate: bool,
        /// As in [`LayerNorm`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub rms: bool,
        #[serde(default, skip_serializing_if = "GradientPart::is_all")]
        pub part: GradientPart,
    }
    slots layer_norm_bwd(op) {
        DY: in activation [op.rows * op.cols],
        X: in activation [op.rows * op.cols],
        GAMMA: in [op.cols] if op.part.has_input(),
        MEAN: in [op.rows] if !op.rms,
        RSTD: in [op.rows],
        DGAMMA_PREV: in [op.cols] if op.accumulate && op.part.has_parameters(),
        DBETA_PREV: in [op.cols] if op.accumulate && !op.rms && op.part.has_parameters(),
        DX: out activation [op.rows * op.cols] if op.part.has_input(),
        DGAMMA: out [op.cols] if op.part.has_parameters(),
        DBETA: out [op.cols] if !op.rms && op.part.has_parameters(),
        WORK: scratch,
        RESIDUAL: in activation [op.rows * op.cols] if OPTIONAL,
    }
    match (op.rms, op.part) {
        (false, GradientPart::All) => "layer_norm_bwd",
        (false, GradientPart::Input) => "layer_norm_bwd_x",
        (false, GradientPart::Parameters) => "layer_norm_bwd_w",
        (true, GradientPart::All) => "rms_norm_bwd",
        (true, GradientPart::Input) => "rms_norm_bwd_x",
        (true, GradientPart::Parameters) => "rms_norm_bwd_w",
    } => {
        dims: dims!(op: rows cols),
        flops: (op.flops_each() * op.rows * op.cols) as u64,
        is_for_gpus: !op.part.is_all(),
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

    /// Multiplications and additions for each element.
    const fn flops_each(&self) -> usize {
        let (input, parameters) = if self.rms { (7, 2) } else { (10, 3) };
        match self.part {
            GradientPart::All => input + parameters,
            GradientPart::Input => input,
            GradientPart::Parameters => parameters,
        }
    }
}

/// Picoseconds of the normalisation of rows, or of its derivative.
const fn row_norm_ps(rows: usize, cols: usize) -> usize {
    rows * (cols * 130 + 6_000)
}
