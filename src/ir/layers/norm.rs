//! `batch_norm`, `layer_norm` and `rms_norm`.

use crate::ir::Mode;
use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes::{self, NodeKind};
use crate::ir::value::{Role, ValueId};
use crate::model::ParamKind;
use crate::model::layers::{BatchNorm, LayerNorm, RmsNorm};
use crate::tensor::Shape;

impl Forward for BatchNorm {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let (inputs, y) = begin(b, at);
        if b.mode == Mode::Eval {
            b.node(nodes::BatchNormEval { eps: self.eps }, inputs, vec![y]);
        } else {
            let x = b.save(at.x);
            let channels = Shape::from([at.layer.input.0[0]]);
            let (mean, rstd) = (b.real("mean", channels.clone()), b.real("rstd", channels.clone()));
            let mut outputs = vec![y, mean, rstd];
            for kind in [ParamKind::RunningMean, ParamKind::RunningVar] {
                if let Some(p) = b.param(at.layer, kind) {
                    let name = b.local_name(&format!("{}.new", kind.file_name()));
                    let new = b.value(name, Role::State, channels.clone(), b.real);
                    b.values[new.0 as usize].param = Some(p);
                    b.current[p.0 as usize] = new;
                    outputs.push(new);
                }
            }
            b.node(nodes::BatchNorm { eps: self.eps, momentum: self.momentum }, inputs, outputs);
            let kind = |accumulate| nodes::BatchNormBwd { accumulate }.into();
            b.record(Normalised { x, mean: Some(mean), rstd, kind });
        }
        b.trained_before = true;
        y
    }
}

impl Forward for LayerNorm {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let rows = nodes::LayerNorm { eps: self.eps, rms: false };
        normalised_rows(b, at, rows, |accumulate| nodes::LayerNormBwd { accumulate, rms: false }.into())
    }
}

impl Forward for RmsNorm {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let rows = nodes::LayerNorm { eps: self.eps, rms: true };
        normalised_rows(b, at, rows, |accumulate| nodes::LayerNormBwd { accumulate, rms: true }.into())
    }
}

/// Normalises rows with `node`; `kind` is the node of the derivative.
fn normalised_rows(b: &mut Builder<'_>, at: &At<'_>, node: nodes::LayerNorm, kind: fn(bool) -> NodeKind) -> ValueId {
    let (inputs, y) = begin(b, at);
    let x = b.save(at.x);
    let rows = Shape(at.out.0[..at.out.rank() - 1].to_vec());
    let mean = (!node.rms).then(|| b.real("mean", rows.clone()));
    let rstd = b.real("rstd", rows);
    b.node(node, inputs, [Some(y), mean, Some(rstd)].into_iter().flatten().collect());
    b.record(Normalised { x, mean, rstd, kind });
    b.trained_before = true;
    y
}

/// The inputs of a normalisation, including its parameters, and its output.
fn begin(b: &mut Builder<'_>, at: &At<'_>) -> (Vec<ValueId>, ValueId) {
    let kinds = [ParamKind::Gamma, ParamKind::Beta, ParamKind::RunningMean, ParamKind::RunningVar];
    let params = kinds.iter().filter_map(|&kind| b.param_value(at.layer, kind));
    let inputs = std::iter::once(at.x).chain(params).collect();
    (inputs, b.real("y", at.out.clone()))
}

struct Normalised {
    x: ValueId,
    /// There is no mean if values are not centred.
    mean: Option<ValueId>,
    rstd: ValueId,
    /// The node of the derivative; the argument says whether it adds to existing gradients.
    kind: fn(bool) -> NodeKind,
}

impl Derivative for Normalised {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let (g_before, dgamma) = b.param_grad(at.layer, ParamKind::Gamma, "gW");
        let (b_before, dbeta) = b.param_grad(at.layer, ParamKind::Beta, "gB");
        let shape = b.shape(self.x);
        let dx = b.real("gA", shape);
        let gamma = b.param_value(at.layer, ParamKind::Gamma);
        let inputs = [Some(at.dy), Some(self.x), gamma, self.mean, Some(self.rstd), g_before, b_before];
        let outputs = [Some(dx), dgamma, dbeta].into_iter().flatten().collect();
        b.node((self.kind)(g_before.is_some()), inputs.into_iter().flatten().collect(), outputs);
        at.input_grad.then_some(dx)
    }
}
