//! What nodes mean: one struct a kind, with its name and the rule that its shapes must satisfy.
//!
//! A new kind is a struct that implements [`NodeType`], and its name in the list of `each_node!`; its lowering is in
//! `lower/layers`.

mod affine;
mod attention;
mod joined;
mod loss;
mod norm;
mod pointwise;
mod pool;
mod recurrence;
mod sequence;
mod update;

pub use affine::{Conv2d, Conv2dBwd, Linear, LinearBwd};
pub use attention::{Attention, AttentionBwd};
pub use joined::{Concat, ConcatBwd, MOST_JOINED, Multiply, joined_axis};
pub use loss::{
    Accuracy, BinaryAccuracy, Mse, MseGrad, PointLoss, PointLossGrad, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad,
};
pub use norm::{BatchNorm, BatchNormBwd, BatchNormEval, LayerNorm, LayerNormBwd};
pub use pointwise::{Activation, ActivationBwd, Add, Dropout, DropoutBwd, Flatten, FlattenBwd, GradAdd, Save};
pub use pool::{GlobalAvgPool, GlobalAvgPoolBwd, Pool, PoolBwd, PoolKind};
pub use recurrence::{Direction, Recurrence, RecurrenceBwd};
pub use sequence::{AddPositions, AddPositionsBwd, AddSinusoids, Embedding, EmbeddingBwd, Take, TakeBwd};
pub use update::{BiasCorr, GradNorms, OptimizerStep, StepInc, UpdateMetrics, UpdateRates};

use super::value::{Role, Value, ValueId};
use serde::{Deserialize, Serialize};

/// What a window slides over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// `[N, C, H, W]`.
    #[default]
    Image,
    /// `[N, T, C]`: an image of one row, whose columns are the positions.
    Sequence,
    /// The same, with all of the padding before the first position.
    Causal,
}

impl Over {
    fn is_image(&self) -> bool {
        *self == Self::Image
    }
}

/// A window that slides over an image or a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    #[serde(default, skip_serializing_if = "Over::is_image")]
    pub over: Over,
}

/// The dimensions `[n, c, h, w]` of images, or of sequences `[n, t, c]` as images of one row.
#[must_use]
pub fn image_dims(dims: &[usize]) -> Option<[usize; 4]> {
    match *dims {
        [n, c, h, w] => Some([n, c, h, w]),
        [n, t, c] => Some([n, c, 1, t]),
        _ => None,
    }
}

/// What the graph knows of a kind of node.
pub trait NodeType {
    /// The name in listings, where it is not the struct's.
    fn name(&self) -> Option<&'static str> {
        None
    }

    /// Checks the shapes of inputs and outputs.
    ///
    /// # Errors
    /// The rule that is broken.
    fn verify(&self, at: &Shapes<'_>) -> Result<(), String>;
}

/// The list of nodes, for whatever is made for each of them.
///
/// `each_node!(kind, node => expression)` is the value of the expression with `node` bound to the struct that a
/// [`NodeKind`] holds, so that a method of any trait that all of them implement can be called.
macro_rules! each_node {
    (@all [define] $($Name:ident)*) => {
        /// What a node means. Inputs and outputs are listed in the order that the struct says; those in brackets are
        /// there where its fields say so.
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
            Activation ActivationBwd Dropout DropoutBwd Flatten FlattenBwd Add GradAdd Save
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

/// The shapes of a node's inputs and outputs.
pub struct Shapes<'a> {
    pub(super) values: &'a [Value],
    pub(super) inputs: &'a [ValueId],
    pub(super) outputs: &'a [ValueId],
}

impl<'a> Shapes<'a> {
    fn dims(&self, list: &[ValueId], index: usize) -> &'a [usize] {
        list.get(index).map_or(&[][..], |id| &self.values[id.0 as usize].shape.0)
    }

    /// The dimensions of an input; none where there is no such input.
    fn input(&self, index: usize) -> &'a [usize] {
        self.dims(self.inputs, index)
    }

    /// The dimensions of an output; none where there is no such output.
    fn output(&self, index: usize) -> &'a [usize] {
        self.dims(self.outputs, index)
    }

    /// How many inputs and outputs have this role.
    fn count(&self, role: Role) -> [usize; 2] {
        [self.inputs, self.outputs].map(|ids| ids.iter().filter(|id| self.values[id.0 as usize].role == role).count())
    }
}

fn must(holds: bool, rule: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.into()) }
}

fn same(a: &[usize], b: &[usize]) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{a:?} and {b:?} should be equal")) }
}

fn elements(dims: &[usize]) -> usize {
    dims.iter().product()
}
