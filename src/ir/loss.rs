//! The loss, its gradient with respect to the output, and the accuracy.

use super::builder::Builder;
use super::graph::Phase;
use super::nodes::{
    Accuracy, BinaryAccuracy, Mse, MseGrad, NodeKind, PointLoss, PointLossGrad, SoftmaxCrossEntropy,
    SoftmaxCrossEntropyGrad,
};
use super::value::{Role, ValueId};
use crate::model::{LossRule, Targets};
use crate::tensor::Shape;

impl Builder<'_> {
    /// Adds the loss and returns its gradient with respect to the output.
    pub(super) fn loss(&mut self, output: ValueId, targets: ValueId) -> ValueId {
        self.phase = Phase::Loss;
        let loss = self.value("loss".into(), Role::Metric, Shape::from([1]), self.real);
        let shape = self.shape(output);
        self.accuracy(output, targets);
        match self.model.loss.rule() {
            LossRule::SoftmaxCrossEntropy { smoothing } => {
                let probs = self.value("loss.probs".into(), Role::Activation, shape.clone(), self.real);
                self.node(SoftmaxCrossEntropy { smoothing }, vec![output, targets], vec![loss, probs]);
                let grad = self.value("loss.dY".into(), Role::Grad, shape, self.real);
                self.node(SoftmaxCrossEntropyGrad { smoothing }, vec![probs, targets], vec![grad]);
                grad
            }
            LossRule::SquaredError => self.value_loss(Mse {}, MseGrad {}, [output, targets, loss]),
            LossRule::Pointwise { func, delta } => {
                self.value_loss(PointLoss { func, delta }, PointLossGrad { func, delta }, [output, targets, loss])
            }
        }
    }

    /// A loss on values and its gradient, both of which are computed from the output and the targets.
    fn value_loss(
        &mut self,
        kind: impl Into<NodeKind>,
        gradient: impl Into<NodeKind>,
        [output, targets, loss]: [ValueId; 3],
    ) -> ValueId {
        self.node(kind, vec![output, targets], vec![loss]);
        let grad = self.value("loss.dY".into(), Role::Grad, self.shape(output), self.real);
        self.node(gradient, vec![output, targets], vec![grad]);
        grad
    }

    /// Adds the accuracy, if it is requested and the loss has one.
    fn accuracy(&mut self, output: ValueId, targets: ValueId) {
        let kind: NodeKind = match self.model.loss.targets() {
            Targets::Classes => Accuracy {}.into(),
            Targets::Binary => BinaryAccuracy {}.into(),
            Targets::Values => return,
        };
        if self.metrics.accuracy {
            let accuracy = self.value("accuracy".into(), Role::Metric, Shape::from([1]), self.real);
            self.phase = Phase::Metric;
            self.node(kind, vec![output, targets], vec![accuracy]);
            self.phase = Phase::Loss;
        }
    }
}
