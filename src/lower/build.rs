//! Lowering: one function a node kind, each turning meanings into operations.

use super::flat::{FLAT_ALIGN, ParamOrder, segments};
use super::op::{ConvGeometry, Epilogue, Gemm, OpKind, PoolGeometry, Scalar, Segment, Trans};
use super::program::{Alias, LValue, LValueId, Layout, Op, ParamSlot, Program};
use crate::ir::{Graph, Mode, Node, NodeId, NodeKind, OptimizerRule, PoolKind, Role, ValueId, Window};
use crate::model::{Model, ParamId};
use crate::tensor::{DType, Shape};
use std::collections::HashMap;

struct Lowerer<'g> {
    graph: &'g Graph,
    values: Vec<LValue>,
    ops: Vec<Op>,
    /// The lowered value of each value of the graph.
    map: HashMap<ValueId, LValueId>,
    /// Values that were rearranged already.
    rearranged: HashMap<(LValueId, Layout), LValueId>,
    orders: Vec<Option<ParamOrder>>,
    segments: Vec<(ParamId, Segment)>,
    flat_len: usize,
    /// The flat vectors, by what they hold.
    flats: HashMap<&'static str, LValueId>,
    node: NodeId,
}

/// Lowers a graph of `model`.
#[must_use]
pub fn lower(graph: &Graph, model: &Model) -> Program {
    let segments = segments(model);
    let flat_len = segments.last().map_or(0, |(_, s)| (s.start + s.len).next_multiple_of(FLAT_ALIGN));
    let mut l = Lowerer {
        graph,
        values: Vec::new(),
        ops: Vec::new(),
        map: HashMap::new(),
        rearranged: HashMap::new(),
        orders: vec![None; model.params.len()],
        segments,
        flat_len,
        flats: HashMap::new(),
        node: NodeId(0),
    };
    l.sources();
    for (index, node) in graph.nodes.iter().enumerate() {
        l.node = NodeId(index as u32);
        l.lower_node(node);
    }
    let output = l.lowered(graph.output);
    let output = if graph.mode == Mode::Eval { l.arranged(output, Layout::Plain) } else { output };
    if graph.mode == Mode::Eval {
        let (root, _) = l.root(output);
        l.values[root.0 as usize].persistent = true;
    }
    let params = (0..model.params.len())
        .map(|i| ParamSlot {
            value: l.lowered(graph.params[i]),
            order: l.orders[i].unwrap_or_default(),
            grad: graph.grads[i].map(|g| l.lowered(g)),
        })
        .collect();
    Program {
        mode: graph.mode,
        real: graph.value(graph.x).dtype,
        x: l.lowered(graph.x),
        y: graph.y.map(|y| l.lowered(y)),
        output,
        params,
        segments: l.segments,
        values: l.values,
        ops: l.ops,
    }
}

