//! Losses, their gradients, and the accuracy.

use super::node_type::{Shapes, must, same, shape_rules};
use crate::model::losses::PointFn;
use serde::{Deserialize, Serialize};

/// `logits, labels -> loss, probs`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxCrossEntropy {
    pub smoothing: f64,
}

/// `probs, labels -> dlogits`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoftmaxCrossEntropyGrad {
    pub smoothing: f64,
}

/// `y, target -> loss`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mse {}

/// `y, target -> dy`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MseGrad {}

/// `y, target -> loss`: the mean of a function of each element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointLoss {
    pub func: PointFn,
    pub delta: f64,
}

/// `y, target -> dy`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointLossGrad {
    pub func: PointFn,
    pub delta: f64,
}

/// `logits, target -> accuracy`, if targets are 0 or 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BinaryAccuracy {}

/// `logits, labels -> accuracy`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {}

shape_rules! {
    SoftmaxCrossEntropy: |at| {
        must(are_labels(at) && at.output(0) == [1], "one label a row, one loss")?;
        same(at.input(0), at.output(1))
    };
    Accuracy: |at| must(are_labels(at) && at.output(0) == [1], "one label a row");
    SoftmaxCrossEntropyGrad, MseGrad: |at| same(at.input(0), at.output(0));
    Mse: |at| same(at.input(0), at.input(1));
    PointLoss, BinaryAccuracy: |at| {
        must(at.output(0) == [1], "one number for all elements")?;
        same(at.input(0), at.input(1))
    };
    PointLossGrad: |at| {
        same(at.input(0), at.input(1))?;
        same(at.input(0), at.output(0))
    };
}

/// Whether the second input has a label for each row of the first one: for each sample, or for each position.
fn are_labels(at: &Shapes<'_>) -> bool {
    at.input(0).split_last().is_some_and(|(_, rows)| at.input(1) == rows)
}
