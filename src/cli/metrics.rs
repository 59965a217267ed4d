//! The metrics of an evaluation, as `train --json` and `predict --json` print them.

use crate::model::Model;
use crate::train::{Evaluation, perplexity};
use serde::Serialize;

/// The loss of an evaluation, and what else its network has.
#[derive(Clone, Serialize)]
pub struct Metrics {
    /// Mean loss, without label smoothing.
    pub loss: f64,
    pub accuracy: Option<f64>,
    /// If each position of a sample has a class: the share of samples whose positions are all predicted correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exact: Option<f64>,
    /// The perplexity, for networks that predict tokens: the number of equally likely tokens that would be as hard to
    /// predict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
}

impl Metrics {
    #[must_use]
    pub fn of(model: &Model, found: &Evaluation) -> Self {
        let &Evaluation { loss, accuracy, exact, .. } = found;
        Self { loss, accuracy, exact, perplexity: perplexity(model, loss) }
    }

    /// The share of exact samples, if there are any: no sample of a long text is predicted correctly at all positions.
    #[must_use]
    pub fn some_exact(&self) -> Option<f64> {
        self.exact.filter(|share| *share > 0.0)
    }
}