impl Lowerer<'_> {
    fn lowered(&self, id: ValueId) -> LValueId {
        self.map[&id]
    }

    fn lv(&self, id: LValueId) -> &LValue {
        &self.values[id.0 as usize]
    }

    fn root(&self, mut id: LValueId) -> (LValueId, usize) {
        let mut start = 0;
        while let Some(alias) = self.lv(id).alias {
            start += alias.start;
            id = alias.of;
        }
        (id, start)
    }

    fn push(&mut self, value: LValue) -> LValueId {
        self.values.push(value);
        LValueId(self.values.len() as u32 - 1)
    }

    /// A flat vector over all trained parameters.
    fn flat(&mut self, name: &'static str, role: Role, dtype: DType, persistent: bool) -> LValueId {
        if let Some(&id) = self.flats.get(name) {
            return id;
        }
        let shape = Shape::from([self.flat_len]);
        let id = self.push(LValue {
            name: name.into(),
            role,
            dtype,
            shape,
            layout: Layout::Plain,
            alias: None,
            persistent,
            layer: None,
            pass: 0,
            param: None,
        });
        self.flats.insert(name, id);
        id
    }

    fn segment(&self, param: ParamId) -> Option<Segment> {
        self.segments.iter().find(|(p, _)| *p == param).map(|(_, s)| *s)
    }

    /// The lowered twin of a graph value, not yet aliased.
    fn twin(&mut self, id: ValueId, layout: Layout) -> LValueId {
        let v = self.graph.value(id);
        let node = v.producer.map(|n| self.graph.node(n));
        let value = LValue {
            name: v.name.clone(),
            role: v.role,
            dtype: v.dtype,
            shape: v.shape.clone(),
            layout,
            alias: None,
            persistent: v.role == Role::Metric,
            layer: v.layer,
            pass: node.map_or(0, |n| n.pass),
            param: v.param,
        };
        let lowered = self.push(value);
        self.map.insert(id, lowered);
        lowered
    }

    /// What is there before the step: parameters and moments in their flat vectors, everything else on its own.
    fn sources(&mut self) {
        let graph = self.graph;
        let after_to_before: HashMap<ValueId, ValueId> = graph.updates.iter().map(|(b, a)| (*a, *b)).collect();
        let real = graph.value(graph.x).dtype;
        for (index, value) in graph.values.iter().enumerate() {
            let id = ValueId(index as u32);
            if value.producer.is_some() || after_to_before.contains_key(&id) {
                continue;
            }
            let layout = match value.shape.0[..] {
                [_, c, h, w] if id == graph.x => Layout::image(c, h, w),
                _ => Layout::Plain,
            };
            let flat = match (value.role, value.param) {
                (Role::Param, Some(p)) => Some(("params", Role::Param, p)),
                (Role::State, Some(p)) if self.segment(p).is_some() => {
                    let moment = ["momentum", "m", "v"].into_iter().find(|m| value.name.starts_with(&format!("{m}.")));
                    moment.map(|m| (m, Role::State, p))
                }
                _ => None,
            };
            let lowered = self.twin(id, layout);
            self.values[lowered.0 as usize].persistent = true;
            if let Some((name, role, param)) = flat
                && let Some(segment) = self.segment(param)
            {
                let of = self.flat(name, role, real, true);
                self.values[lowered.0 as usize].alias = Some(Alias { of, start: segment.start });
            }
        }
    }

    fn emit(&mut self, kind: OpKind, bound: &[(&str, Option<LValueId>)]) {
        let mut args = vec![None; kind.slots().len()];
        for (name, value) in bound {
            if let Some(slot) = kind.slot(name) {
                args[slot] = *value;
            }
        }
        let node = self.graph.node(self.node);
        self.ops.push(Op {
            kind,
            args,
            layer: node.layer,
            pass: node.pass,
            phase: node.phase,
            nodes: vec![self.node],
            fused: Vec::new(),
        });
    }

    /// The output of an operation that updates `before` where it lies.
    fn updated(&mut self, id: ValueId, before: LValueId) -> LValueId {
        let layout = self.lv(before).layout;
        let after = self.twin(id, layout);
        self.values[after.0 as usize].alias = Some(Alias { of: before, start: 0 });
        after
    }

    /// A parameter's gradient, in its place in the flat vector. `before` is what it adds to.
    fn gradient(&mut self, id: ValueId) -> LValueId {
        let dtype = self.graph.value(id).dtype;
        let lowered = self.twin(id, Layout::Plain);
        if let Some(segment) = self.graph.value(id).param.and_then(|p| self.segment(p)) {
            let of = self.flat("grads", Role::Grad, dtype, false);
            self.values[lowered.0 as usize].alias = Some(Alias { of, start: segment.start });
        }
        lowered
    }

    /// The same logical value in another layout.
    fn arranged(&mut self, id: LValueId, layout: Layout) -> LValueId {
        let v = self.lv(id).clone();
        if v.layout == layout {
            return id;
        }
        if let Some(&done) = self.rearranged.get(&(id, layout)) {
            return done;
        }
        let n = v.shape.0[0];
        let (rows, cols, suffix) = match (v.layout, layout) {
            (Layout::Plain, Layout::ChannelsLast { c, h, w }) => (c, h * w, "nhwc"),
            (Layout::ChannelsLast { c, h, w }, _) => (h * w, c, "nchw"),
            (Layout::Plain, Layout::Plain) => return id,
        };
        let out = LValue { name: format!("{}.{suffix}", v.name), layout: if suffix == "nhwc" { layout } else { Layout::Plain }, alias: None, persistent: false, ..v };
        let out = self.push(out);
        self.emit(OpKind::Transpose { n, rows, cols }, &[("x", Some(id)), ("y", Some(out))]);
        self.rearranged.insert((id, layout), out);
        self.arranged(out, layout)
    }

    /// An image value in the layout that kernels want.
    fn image(&mut self, id: LValueId) -> LValueId {
        match self.lv(id).shape.0[..] {
            [_, c, h, w] => self.arranged(id, Layout::image(c, h, w)),
            _ => id,
        }
    }

    /// The stored order of a parameter whose rows count the elements of a value with `layout`; fixed at its first use. Gives the layout that
    /// its inputs must have.
    fn row_order(&mut self, param: ValueId, layout: Layout, cols: usize) -> Layout {
        let Some(p) = self.graph.value(param).param else { return layout };
        let wanted = match layout {
            Layout::Plain => ParamOrder::Plain,
            Layout::ChannelsLast { c, h, w } => ParamOrder::RowsHwc { c, h, w, cols },
        };
        match *self.orders[p.0 as usize].get_or_insert(wanted) {
            ParamOrder::RowsHwc { c, h, w, .. } => Layout::ChannelsLast { c, h, w },
            _ => Layout::Plain,
        }
    }

    fn lower_node(&mut self, node: &Node) {
        let input = |i: usize| node.inputs[i];
        match node.kind.clone() {
            NodeKind::Linear { bias } => self.linear(node, bias),
            NodeKind::Conv2d { window, groups, bias } => self.conv(node, window, groups, bias),
            NodeKind::BatchNorm { eps, momentum } => self.batch_norm(node, eps, Some(momentum)),
            NodeKind::BatchNormEval { eps } => self.batch_norm(node, eps, None),
            NodeKind::LayerNorm { eps } => self.layer_norm(node, eps),
            NodeKind::Activation { func } => {
                let x = self.lowered(input(0));
                let (len, layout) = (self.lv(x).shape.len(), self.lv(x).layout);
                let y = self.twin(node.outputs[0], layout);
                self.emit(OpKind::Act { func, len }, &[("x", Some(x)), ("y", Some(y))]);
            }
            NodeKind::Pool { pool, window } => self.pool(node, pool, window),
            NodeKind::GlobalAvgPool => {
                let x = self.lowered(input(0));
                let x = self.image(x);
                let [n, c, h, w] = self.dims4(x);
                let y = self.twin(node.outputs[0], Layout::Plain);
                self.emit(OpKind::GlobalAvgPool { n, hw: h * w, c }, &[("x", Some(x)), ("y", Some(y))]);
            }
            NodeKind::Flatten | NodeKind::FlattenBwd | NodeKind::Save => {
                let x = self.lowered(input(0));
                if matches!(node.kind, NodeKind::Save) {
                    self.map.insert(node.outputs[0], x);
                } else {
                    let y = self.updated(node.outputs[0], x);
                    self.values[y.0 as usize].persistent = false;
                }
            }
            NodeKind::Dropout { rate, stream } => {
                let (x, counter) = (self.lowered(input(0)), self.lowered(input(1)));
                let (len, layout) = (self.lv(x).shape.len(), self.lv(x).layout);
                let (y, mask) = (self.twin(node.outputs[0], layout), self.twin(node.outputs[1], Layout::Plain));
                let kind = OpKind::Dropout { len, rate: Scalar::new(rate), stream };
                self.emit(kind, &[("x", Some(x)), ("counter", Some(counter)), ("y", Some(y)), ("mask", Some(mask))]);
            }
            NodeKind::Add | NodeKind::GradAdd => {
                let a = self.lowered(input(0));
                let b = self.lowered(input(1));
                let (len, layout) = (self.lv(a).shape.len(), self.lv(a).layout);
                let b = self.arranged(b, layout);
                let y = self.twin(node.outputs[0], layout);
                self.emit(OpKind::Add { len }, &[("a", Some(a)), ("b", Some(b)), ("y", Some(y))]);
            }
            NodeKind::SoftmaxCrossEntropy { .. }
            | NodeKind::SoftmaxCrossEntropyGrad { .. }
            | NodeKind::Mse
            | NodeKind::MseGrad
            | NodeKind::Accuracy => self.loss(node),
            NodeKind::LinearBwd { bias, input_grad, accumulate } => self.linear_bwd(node, bias, input_grad, accumulate),
            NodeKind::Conv2dBwd { window, groups, bias, input_grad, accumulate } => {
                self.conv_bwd(node, window, groups, bias, input_grad, accumulate);
            }
            NodeKind::BatchNormBwd { accumulate } | NodeKind::LayerNormBwd { accumulate } => self.norm_bwd(node, accumulate),
            NodeKind::ActivationBwd { func } => {
                let saved = self.lowered(input(1));
                let (len, layout) = (self.lv(saved).shape.len(), self.lv(saved).layout);
                let dy = self.lowered(input(0));
                let dy = self.arranged(dy, layout);
                let dx = self.twin(node.outputs[0], layout);
                self.emit(OpKind::ActBwd { func, len }, &[("dy", Some(dy)), ("saved", Some(saved)), ("dx", Some(dx))]);
            }
            NodeKind::PoolBwd { pool, window } => self.pool_bwd(node, pool, window),
            NodeKind::GlobalAvgPoolBwd => {
                let dy = self.lowered(input(0));
                let dy = self.arranged(dy, Layout::Plain);
                let [n, c, h, w] = self.graph_dims4(node.outputs[0]);
                let dx = self.twin(node.outputs[0], Layout::image(c, h, w));
                self.emit(OpKind::GlobalAvgPoolBwd { n, hw: h * w, c }, &[("dy", Some(dy)), ("dx", Some(dx))]);
            }
            NodeKind::DropoutBwd { rate } => {
                let (dy, mask) = (self.lowered(input(0)), self.lowered(input(1)));
                // The mask counts elements in the order of the forward output, which is that of its producer's output.
                let producer = self.graph.value(input(1)).producer.map(|p| self.graph.node(p).outputs[0]);
                let layout = producer.map_or(Layout::Plain, |y| self.lv(self.lowered(y)).layout);
                let dy = self.arranged(dy, layout);
                let len = self.lv(dy).shape.len();
                let dx = self.twin(node.outputs[0], layout);
                let kind = OpKind::DropoutBwd { len, rate: Scalar::new(rate) };
                self.emit(kind, &[("dy", Some(dy)), ("mask", Some(mask)), ("dx", Some(dx))]);
            }
            NodeKind::StepInc => {
                let before = self.lowered(input(0));
                let after = self.updated(node.outputs[0], before);
                self.emit(OpKind::StepInc, &[("counter_prev", Some(before)), ("counter", Some(after))]);
            }
            NodeKind::BiasCorr { betas } => {
                let counter = self.lowered(input(0));
                let corr = self.twin(node.outputs[0], Layout::Plain);
                self.values[corr.0 as usize].persistent = true;
                let kind = OpKind::BiasCorr { beta1: Scalar::new(betas[0]), beta2: Scalar::new(betas[1]) };
                self.emit(kind, &[("counter", Some(counter)), ("corr", Some(corr))]);
            }
            NodeKind::OptimizerStep { rule, measured } => self.optimizer(node, rule, measured),
            NodeKind::UpdateMetrics => {
                let (max, sq) = (self.lowered(input(0)), self.lowered(input(1)));
                let segments = self.segments.len();
                let (a, b) = (self.twin(node.outputs[0], Layout::Plain), self.twin(node.outputs[1], Layout::Plain));
                let bound = [("update_max_seg", Some(max)), ("grad_sq_seg", Some(sq)), ("update_max", Some(a)), ("grad_norm", Some(b))];
                self.emit(OpKind::UpdateMetrics { segments }, &bound);
            }
        }
    }

    fn dims4(&self, id: LValueId) -> [usize; 4] {
        match self.lv(id).shape.0[..] {
            [n, c, h, w] => [n, c, h, w],
            _ => unreachable!("the graph's verifier lets only images through"),
        }
    }

    fn graph_dims4(&self, id: ValueId) -> [usize; 4] {
        match self.graph.value(id).shape.0[..] {
            [n, c, h, w] => [n, c, h, w],
            _ => unreachable!("the graph's verifier lets only images through"),
        }
    }

    /// Rows and columns of a value whose last axis is multiplied.
    fn matrix(&self, id: LValueId) -> (usize, usize) {
        let dims = &self.lv(id).shape.0;
        let cols = dims.last().copied().unwrap_or(1);
        (dims[..dims.len() - 1].iter().product(), cols)
    }

    /// The input of a linear layer or layer norm: rows of features, in the order of the parameter's rows.
    fn features(&mut self, x: LValueId, param: ValueId, cols: usize) -> LValueId {
        let layout = if self.lv(x).shape.rank() == 2 { self.lv(x).layout } else { Layout::Plain };
        let layout = self.row_order(param, layout, cols);
        self.arranged(x, layout)
    }

    fn bias_add(&mut self, node: &Node, y: ValueId, before: LValueId, bias: usize, rows: usize, cols: usize) {
        let layout = self.lv(before).layout;
        let out = self.twin(y, layout);
        // The value before the bias keeps the name of the sum, which is what a person looks for.
        let b = self.lowered(node.inputs[bias]);
        self.emit(OpKind::BiasAdd { rows, cols }, &[("x", Some(before)), ("bias", Some(b)), ("y", Some(out))]);
    }

    /// An unnamed intermediate like graph value `y`.
    fn partial(&mut self, y: ValueId, layout: Layout, what: &str) -> LValueId {
        let id = self.twin(y, layout);
        let name = format!("{}.{what}", self.lv(id).name);
        self.values[id.0 as usize].name = name;
        id
    }

    fn linear(&mut self, node: &Node, bias: bool) {
        let x = self.lowered(node.inputs[0]);
        let (_, n) = {
            let w = &self.graph.value(node.inputs[1]).shape.0;
            (w[0], w[1])
        };
        let x = self.features(x, node.inputs[1], n);
        let (m, k) = self.matrix(x);
        let w = self.lowered(node.inputs[1]);
        let kind = OpKind::Gemm(Gemm { m, n, k, trans: Trans::Nn, accumulate: false, epilogue: Epilogue::default() });
        let y = if bias { self.partial(node.outputs[0], Layout::Plain, "xW") } else { self.twin(node.outputs[0], Layout::Plain) };
        self.emit(kind, &[("a", Some(x)), ("b", Some(w)), ("c", Some(y))]);
        if bias {
            self.bias_add(node, node.outputs[0], y, 2, m, n);
        }
    }

    fn linear_bwd(&mut self, node: &Node, bias: bool, input_grad: bool, accumulate: bool) {
        let (dy, x, w) = (self.lowered(node.inputs[0]), self.lowered(node.inputs[1]), node.inputs[2]);
        let dy = self.arranged(dy, Layout::Plain);
        let n = self.graph.value(w).shape.0[1];
        let x = self.features(x, w, n);
        let (rows, k) = self.matrix(x);
        let w = self.lowered(w);
        let before = |l: &Self, i: usize| accumulate.then(|| l.lowered(node.inputs[i]));
        let (w_prev, b_prev) = (before(self, 3), if bias { before(self, 4) } else { None });
        let dw = self.gradient(node.outputs[0]);
        let gemm = |m, n, k, trans, accumulate| OpKind::Gemm(Gemm { m, n, k, trans, accumulate, epilogue: Epilogue::default() });
        self.emit(gemm(k, n, rows, Trans::Tn, accumulate), &[("a", Some(x)), ("b", Some(dy)), ("c_prev", w_prev), ("c", Some(dw))]);
        if bias {
            let db = self.gradient(node.outputs[1]);
            let kind = OpKind::BiasGrad { rows, cols: n, accumulate };
            self.emit(kind, &[("dy", Some(dy)), ("db_prev", b_prev), ("db", Some(db))]);
        }
        if input_grad {
            let layout = self.lv(x).layout;
            let dx = self.twin(node.outputs[1 + usize::from(bias)], layout);
            self.emit(gemm(rows, k, n, Trans::Nt, false), &[("a", Some(dy)), ("b", Some(w)), ("c", Some(dx))]);
        }
    }

    fn conv_geometry(&self, x: [usize; 4], y: [usize; 4], window: Window, groups: usize) -> ConvGeometry {
        let ([n, c, h, w], [_, f, ho, wo]) = (x, y);
        let Window { size: kernel, stride, padding, dilation } = window;
        ConvGeometry { n, h, w, c, f, kernel, stride, padding, dilation, groups, ho, wo }
    }

    fn conv(&mut self, node: &Node, window: Window, groups: usize, bias: bool) {
        let x = self.lowered(node.inputs[0]);
        let x = self.image(x);
        let y_dims = self.graph_dims4(node.outputs[0]);
        let geometry = self.conv_geometry(self.dims4(x), y_dims, window, groups);
        if let Some(p) = self.graph.value(node.inputs[1]).param {
            let [kh, kw] = geometry.kernel;
            self.orders[p.0 as usize] = Some(ParamOrder::Hwio { f: geometry.f, c: geometry.c / groups, kh, kw });
        }
        let w = self.lowered(node.inputs[1]);
        let layout = Layout::image(geometry.f, geometry.ho, geometry.wo);
        let y = if bias { self.partial(node.outputs[0], layout, "xW") } else { self.twin(node.outputs[0], layout) };
        let kind = OpKind::Conv2d { geometry, epilogue: Epilogue::default() };
        self.emit(kind, &[("a", Some(x)), ("b", Some(w)), ("c", Some(y))]);
        if bias {
            self.bias_add(node, node.outputs[0], y, 2, geometry.n * geometry.ho * geometry.wo, geometry.f);
        }
    }

    fn conv_bwd(&mut self, node: &Node, window: Window, groups: usize, bias: bool, input_grad: bool, accumulate: bool) {
        let dy = self.lowered(node.inputs[0]);
        let dy = self.image(dy);
        let x = self.lowered(node.inputs[1]);
        let x = self.image(x);
        let w = self.lowered(node.inputs[2]);
        let geometry = self.conv_geometry(self.dims4(x), self.dims4(dy), window, groups);
        let before = |l: &Self, i: usize| accumulate.then(|| l.lowered(node.inputs[i]));
        let (w_prev, b_prev) = (before(self, 3), if bias { before(self, 4) } else { None });
        let dw = self.gradient(node.outputs[0]);
        let kind = OpKind::Conv2dBwdW { geometry, accumulate };
        self.emit(kind, &[("a", Some(x)), ("b", Some(dy)), ("c_prev", w_prev), ("c", Some(dw))]);
        if bias {
            let db = self.gradient(node.outputs[1]);
            let kind = OpKind::BiasGrad { rows: geometry.n * geometry.ho * geometry.wo, cols: geometry.f, accumulate };
            self.emit(kind, &[("dy", Some(dy)), ("db_prev", b_prev), ("db", Some(db))]);
        }
        if input_grad {
            let layout = self.lv(x).layout;
            let dx = self.twin(node.outputs[1 + usize::from(bias)], layout);
            let kind = OpKind::Conv2dBwdX { geometry, epilogue: Epilogue::default() };
            self.emit(kind, &[("a", Some(dy)), ("b", Some(w)), ("c", Some(dx))]);
        }
    }

    /// A normalisation's input with its rows and channels, in the order of its parameters.
    fn norm_input(&mut self, x: LValueId, gamma: ValueId, batch: bool) -> (LValueId, usize, usize) {
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

    fn batch_norm(&mut self, node: &Node, eps: f64, momentum: Option<f64>) {
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
            let kind = OpKind::BatchNormEval { rows, channels, eps: Scalar::new(eps), act: None };
            let bound = [("x", Some(x)), ("gamma", gamma), ("beta", beta), ("running_mean", mean), ("running_var", var), ("y", y)];
            self.emit(kind, &bound);
            return;
        };
        let [batch_mean, rstd] = [1, 2].map(|i| Some(self.twin(node.outputs[i], Layout::Plain)));
        let new_mean = mean.map(|m| self.updated(node.outputs[3], m));
        let new_var = var.map(|v| self.updated(node.outputs[4], v));
        let kind = OpKind::BatchNorm { rows, channels, eps: Scalar::new(eps), momentum: Scalar::new(momentum), act: None };
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

    fn layer_norm(&mut self, node: &Node, eps: f64) {
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
        let kind = OpKind::LayerNorm { rows, cols, eps: Scalar::new(eps) };
        self.emit(kind, &[("x", Some(x)), ("gamma", gamma), ("beta", beta), ("y", y), ("mean", mean), ("rstd", rstd)]);
    }

    fn norm_bwd(&mut self, node: &Node, accumulate: bool) {
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
            OpKind::BatchNormBwd { rows, channels: cols, act_grad: None, accumulate }
        } else {
            OpKind::LayerNormBwd { rows, cols, accumulate }
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

    fn pool_geometry(&self, x: [usize; 4], y: [usize; 4], window: Window) -> PoolGeometry {
        let ([n, c, h, w], [.., ho, wo]) = (x, y);
        PoolGeometry { n, h, w, c, size: window.size, stride: window.stride, padding: window.padding, ho, wo }
    }

    fn pool(&mut self, node: &Node, pool: PoolKind, window: Window) {
        let x = self.lowered(node.inputs[0]);
        let x = self.image(x);
        let y_dims = self.graph_dims4(node.outputs[0]);
        let geometry = self.pool_geometry(self.dims4(x), y_dims, window);
        let layout = Layout::image(geometry.c, geometry.ho, geometry.wo);
        let y = Some(self.twin(node.outputs[0], layout));
        let index = node.outputs.get(1).copied().map(|i| self.twin(i, layout));
        let kind = match pool {
            PoolKind::Max => OpKind::MaxPool { geometry },
            PoolKind::Avg => OpKind::AvgPool { geometry },
        };
        self.emit(kind, &[("x", Some(x)), ("y", y), ("index", index)]);
    }

    fn pool_bwd(&mut self, node: &Node, pool: PoolKind, window: Window) {
        let dy = self.lowered(node.inputs[0]);
        let dy = self.image(dy);
        let x_dims = self.graph_dims4(node.outputs[0]);
        let geometry = self.pool_geometry(x_dims, self.dims4(dy), window);
        let dx = Some(self.twin(node.outputs[0], Layout::image(geometry.c, geometry.h, geometry.w)));
        match pool {
            PoolKind::Max => {
                let index = Some(self.lowered(node.inputs[1]));
                self.emit(OpKind::MaxPoolBwd { geometry }, &[("dy", Some(dy)), ("index", index), ("dx", dx)]);
            }
            PoolKind::Avg => self.emit(OpKind::AvgPoolBwd { geometry }, &[("dy", Some(dy)), ("dx", dx)]),
        }
    }

    fn loss(&mut self, node: &Node) {
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
                let kind = OpKind::SoftmaxCe { rows, classes, smoothing: Scalar::new(smoothing) };
                self.emit(kind, &[("logits", Some(a)), ("labels", target), ("row_loss", row_loss), ("probs", Some(probs))]);
                self.emit(OpKind::LossMean { rows }, &[("row_loss", row_loss), ("loss", Some(first))]);
            }
            NodeKind::SoftmaxCrossEntropyGrad { smoothing } => {
                let kind = OpKind::SoftmaxCeGrad { rows, classes, smoothing: Scalar::new(smoothing) };
                self.emit(kind, &[("probs", Some(a)), ("labels", target), ("dlogits", Some(first))]);
            }
            NodeKind::Accuracy => {
                self.emit(OpKind::Accuracy { rows, classes }, &[("scores", Some(a)), ("labels", target), ("accuracy", Some(first))]);
            }
            NodeKind::Mse => self.emit(OpKind::Mse { len }, &[("y", Some(a)), ("target", target), ("loss", Some(first))]),
            _ => self.emit(OpKind::MseGrad { len }, &[("y", Some(a)), ("target", target), ("dy", Some(first))]),
        }
    }

    fn optimizer(&mut self, node: &Node, rule: OptimizerRule, measured: bool) {
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
            let after = LValue { name: format!("{name}.new"), alias: Some(Alias { of: before, start: 0 }), ..l.lv(before).clone() };
            (Some(before), Some(l.push(after)))
        };
        let (_, new_params) = flat_update(self, "params", Role::Param);
        let measures = node.outputs.len().saturating_sub(2);
        let [max, sq] = [0, 1].map(|i| measured.then(|| self.twin(node.outputs[measures + i], Layout::Plain)));
        let (len, segments) = (self.flat_len, self.segments.iter().map(|(_, s)| *s).collect());
        match rule {
            OptimizerRule::Sgd { momentum, nesterov } => {
                let (prev, next) = if momentum > 0.0 { flat_update(self, "momentum", Role::State) } else { (None, None) };
                let kind = OpKind::SgdStep { len, segments, momentum: Scalar::new(momentum), nesterov };
                let bound = [
                    ("param_prev", Some(params)),
                    ("grad", Some(grads)),
                    ("momentum_prev", prev),
                    ("hyper", hyper),
                    ("param", new_params),
                    ("momentum", next),
                    ("update_max", max),
                    ("grad_sq", sq),
                ];
                self.emit(kind, &bound);
            }
            OptimizerRule::Adam { betas, eps, decoupled } => {
                let corr = Some(self.lowered(node.inputs[1]));
                let (m_prev, m) = flat_update(self, "m", Role::State);
                let (v_prev, v) = flat_update(self, "v", Role::State);
                let [beta1, beta2] = betas.map(Scalar::new);
                let kind = OpKind::AdamStep { len, segments, beta1, beta2, eps: Scalar::new(eps), decoupled };
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
                    ("grad_sq", sq),
                ];
                self.emit(kind, &bound);
            }
        }
    }
}
