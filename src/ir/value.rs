//! The values of a graph: shapes of any rank, with a type and a role.

use crate::model::{LayerId, ParamId};
use crate::tensor::{DType, Shape, position_id};
use serde::{Deserialize, Serialize};
use std::fmt;

position_id! {
    /// A node of a graph: its position in [`nodes`](crate::ir::Graph::nodes), which is its place in the order of
    /// execution.
    NodeId
}

position_id! {
    /// A value of a graph: its position in [`values`](crate::ir::Graph::values).
    ValueId
}

impl fmt::Display for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The role of a value in the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The batch: samples and targets.
    Input,
    /// A trained parameter.
    Param,
    /// What survives from step to step in addition to parameters: moments, counters, running statistics,
    /// hyperparameters.
    State,
    Grad,
    Activation,
    /// Scratch memory of one operation; appears with the lowered program's bindings.
    Workspace,
    /// Values that the host reads after a step.
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

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Value {
    pub name: String,
    pub role: Role,
    /// Logical shape, with the batch.
    pub shape: Shape,
    pub dtype: DType,
    /// The node that makes it; `None` for values that exist before the step.
    pub producer: Option<NodeId>,
    /// The parameter whose value, gradient or statistic it is.
    pub param: Option<ParamId>,
    pub layer: Option<LayerId>,
    /// The group of parameters whose updates it counts or corrects; `None` for values that concern all groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}
