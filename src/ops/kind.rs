//! One kind of operation, and the list of all.

use super::Operation;
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// Declares [`OpKind`] and everything else that is said once for each operation. A line is a file of this folder with
/// its operations, and behind `=>` the tables of slots that it declares.
macro_rules! operations {
    ($($file:ident: $($op:ident),+ => $($table:ident),+;)+) => {
        $(pub use super::$file::{$($op),+};)+

        /// The slots of operations, one module a table.
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

        /// An operation of any kind answers as its own type does.
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
    elementwise: Fill, Transpose, BiasAdd, BiasGrad, Add, AddAct, Cast
        => fill, transpose, bias_add, bias_grad, add, add_act, cast;
    activation: Act, ActBwd, SignBits => act, act_bwd, sign_bits;
    batch_norm: BatchNorm, BatchNormEval, BatchNormBwd => batch_norm, batch_norm_eval, batch_norm_bwd;
    layer_norm: LayerNorm, LayerNormBwd => layer_norm, layer_norm_bwd;
    pool: MaxPool, MaxPoolBwd, AvgPool, AvgPoolBwd, GlobalAvgPool, GlobalAvgPoolBwd
        => max_pool, max_pool_bwd, avg_pool, avg_pool_bwd, global_avg_pool, global_avg_pool_bwd;
    dropout: Dropout, DropoutBwd => dropout, dropout_bwd;
    softmax: SoftmaxCe, SoftmaxCeGrad, SoftmaxCeFused, DenseCe
        => softmax_ce, softmax_ce_grad, softmax_ce_fused, dense_ce;
    loss: LossMean, Accuracy, Mse, MseGrad, MseFused => loss_mean, accuracy, mse, mse_grad, mse_fused;
    counter: StepInc, BiasCorr, ScaleUpdate => step_inc, bias_corr, scale_update;
    optimizer: AdamStep, SgdStep, WeightStep, BiasStep => adam_step, sgd_step, gradient_step;
    metrics: UpdateMetrics, StepMetrics => update_metrics, step_metrics;
}
