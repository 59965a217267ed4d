//! Lowering of the loss and of the update.

use super::Lowerer;
use crate::ir::{Node, NodeKind, OptimizerRule, Role};
use crate::lower::program::{Alias, LValue, Layout};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::Scalar;
use crate::tensor::Shape;

impl Lowerer<'_> {
    pub(super) fn loss(&mut self, node: &Node) {
        let (a, target) = (self.lowered(node.inputs[0]), Some(self.lowered(node.inputs[1])));
        let a = self.arranged(a, Layout::Plain);
        let shape = self.lv(a).shape.clone();
        let (rows, classes, len) = (shape.0[0], shape.0.get(1).copied().unwrap_or(1), shape.len());
        let first = self.twin(node.outputs[0], Layout::Plain);
        match node.kind {
            NodeKind::SoftmaxCrossEntropy { smoothing } => {
                let probs = self.twin(node.outputs[1], Layout::Plain);
                let row_loss = LValue {
                    name: "loss.rows".into(),
                    role: Role::Activation,
                    shape: Shape::from([rows]),
                    persistent: false,
                    ..self.lv(first).clone()
                };
                let row_loss = Some(self.push(row_loss));
                let kind = OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, smoothing: Scalar::new(smoothing) });
                self.emit(
                    kind,
                    &[("logits", Some(a)), ("labels", target), ("row_loss", row_loss), ("probs", Some(probs))],
                );
                self.emit(OpKind::LossMean(ops::LossMean { rows }), &[("row_loss", row_loss), ("loss", Some(first))]);
            }
            NodeKind::SoftmaxCrossEntropyGrad { smoothing } => {
                let kind =
                    OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing: Scalar::new(smoothing) });
                self.emit(kind, &[("probs", Some(a)), ("labels", target), ("dlogits", Some(first))]);
            }
            NodeKind::Accuracy => {
                self.emit(
                    OpKind::Accuracy(ops::Accuracy { rows, classes }),
                    &[("scores", Some(a)), ("labels", target), ("accuracy", Some(first))],
                );
            }
            NodeKind::Mse => {
                self.emit(OpKind::Mse(ops::Mse { len }), &[("y", Some(a)), ("target", target), ("loss", Some(first))])
            }
            _ => self.emit(
                OpKind::MseGrad(ops::MseGrad { len }),
                &[("y", Some(a)), ("target", target), ("dy", Some(first))],
            ),
        }
    }

    pub(super) fn optimizer(&mut self, node: &Node, rule: OptimizerRule, measured: bool) {
        let real = self.graph.value(self.graph.x).dtype;
        let params = self.flat("params", Role::Param, real, true);
        let grads = self.flat("grads", Role::Grad, real, false);
        let hyper = Some(self.lowered(node.inputs[0]));
        // The new values of single parameters and moments lie where the old ones lay.
        for (before, after) in &self.graph.updates.clone() {
            if self.graph.value(*after).producer == Some(self.node) {
                let before = self.lowered(*before);
                self.updated(*after, before);
            }
        }
        let flat_update = |l: &mut Self, name: &'static str, role: Role| {
            let before = l.flat(name, role, real, true);
            let after = LValue {
                name: format!("{name}.new"),
                alias: Some(Alias { of: before, start: 0 }),
                ..l.lv(before).clone()
            };
            (Some(before), Some(l.push(after)))
        };
        let (_, new_params) = flat_update(self, "params", Role::Param);
        let measures = node.outputs.len().saturating_sub(2);
        let [max, sq] = [0, 1].map(|i| measured.then(|| self.twin(node.outputs[measures + i], Layout::Plain)));
        let (len, segments) = (self.flat_len, self.segments.iter().map(|(_, s)| *s).collect());
        match rule {
            OptimizerRule::Sgd { momentum, nesterov } => {
                let (prev, next) =
                    if momentum > 0.0 { flat_update(self, "momentum", Role::State) } else { (None, None) };
                let kind = OpKind::SgdStep(ops::SgdStep { len, segments, momentum: Scalar::new(momentum), nesterov });
                let bound = [
                    ("param_prev", Some(params)),
                    ("grad", Some(grads)),
                    ("momentum_prev", prev),
                    ("hyper", hyper),
                    ("param", new_params),
                    ("momentum", next),
                    ("update_max", max),
                    ("grad_norm_seg", sq),
                ];
                self.emit(kind, &bound);
            }
            OptimizerRule::Adam { betas, eps, decoupled } => {
                let corr = Some(self.lowered(node.inputs[1]));
                let (m_prev, m) = flat_update(self, "m", Role::State);
                let (v_prev, v) = flat_update(self, "v", Role::State);
                let [beta1, beta2] = betas.map(Scalar::new);
                let kind =
                    OpKind::AdamStep(ops::AdamStep { len, segments, beta1, beta2, eps: Scalar::new(eps), decoupled });
                let bound = [
                    ("param_prev", Some(params)),
                    ("grad", Some(grads)),
                    ("m_prev", m_prev),
                    ("v_prev", v_prev),
                    ("hyper", hyper),
                    ("corr", corr),
                    ("param", new_params),
                    ("m", m),
                    ("v", v),
                    ("update_max", max),
                    ("grad_norm_seg", sq),
                ];
                self.emit(kind, &bound);
            }
        }
    }
}
