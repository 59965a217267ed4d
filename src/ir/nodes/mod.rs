//! The definitions of nodes: one struct for each kind, with its name and the rule for its shapes.
//!
//! A new kind is a struct that implements [`NodeType`], and its name in the list of `each_node!`; its lowering is in
//! `lower/layers`.

mod affine;
mod attention;
mod joined;
mod loss;
mod node_type;
mod norm;
mod pointwise;
mod pool;
mod recurrence;
mod sequence;
mod update;
mod window;

pub use affine::{Conv2d, Conv2dBwd, Linear, LinearBwd};
pub use attention::{Attention, AttentionBwd};
pub use joined::{Concat, ConcatBwd, MOST_JOINED, Multiply, joined_axis};
pub use loss::{
    Accuracy, BinaryAccuracy, Mse, MseGrad, PointLoss, PointLossGrad, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad,
};
pub use node_type::{NodeType, Shapes};
pub use norm::{BatchNorm, BatchNormBwd, BatchNormEval, LayerNorm, LayerNormBwd};
pub use pointwise::{Activation, ActivationBwd, Add, Dropout, DropoutBwd, Flatten, FlattenBwd, GradAdd, Save, Scale};
pub use pool::{GlobalAvgPool, GlobalAvgPoolBwd, Pool, PoolBwd, PoolKind};
pub use recurrence::{Direction, Recurrence, RecurrenceBwd};
pub use sequence::{AddPositions, AddPositionsBwd, AddSinusoids, Embedding, EmbeddingBwd, Take, TakeBwd};
pub use update::{BiasCorr, GradNorms, OptimizerStep, StepInc, UpdateMetrics, UpdateRates};
pub use window::{Over, Window, image_dims};

use serde::{Deserialize, Serialize};

/// The list of nodes, for code that must be generated for each of them.
///
/// `each_node!(kind, node => expression)` is the value of the expression with `node` bound to the struct that a
/// [`NodeKind`] holds, so that a method of any trait that all of them implement can be called.
macro_rules! each_node {
    (@all [define] $($Name:ident)*) => {
        /// The operation of a node. Inputs and outputs are listed in the order in the struct's documentation; those in
        /// brackets exist if the fields say so.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case", tag = "kind")]
        pub enum NodeKind {
            $($Name($Name),)*
        }

        impl NodeKind {
            /// The name in listings: `Conv2dBwd`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$Name(node) => node.name().unwrap_or(stringify!($Name)),)*
                }
            }
        }

        $(impl From<$Name> for NodeKind {
            fn from(node: $Name) -> Self {
                Self::$Name(node)
            }
        })*
    };
    (@all [$kind:expr, $node:ident => $body:expr] $($Name:ident)*) => {
        match $kind {
            $($crate::ir::NodeKind::$Name($node) => $body,)*
        }
    };
    ($($args:tt)*) => {
        $crate::ir::each_node! { @all [$($args)*]
            Linear LinearBwd Conv2d Conv2dBwd Attention AttentionBwd
            BatchNorm BatchNormEval BatchNormBwd LayerNorm LayerNormBwd
            Activation ActivationBwd Dropout DropoutBwd Flatten FlattenBwd Add GradAdd Scale Save
            Concat ConcatBwd Multiply
            Pool PoolBwd GlobalAvgPool GlobalAvgPoolBwd Recurrence RecurrenceBwd
            Embedding EmbeddingBwd AddPositions AddPositionsBwd AddSinusoids Take TakeBwd
            SoftmaxCrossEntropy SoftmaxCrossEntropyGrad Mse MseGrad Accuracy
            PointLoss PointLossGrad BinaryAccuracy
            StepInc BiasCorr GradNorms UpdateRates OptimizerStep UpdateMetrics
        }
    };
}
pub(crate) use each_node;

each_node!(define);

impl NodeKind {
    /// Checks the shapes of inputs and outputs.
    pub(super) fn verify(&self, at: &Shapes<'_>) -> Result<(), String> {
        each_node!(self, node => node.verify(at))
    }
}
