//! Losses, their gradients, and the accuracy.

use super::Lower;
use crate::ir::{Node, Role, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{LValue, LValueId, Layout};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::Scalar;
use crate::tensor::Shape;

/// The common arguments of every node of the loss.
struct Part {
    /// The output of the network, or a value computed from it.
    a: LValueId,
    target: LValueId,
    /// The node's first output.
    out: LValueId,
    rows: usize,
    classes: usize,
    len: usize,
}

fn part(l: &mut Lowerer<'_>, node: &Node) -> Part {
    let (a, target) = (l.lowered(node.inputs[0]), l.lowered(node.inputs[1]));
    let a = l.arranged(a, Layout::Plain);
    let (rows, classes) = l.matrix(a);
    let len = l.lv(a).shape.len();
    let out = l.lower_value(node.outputs[0], Layout::Plain);
    Part { a, target, out, rows, classes, len }
}

impl Lower for nodes::SoftmaxCrossEntropy {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, rows, classes, .. } = part(l, node);
        let probs = l.lower_value(node.outputs[1], Layout::Plain);
        let row_loss = LValue {
            name: "loss.rows".into(),
            role: Role::Activation,
            shape: Shape::from([rows]),
            persistent: false,
            ..l.lv(out).clone()
        };
        let row_loss = Some(l.push(row_loss));
        let kind = OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing: Scalar::new(self.smoothing) });
        let bound = [("logits", Some(a)), ("labels", Some(target)), ("row_loss", row_loss), ("probs", Some(probs))];
        l.emit(kind, &bound);
        l.emit(OpKind::LossMean(ops::LossMean { rows }), &[("row_loss", row_loss), ("loss", Some(out))]);
    }
}

impl Lower for nodes::SoftmaxCrossEntropyGrad {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, rows, classes, .. } = part(l, node);
        let kind = OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing: Scalar::new(self.smoothing) });
        l.emit(kind, &[("probs", Some(a)), ("labels", Some(target)), ("dlogits", Some(out))]);
    }
}

impl Lower for nodes::Accuracy {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, rows, classes, .. } = part(l, node);
        let kind = OpKind::Accuracy(ops::Accuracy { rows, classes });
        l.emit(kind, &[("scores", Some(a)), ("labels", Some(target)), ("accuracy", Some(out))]);
    }
}

impl Lower for nodes::PointLoss {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, len, .. } = part(l, node);
        let kind = OpKind::PointLoss(ops::PointLoss { func: self.func, delta: Scalar::new(self.delta), len });
        l.emit(kind, &[("y", Some(a)), ("target", Some(target)), ("loss", Some(out))]);
    }
}

impl Lower for nodes::PointLossGrad {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, len, .. } = part(l, node);
        let kind = OpKind::PointLossGrad(ops::PointLossGrad { func: self.func, delta: Scalar::new(self.delta), len });
        l.emit(kind, &[("y", Some(a)), ("target", Some(target)), ("dy", Some(out))]);
    }
}

impl Lower for nodes::BinaryAccuracy {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, len, .. } = part(l, node);
        let kind = OpKind::BinaryAccuracy(ops::BinaryAccuracy { len });
        l.emit(kind, &[("y", Some(a)), ("target", Some(target)), ("accuracy", Some(out))]);
    }
}

impl Lower for nodes::Mse {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, len, .. } = part(l, node);
        l.emit(OpKind::Mse(ops::Mse { len }), &[("y", Some(a)), ("target", Some(target)), ("loss", Some(out))]);
    }
}

impl Lower for nodes::MseGrad {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Part { a, target, out, len, .. } = part(l, node);
        l.emit(OpKind::MseGrad(ops::MseGrad { len }), &[("y", Some(a)), ("target", Some(target)), ("dy", Some(out))]);
    }
}
