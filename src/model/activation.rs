//! Activation functions.

use serde::{Deserialize, Serialize};

/// An elementwise nonlinearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `max(x, 0)`; the derivative at 0 is 0.
    Relu,
    /// `x` above 0, `0.01 x` otherwise.
    LeakyRelu,
    /// `x Phi(x)` with the exact normal distribution function (erf).
    Gelu,
    /// `x sigmoid(x)`.
    Silu,
    Sigmoid,
    Tanh,
}

impl Activation {
    pub const ALL: [Self; 6] = [Self::Relu, Self::LeakyRelu, Self::Gelu, Self::Silu, Self::Sigmoid, Self::Tanh];

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::LeakyRelu => "leaky_relu",
            Self::Gelu => "gelu",
            Self::Silu => "silu",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
        }
    }

    /// The names of all, in the same order.
    pub const NAMES: [&'static str; 6] = {
        let (mut names, mut i) = ([""; 6], 0);
        while i < names.len() {
            names[i] = Self::ALL[i].name();
            i += 1;
        }
        names
    };

    /// The options of a field whose activation is optional: no function, or one of all functions.
    pub const OPTIONS: [&'static str; 7] = {
        let (mut names, mut i) = (["none"; 7], 0);
        while i < Self::NAMES.len() {
            names[i + 1] = Self::NAMES[i];
            i += 1;
        }
        names
    };

    /// The index of a function in [`Self::OPTIONS`].
    #[must_use]
    pub fn option(function: Option<Self>) -> usize {
        function.and_then(|f| Self::ALL.iter().position(|other| *other == f)).map_or(0, |i| i + 1)
    }

    /// The function at an index of [`Self::OPTIONS`].
    #[must_use]
    pub fn of_option(index: usize) -> Option<Self> {
        index.checked_sub(1).and_then(|i| Self::ALL.get(i)).copied()
    }

    /// The name of the derivative's operation.
    #[must_use]
    pub const fn backward_name(self) -> &'static str {
        match self {
            Self::Relu => "relu_bwd",
            Self::LeakyRelu => "leaky_relu_bwd",
            Self::Gelu => "gelu_bwd",
            Self::Silu => "silu_bwd",
            Self::Sigmoid => "sigmoid_bwd",
            Self::Tanh => "tanh_bwd",
        }
    }

    /// The function with this name in a preset.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    /// True if the derivative is computed from the output (so that the function may run in place); false if it needs
    /// the input.
    #[must_use]
    pub const fn saves_output(self) -> bool {
        matches!(self, Self::Relu | Self::LeakyRelu | Self::Sigmoid | Self::Tanh)
    }

    /// True for functions after which weights are initialised by He's rule.
    #[must_use]
    pub const fn is_relu_like(self) -> bool {
        matches!(self, Self::Relu | Self::LeakyRelu | Self::Gelu | Self::Silu)
    }
}
