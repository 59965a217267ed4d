//! Values, nodes, and the graph that holds them.

use super::{Metrics, Mode};
use crate::model::{Activation, LayerId, ParamId};
use crate::tensor::{DType, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A value of a graph: its position in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueId(pub u32);

/// A node of a graph: its position in [`Graph::nodes`], which is its place in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// What a value is to the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The batch: samples and targets.
    Input,
    /// A trained parameter.
    Param,
    /// What survives from step to step besides parameters: moments, counters, running statistics, hyperparameters.
    State,
    Grad,
    Activation,
    /// Scratch memory of one operation; appears with the lowered program's bindings.
    Workspace,
    /// What the host reads after a step.
    Metric,
}

impl Role {
    pub const ALL: [Self; 7] =
        [Self::Input, Self::Param, Self::State, Self::Grad, Self::Activation, Self::Workspace, Self::Metric];

    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Param => "param",
            Self::State => "state",
            Self::Grad => "grad",
            Self::Activation => "activation",
            Self::Workspace => "workspace",
            Self::Metric => "metric",
        }
    }
}

/// The part of the step that a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Forward,
    Loss,
    Backward,
    Optimizer,
    Metric,
}

impl Phase {
    pub const ALL: [Self; 5] = [Self::Forward, Self::Loss, Self::Backward, Self::Optimizer, Self::Metric];

    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Loss => "loss",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Metric => "metric",
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    pub name: String,
    pub role: Role,
    /// Logical shape, with the batch.
    pub shape: Shape,
    pub dtype: DType,
    /// The node that makes it; `None` for what is there before the step.
    pub producer: Option<NodeId>,
    /// The parameter whose value, gradient or statistic it is.
    pub param: Option<ParamId>,
    pub layer: Option<LayerId>,
}

/// A window that slides over an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    pub size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

/// Which value of its window a pooling layer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolKind {
    Max,
    Avg,
}

/// The update rule with what is frozen in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum OptimizerRule {
    Sgd { momentum: f64, nesterov: bool },
    Adam { betas: [f64; 2], eps: f64, decoupled: bool },
}

/// What a node means. Inputs and outputs are listed in this order; those in brackets are there where the node's fields say so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum NodeKind {
    /// `x, w, [b] -> y`
    Linear { bias: bool },
    /// `x, w, [b] -> y`
    Conv2d { window: Window, groups: usize, bias: bool },
    /// `x, gamma, beta, running_mean, running_var -> y, mean, rstd, running_mean, running_var`
    BatchNorm { eps: f64, momentum: f64 },
    /// `x, gamma, beta, running_mean, running_var -> y`
    BatchNormEval { eps: f64 },
    /// `x, gamma, beta -> y, mean, rstd`
    LayerNorm { eps: f64 },
    /// `x -> y`
    Activation { func: Activation },
    /// `x -> y, [index]` (index for the maximum, in training)
    Pool { pool: PoolKind, window: Window },
    /// `x -> y`
    GlobalAvgPool,
    /// `x -> y`, a view
    Flatten,
    /// `x, counter -> y, mask`
    Dropout { rate: f64, stream: u32 },
    /// `a, b -> y`
    Add,
    /// `x -> x`: kept for the backward pass; moves nothing, lengthens the value's life.
    Save,
    /// `logits, labels -> loss, probs`
    SoftmaxCrossEntropy { smoothing: f64 },
    /// `probs, labels -> dlogits`
    SoftmaxCrossEntropyGrad { smoothing: f64 },
    /// `y, target -> loss`
    Mse,
    /// `y, target -> dy`
    MseGrad,
    /// `logits, labels -> accuracy`
    Accuracy,
    /// `dy, x, w, [dw], [db] -> dw, [db], [dx]`; gradients among the inputs are added to.
    LinearBwd { bias: bool, input_grad: bool, accumulate: bool },
    /// As `LinearBwd`.
    Conv2dBwd { window: Window, groups: usize, bias: bool, input_grad: bool, accumulate: bool },
    /// `dy, x, gamma, mean, rstd, [dgamma, dbeta] -> dx, dgamma, dbeta`
    BatchNormBwd { accumulate: bool },
    /// As `BatchNormBwd`.
    LayerNormBwd { accumulate: bool },
    /// `dy, saved -> dx`
    ActivationBwd { func: Activation },
    /// `dy, [index] -> dx`
    PoolBwd { pool: PoolKind, window: Window },
    /// `dy -> dx`
    GlobalAvgPoolBwd,
    /// `dy -> dx`, a view
    FlattenBwd,
    /// `dy, mask -> dx`
    DropoutBwd { rate: f64 },
    /// `a, b -> a + b`, where a value has two readers
    GradAdd,
    /// `counter -> counter`
    StepInc,
    /// `counter -> corr`
    BiasCorr { betas: [f64; 2] },
    /// `hyper, [corr], params.., grads.., moments.. -> params.., moments.., [update_max_seg, grad_norm_seg]`
    OptimizerStep { rule: OptimizerRule, measured: bool },
    /// `update_max_seg, grad_norm_seg -> update_max, grad_norm`
    UpdateMetrics,
}

