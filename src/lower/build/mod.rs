//! Lowering: one function a node kind, each turning meanings into operations.

mod layers;
mod update;

use super::flat::{FLAT_ALIGN, FilterOrder, ParamOrder, segments};
use super::program::{Alias, LValue, LValueId, Layout, Op, ParamSlot, Program};
use crate::ir::{Graph, Mode, Node, NodeId, NodeKind, Role, ValueId};
use crate::model::{Model, ParamId};
use crate::ops;
use crate::ops::OpKind;
use crate::ops::{Scalar, Segment};
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
    filters: FilterOrder,
    segments: Vec<(ParamId, Segment)>,
    flat_len: usize,
    /// The flat vectors, by what they hold.
    flats: HashMap<&'static str, LValueId>,
    node: NodeId,
}

/// Lowers a graph of `model` for a CPU.
#[must_use]
pub fn lower(graph: &Graph, model: &Model) -> Program {
    lower_for(graph, model, FilterOrder::Hwio)
}

/// Lowers a graph of `model`, with the filters of convolutions in the given order.
#[must_use]
pub fn lower_for(graph: &Graph, model: &Model, filters: FilterOrder) -> Program {
    let segments = segments(model);
    let flat_len = segments.last().map_or(0, |(_, s)| (s.start + s.len).next_multiple_of(FLAT_ALIGN));
    let mut l = Lowerer {
        graph,
        values: Vec::new(),
        ops: Vec::new(),
        map: HashMap::new(),
        rearranged: HashMap::new(),
        orders: vec![None; model.params.len()],
        filters,
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

    /// The lowered counterpart of a graph value, not yet aliased.
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
        let out = LValue {
            name: format!("{}.{suffix}", v.name),
            layout: if suffix == "nhwc" { layout } else { Layout::Plain },
            alias: None,
            persistent: false,
            ..v
        };
        let out = self.push(out);
        self.emit(OpKind::Transpose(ops::Transpose { n, rows, cols }), &[("x", Some(id)), ("y", Some(out))]);
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
                self.emit(OpKind::Act(ops::Act { func, len }), &[("x", Some(x)), ("y", Some(y))]);
            }
            NodeKind::Pool { pool, window } => self.pool(node, pool, window),
            NodeKind::GlobalAvgPool => {
                let x = self.lowered(input(0));
                let x = self.image(x);
                let [n, c, h, w] = self.dims4(x);
                let y = self.twin(node.outputs[0], Layout::Plain);
                self.emit(
                    OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw: h * w, c }),
                    &[("x", Some(x)), ("y", Some(y))],
                );
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
                let kind = OpKind::Dropout(ops::Dropout { len, rate: Scalar::new(rate), stream });
                self.emit(kind, &[("x", Some(x)), ("counter", Some(counter)), ("y", Some(y)), ("mask", Some(mask))]);
            }
            NodeKind::Add | NodeKind::GradAdd => {
                let a = self.lowered(input(0));
                let b = self.lowered(input(1));
                let (len, layout) = (self.lv(a).shape.len(), self.lv(a).layout);
                let b = self.arranged(b, layout);
                let y = self.twin(node.outputs[0], layout);
                self.emit(OpKind::Add(ops::Add { len }), &[("a", Some(a)), ("b", Some(b)), ("y", Some(y))]);
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
            NodeKind::BatchNormBwd { accumulate } | NodeKind::LayerNormBwd { accumulate } => {
                self.norm_bwd(node, accumulate)
            }
            NodeKind::ActivationBwd { func } => {
                let saved = self.lowered(input(1));
                let (len, layout) = (self.lv(saved).shape.len(), self.lv(saved).layout);
                let dy = self.lowered(input(0));
                let dy = self.arranged(dy, layout);
                let dx = self.twin(node.outputs[0], layout);
                self.emit(
                    OpKind::ActBwd(ops::ActBwd { func, len }),
                    &[("dy", Some(dy)), ("saved", Some(saved)), ("dx", Some(dx))],
                );
            }
            NodeKind::PoolBwd { pool, window } => self.pool_bwd(node, pool, window),
            NodeKind::GlobalAvgPoolBwd => {
                let dy = self.lowered(input(0));
                let dy = self.arranged(dy, Layout::Plain);
                let [n, c, h, w] = self.graph_dims4(node.outputs[0]);
                let dx = self.twin(node.outputs[0], Layout::image(c, h, w));
                self.emit(
                    OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw: h * w, c }),
                    &[("dy", Some(dy)), ("dx", Some(dx))],
                );
            }
            NodeKind::DropoutBwd { rate } => {
                let (dy, mask) = (self.lowered(input(0)), self.lowered(input(1)));
                // The mask counts elements in the order of the forward output, which is that of its producer's output.
                let producer = self.graph.value(input(1)).producer.map(|p| self.graph.node(p).outputs[0]);
                let layout = producer.map_or(Layout::Plain, |y| self.lv(self.lowered(y)).layout);
                let dy = self.arranged(dy, layout);
                let len = self.lv(dy).shape.len();
                let dx = self.twin(node.outputs[0], layout);
                let kind = OpKind::DropoutBwd(ops::DropoutBwd { len, rate: Scalar::new(rate) });
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
                let kind =
                    OpKind::BiasCorr(ops::BiasCorr { beta1: Scalar::new(betas[0]), beta2: Scalar::new(betas[1]) });
                self.emit(kind, &[("counter", Some(counter)), ("corr", Some(corr))]);
            }
            NodeKind::OptimizerStep { rule, measured } => self.optimizer(node, rule, measured),
            NodeKind::UpdateMetrics => {
                let (max, sq) = (self.lowered(input(0)), self.lowered(input(1)));
                let segments = self.segments.len();
                let (a, b) = (self.twin(node.outputs[0], Layout::Plain), self.twin(node.outputs[1], Layout::Plain));
                let bound = [
                    ("update_max_seg", Some(max)),
                    ("grad_norm_seg", Some(sq)),
                    ("update_max", Some(a)),
                    ("grad_norm", Some(b)),
                ];
                self.emit(OpKind::UpdateMetrics(ops::UpdateMetrics { segments }), &bound);
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
}
