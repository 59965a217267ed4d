//! Mistakes in a preset, as data.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a layer is: indices into nested `layers` lists, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerPath(pub Vec<usize>);

impl LayerPath {
    /// The path of this layer's child `index`.
    #[must_use]
    pub fn child(&self, index: usize) -> Self {
        let mut path = self.0.clone();
        path.push(index);
        Self(path)
    }

    /// The prefix of the layer's parameter names: `layers.1.layers.0`.
    #[must_use]
    pub fn dotted(&self) -> String {
        self.0.iter().map(|i| format!("layers.{i}")).collect::<Vec<_>>().join(".")
    }

    /// The layer's number in listings: `1.0`.
    #[must_use]
    pub fn number(&self) -> String {
        self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
    }
}

/// The place in the JSON document: `layers[1].layers[0]`.
impl fmt::Display for LayerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, i) in self.0.iter().enumerate() {
            write!(f, "{}layers[{i}]", if depth == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

/// One mistake in a preset: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The layer it belongs to; `None` for mistakes outside the layers.
    pub layer: Option<LayerPath>,
    /// The field: `layers[1].rate`, `optimizer.lr`, or empty for the whole document.
    pub path: String,
    /// What is wrong, with what was found.
    pub message: String,
    /// What is allowed, or how to fix it.
    pub help: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{}", self.message)?;
        if !self.help.is_empty() {
            write!(f, "; {}", self.help)?;
        }
        Ok(())
    }
}
