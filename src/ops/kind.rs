//! One kind of operation.

use super::{Gemm, Trans};
use serde::{Deserialize, Serialize};
/// One kind of operation with all its dimensions. The slots of each are listed in [`OpKind::slots`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum OpKind {
    Fill(super::Fill),
    Transpose(super::Transpose),
    Gemm(Gemm),
    BiasAdd(super::BiasAdd),
    Act(super::Act),
    ActBwd(super::ActBwd),
    BiasGrad(super::BiasGrad),
    Conv2d(super::Conv2d),
    Conv2dBwdX(super::Conv2dBwdX),
    Conv2dBwdW(super::Conv2dBwdW),
    BatchNorm(super::BatchNorm),
    BatchNormEval(super::BatchNormEval),
    BatchNormBwd(super::BatchNormBwd),
    LayerNorm(super::LayerNorm),
    LayerNormBwd(super::LayerNormBwd),
    MaxPool(super::MaxPool),
    MaxPoolBwd(super::MaxPoolBwd),
    AvgPool(super::AvgPool),
    AvgPoolBwd(super::AvgPoolBwd),
    GlobalAvgPool(super::GlobalAvgPool),
    GlobalAvgPoolBwd(super::GlobalAvgPoolBwd),
    Dropout(super::Dropout),
    DropoutBwd(super::DropoutBwd),
    SignBits(super::SignBits),
    Add(super::Add),
    AddAct(super::AddAct),
    SoftmaxCe(super::SoftmaxCe),
    SoftmaxCeGrad(super::SoftmaxCeGrad),
    LossMean(super::LossMean),
    Accuracy(super::Accuracy),
    SoftmaxCeFused(super::SoftmaxCeFused),
    DenseCe(super::DenseCe),
    Mse(super::Mse),
    MseGrad(super::MseGrad),
    MseFused(super::MseFused),
    /// `counter [2] (i64)`: seed, step; adds one to the step.
    StepInc,
    BiasCorr(super::BiasCorr),
    AdamStep(super::AdamStep),
    SgdStep(super::SgdStep),
    UpdateMetrics(super::UpdateMetrics),
    WeightStep(super::WeightStep),
    BiasStep(super::BiasStep),
    StepMetrics(super::StepMetrics),
    Cast(super::Cast),
    ScaleUpdate(super::ScaleUpdate),
}

/// Pairs to which the stretch of each parameter in the parts of an update is rounded up.
pub(crate) const PARTS_ALIGN: usize = 32;
/// The numbers that dynamic loss scaling keeps from step to step.
pub(crate) const SCALER: usize = 5;

impl OpKind {
    /// Whether only plans for GPUs hold such operations.
    #[must_use]
    pub const fn is_for_gpus(&self) -> bool {
        matches!(
            self,
            Self::Cast { .. }
                | Self::ScaleUpdate { .. }
                | Self::AddAct { .. }
                | Self::SignBits { .. }
                | Self::DenseCe { .. }
                | Self::WeightStep { .. }
                | Self::BiasStep { .. }
                | Self::StepMetrics { .. }
        )
    }

    /// Pairs in the parts of an update that works where its gradient is made; zero for all other operations.
    #[must_use]
    pub const fn step_parts(&self) -> usize {
        match self {
            Self::WeightStep(super::WeightStep { m, n, grain, .. }) => {
                (m.div_ceil(*grain) * n.div_ceil(16)).next_multiple_of(PARTS_ALIGN)
            }
            Self::BiasStep(super::BiasStep { cols, .. }) => cols.div_ceil(32).next_multiple_of(PARTS_ALIGN),
            _ => 0,
        }
    }

    /// The operation's name, as in listings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fill { .. } => "fill",
            Self::Transpose { .. } => "transpose",
            Self::Gemm(g) => match g.trans {
                Trans::Nn => "gemm",
                Trans::Nt => "gemm_nt",
                Trans::Tn => "gemm_tn",
            },
            Self::BiasAdd { .. } => "bias_add",
            Self::Act(super::Act { func, .. }) => func.name(),
            Self::ActBwd(super::ActBwd { func, .. }) => func.backward_name(),
            Self::BiasGrad { .. } => "reduce_sum",
            Self::Conv2d { .. } => "conv2d",
            Self::Conv2dBwdX { .. } => "conv2d_bwd_x",
            Self::Conv2dBwdW { .. } => "conv2d_bwd_w",
            Self::BatchNorm { .. } => "batch_norm",
            Self::BatchNormEval { .. } => "batch_norm_eval",
            Self::BatchNormBwd { .. } => "batch_norm_bwd",
            Self::LayerNorm { .. } => "layer_norm",
            Self::LayerNormBwd { .. } => "layer_norm_bwd",
            Self::MaxPool { .. } => "max_pool",
            Self::MaxPoolBwd { .. } => "max_pool_bwd",
            Self::AvgPool { .. } => "avg_pool",
            Self::AvgPoolBwd { .. } => "avg_pool_bwd",
            Self::GlobalAvgPool { .. } => "global_avg_pool",
            Self::GlobalAvgPoolBwd { .. } => "global_avg_pool_bwd",
            Self::Dropout { .. } => "dropout",
            Self::DropoutBwd { .. } => "dropout_bwd",
            Self::SignBits { .. } => "sign_bits",
            Self::Add { .. } => "add",
            Self::AddAct { .. } => "add",
            Self::SoftmaxCe { .. } => "softmax_ce",
            Self::SoftmaxCeGrad { .. } => "softmax_ce_grad",
            Self::LossMean { .. } => "loss_mean",
            Self::Accuracy { .. } => "accuracy",
            Self::SoftmaxCeFused { .. } => "softmax_ce_fused",
            Self::DenseCe { .. } => "dense_ce",
            Self::Mse { .. } => "mse",
            Self::MseGrad { .. } => "mse_grad",
            Self::MseFused { .. } => "mse_fused",
            Self::StepInc => "step_inc",
            Self::BiasCorr { .. } => "bias_corr",
            Self::AdamStep { .. } => "adam_step",
            Self::SgdStep { .. } => "sgd_step",
            Self::UpdateMetrics { .. } => "update_metrics",
            Self::WeightStep { .. } => "gemm_tn_adam",
            Self::BiasStep { .. } => "reduce_sum_adam",
            Self::StepMetrics { .. } => "step_metrics",
            Self::Cast { .. } => "cast",
            Self::ScaleUpdate { .. } => "scale_update",
        }
    }
}
