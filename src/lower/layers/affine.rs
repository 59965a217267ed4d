//! Products with weights: dense layers and convolutions, and their gradients.

use super::Lower;
use crate::ir::{Node, ValueId, Window, nodes};
use crate::lower::flat::{FilterOrder, ParamOrder};
use crate::lower::lowerer::Lowerer;
use crate::lower::program::{LValueId, Layout};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::{ConvGeometry, Epilogue, Gemm, Trans};

impl Lower for nodes::Linear {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { bias, tied } = *self;
        let x = l.lowered(node.inputs[0]);
        let (x, n) = factors(l, x, node.inputs[1], tied);
        let (m, k) = l.matrix(x);
        let w = l.lowered(node.inputs[1]);
        let trans = if tied { Trans::Nt } else { Trans::Nn };
        let kind = OpKind::Gemm(Gemm::plain(m, n, k, trans));
        let y = if bias {
            l.partial(node.outputs[0], Layout::Plain, "xW")
        } else {
            l.lower_value(node.outputs[0], Layout::Plain)
        };
        l.emit(kind, &[("a", Some(x)), ("b", Some(w)), ("c", Some(y))]);
        if bias {
            bias_add(l, node, y, m, n);
        }
    }
}

impl Lower for nodes::LinearBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { bias, input_grad, accumulate, tied, zeros } = *self;
        let (dy, x, w) = (l.lowered(node.inputs[0]), l.lowered(node.inputs[1]), node.inputs[2]);
        let dy = l.arranged(dy, Layout::Plain);
        let (x, n) = factors(l, x, w, tied);
        let (rows, k) = l.matrix(x);
        let w = l.lowered(w);
        // Existing gradients: first that of the weight, then that of the bias.
        let mut before = node.inputs[3..].iter().map(|id| l.lowered(*id));
        let w_prev = if accumulate { before.next() } else { None };
        let b_prev = before.next();
        let dw = l.gradient(node.outputs[0]);
        let gemm = |m, n, k, trans, accumulate| OpKind::Gemm(Gemm { accumulate, ..Gemm::plain(m, n, k, trans) });
        let (first, second, of_weight) = match tied {
            false => (x, dy, gemm(k, n, rows, Trans::Tn, accumulate)),
            true => (dy, x, gemm(n, k, rows, Trans::Tn, accumulate)),
        };
        l.emit(of_weight, &[("a", Some(first)), ("b", Some(second)), ("c_prev", w_prev), ("c", Some(dw))]);
        if bias {
            let db = l.gradient(node.outputs[1]);
            let kind = OpKind::BiasGrad(ops::BiasGrad { rows, cols: n, accumulate: b_prev.is_some(), zeros });
            l.emit(kind, &[("dy", Some(dy)), ("db_prev", b_prev), ("db", Some(db))]);
        }
        if input_grad {
            let layout = l.lv(x).layout;
            let dx = l.lower_value(node.outputs[1 + usize::from(bias)], layout);
            let trans = if tied { Trans::Nn } else { Trans::Nt };
            l.emit(gemm(rows, k, n, trans, false), &[("a", Some(dy)), ("b", Some(w)), ("c", Some(dx))]);
        }
    }
}

/// The input of a dense layer in the order that its weight requires, and the number of its outputs. The table of an
/// embedding is stored in logical order.
fn factors(l: &mut Lowerer<'_>, x: LValueId, weight: ValueId, tied: bool) -> (LValueId, usize) {
    let dims = &l.graph.value(weight).shape.0;
    let (inputs, outputs) = (dims[0], dims[1]);
    if tied { (l.arranged(x, Layout::Plain), inputs) } else { (l.features(x, weight, outputs), outputs) }
}

impl Lower for nodes::Conv2d {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { window, groups, bias } = *self;
        let x = l.lowered_image(node.inputs[0]);
        let y_dims = l.graph_dims4(node.outputs[0]);
        let geometry = conv_geometry(l.dims4(x), y_dims, window, groups);
        if let Some(p) = l.graph.value(node.inputs[1]).param {
            let [kh, kw] = geometry.kernel;
            let (f, c) = (geometry.f, geometry.c / groups);
            l.orders[p.0 as usize] = Some(match l.filters {
                FilterOrder::Hwio => ParamOrder::Hwio { f, c, kh, kw },
                FilterOrder::Ohwi => ParamOrder::Ohwi { f, c, kh, kw },
            });
        }
        let w = l.lowered(node.inputs[1]);
        let layout = l.image_layout(node.outputs[0]);
        let y = if bias { l.partial(node.outputs[0], layout, "xW") } else { l.lower_value(node.outputs[0], layout) };
        let kind = OpKind::Conv2d(ops::Conv2d { geometry, epilogue: Epilogue::default() });
        l.emit(kind, &[("a", Some(x)), ("b", Some(w)), ("c", Some(y))]);
        if bias {
            bias_add(l, node, y, geometry.n * geometry.ho * geometry.wo, geometry.f);
        }
    }
}

impl Lower for nodes::Conv2dBwd {
    fn lower(&self, l: &mut Lowerer<'_>, node: &Node) {
        let Self { window, groups, bias, input_grad, accumulate } = *self;
        let dy = l.lowered_image(node.inputs[0]);
        let x = l.lowered_image(node.inputs[1]);
        let w = l.lowered(node.inputs[2]);
        let geometry = conv_geometry(l.dims4(x), l.dims4(dy), window, groups);
        let before = |l: &Lowerer<'_>, i: usize| accumulate.then(|| l.lowered(node.inputs[i]));
        let (w_prev, b_prev) = (before(l, 3), if bias { before(l, 4) } else { None });
        let dw = l.gradient(node.outputs[0]);
        let kind = OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate });
        l.emit(kind, &[("a", Some(x)), ("b", Some(dy)), ("c_prev", w_prev), ("c", Some(dw))]);
        if bias {
            let db = l.gradient(node.outputs[1]);
            let kind = OpKind::BiasGrad(ops::BiasGrad {
                rows: geometry.n * geometry.ho * geometry.wo,
                cols: geometry.f,
                accumulate,
                zeros: None,
            });
            l.emit(kind, &[("dy", Some(dy)), ("db_prev", b_prev), ("db", Some(db))]);
        }
        if input_grad {
            let layout = l.lv(x).layout;
            let dx = l.lower_value(node.outputs[1 + usize::from(bias)], layout);
            let kind = OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue: Epilogue::default() });
            l.emit(kind, &[("a", Some(dy)), ("b", Some(w)), ("c", Some(dx))]);
        }
    }
}

fn conv_geometry(x: [usize; 4], y: [usize; 4], window: Window, groups: usize) -> ConvGeometry {
    let ([n, c, h, w], [_, f, ho, wo]) = (x, y);
    let Window { size: kernel, stride, padding, dilation, .. } = window;
    ConvGeometry { n, h, w, c, f, kernel, stride, padding, dilation, groups, ho, wo }
}

/// Adds the bias of a product, which is its third input, to the rows of `before`.
fn bias_add(l: &mut Lowerer<'_>, node: &Node, before: LValueId, rows: usize, cols: usize) {
    let layout = l.lv(before).layout;
    let out = l.lower_value(node.outputs[0], layout);
    // The value before the bias keeps the name of the sum, which is the name that the user knows.
    let b = l.lowered(node.inputs[2]);
    l.emit(OpKind::BiasAdd(ops::BiasAdd { rows, cols }), &[("x", Some(before)), ("bias", Some(b)), ("y", Some(out))]);
}
