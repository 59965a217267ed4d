//! What a network asks of its data.

use crate::model::Model;
use crate::tensor::Shape;

/// What the network asks of its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The preset's `input.shape`: `[features]` or `[C, H, W]`.
    pub input: Shape,
    /// The network's output for one sample.
    pub output: Shape,
    /// Whether the loss takes classes (softmax cross-entropy) or values (mean squared error).
    pub wants_classes: bool,
    /// The run's seed, from which synthetic data and the split follow.
    pub seed: u64,
}

impl Request {
    /// What a network asks of its data in a run with this seed.
    #[must_use]
    pub fn of(model: &Model, seed: u64) -> Self {
        let wants_classes = model.loss.wants_classes();
        Self { input: model.input.clone(), output: model.output.clone(), wants_classes, seed }
    }
}
