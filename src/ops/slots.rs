//! The arguments of lowered operations: which each has, in which order kernels see their pointers, and whether they are read or written.

use super::kind::OpKind;
use serde::{Deserialize, Serialize};

/// Whether an operation reads a slot, writes it, or uses it as scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dir {
    In,
    Out,
    Work,
}

/// An argument's place in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub name: &'static str,
    pub dir: Dir,
}

const fn i(name: &'static str) -> Slot {
    Slot { name, dir: Dir::In }
}
const fn o(name: &'static str) -> Slot {
    Slot { name, dir: Dir::Out }
}

/// A counter of finished blocks that a kernel finds at zero and leaves at zero; only executors whose kernels need one bind it.
const fn t(name: &'static str) -> Slot {
    Slot { name, dir: Dir::In }
}
/// Scratch memory of the kernel; its size is the kernel's own and its contents are undefined before and after.
const WORK: Slot = Slot { name: "work", dir: Dir::Work };

impl OpKind {
    /// The operation's arguments in the order in which kernels see their pointers. `*_prev` is the value before an update or accumulation:
    /// where both are bound, it lies at the same address as the output.
    #[must_use]
    pub fn slots(&self) -> &'static [Slot] {
        const FILL: &[Slot] = &[o("y")];
        const UNARY: &[Slot] = &[i("x"), o("y"), WORK];
        const GEMM: &[Slot] =
            &[i("a"), i("b"), i("bias"), i("saved"), i("c_prev"), o("c"), o("z"), WORK, i("bias_half")];
        const BIAS: &[Slot] = &[i("x"), i("bias"), o("y")];
        const ACT_BWD: &[Slot] = &[i("dy"), i("saved"), o("dx")];
        const BIAS_GRAD: &[Slot] = &[i("dy"), i("db_prev"), o("db"), WORK];
        const BN: &[Slot] = &[
            i("x"),
            i("gamma"),
            i("beta"),
            i("mean_prev"),
            i("var_prev"),
            o("y"),
            o("mean"),
            o("rstd"),
            o("running_mean"),
            o("running_var"),
            WORK,
            i("residual"),
        ];
        const BN_EVAL: &[Slot] = &[i("x"), i("gamma"), i("beta"), i("running_mean"), i("running_var"), o("y")];
        const BN_BWD: &[Slot] = &[
            i("dy"),
            i("x"),
            i("gamma"),
            i("mean"),
            i("rstd"),
            i("saved"),
            i("dgamma_prev"),
            i("dbeta_prev"),
            o("dx"),
            o("dgamma"),
            o("dbeta"),
            WORK,
        ];
        const LN: &[Slot] = &[i("x"), i("gamma"), i("beta"), o("y"), o("mean"), o("rstd")];
        const LN_BWD: &[Slot] = &[
            i("dy"),
            i("x"),
            i("gamma"),
            i("mean"),
            i("rstd"),
            i("dgamma_prev"),
            i("dbeta_prev"),
            o("dx"),
            o("dgamma"),
            o("dbeta"),
            WORK,
        ];
        const MAX_POOL: &[Slot] = &[i("x"), o("y"), o("index")];
        const MAX_POOL_BWD: &[Slot] = &[i("dy"), i("index"), o("dx")];
        const POOL_BWD: &[Slot] = &[i("dy"), o("dx")];
        const DROPOUT: &[Slot] = &[i("x"), i("counter"), o("y"), o("mask")];
        const SIGN_BITS: &[Slot] = &[i("x"), o("mask")];
        const DROPOUT_BWD: &[Slot] = &[i("dy"), i("mask"), o("dx")];
        const ADD: &[Slot] = &[i("a"), i("b"), o("y")];
        const ADD_ACT: &[Slot] = &[i("a"), i("b"), i("saved"), o("y")];
        const SOFTMAX: &[Slot] = &[i("logits"), i("labels"), o("row_loss"), o("probs")];
        const SOFTMAX_GRAD: &[Slot] = &[i("probs"), i("labels"), o("dlogits"), i("scale")];
        const LOSS_MEAN: &[Slot] = &[i("row_loss"), o("loss"), i("row_right"), o("accuracy")];
        const ACCURACY: &[Slot] = &[i("scores"), i("labels"), o("accuracy")];
        const SOFTMAX_FUSED: &[Slot] =
            &[i("logits"), i("labels"), o("dlogits"), o("loss"), o("accuracy"), WORK, i("scale"), t("ticket")];
        const DENSE_CE: &[Slot] = &[
            i("a"),
            i("b"),
            i("bias"),
            i("labels"),
            i("saved"),
            i("scale"),
            o("dlogits"),
            o("row_loss"),
            o("row_right"),
            o("dx"),
        ];
        const MSE: &[Slot] = &[i("y"), i("target"), o("loss"), WORK];
        const MSE_GRAD: &[Slot] = &[i("y"), i("target"), o("dy"), i("scale")];
        const MSE_FUSED: &[Slot] = &[i("y"), i("target"), o("dy"), o("loss"), WORK, i("scale"), t("ticket")];
        const STEP_INC: &[Slot] = &[i("counter_prev"), o("counter")];
        const BIAS_CORR: &[Slot] = &[i("counter"), o("corr"), i("skipped")];
        const ADAM: &[Slot] = &[
            i("param_prev"),
            i("grad"),
            i("m_prev"),
            i("v_prev"),
            i("hyper"),
            i("corr"),
            o("param"),
            o("m"),
            o("v"),
            o("update_max"),
            o("grad_norm_seg"),
            WORK,
            i("scaler"),
            o("shadow"),
            o("total_max"),
            o("grad_norm"),
            t("ticket"),
        ];
        const SGD: &[Slot] = &[
            i("param_prev"),
            i("grad"),
            i("momentum_prev"),
            i("hyper"),
            o("param"),
            o("momentum"),
            o("update_max"),
            o("grad_norm_seg"),
            WORK,
            i("scaler"),
            o("shadow"),
            o("total_max"),
            o("grad_norm"),
            t("ticket"),
        ];
        // As far as it goes, in the order of `ADAM`: one rule reads the slots of both.
        const STEP: &[Slot] = &[
            i("param_prev"),
            i("a"),
            i("m_prev"),
            i("v_prev"),
            i("hyper"),
            i("corr"),
            o("param"),
            o("m"),
            o("v"),
            o("parts"),
            i("b"),
            WORK,
            o("shadow"),
        ];
        const STEP_METRICS: &[Slot] =
            &[i("parts"), o("update_max_seg"), o("grad_norm_seg"), o("update_max"), o("grad_norm")];
        const METRICS: &[Slot] = &[i("update_max_seg"), i("grad_norm_seg"), o("update_max"), o("grad_norm")];
        const CAST: &[Slot] = &[i("x"), o("y")];
        const SCALE: &[Slot] = &[i("grad"), i("scaler_prev"), o("scaler"), WORK, t("ticket")];
        match self {
            Self::Fill { .. } => FILL,
            Self::Transpose { .. } | Self::Act { .. } | Self::AvgPool { .. } | Self::GlobalAvgPool { .. } => UNARY,
            Self::Gemm(_) | Self::Conv2d { .. } | Self::Conv2dBwdX { .. } | Self::Conv2dBwdW { .. } => GEMM,
            Self::BiasAdd { .. } => BIAS,
            Self::ActBwd { .. } => ACT_BWD,
            Self::BiasGrad { .. } => BIAS_GRAD,
            Self::BatchNorm { .. } => BN,
            Self::BatchNormEval { .. } => BN_EVAL,
            Self::BatchNormBwd { .. } => BN_BWD,
            Self::LayerNorm { .. } => LN,
            Self::LayerNormBwd { .. } => LN_BWD,
            Self::MaxPool { .. } => MAX_POOL,
            Self::MaxPoolBwd { .. } => MAX_POOL_BWD,
            Self::AvgPoolBwd { .. } | Self::GlobalAvgPoolBwd { .. } => POOL_BWD,
            Self::Dropout { .. } => DROPOUT,
            Self::DropoutBwd { .. } => DROPOUT_BWD,
            Self::SignBits { .. } => SIGN_BITS,
            Self::Add { .. } => ADD,
            Self::AddAct { .. } => ADD_ACT,
            Self::SoftmaxCe { .. } => SOFTMAX,
            Self::SoftmaxCeGrad { .. } => SOFTMAX_GRAD,
            Self::LossMean { .. } => LOSS_MEAN,
            Self::Accuracy { .. } => ACCURACY,
            Self::SoftmaxCeFused { .. } => SOFTMAX_FUSED,
            Self::DenseCe { .. } => DENSE_CE,
            Self::Mse { .. } => MSE,
            Self::MseGrad { .. } => MSE_GRAD,
            Self::MseFused { .. } => MSE_FUSED,
            Self::StepInc => STEP_INC,
            Self::BiasCorr { .. } => BIAS_CORR,
            Self::AdamStep { .. } => ADAM,
            Self::SgdStep { .. } => SGD,
            Self::UpdateMetrics { .. } => METRICS,
            Self::WeightStep { .. } | Self::BiasStep { .. } => STEP,
            Self::StepMetrics { .. } => STEP_METRICS,
            Self::Cast { .. } => CAST,
            Self::ScaleUpdate { .. } => SCALE,
        }
    }

    /// The position of a slot by name.
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.slots().iter().position(|s| s.name == name)
    }
}
