//! Mistakes in a preset, as data.

use super::path::LayerPath;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One mistake in a preset: its place, a message, and help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The layer it belongs to; `None` for mistakes outside the layers.
    pub layer: Option<LayerPath>,
    /// The field: `layers[1].rate`, `optimizer.lr`, or empty for the whole document.
    pub path: String,
    /// What is wrong, including what was found.
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
