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
            // Statistics of features are stored in the order of their scales.
            let (rows, cols) = l.matrix(x);
            (x, rows, cols)
        }
    }
}

/// The common start of both kinds of batch normalisation.
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
    let y = l.lower_value(node.outputs[0], layout);
    Batch { x, rows, channels, gamma, beta, running_mean, running_var, y }
}

impl Batch {
    /// What both kinds bind under the same names, and `more`.
    fn bound(&self, more: &[(&'static str, Option<LValueId>)]) -> Vec<(&'static str, Option<LValueId>)> {
        let common = [("x", self.x), ("gamma", self.gamma), ("beta", self.beta), ("y", self.y)];
        common.into_iter().map(|(slot, value)| (slot, Some(value))).chain(more.iter().copied()).collect()
    }
}

impl Lower for nodes::BatchNormEval {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let batch = batch(l, node);
        let Batch { rows, channels, running_mean, running_var, .. } = batch;
        let kind = OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps: Scalar::new(self.eps), act: None });
        let statistics = [("running_mean", Some(running_mean)), ("running_var", Some(running_var))];
        l.emit(kind, &batch.bound(&statistics));
    }
}

impl Lower for nodes::BatchNorm {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let batch = batch(l, node);
        let Batch { rows, channels, running_mean, running_var, .. } = batch;
        let [mean, rstd] = [1, 2].map(|i| Some(l.lower_value(node.outputs[i], Layout::Plain)));
        let new_mean = l.updated(node.outputs[3], running_mean);
        let new_var = l.updated(node.outputs[4], running_var);
        let (eps, momentum) = (Scalar::new(self.eps), Scalar::new(self.momentum));
        let kind = OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None });
        let statistics = [
            ("mean_prev", Some(running_mean)),
            ("var_prev", Some(running_var)),
            ("mean", mean),
            ("rstd", rstd),
            ("running_mean", Some(new_mean)),
            ("running_var", Some(new_var)),
        ];
        l.emit(kind, &batch.bound(&statistics));
    }
}

impl Lower for nodes::LayerNorm {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { eps, rms } = *self;
        let x = l.lowered(node.inputs[0]);
        let (x, rows, cols) = norm_input(l, x, node.inputs[1], false);
        let order = l.graph.value(node.inputs[1]).param.and_then(|p| l.orders[p.0 as usize]);
        if let Some(p) = node.inputs.get(2).and_then(|&beta| l.graph.value(beta).param) {
            l.orders[p.0 as usize] = order;
        }
        let layout = l.lv(x).layout;
        let [gamma, beta] = [1, 2].map(|i| node.inputs.get(i).map(|&v| l.lowered(v)));
        let y = Some(l.lower_value(node.outputs[0], layout));
        let statistics = if rms { [None, Some(1)] } else { [Some(1), Some(2)] };
        let [mean, rstd] = statistics.map(|i| i.map(|i| l.lower_value(node.outputs[i], Layout::Plain)));
        let kind = OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps: Scalar::new(eps), rms });
        l.emit(kind, &[("x", Some(x)), ("gamma", gamma), ("beta", beta), ("y", y), ("mean", mean), ("rstd", rstd)]);
    }
}

impl Lower for nodes::BatchNormBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let accumulate = self.accumulate;
        let kind =
            |rows, channels| OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, act_grad: None, accumulate });
        gradients(l, node, true, &GRADIENTS, kind);
    }
}

impl Lower for nodes::LayerNormBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { accumulate, rms } = *self;
        let part = ops::GradientPart::All;
        let kind = |rows, cols| OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate, rms, part });
        gradients(l, node, false, if rms { &UNCENTRED_GRADIENTS } else { &GRADIENTS }, kind);
    }
}

/// The slots of a derivative after `dy` and `x`, in the order of the node's inputs and outputs.
struct Slots {
    inputs: &'static [&'static str],
    /// The first is the gradient of the input, the others are those of parameters.
    outputs: &'static [&'static str],
}

const GRADIENTS: Slots =
    Slots { inputs: &["gamma", "mean", "rstd", "dgamma_prev", "dbeta_prev"], outputs: &["dx", "dgamma", "dbeta"] };
/// The same for values with neither a mean nor a shift.
const UNCENTRED_GRADIENTS: Slots = Slots { inputs: &["gamma", "rstd", "dgamma_prev"], outputs: &["dx", "dgamma"] };

/// The gradients of the input and the parameters; `kind` returns the operation for this number of rows and columns.
fn gradients(l: &mut Lowerer<'_>, node: &Node, batch: bool, slots: &Slots, kind: impl FnOnce(usize, usize) -> OpKind) {
    let x = l.lowered(node.inputs[1]);
    let (x, rows, cols) = norm_input(l, x, node.inputs[2], batch);
    let layout = l.lv(x).layout;
    let dy = l.lowered(node.inputs[0]);
    let dy = l.arranged(dy, layout);
    let mut bound = vec![("dy", Some(dy)), ("x", Some(x))];
    // Values to add to come last, and exist if gradients accumulate.
    let inputs = slots.inputs.iter().zip(&node.inputs[2..]);
    bound.extend(inputs.map(|(&slot, &v)| (slot, Some(l.lowered(v)))));
    for (i, (&slot, &v)) in slots.outputs.iter().zip(&node.outputs).enumerate() {
        bound.push((slot, Some(if i == 0 { l.lower_value(v, layout) } else { l.gradient(v) })));
    }
    l.emit(kind(rows, cols), &bound);
}
