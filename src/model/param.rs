//! The parameters of a model: their names, their shapes, and their initialisation.

use crate::tensor::{Shape, position_id};
use serde::{Deserialize, Serialize};

position_id! {
    /// A layer of a model: its position in [`layers`](crate::model::Model::layers).
    LayerId
}

position_id! {
    /// A parameter of a model: its position in [`params`](crate::model::Model::params).
    ParamId
}

/// The role of a parameter in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    Weight,
    Bias,
    /// The scale of a normalisation; named `weight` in files.
    Gamma,
    /// The shift of a normalisation; named `bias` in files.
    Beta,
    RunningMean,
    RunningVar,
    /// The weight that computes queries, keys and values from an attention's input.
    InWeight,
    InBias,
    /// The weight that mixes the heads of an attention.
    OutWeight,
    OutBias,
    /// The weight of a recurrent layer's input.
    WeightIh,
    /// The weight of a recurrent layer's state.
    WeightHh,
    BiasIh,
    BiasHh,
    /// Like [`ParamKind::WeightIh`], for the direction that reads from the end; the same applies to the others.
    WeightIhReverse,
    WeightHhReverse,
    BiasIhReverse,
    BiasHhReverse,
}

impl ParamKind {
    /// The last part of the parameter's name.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Weight | Self::Gamma => "weight",
            Self::Bias | Self::Beta => "bias",
            Self::RunningMean => "running_mean",
            Self::RunningVar => "running_var",
            Self::InWeight => "in_weight",
            Self::InBias => "in_bias",
            Self::OutWeight => "out_weight",
            Self::OutBias => "out_bias",
            Self::WeightIh => "weight_ih",
            Self::WeightHh => "weight_hh",
            Self::BiasIh => "bias_ih",
            Self::BiasHh => "bias_hh",
            Self::WeightIhReverse => "weight_ih_reverse",
            Self::WeightHhReverse => "weight_hh_reverse",
            Self::BiasIhReverse => "bias_ih_reverse",
            Self::BiasHhReverse => "bias_hh_reverse",
        }
    }

    /// False for running statistics, which have no gradient.
    #[must_use]
    pub const fn is_trained(self) -> bool {
        !matches!(self, Self::RunningMean | Self::RunningVar)
    }
}

/// How a parameter is initialised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum Init {
    Constant {
        value: f64,
    },
    /// Normal with mean 0.
    Normal {
        deviation: f64,
    },
    /// Uniform within `sqrt(6 / fan_in)`, for weights before relu-like functions (He et al. 2015).
    He {
        fan_in: usize,
    },
    /// Uniform within `sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio 2010).
    Xavier {
        fan_in: usize,
        fan_out: usize,
    },
    /// Uniform within `1 / sqrt(units)`, for the weights and biases of recurrent layers, as in PyTorch.
    Recurrent {
        units: usize,
    },
}

/// A parameter or running statistic.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// `layers.1.layers.0.weight`.
    pub name: String,
    pub layer: LayerId,
    pub kind: ParamKind,
    /// Logical shape: dense `[in, units]`, convolution `[filters, C / groups, kh, kw]`, recurrent
    /// `[in, gates units]`.
    pub shape: Shape,
    pub init: Init,
    /// Its group: parameters of one group run in the same steps, and those of group 0 in every step.
    pub group: u32,
}
