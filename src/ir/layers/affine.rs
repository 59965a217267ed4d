//! `dense` and `conv2d`: a product with a weight, a bias, and an activation; and the products inside other layers.

use super::activation::activation;
use crate::ir::builder::{At, Backward, Builder, Derivative, Forward};
use crate::ir::nodes::{self, NodeKind, Over, Window};
use crate::ir::value::ValueId;
use crate::model::ParamKind;
use crate::model::layers::{Conv1d, Conv2d, Dense, Padding1d};
use crate::tensor::Shape;

impl Forward for Dense {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        affine(b, at, None)
    }
}

impl Forward for Conv2d {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let (size, stride, padding, dilation) = (self.kernel, self.stride, self.pad(), self.dilation);
        affine(b, at, Some((Window { size, stride, padding, dilation, over: Over::Image }, self.groups)))
    }
}

impl Forward for Conv1d {
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId {
        let over = if self.padding == Padding1d::Causal { Over::Causal } else { Over::Sequence };
        let (size, stride, dilation) = ([1, self.kernel], [1, self.stride], [1, self.dilation]);
        let [before, _] = self.pad();
        affine(b, at, Some((Window { size, stride, padding: [0, before], dilation, over }, self.groups)))
    }
}

/// The product (a convolution if there is a window, with its number of groups) and what follows it.
fn affine(b: &mut Builder<'_>, at: &At<'_>, conv: Option<(Window, usize)>) -> ValueId {
    let x = b.save(at.x);
    let w = b.param_value(at.layer, ParamKind::Weight);
    let bias = b.param_value(at.layer, ParamKind::Bias);
    let function = at.layer.spec.activation();
    let y = b.real(if function.is_some() { "z" } else { "y" }, at.out.clone());
    let inputs: Vec<ValueId> = [Some(at.x), w, bias].into_iter().flatten().collect();
    let (bias, tied) = (bias.is_some(), at.layer.spec.tied().is_some());
    match conv {
        Some((window, groups)) => b.node(nodes::Conv2d { window, groups, bias }, inputs, vec![y]),
        None => b.node(nodes::Linear { bias, tied }, inputs, vec![y]),
    }
    b.record(Product { x, bias, tied, conv, params: Params::OF_LAYER });
    b.trained_before = true;
    match function {
        Some(function) => activation(b, function, y, at.out.clone()),
        None => y,
    }
}

/// The parameters of a product, and the names of the gradients of its weight, its bias and its input.
#[derive(Clone, Copy)]
pub(super) struct Params {
    pub weight: ParamKind,
    pub bias: ParamKind,
    pub gradients: [&'static str; 3],
    /// Outputs whose bias is known to have a gradient of zero.
    pub zeros: Option<[usize; 2]>,
}

impl Params {
    /// The parameters of a layer with one product.
    const OF_LAYER: Self =
        Self { weight: ParamKind::Weight, bias: ParamKind::Bias, gradients: ["gW", "gB", "gA"], zeros: None };
}

/// A product of the rows of `x` with `out` outputs and this name, in a layer with several products.
pub(super) fn projection(b: &mut Builder<'_>, at: &At<'_>, x: ValueId, params: Params, y: (&str, Shape)) -> ValueId {
    let saved = b.save(x);
    let w = b.param_value(at.layer, params.weight);
    let bias = b.param_value(at.layer, params.bias);
    let y = b.real(y.0, y.1);
    let node = nodes::Linear { bias: bias.is_some(), tied: false };
    b.node(node, [Some(x), w, bias].into_iter().flatten().collect(), vec![y]);
    b.record(Product { x: saved, bias: bias.is_some(), tied: false, conv: None, params });
    b.trained_before = true;
    y
}

struct Product {
    x: ValueId,
    bias: bool,
    /// Whether the weight is the transposed table of an embedding.
    tied: bool,
    conv: Option<(Window, usize)>,
    params: Params,
}

impl Derivative for Product {
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId> {
        let Self { x, bias, tied, conv, params } = *self;
        let [of_weight, of_bias, of_input] = params.gradients;
        let (w_before, dw) = b.param_grad(at.layer, params.weight, of_weight);
        let (b_before, db) = b.param_grad(at.layer, params.bias, of_bias);
        let shape = b.shape(x);
        let dx = at.input_grad.then(|| b.real(of_input, shape));
        let w = b.param_value(at.layer, params.weight);
        let inputs = [Some(at.dy), Some(x), w, w_before, b_before].into_iter().flatten().collect();
        let outputs = [dw, db, dx].into_iter().flatten().collect();
        let (input_grad, accumulate) = (at.input_grad, w_before.is_some());
        let kind: NodeKind = match conv {
            Some((window, groups)) => nodes::Conv2dBwd { window, groups, bias, input_grad, accumulate }.into(),
            None => nodes::LinearBwd { bias, input_grad, accumulate, tied, zeros: params.zeros }.into(),
        };
        b.node(kind, inputs, outputs);
        dx
    }
}
