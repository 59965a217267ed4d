//! The loss, its gradient with respect to the output, and the accuracy.

use super::builder::Builder;
use super::graph::Phase;
use super::nodes::{Accuracy, Mse, MseGrad, SoftmaxCrossEntropy, SoftmaxCrossEntropyGrad};
use super::value::{Role, ValueId};
use crate::model::LossSpec;
use crate::tensor::Shape;

impl Builder<'_> {
    /// Adds the loss and gives its gradient with respect to the output.
    pub(super) fn loss(&mut self, output: ValueId, targets: ValueId) -> ValueId {
        self.phase = Phase::Loss;
        let loss = self.value("loss".into(), Role::Metric, Shape::from([1]), self.real);
        let shape = self.shape(output);
        match self.model.loss {
            LossSpec::SoftmaxCrossEntropy { label_smoothing: smoothing } => {
                if self.metrics.accuracy {
                    let accuracy = self.value("accuracy".into(), Role::Metric, Shape::from([1]), self.real);
                    self.phase = Phase::Metric;
                    self.node(Accuracy {}, vec![output, targets], vec![accuracy]);
                    self.phase = Phase::Loss;
                }
                let probs = self.value("loss.probs".into(), Role::Activation, shape.clone(), self.real);
                self.node(SoftmaxCrossEntropy { smoothing }, vec![output, targets], vec![loss, probs]);
                let grad = self.value("loss.dY".into(), Role::Grad, shape, self.real);
                self.node(SoftmaxCrossEntropyGrad { smoothing }, vec![probs, targets], vec![grad]);
                grad
            }
            LossSpec::Mse => {
                self.node(Mse {}, vec![output, targets], vec![loss]);
                let grad = self.value("loss.dY".into(), Role::Grad, shape, self.real);
                self.node(MseGrad {}, vec![output, targets], vec![grad]);
                grad
            }
        }
    }
}
