//! Totals over layers.

use crate::studio::view_models::format;
use crate::studio::view_models::plan::LayerUse;
use crate::tensor::Bytes;

/// The totals of a layer, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Trained values.
    pub params: usize,
    /// Their cost in the step, if it is compiled.
    pub step: Option<LayerUse>,
}

impl Totals {
    /// Adds other totals.
    pub fn add(&mut self, other: Self) {
        self.params = self.params.saturating_add(other.params);
        if let Some(other) = other.step {
            let sum = self.step.get_or_insert_default();
            sum.share += other.share;
            sum.bytes += other.bytes;
        }
    }

    /// Parameters, bytes and share of the work in a line.
    #[must_use]
    pub fn facts(self) -> String {
        let mut parts = Vec::new();
        if self.params > 0 {
            parts.push(format!("{} params", format::count(self.params as f64)));
        }
        if let Some(LayerUse { share, bytes }) = self.step {
            parts.extend((bytes > 0).then(|| Bytes(bytes).to_string()));
            parts.extend((share > 0.0).then(|| format!("{} of FLOPs", format::percent(share))));
        }
        parts.join(" · ")
    }
}
