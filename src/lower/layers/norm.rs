//! Normalisations and their gradients.

use super::Lower;
use crate::ir::{Node, ValueId, nodes};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{LValueId, Layout};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::Scalar;

/// A normalisation's input with its rows and channels, in the order of its parameters.
fn norm_input(l: &mut Lowerer<'_>, x: LValueId, gamma: ValueId, batch: bool) -> (LValueId, usize, usize) {
    match l.lv(x).shape.0[..] {
        [n, c, h, w] if batch => (l.image(x), n * h * w, c),
        _ => {
            let x = l.features(x, gamma, 1);
            // Every statistic of a feature lies in the order of its scale.
            let (rows, cols) = l.matrix(x);
            (x, rows, cols)
        }
    }
}

/// What both kinds of batch normalisation begin with.
struct Batch {
    x: LValueId,
    rows: usize,
    channels: usize,
    gamma: LValueId,
    beta: LValueId,
    running_mean: LValueId,
    running_var: LValueId,
    y: LValueId,
}

/// The input, the parameters and statistics, all in one order, and the output.
fn batch(l: &mut Lowerer<'_>, node: &Node) -> Batch {
    let x = l.lowered(node.inputs[0]);
    let (x, rows, channels) = norm_input(l, x, node.inputs[1], true);
    let order = l.graph.value(node.inputs[1]).param.and_then(|p| l.orders[p.0 as usize]);
    for i in 2..5 {
        if let (Some(p), Some(order)) = (l.graph.value(node.inputs[i]).param, order) {
            l.orders[p.0 as usize] = Some(order);
        }
    }
    let layout = l.lv(x).layout;
    let [gamma, beta, running_mean, running_var] = [1, 2, 3, 4].map(|i| l.lowered(node.inputs[i]));
    let y = l.twin(node.outputs[0], layout);
    Batch { x, rows, channels, gamma, beta, running_mean, running_var, y }
}

impl Lower for nodes::BatchNormEval {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Batch { x, rows, channels, gamma, beta, running_mean, running_var, y } = batch(l, node);
        let kind = OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps: Scalar::new(self.eps), act: None });
        let bound = [
            ("x", Some(x)),
            ("gamma", Some(gamma)),
            ("beta", Some(beta)),
            ("running_mean", Some(running_mean)),
            ("running_var", Some(running_var)),
            ("y", Some(y)),
        ];
        l.emit(kind, &bound);
    }
}

impl Lower for nodes::BatchNorm {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Batch { x, rows, channels, gamma, beta, running_mean, running_var, y } = batch(l, node);
        let [mean, rstd] = [1, 2].map(|i| Some(l.twin(node.outputs[i], Layout::Plain)));
        let new_mean = l.updated(node.outputs[3], running_mean);
        let new_var = l.updated(node.outputs[4], running_var);
        let (eps, momentum) = (Scalar::new(self.eps), Scalar::new(self.momentum));
        let kind = OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None });
        let bound = [
            ("x", Some(x)),
            ("gamma", Some(gamma)),
            ("beta", Some(beta)),
            ("mean_prev", Some(running_mean)),
            ("var_prev", Some(running_var)),
            ("y", Some(y)),
            ("mean", mean),
            ("rstd", rstd),
            ("running_mean", Some(new_mean)),
            ("running_var", Some(new_var)),
        ];
        l.emit(kind, &bound);
    }
}

impl Lower for nodes::LayerNorm {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let eps = self.eps;
        let x = l.lowered(node.inputs[0]);
        let (x, rows, cols) = norm_input(l, x, node.inputs[1], false);
        let order = l.graph.value(node.inputs[1]).param.and_then(|p| l.orders[p.0 as usize]);
        if let Some(p) = l.graph.value(node.inputs[2]).param {
            l.orders[p.0 as usize] = order;
        }
        let layout = l.lv(x).layout;
        let [gamma, beta] = [1, 2].map(|i| Some(l.lowered(node.inputs[i])));
        let y = Some(l.twin(node.outputs[0], layout));
        let [mean, rstd] = [1, 2].map(|i| Some(l.twin(node.outputs[i], Layout::Plain)));
        let kind = OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps: Scalar::new(eps) });
        l.emit(kind, &[("x", Some(x)), ("gamma", gamma), ("beta", beta), ("y", y), ("mean", mean), ("rstd", rstd)]);
    }
}

impl Lower for nodes::BatchNormBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let accumulate = self.accumulate;
        let kind =
            |rows, channels| OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: None, accumulate });
        gradients(l, node, true, accumulate, kind);
    }
}

impl Lower for nodes::LayerNormBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let accumulate = self.accumulate;
        let kind = |rows, cols| OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate });
        gradients(l, node, false, accumulate, kind);
    }
}

/// The gradients of the input, the scale and the shift; `kind` is the operation for so many rows and columns.
fn gradients(
    l: &mut Lowerer<'_>,
    node: &Node,
    batch: bool,
    accumulate: bool,
    kind: impl FnOnce(usize, usize) -> OpKind,
) {
    let x = l.lowered(node.inputs[1]);
    let (x, rows, cols) = norm_input(l, x, node.inputs[2], batch);
    let layout = l.lv(x).layout;
    let dy = l.lowered(node.inputs[0]);
    let dy = l.arranged(dy, layout);
    let [gamma, mean, rstd] = [2, 3, 4].map(|i| Some(l.lowered(node.inputs[i])));
    let [g_prev, b_prev] = [5, 6].map(|i| accumulate.then(|| l.lowered(node.inputs[i])));
    let dx = Some(l.twin(node.outputs[0], layout));
    let [dgamma, dbeta] = [1, 2].map(|i| Some(l.gradient(node.outputs[i])));
    let kind = kind(rows, cols);
    let bound = [
        ("dy", Some(dy)),
        ("x", Some(x)),
        ("gamma", gamma),
        ("mean", mean),
        ("rstd", rstd),
        ("dgamma_prev", g_prev),
        ("dbeta_prev", b_prev),
        ("dx", dx),
        ("dgamma", dgamma),
        ("dbeta", dbeta),
    ];
    l.emit(kind, &bound);
}
