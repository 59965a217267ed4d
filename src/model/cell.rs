//! The cells of recurrent layers.

use super::activation::Activation;
use serde::{Deserialize, Serialize};

/// What a recurrent layer computes at a position from the input part `x` and from `u`, the product of the preceding
/// state with `weight_hh`, plus `bias_hh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// `h' = tanh(x + u)`.
    RnnTanh,
    /// `h' = max(x + u, 0)`.
    RnnRelu,
    /// Gates `r`, `z`, `n`: `r` and `z` are sigmoid functions of `x + u`, `n = tanh(x + r u)`, and
    /// `h' = (1 - z) n + z h`.
    Gru,
    /// Gates `i`, `f`, `g`, `o`: sigmoid functions of `x + u`, but for `g = tanh(x + u)`; `c' = f c + i g` and
    /// `h' = o tanh(c')`.
    Lstm,
}

impl Cell {
    /// All cells.
    pub const ALL: [Self; 4] = [Self::RnnTanh, Self::RnnRelu, Self::Gru, Self::Lstm];

    /// The name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RnnTanh => "rnn",
            Self::RnnRelu => "rnn_relu",
            Self::Gru => "gru",
            Self::Lstm => "lstm",
        }
    }

    /// The name of its derivative in listings.
    #[must_use]
    pub const fn backward_name(self) -> &'static str {
        match self {
            Self::RnnTanh => "rnn_bwd",
            Self::RnnRelu => "rnn_relu_bwd",
            Self::Gru => "gru_bwd",
            Self::Lstm => "lstm_bwd",
        }
    }

    /// The number of gates, each with its own weights.
    #[must_use]
    pub const fn gates(self) -> usize {
        match self {
            Self::RnnTanh | Self::RnnRelu => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// The activation function, if it alone defines the new state.
    #[must_use]
    pub const fn activation(self) -> Option<Activation> {
        match self {
            Self::RnnTanh => Some(Activation::Tanh),
            Self::RnnRelu => Some(Activation::Relu),
            Self::Gru | Self::Lstm => None,
        }
    }

    /// Whether one more value of each unit is stored for the derivative: for a GRU the product that `r` multiplies, for
    /// an LSTM the cell's `c'`.
    #[must_use]
    pub const fn keeps_inner(self) -> bool {
        matches!(self, Self::Gru | Self::Lstm)
    }

    /// Whether the gradient of `u` differs from that of `x`.
    #[must_use]
    pub const fn has_hidden_gradient(self) -> bool {
        matches!(self, Self::Gru)
    }
}
