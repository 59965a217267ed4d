//! One kind of operation, and the list of all.

use super::{Operation, Scalar, Segment, StepOptions};
use crate::model::UpdateRule;
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// The type of an operation.
pub trait OfKind: Sized {
    /// The operation, if it is of this type.
    fn of(kind: &OpKind) -> Option<&Self>;
}

/// Declares [`OpKind`] and everything else that is needed once for each operation. A line is a file of this folder with
/// its operations, followed after `=>` by the tables of slots that it declares.
macro_rules! operations {
    ($($file:ident: $($op:ident),+ => $($table:ident),+;)+) => {
        $(pub use super::$file::{$($op),+};)+

        /// The slots of operations, with one module for each table.
        pub mod slot {
            $(pub use crate::ops::$file::{$($table),+};)+
        }

        /// Every table of slots, by name.
        #[cfg(test)]
        pub(super) const TABLES: &[(&str, &[super::Slot])] = &[$($((stringify!($table), slot::$table::SLOTS)),+),+];

        /// One kind of operation with all its dimensions.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(tag = "op", rename_all = "snake_case")]
        pub enum OpKind {
            $($($op($op)),+),+
        }

        $($(impl OfKind for $op {
            fn of(kind: &OpKind) -> Option<&Self> {
                match kind {
                    OpKind::$op(op) => Some(op),
                    _ => None,
                }
            }
        })+)+

        /// An operation of any kind forwards each call to its own type.
        impl Deref for OpKind {
            type Target = dyn Operation;

            fn deref(&self) -> &Self::Target {
                match self {
                    $($(Self::$op(op) => op),+),+
                }
            }
        }
    };
}

operations! {
    product: Gemm, Conv2d, Conv2dBwdX, Conv2dBwdW => product;
    row_product: GemmNorm, GemmNormBwd => gemm_norm, gemm_norm_bwd;
    elementwise: Fill, Transpose, BiasAdd, BiasGrad, Add, AddAct, Cast, Scale
        => fill, transpose, bias_add, bias_grad, add, add_act, cast, scale;
    joined: Concat, Slice, Multiply => concat, slice, multiply;
    activation: Act, ActBwd, SignBits => act, act_bwd, sign_bits;
    batch_norm: BatchNorm, BatchNormEval, BatchNormBwd => batch_norm, batch_norm_eval, batch_norm_bwd;
    layer_norm: LayerNorm, LayerNormBwd => layer_norm, layer_norm_bwd;
    attention: Attention, AttentionBwd => attention, attention_bwd;
    pool: MaxPool, MaxPoolBwd, AvgPool, AvgPoolBwd, GlobalAvgPool, GlobalAvgPoolBwd
        => max_pool, max_pool_bwd, avg_pool, avg_pool_bwd, global_avg_pool, global_avg_pool_bwd;
    dropout: Dropout, DropoutBwd => dropout, dropout_bwd;
    recurrence: Recurrence, RecurrenceBwd => recurrence, recurrence_bwd;
    sequence: Embedding, EmbeddingBwd, AddSinusoids, Take, TakeBwd
        => embedding, embedding_bwd, add_sinusoids, take, take_bwd;
    classifier: ClassifierCe => classifier_ce;
    softmax: SoftmaxCe, SoftmaxCeGrad, SoftmaxCeFused, DenseCe
        => softmax_ce, softmax_ce_grad, softmax_ce_fused, dense_ce;
    loss: LossMean, Accuracy, Mse, MseGrad, MseFused => loss_mean, accuracy, mse, mse_grad, mse_fused;
    point_loss: PointLoss, PointLossGrad, PointLossFused, BinaryAccuracy
        => point_loss, point_loss_grad, point_loss_fused, binary_accuracy;
    counter: StepInc, BiasCorr, ScaleUpdate => step_inc, bias_corr, scale_update;
    rates: GradNorms, UpdateRates => grad_norms, update_rates;
    optimizer: AdamStep, SgdStep, LionStep => adam_step, sgd_step, lion_step;
    gradient_step: WeightStep, BiasStep => gradient_step;
    metrics: UpdateMetrics, StepMetrics => update_metrics, step_metrics;
}

pub use super::optimizer::{AdamRule, LionRule, SgdRule};

impl OpKind {
    /// The update of a vector of `len` parameters in these segments by a rule.
    #[must_use]
    pub fn flat_step(rule: UpdateRule, len: usize, segments: Vec<Segment>, options: StepOptions) -> Self {
        match rule {
            UpdateRule::Sgd { momentum, nesterov } => {
                Self::SgdStep(SgdStep { len, segments, momentum: Scalar::new(momentum), nesterov, options })
            }
            UpdateRule::Adam { betas, eps, decoupled } => {
                let [beta1, beta2] = betas.map(Scalar::new);
                Self::AdamStep(AdamStep { len, segments, beta1, beta2, eps: Scalar::new(eps), decoupled, options })
            }
            UpdateRule::Lion { betas } => {
                let [beta1, beta2] = betas.map(Scalar::new);
                Self::LionStep(LionStep { len, segments, beta1, beta2, options })
            }
        }
    }
}

/// `with_rule!(kind, Rule => expression)` is the value of the expression with `Rule` as the name of the type whose rule
/// an update of the flat parameters uses (see [`Rule`](super::Rule)); `None` for all other operations.
macro_rules! with_rule {
    (@all [$kind:expr, $Rule:ident => $value:expr]
        $($Step:ident($step:pat) $(if $is:expr)? => $Type:ident$(<$($flag:literal),+>)?,)+
    ) => {
        match $kind {
            $($crate::ops::OpKind::$Step($step) $(if $is)? => {
                type $Rule = $crate::ops::$Type$(<$($flag),+>)?;
                Some($value)
            })+
            _ => None,
        }
    };
    ($kind:expr, $Rule:ident => $value:expr) => {
        $crate::ops::with_rule! { @all [$kind, $Rule => $value]
            AdamStep(step) if step.decoupled => AdamRule<true>,
            AdamStep(_) => AdamRule<false>,
            SgdStep(step) if step.momentum.get() == 0.0 => SgdRule<false, false>,
            SgdStep(step) if step.nesterov => SgdRule<true, true>,
            SgdStep(_) => SgdRule<true, false>,
            LionStep(_) => LionRule,
        }
    };
}
pub(crate) use with_rule;
