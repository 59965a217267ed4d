//! Lowering of layers, forward and backward: products, normalisations, pooling.

use super::Lowerer;
use crate::ir::{Node, NodeKind, PoolKind, ValueId, Window};
use crate::lower::flat::{FilterOrder, ParamOrder};
use crate::lower::program::{LValueId, Layout};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::{ConvGeometry, Epilogue, Gemm, PoolGeometry, Scalar, Trans};

impl Lowerer<'_> {
    /// The input of a linear layer or layer norm: rows of features, in the order of the parameter's rows.
    pub(super) fn features(&mut self, x: LValueId, param: ValueId, cols: usize) -> LValueId {
        let layout = if self.lv(x).shape.rank() == 2 { self.lv(x).layout } else { Layout::Plain };
        let layout = self.row_order(param, layout, cols);
        self.arranged(x, layout)
    }

    pub(super) fn bias_add(
        &mut self,
        node: &Node,
        y: ValueId,
        before: LValueId,
        bias: usize,
        rows: usize,
        cols: usize,
    ) {
        let layout = self.lv(before).layout;
        let out = self.twin(y, layout);
        // The value before the bias keeps the name of the sum, which is what a person looks for.
        let b = self.lowered(node.inputs[bias]);
        self.emit(
            OpKind::BiasAdd(ops::BiasAdd { rows, cols }),
            &[("x", Some(before)), ("bias", Some(b)), ("y", Some(out))],
        );
    }

    /// An unnamed intermediate like graph value `y`.
    pub(super) fn partial(&mut self, y: ValueId, layout: Layout, what: &str) -> LValueId {
        let id = self.twin(y, layout);
        let name = format!("{}.{what}", self.lv(id).name);
        self.values[id.0 as usize].name = name;
        id
    }

    pub(super) fn linear(&mut self, node: &Node, bias: bool) {
        let x = self.lowered(node.inputs[0]);
        let (_, n) = {
            let w = &self.graph.value(node.inputs[1]).shape.0;
            (w[0], w[1])
        };
        let x = self.features(x, node.inputs[1], n);
        let (m, k) = self.matrix(x);
        let w = self.lowered(node.inputs[1]);
        let kind = OpKind::Gemm(Gemm { m, n, k, trans: Trans::Nn, accumulate: false, epilogue: Epilogue::default() });
        let y = if bias {
            self.partial(node.outputs[0], Layout::Plain, "xW")
        } else {
            self.twin(node.outputs[0], Layout::Plain)
        };
        self.emit(kind, &[("a", Some(x)), ("b", Some(w)), ("c", Some(y))]);
        if bias {
            self.bias_add(node, node.outputs[0], y, 2, m, n);
        }
    }

    pub(super) fn linear_bwd(&mut self, node: &Node, bias: bool, input_grad: bool, accumulate: bool) {
        let (dy, x, w) = (self.lowered(node.inputs[0]), self.lowered(node.inputs[1]), node.inputs[2]);
        let dy = self.arranged(dy, Layout::Plain);
        let n = self.graph.value(w).shape.0[1];
        let x = self.features(x, w, n);
        let (rows, k) = self.matrix(x);
        let w = self.lowered(w);
        let before = |l: &Self, i: usize| accumulate.then(|| l.lowered(node.inputs[i]));
        let (w_prev, b_prev) = (before(self, 3), if bias { before(self, 4) } else { None });
        let dw = self.gradient(node.outputs[0]);
        let gemm = |m, n, k, trans, accumulate| {
            OpKind::Gemm(Gemm { m, n, k, trans, accumulate, epilogue: Epilogue::default() })
        };
        self.emit(
            gemm(k, n, rows, Trans::Tn, accumulate),
            &[("a", Some(x)), ("b", Some(dy)), ("c_prev", w_prev), ("c", Some(dw))],
        );
        if bias {
            let db = self.gradient(node.outputs[1]);
            let kind = OpKind::BiasGrad(ops::BiasGrad { rows, cols: n, accumulate });
            self.emit(kind, &[("dy", Some(dy)), ("db_prev", b_prev), ("db", Some(db))]);
        }
        if input_grad {
            let layout = self.lv(x).layout;
            let dx = self.twin(node.outputs[1 + usize::from(bias)], layout);
            self.emit(gemm(rows, k, n, Trans::Nt, false), &[("a", Some(dy)), ("b", Some(w)), ("c", Some(dx))]);
        }
    }

    pub(super) fn conv_geometry(&self, x: [usize; 4], y: [usize; 4], window: Window, groups: usize) -> ConvGeometry {
        let ([n, c, h, w], [_, f, ho, wo]) = (x, y);
        let Window { size: kernel, stride, padding, dilation } = window;
        ConvGeometry { n, h, w, c, f, kernel, stride, padding, dilation, groups, ho, wo }
    }

    pub(super) fn conv(&mut self, node: &Node, window: Window, groups: usize, bias: bool) {
        let x = self.lowered(node.inputs[0]);
        let x = self.image(x);
        let y_dims = self.graph_dims4(node.outputs[0]);
        let geometry = self.conv_geometry(self.dims4(x), y_dims, window, groups);
        if let Some(p) = self.graph.value(node.inputs[1]).param {
            let [kh, kw] = geometry.kernel;
            let (f, c) = (geometry.f, geometry.c / groups);
            self.orders[p.0 as usize] = Some(match self.filters {
                FilterOrder::Hwio => ParamOrder::Hwio { f, c, kh, kw },
                FilterOrder::Ohwi => ParamOrder::Ohwi { f, c, kh, kw },
            });
        }
        let w = self.lowered(node.inputs[1]);
        let layout = Layout::image(geometry.f, geometry.ho, geometry.wo);
        let y = if bias { self.partial(node.outputs[0], layout, "xW") } else { self.twin(node.outputs[0], layout) };
        let kind = OpKind::Conv2d(ops::Conv2d { geometry, epilogue: Epilogue::default() });
        self.emit(kind, &[("a", Some(x)), ("b", Some(w)), ("c", Some(y))]);
        if bias {
            self.bias_add(node, node.outputs[0], y, 2, geometry.n * geometry.ho * geometry.wo, geometry.f);
        }
    }

    pub(super) fn conv_bwd(
        &mut self,
        node: &Node,
        window: Window,
        groups: usize,
        bias: bool,
        input_grad: bool,
        accumulate: bool,
    ) {
        let dy = self.lowered(node.inputs[0]);
        let dy = self.image(dy);
        let x = self.lowered(node.inputs[1]);
        let x = self.image(x);
        let w = self.lowered(node.inputs[2]);
        let geometry = self.conv_geometry(self.dims4(x), self.dims4(dy), window, groups);
        let before = |l: &Self, i: usize| accumulate.then(|| l.lowered(node.inputs[i]));
        let (w_prev, b_prev) = (before(self, 3), if bias { before(self, 4) } else { None });
        let dw = self.gradient(node.outputs[0]);
        let kind = OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry, accumulate });
        self.emit(kind, &[("a", Some(x)), ("b", Some(dy)), ("c_prev", w_prev), ("c", Some(dw))]);
        if bias {
            let db = self.gradient(node.outputs[1]);
            let kind = OpKind::BiasGrad(ops::BiasGrad {
                rows: geometry.n * geometry.ho * geometry.wo,
                cols: geometry.f,
                accumulate,
            });
            self.emit(kind, &[("dy", Some(dy)), ("db_prev", b_prev), ("db", Some(db))]);
        }
        if input_grad {
            let layout = self.lv(x).layout;
            let dx = self.twin(node.outputs[1 + usize::from(bias)], layout);
            let kind = OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue: Epilogue::default() });
            self.emit(kind, &[("a", Some(dy)), ("b", Some(w)), ("c", Some(dx))]);
        }
    }

    /// A normalisation's input with its rows and channels, in the order of its parameters.
    pub(super) fn norm_input(&mut self, x: LValueId, gamma: ValueId, batch: bool) -> (LValueId, usize, usize) {
        match self.lv(x).shape.0[..] {
            [n, c, h, w] if batch => (self.image(x), n * h * w, c),
            _ => {
                let x = self.features(x, gamma, 1);
                // Every statistic of a feature lies in the order of its scale.
                let (rows, cols) = self.matrix(x);
                (x, rows, cols)
            }
        }
    }

    pub(super) fn batch_norm(&mut self, node: &Node, eps: f64, momentum: Option<f64>) {
        let x = self.lowered(node.inputs[0]);
        let (x, rows, channels) = self.norm_input(x, node.inputs[1], true);
        let order = self.graph.value(node.inputs[1]).param.and_then(|p| self.orders[p.0 as usize]);
        for i in 2..5 {
            if let (Some(p), Some(order)) = (self.graph.value(node.inputs[i]).param, order) {
                self.orders[p.0 as usize] = Some(order);
            }
        }
        let layout = self.lv(x).layout;
        let [gamma, beta, mean, var] = [1, 2, 3, 4].map(|i| Some(self.lowered(node.inputs[i])));
        let y = Some(self.twin(node.outputs[0], layout));
        let Some(momentum) = momentum else {
            let kind = OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, eps: Scalar::new(eps), act: None });
            let bound = [
                ("x", Some(x)),
                ("gamma", gamma),
                ("beta", beta),
                ("running_mean", mean),
                ("running_var", var),
                ("y", y),
            ];
            self.emit(kind, &bound);
            return;
        };
        let [batch_mean, rstd] = [1, 2].map(|i| Some(self.twin(node.outputs[i], Layout::Plain)));
        let new_mean = mean.map(|m| self.updated(node.outputs[3], m));
        let new_var = var.map(|v| self.updated(node.outputs[4], v));
        let kind = OpKind::BatchNorm(ops::BatchNorm {
            rows,
            channels,
            eps: Scalar::new(eps),
            momentum: Scalar::new(momentum),
            act: None,
        });
        let bound = [
            ("x", Some(x)),
            ("gamma", gamma),
            ("beta", beta),
            ("mean_prev", mean),
            ("var_prev", var),
            ("y", y),
            ("mean", batch_mean),
            ("rstd", rstd),
            ("running_mean", new_mean),
            ("running_var", new_var),
        ];
        self.emit(kind, &bound);
    }

    pub(super) fn layer_norm(&mut self, node: &Node, eps: f64) {
        let x = self.lowered(node.inputs[0]);
        let (x, rows, cols) = self.norm_input(x, node.inputs[1], false);
        let order = self.graph.value(node.inputs[1]).param.and_then(|p| self.orders[p.0 as usize]);
        if let Some(p) = self.graph.value(node.inputs[2]).param {
            self.orders[p.0 as usize] = order;
        }
        let layout = self.lv(x).layout;
        let [gamma, beta] = [1, 2].map(|i| Some(self.lowered(node.inputs[i])));
        let y = Some(self.twin(node.outputs[0], layout));
        let [mean, rstd] = [1, 2].map(|i| Some(self.twin(node.outputs[i], Layout::Plain)));
        let kind = OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps: Scalar::new(eps) });
        self.emit(kind, &[("x", Some(x)), ("gamma", gamma), ("beta", beta), ("y", y), ("mean", mean), ("rstd", rstd)]);
    }

    pub(super) fn norm_bwd(&mut self, node: &Node, accumulate: bool) {
        let batch = matches!(node.kind, NodeKind::BatchNormBwd { .. });
        let x = self.lowered(node.inputs[1]);
        let (x, rows, cols) = self.norm_input(x, node.inputs[2], batch);
        let layout = self.lv(x).layout;
        let dy = self.lowered(node.inputs[0]);
        let dy = self.arranged(dy, layout);
        let [gamma, mean, rstd] = [2, 3, 4].map(|i| Some(self.lowered(node.inputs[i])));
        let [g_prev, b_prev] = [5, 6].map(|i| accumulate.then(|| self.lowered(node.inputs[i])));
        let dx = Some(self.twin(node.outputs[0], layout));
        let [dgamma, dbeta] = [1, 2].map(|i| Some(self.gradient(node.outputs[i])));
        let kind = if batch {
            OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels: cols, act_grad: None, accumulate })
        } else {
            OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, accumulate })
        };
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
        self.emit(kind, &bound);
    }

    pub(super) fn pool_geometry(&self, x: [usize; 4], y: [usize; 4], window: Window) -> PoolGeometry {
        let ([n, c, h, w], [.., ho, wo]) = (x, y);
        PoolGeometry { n, h, w, c, size: window.size, stride: window.stride, padding: window.padding, ho, wo }
    }

    pub(super) fn pool(&mut self, node: &Node, pool: PoolKind, window: Window) {
        let x = self.lowered(node.inputs[0]);
        let x = self.image(x);
        let y_dims = self.graph_dims4(node.outputs[0]);
        let geometry = self.pool_geometry(self.dims4(x), y_dims, window);
        let layout = Layout::image(geometry.c, geometry.ho, geometry.wo);
        let y = Some(self.twin(node.outputs[0], layout));
        let index = node.outputs.get(1).copied().map(|i| self.twin(i, layout));
        let kind = match pool {
            PoolKind::Max => OpKind::MaxPool(ops::MaxPool { geometry }),
            PoolKind::Avg => OpKind::AvgPool(ops::AvgPool { geometry }),
        };
        self.emit(kind, &[("x", Some(x)), ("y", y), ("index", index)]);
    }

    pub(super) fn pool_bwd(&mut self, node: &Node, pool: PoolKind, window: Window) {
        let dy = self.lowered(node.inputs[0]);
        let dy = self.image(dy);
        let x_dims = self.graph_dims4(node.outputs[0]);
        let geometry = self.pool_geometry(x_dims, self.dims4(dy), window);
        let dx = Some(self.twin(node.outputs[0], Layout::image(geometry.c, geometry.h, geometry.w)));
        match pool {
            PoolKind::Max => {
                let index = Some(self.lowered(node.inputs[1]));
                self.emit(
                    OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry }),
                    &[("dy", Some(dy)), ("index", index), ("dx", dx)],
                );
            }
            PoolKind::Avg => {
                self.emit(OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry }), &[("dy", Some(dy)), ("dx", dx)])
            }
        }
    }
}
