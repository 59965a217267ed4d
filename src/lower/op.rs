//! Lowered operations: what the executors run, one by one, in order.
//!
//! An operation says *what* is done, with every dimension written out; which kernel does it is decided by selection.
//! Its arguments lie in fixed slots ([`OpKind::slots`]): a slot that an operation does not use stays empty, so a kernel
//! finds each pointer at the same place whatever is fused. Images are `[N, H, W, C]` inside a lowered program.

use super::geometry::{ConvGeometry, Epilogue, Gemm, PoolGeometry, Scalar, Segment, Trans};
use crate::model::Activation;
use serde::{Deserialize, Serialize};
/// One kind of operation with all its dimensions. The slots of each are listed in [`OpKind::slots`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum OpKind {
    /// `y = 0`.
    Fill {
        len: usize,
    },
    /// `y [n, hw, c] = x [n, c, hw]` transposed within each sample; `rows`, `cols` are those of `x`.
    Transpose {
        n: usize,
        rows: usize,
        cols: usize,
    },
    Gemm(Gemm),
    /// `y [rows, cols] = x + bias [cols]`, in place.
    BiasAdd {
        rows: usize,
        cols: usize,
    },
    /// `y = f(x)` over `len` elements.
    Act {
        func: Activation,
        len: usize,
    },
    /// `dx = dy * f'(saved)`, in place on `dy`.
    ActBwd {
        func: Activation,
        len: usize,
    },
    /// `db [cols] = sum over rows of dy [rows, cols]`.
    BiasGrad {
        rows: usize,
        cols: usize,
        accumulate: bool,
    },
    Conv2d {
        geometry: ConvGeometry,
        epilogue: Epilogue,
    },
    /// Gradient of a convolution's input, from `dy` and the weight.
    Conv2dBwdX {
        geometry: ConvGeometry,
        epilogue: Epilogue,
    },
    /// Gradient of a convolution's weight, from `x` and `dy`.
    Conv2dBwdW {
        geometry: ConvGeometry,
        accumulate: bool,
    },
    /// Where `residual [rows, channels]` is bound, it is added before the activation. Training-mode batch normalisation of `x [rows, channels]`: statistics of the batch, running statistics updated in place with
    /// the unbiased variance: `running = (1 - momentum) running + momentum batch`. `act` is applied last. `rows` is at least 2.
    BatchNorm {
        rows: usize,
        channels: usize,
        eps: Scalar,
        momentum: Scalar,
        act: Option<Activation>,
    },
    /// Evaluation-mode batch normalisation with the running statistics.
    BatchNormEval {
        rows: usize,
        channels: usize,
        eps: Scalar,
        act: Option<Activation>,
    },
    /// `act_grad`: `dy` is first multiplied by that function's derivative at `saved` (a function that keeps its output).
    BatchNormBwd {
        rows: usize,
        channels: usize,
        act_grad: Option<Activation>,
        accumulate: bool,
    },
    /// Normalisation of each row of `x [rows, cols]` with biased variance, then `gamma`, `beta [cols]`.
    LayerNorm {
        rows: usize,
        cols: usize,
        eps: Scalar,
    },
    LayerNormBwd {
        rows: usize,
        cols: usize,
        accumulate: bool,
    },
    /// Maximum over windows (padding counts as minus infinity); `index` holds the position inside the window, row by row: the first
    /// of equals, NaN wins. `u8` for windows up to 256, `u16` above.
    MaxPool {
        geometry: PoolGeometry,
    },
    MaxPoolBwd {
        geometry: PoolGeometry,
    },
    /// Mean over windows; padding counts as zeros and in the divisor.
    AvgPool {
        geometry: PoolGeometry,
    },
    AvgPoolBwd {
        geometry: PoolGeometry,
    },
    /// `y [n, c] = mean over hw of x [n, hw, c]`.
    GlobalAvgPool {
        n: usize,
        hw: usize,
        c: usize,
    },
    GlobalAvgPoolBwd {
        n: usize,
        hw: usize,
        c: usize,
    },
    /// `y = x * keep / (1 - rate)`; the bits of `keep` are drawn from (seed, stream, step counter) and kept in `mask`.
    Dropout {
        len: usize,
        rate: Scalar,
        stream: u32,
    },
    /// `dx = dy * mask / (1 - rate)`, in place on `dy`. At rate 0 also the derivative of ReLU by [`Self::SignBits`].
    DropoutBwd {
        len: usize,
        rate: Scalar,
    },
    /// `mask [len / 8]`: bit `i % 8` of byte `i / 8` says whether `x[i] > 0`.
    SignBits {
        len: usize,
    },
    /// `y = a + b`, in place on `a`.
    Add {
        len: usize,
    },
    /// `y = f(a + b)`, or `y = (a + b) f'(saved)`, in place on `a` or `b`.
    AddAct {
        len: usize,
        act: Option<Activation>,
        act_grad: Option<Activation>,
    },
    /// Row-wise softmax and cross entropy: `row_loss [rows]` and `probs [rows, classes]` (may be in place on the logits).
    SoftmaxCe {
        rows: usize,
        classes: usize,
        smoothing: Scalar,
    },
    /// `dlogits = (probs - target) / rows`, in place on `probs`.
    SoftmaxCeGrad {
        rows: usize,
        classes: usize,
        smoothing: Scalar,
    },
    /// `loss [1] = mean of row_loss [rows]`; where bound, `accuracy [1] = mean of row_right [rows]`.
    LossMean {
        rows: usize,
    },
    /// `accuracy [1]`: share of rows whose largest score (the first of equals) stands at the label.
    Accuracy {
        rows: usize,
        classes: usize,
    },
    /// The four operations above in one pass: `loss [1]`, `accuracy [1]` (where bound) and `dlogits` in place on the logits (where bound).
    SoftmaxCeFused {
        rows: usize,
        classes: usize,
        smoothing: Scalar,
    },
    /// A last dense layer of few classes with its loss, up to the gradient of its input, a row at a time. The scores are the product of `a [rows, features]`
    /// and `b [features, classes]`, with `bias` where bound; `row_loss [rows]` and `row_right [rows]` (1 where the largest score stands at the label);
    /// `dlogits`, as `SoftmaxCeGrad` has it, and `dx [rows, features]`, its product with `b` transposed, times the derivative of `act_grad` at `saved`,
    /// which is `a` itself where `saved_is_input`, over `1 - dropout`: `a` may have gone through ReLU and then dropout at that rate, and is zero where either
    /// made it so.
    DenseCe {
        rows: usize,
        features: usize,
        classes: usize,
        smoothing: Scalar,
        bias: bool,
        act_grad: Option<Activation>,
        saved_is_input: bool,
        dropout: Scalar,
    },
    /// `loss [1] = mean over len of (y - target)^2`.
    Mse {
        len: usize,
    },
    /// `dy = 2 (y - target) / len`, in place on `y`.
    MseGrad {
        len: usize,
    },
    /// `Mse` and `MseGrad` in one pass.
    MseFused {
        len: usize,
    },
    /// `counter [2] (i64)`: seed, step; adds one to the step.
    StepInc,
    /// `corr [2] = 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t)` with `t` the step of the counter, after `StepInc`, less the steps `skipped` for their overflow.
    BiasCorr {
        beta1: Scalar,
        beta2: Scalar,
    },
    /// Adam over the flat parameters. With `g` the gradient (plus `wd * p` unless `decoupled`): `m = b1 m + (1-b1) g`, `v = b2 v + (1-b2) g^2`,
    /// `p -= lr wd p` first where `decoupled`, then `p -= lr corr0 m / (sqrt(v) corr1 + eps)`. `hyper [2]` is learning rate, weight decay.
    /// Where bound: `update_max [segments]` is the largest |change| and `grad_norm_seg [segments]` the norm of the (undecayed) gradient of each segment,
    /// `total_max` and `grad_norm` are those of `UpdateMetrics`, `shadow` is a copy of the parameters in the type that products read, and `scaler` is that of
    /// `ScaleUpdate`: gradients are multiplied by its third value, and where its fourth is 1 nothing changes.
    AdamStep {
        len: usize,
        segments: Vec<Segment>,
        beta1: Scalar,
        beta2: Scalar,
        eps: Scalar,
        decoupled: bool,
    },
    /// Stochastic gradient descent over the flat parameters. `g += wd p`; with momentum `buf = momentum buf + g`, `g = nesterov ? g + momentum buf : buf`;
    /// `p -= lr g`. Metrics as for Adam.
    SgdStep {
        len: usize,
        segments: Vec<Segment>,
        momentum: Scalar,
        nesterov: bool,
    },
    /// `update_max [1]` = largest of the segments', `grad_norm [1]` = square root of the sum of the squares of the
    /// segments' `grad_norm_seg`.
    UpdateMetrics {
        segments: usize,
    },
    /// The gradient `a [k, m]^T b [k, n]` of a dense layer's weight and its Adam step in one pass: the gradient is never in memory. Where bound, `parts`
    /// holds the largest |change| and the norm of the gradients of tiles of `grain` by 16 elements, row by row, padded with zeros to a multiple of
    /// 32 pairs; where a kernel's own tile is larger, its first pair stands for all of it. `together` counts the tiles of 96 by 64 elements of all such
    /// operations that end a step at the same time; 0 of those in its middle.
    WeightStep {
        m: usize,
        n: usize,
        k: usize,
        grain: usize,
        together: usize,
        beta1: Scalar,
        beta2: Scalar,
        eps: Scalar,
        decoupled: bool,
    },
    /// The gradient of a bias, the sum over the rows of `a [rows, cols]`, and its Adam step in one pass. `parts` as for `WeightStep`, of 32 columns each.
    BiasStep {
        rows: usize,
        cols: usize,
        beta1: Scalar,
        beta2: Scalar,
        eps: Scalar,
        decoupled: bool,
    },
    /// The metrics of a step from the `parts` of its updates, of which `segments[i]` is the stretch of parameter `i`, in pairs: `update_max_seg`,
    /// `grad_norm_seg`, and, over all of them, `update_max` and `grad_norm`, each where bound.
    StepMetrics {
        segments: Vec<Segment>,
    },
    /// `y = x`, rounded to the type of `y`.
    Cast {
        len: usize,
    },
    /// Dynamic loss scaling over the flat gradient. `scaler [5]` holds the scale of the next step's loss, the steps since the last overflow, one over
    /// the scale of this step's gradients, 1 where this step overflowed, and the steps that did so far. An overflow halves the scale (not below 1), 2000 steps without one double it.
    ScaleUpdate {
        len: usize,
    },
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
            Self::WeightStep { m, n, grain, .. } => (m.div_ceil(*grain) * n.div_ceil(16)).next_multiple_of(PARTS_ALIGN),
            Self::BiasStep { cols, .. } => cols.div_ceil(32).next_multiple_of(PARTS_ALIGN),
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
            Self::Act { func, .. } => func.name(),
            Self::ActBwd { func, .. } => func.backward_name(),
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