impl NodeKind {
    /// The name in listings: `Conv2dBwd`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "Linear",
            Self::Conv2d { .. } => "Conv2d",
            Self::BatchNorm { .. } => "BatchNorm",
            Self::BatchNormEval { .. } => "BatchNormEval",
            Self::LayerNorm { .. } => "LayerNorm",
            Self::Activation { .. } => "Activation",
            Self::Pool { pool: PoolKind::Max, .. } => "MaxPool",
            Self::Pool { pool: PoolKind::Avg, .. } => "AvgPool",
            Self::GlobalAvgPool => "GlobalAvgPool",
            Self::Flatten => "Flatten",
            Self::Dropout { .. } => "Dropout",
            Self::Add => "Add",
            Self::Save => "Save",
            Self::SoftmaxCrossEntropy { .. } => "SoftmaxCrossEntropy",
            Self::SoftmaxCrossEntropyGrad { .. } => "SoftmaxCrossEntropyGrad",
            Self::Mse => "Mse",
            Self::MseGrad => "MseGrad",
            Self::Accuracy => "Accuracy",
            Self::LinearBwd { .. } => "LinearBwd",
            Self::Conv2dBwd { .. } => "Conv2dBwd",
            Self::BatchNormBwd { .. } => "BatchNormBwd",
            Self::LayerNormBwd { .. } => "LayerNormBwd",
            Self::ActivationBwd { .. } => "ActivationBwd",
            Self::PoolBwd { pool: PoolKind::Max, .. } => "MaxPoolBwd",
            Self::PoolBwd { pool: PoolKind::Avg, .. } => "AvgPoolBwd",
            Self::GlobalAvgPoolBwd => "GlobalAvgPoolBwd",
            Self::FlattenBwd => "FlattenBwd",
            Self::DropoutBwd { .. } => "DropoutBwd",
            Self::GradAdd => "GradAdd",
            Self::StepInc => "StepInc",
            Self::BiasCorr { .. } => "BiasCorr",
            Self::OptimizerStep { rule: OptimizerRule::Adam { .. }, .. } => "AdamStep",
            Self::OptimizerStep { rule: OptimizerRule::Sgd { .. }, .. } => "SgdStep",
            Self::UpdateMetrics => "UpdateMetrics",
        }
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    #[serde(flatten)]
    pub kind: NodeKind,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    pub layer: Option<LayerId>,
    /// Which application of a repeated layer it is, from 0.
    pub pass: u32,
    pub phase: Phase,
}

/// The whole step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    pub mode: Mode,
    pub metrics: Metrics,
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    /// The samples.
    pub x: ValueId,
    /// The targets; absent in evaluation.
    pub y: Option<ValueId>,
    /// The network's output before the loss.
    pub output: ValueId,
    /// The value of each parameter before the step, by [`ParamId`].
    pub params: Vec<ValueId>,
    /// The final gradient of each trained parameter.
    pub grads: Vec<Option<ValueId>>,
    /// The value that each surviving value becomes at the end of the step: parameters, statistics, moments, counters. The two share memory.
    pub updates: Vec<(ValueId, ValueId)>,
}

impl Graph {
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The value with this name, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|v| v.name == name).map(|i| ValueId(i as u32))
    }
}
