//! From a checked model to the graph of its training step, or of its evaluation.

mod update;

use super::graph::{Graph, Node, NodeId, NodeKind, Phase, PoolKind, Role, Value, ValueId, Window};
use super::{Metrics, Mode};
use crate::model::layers::Pool;
use crate::model::{Activation, Layer, LayerId, LayerSpec, LossSpec, Model, ParamId, ParamKind};
use crate::tensor::{DType, Shape};

/// What the forward pass leaves for the backward pass, in order.
enum Tape {
    Linear { x: ValueId, bias: bool },
    Conv { x: ValueId, window: Window, groups: usize, bias: bool },
    BatchNorm { x: ValueId, mean: ValueId, rstd: ValueId },
    LayerNorm { x: ValueId, mean: ValueId, rstd: ValueId },
    Activation { func: Activation, saved: ValueId },
    Pool { pool: PoolKind, window: Window, index: Option<ValueId>, input: Shape },
    GlobalAvgPool { input: Shape },
    Flatten { input: Shape },
    Dropout { rate: f64, mask: ValueId },
    ResidualBegin,
    ResidualEnd,
}

struct Entry {
    tape: Tape,
    layer: LayerId,
    pass: u32,
    /// Whether a parameter stands before it, so that its input needs a gradient.
    input_grad: bool,
}

struct Builder<'m> {
    model: &'m Model,
    mode: Mode,
    real: DType,
    values: Vec<Value>,
    nodes: Vec<Node>,
    /// The current value of each parameter or statistic.
    current: Vec<ValueId>,
    grads: Vec<Option<ValueId>>,
    counter: Option<ValueId>,
    tape: Vec<Entry>,
    /// Whether anything before the current point is trained.
    trained_before: bool,
    dropouts: u32,
    pass: u32,
    layer: Option<LayerId>,
    phase: Phase,
}

/// The graph of a model's step. `real` is the type of every real value: `F32`, or `F64` for checks.
#[must_use]
pub fn build(model: &Model, mode: Mode, metrics: Metrics, real: DType) -> Graph {
    let mut b = Builder {
        model,
        mode,
        real,
        values: Vec::new(),
        nodes: Vec::new(),
        current: Vec::new(),
        grads: vec![None; model.params.len()],
        counter: None,
        tape: Vec::new(),
        trained_before: false,
        dropouts: 0,
        pass: 0,
        layer: None,
        phase: Phase::Forward,
    };
    let x = b.source("x", Role::Input, model.input.batched(model.batch), real);
    let y = (mode == Mode::Train).then(|| match model.loss {
        LossSpec::SoftmaxCrossEntropy { .. } => b.source("y", Role::Input, Shape::from([model.batch]), DType::I32),
        LossSpec::Mse => b.source("y", Role::Input, model.output.batched(model.batch), real),
    });
    for (index, param) in model.params.iter().enumerate() {
        let role = if param.kind.is_trained() { Role::Param } else { Role::State };
        let id = b.source(&param.name, role, param.shape.clone(), real);
        b.values[id.0 as usize].param = Some(ParamId(index as u32));
        b.values[id.0 as usize].layer = Some(param.layer);
        b.current.push(id);
    }
    let params = b.current.clone();
    let mut updates = Vec::new();
    if mode == Mode::Train {
        b.counter = Some(b.source("counter", Role::State, Shape::from([2]), DType::I64));
    }
    let mut output = x;
    for &root in &model.roots {
        output = b.forward(root, output);
    }
    b.layer = None;
    if let Some(y) = y {
        let grad = b.loss(output, y, metrics);
        b.backward(grad);
        b.optimizer(&params, metrics, &mut updates);
    }
    for (&before, &after) in params.iter().zip(&b.current) {
        if before != after {
            updates.push((before, after));
        }
    }
    let Builder { values, nodes, grads, .. } = b;
    Graph { mode, metrics, values, nodes, x, y, output, params, grads, updates }
}

fn window<const MAX: bool>(p: &Pool<MAX>) -> Window {
    Window { size: p.size, stride: p.stride, padding: p.padding, dilation: [1, 1] }
}

impl Builder<'_> {
    fn value(&mut self, name: String, role: Role, shape: Shape, dtype: DType) -> ValueId {
        self.values.push(Value { name, role, shape, dtype, producer: None, param: None, layer: self.layer });
        ValueId(self.values.len() as u32 - 1)
    }

    fn source(&mut self, name: &str, role: Role, shape: Shape, dtype: DType) -> ValueId {
        self.value(name.to_owned(), role, shape, dtype)
    }

    /// A real activation named after the current layer.
    fn real(&mut self, what: &str, shape: Shape) -> ValueId {
        let name = self.local_name(what);
        let role = if self.phase == Phase::Backward { Role::Grad } else { Role::Activation };
        self.value(name, role, shape, self.real)
    }

    fn local_name(&self, what: &str) -> String {
        let pass = if self.pass > 0 { format!("#{}", self.pass) } else { String::new() };
        match self.layer {
            Some(id) => format!("{}{pass}.{what}", self.model.layer(id).label()),
            None => what.to_owned(),
        }
    }

    fn node(&mut self, kind: NodeKind, inputs: Vec<ValueId>, outputs: Vec<ValueId>) {
        let id = NodeId(self.nodes.len() as u32);
        for out in &outputs {
            self.values[out.0 as usize].producer = Some(id);
        }
        self.nodes.push(Node { kind, inputs, outputs, layer: self.layer, pass: self.pass, phase: self.phase });
    }

    fn shape(&self, id: ValueId) -> Shape {
        self.values[id.0 as usize].shape.clone()
    }

    /// Keeps a value for the backward pass.
    fn save(&mut self, id: ValueId) -> ValueId {
        if self.mode == Mode::Eval {
            return id;
        }
        let Value { name, role, shape, dtype, .. } = self.values[id.0 as usize].clone();
        let saved = self.value(format!("{name}.saved"), role, shape, dtype);
        self.node(NodeKind::Save, vec![id], vec![saved]);
        saved
    }

    fn record(&mut self, tape: Tape) {
        if let (Mode::Train, Some(layer)) = (self.mode, self.layer) {
            self.tape.push(Entry { tape, layer, pass: self.pass, input_grad: self.trained_before });
        }
    }

    fn param(&self, layer: &Layer, kind: ParamKind) -> Option<ParamId> {
        layer.params.iter().copied().find(|&p| self.model.param(p).kind == kind)
    }

    fn param_value(&self, layer: &Layer, kind: ParamKind) -> Option<ValueId> {
        self.param(layer, kind).map(|p| self.current[p.0 as usize])
    }

    fn forward(&mut self, id: LayerId, x: ValueId) -> ValueId {
        let model = self.model;
        let layer = model.layer(id);
        self.layer = Some(id);
        let out = layer.output.batched(model.batch);
        match &layer.spec {
            LayerSpec::Residual(_) => {
                self.record(Tape::ResidualBegin);
                let inner = layer.children.iter().fold(x, |v, &child| self.forward(child, v));
                self.layer = Some(id);
                let y = self.real("y", out);
                // The inner value stands first: an addition in place overwrites it and leaves the input to its other readers.
                self.node(NodeKind::Add, vec![inner, x], vec![y]);
                self.record(Tape::ResidualEnd);
                y
            }
            LayerSpec::Repeat(r) => {
                let outer = self.pass;
                let mut v = x;
                for time in 0..r.times {
                    self.pass = outer * r.times as u32 + time as u32;
                    v = layer.children.iter().fold(v, |v, &child| self.forward(child, v));
                }
                self.pass = outer;
                v
            }
            LayerSpec::Dense(_) | LayerSpec::Conv2d(_) => {
                let y = self.affine(layer, x, out.clone());
                match layer.spec.activation() {
                    Some(func) => self.activation(func, y, out),
                    None => y,
                }
            }
            LayerSpec::ActivationLayer(a) => self.activation(a.function, x, out),
            LayerSpec::BatchNorm(_) | LayerSpec::LayerNorm(_) => self.norm(layer, x, out),
            LayerSpec::MaxPool2d(p) => self.pool(PoolKind::Max, window(p), x, out),
            LayerSpec::AvgPool2d(p) => self.pool(PoolKind::Avg, window(p), x, out),
            LayerSpec::GlobalAvgPool(_) => {
                let y = self.real("y", out);
                self.node(NodeKind::GlobalAvgPool, vec![x], vec![y]);
                let input = self.shape(x);
                self.record(Tape::GlobalAvgPool { input });
                y
            }
            LayerSpec::Flatten(_) => {
                let y = self.real("y", out);
                self.node(NodeKind::Flatten, vec![x], vec![y]);
                let input = self.shape(x);
                self.record(Tape::Flatten { input });
                y
            }
            LayerSpec::Dropout(d) => self.dropout(d.rate, x, out),
        }
    }

    fn affine(&mut self, layer: &Layer, x: ValueId, out: Shape) -> ValueId {
        let saved = self.save(x);
        let w = self.param_value(layer, ParamKind::Weight);
        let b = self.param_value(layer, ParamKind::Bias);
        let name = if layer.spec.activation().is_some() { "z" } else { "y" };
        let y = self.real(name, out);
        let inputs: Vec<ValueId> = [Some(x), w, b].into_iter().flatten().collect();
        let bias = b.is_some();
        if let LayerSpec::Conv2d(c) = &layer.spec {
            let window = Window { size: c.kernel, stride: c.stride, padding: c.pad(), dilation: c.dilation };
            self.node(NodeKind::Conv2d { window, groups: c.groups, bias }, inputs, vec![y]);
            self.record(Tape::Conv { x: saved, window, groups: c.groups, bias });
        } else {
            self.node(NodeKind::Linear { bias }, inputs, vec![y]);
            self.record(Tape::Linear { x: saved, bias });
        }
        self.trained_before = true;
        y
    }

    fn activation(&mut self, func: Activation, x: ValueId, out: Shape) -> ValueId {
        let before = if func.saves_output() { None } else { Some(self.save(x)) };
        let y = self.real("y", out);
        self.node(NodeKind::Activation { func }, vec![x], vec![y]);
        let saved = before.unwrap_or_else(|| self.save(y));
        self.record(Tape::Activation { func, saved });
        y
    }

    fn norm(&mut self, layer: &Layer, x: ValueId, out: Shape) -> ValueId {
        let kinds = [ParamKind::Gamma, ParamKind::Beta, ParamKind::RunningMean, ParamKind::RunningVar];
        let params: Vec<ValueId> = kinds.iter().filter_map(|&k| self.param_value(layer, k)).collect();
        let inputs: Vec<ValueId> = std::iter::once(x).chain(params).collect();
        let y = self.real("y", out.clone());
        match &layer.spec {
            LayerSpec::BatchNorm(bn) if self.mode == Mode::Eval => {
                self.node(NodeKind::BatchNormEval { eps: bn.eps }, inputs, vec![y]);
            }
            LayerSpec::BatchNorm(bn) => {
                let saved = self.save(x);
                let channels = Shape::from([layer.input.0[0]]);
                let (mean, rstd) = (self.real("mean", channels.clone()), self.real("rstd", channels.clone()));
                let mut outputs = vec![y, mean, rstd];
                for kind in [ParamKind::RunningMean, ParamKind::RunningVar] {
                    if let Some(p) = self.param(layer, kind) {
                        let name = self.local_name(&format!("{}.new", kind.file_name()));
                        let new = self.value(name, Role::State, channels.clone(), self.real);
                        self.values[new.0 as usize].param = Some(p);
                        self.current[p.0 as usize] = new;
                        outputs.push(new);
                    }
                }
                self.node(NodeKind::BatchNorm { eps: bn.eps, momentum: bn.momentum }, inputs, outputs);
                self.record(Tape::BatchNorm { x: saved, mean, rstd });
            }
            LayerSpec::LayerNorm(ln) => {
                let saved = self.save(x);
                let rows = Shape(out.0[..out.rank() - 1].to_vec());
                let (mean, rstd) = (self.real("mean", rows.clone()), self.real("rstd", rows));
                self.node(NodeKind::LayerNorm { eps: ln.eps }, inputs, vec![y, mean, rstd]);
                self.record(Tape::LayerNorm { x: saved, mean, rstd });
            }
            _ => unreachable!("called for normalisations only"),
        }
        self.trained_before = true;
        y
    }

    fn pool(&mut self, pool: PoolKind, window: Window, x: ValueId, out: Shape) -> ValueId {
        let y = self.real("y", out.clone());
        let mut outputs = vec![y];
        let index = (pool == PoolKind::Max && self.mode == Mode::Train).then(|| {
            let dtype = if window.size[0] * window.size[1] <= 256 { DType::U8 } else { DType::U16 };
            let name = self.local_name("index");
            self.value(name, Role::Activation, out, dtype)
        });
        outputs.extend(index);
        self.node(NodeKind::Pool { pool, window }, vec![x], outputs);
        let input = self.shape(x);
        self.record(Tape::Pool { pool, window, index, input });
        y
    }

    fn dropout(&mut self, rate: f64, x: ValueId, out: Shape) -> ValueId {
        let stream = self.dropouts;
        self.dropouts += 1;
        let Some(counter) = self.counter.filter(|_| rate > 0.0) else { return x };
        let y = self.real("y", out.clone());
        let name = self.local_name("mask");
        let mask = self.value(name, Role::Activation, Shape::from([out.len().div_ceil(8)]), DType::U8);
        self.node(NodeKind::Dropout { rate, stream }, vec![x, counter], vec![y, mask]);
        self.record(Tape::Dropout { rate, mask });
        y
    }

    /// The loss and its gradient with respect to the output.
    fn loss(&mut self, output: ValueId, y: ValueId, metrics: Metrics) -> ValueId {
        self.phase = Phase::Loss;
        let loss = self.value("loss".into(), Role::Metric, Shape::from([1]), self.real);
        let shape = self.shape(output);
        match self.model.loss {
            LossSpec::SoftmaxCrossEntropy { label_smoothing: smoothing } => {
                if metrics.accuracy {
                    let accuracy = self.value("accuracy".into(), Role::Metric, Shape::from([1]), self.real);
                    self.phase = Phase::Metric;
                    self.node(NodeKind::Accuracy, vec![output, y], vec![accuracy]);
                    self.phase = Phase::Loss;
                }
                let probs = self.value("loss.probs".into(), Role::Activation, shape.clone(), self.real);
                self.node(NodeKind::SoftmaxCrossEntropy { smoothing }, vec![output, y], vec![loss, probs]);
                let grad = self.value("loss.dY".into(), Role::Grad, shape, self.real);
                self.node(NodeKind::SoftmaxCrossEntropyGrad { smoothing }, vec![probs, y], vec![grad]);
                grad
            }
            LossSpec::Mse => {
                self.node(NodeKind::Mse, vec![output, y], vec![loss]);
                let grad = self.value("loss.dY".into(), Role::Grad, shape, self.real);
                self.node(NodeKind::MseGrad, vec![output, y], vec![grad]);
                grad
            }
        }
    }

    fn backward(&mut self, loss_grad: ValueId) {
        self.phase = Phase::Backward;
        let mut dy = Some(loss_grad);
        // Gradients that go around a residual block, waiting for its beginning.
        let mut around: Vec<Option<ValueId>> = Vec::new();
        for entry in std::mem::take(&mut self.tape).into_iter().rev() {
            self.layer = Some(entry.layer);
            self.pass = entry.pass;
            let Some(grad) = dy else {
                // Nothing before this point is trained.
                break;
            };
            dy = match entry.tape {
                Tape::ResidualEnd => {
                    around.push(entry.input_grad.then_some(grad));
                    Some(grad)
                }
                Tape::ResidualBegin => {
                    let skip = around.pop().flatten();
                    match skip.filter(|_| entry.input_grad) {
                        Some(skip) => {
                            let shape = self.shape(grad);
                            let sum = self.real("gA", shape);
                            self.node(NodeKind::GradAdd, vec![grad, skip], vec![sum]);
                            Some(sum)
                        }
                        None => None,
                    }
                }
                tape => self.backward_one(tape, grad, entry.layer, entry.input_grad),
            };
        }
        self.layer = None;
        self.pass = 0;
    }

    /// The gradient of one entry's input, where one is needed.
    fn backward_one(&mut self, tape: Tape, dy: ValueId, layer: LayerId, input_grad: bool) -> Option<ValueId> {
        let model = self.model;
        let layer = model.layer(layer);
        let simple = |b: &mut Self, kind, inputs, shape| {
            if !input_grad {
                return None;
            }
            let dx = b.real("gA", shape);
            b.node(kind, inputs, vec![dx]);
            Some(dx)
        };
        match tape {
            Tape::Linear { x, bias } => self.affine_bwd(layer, dy, x, bias, input_grad, None),
            Tape::Conv { x, window, groups, bias } => {
                self.affine_bwd(layer, dy, x, bias, input_grad, Some((window, groups)))
            }
            Tape::BatchNorm { x, mean, rstd } => Some(self.norm_bwd(layer, dy, x, mean, rstd, true)),
            Tape::LayerNorm { x, mean, rstd } => Some(self.norm_bwd(layer, dy, x, mean, rstd, false)),
            Tape::Activation { func, saved } => {
                let shape = self.shape(dy);
                simple(self, NodeKind::ActivationBwd { func }, vec![dy, saved], shape)
            }
            Tape::Pool { pool, window, index, input } => {
                let inputs = std::iter::once(dy).chain(index).collect();
                simple(self, NodeKind::PoolBwd { pool, window }, inputs, input)
            }
            Tape::GlobalAvgPool { input } => simple(self, NodeKind::GlobalAvgPoolBwd, vec![dy], input),
            Tape::Flatten { input } => simple(self, NodeKind::FlattenBwd, vec![dy], input),
            Tape::Dropout { rate, mask } => {
                let shape = self.shape(dy);
                simple(self, NodeKind::DropoutBwd { rate }, vec![dy, mask], shape)
            }
            Tape::ResidualBegin | Tape::ResidualEnd => unreachable!("handled by the caller"),
        }
        .filter(|_| input_grad)
    }

    /// The gradient value of a parameter, and the value it adds to where one is there already.
    fn param_grad(&mut self, layer: &Layer, kind: ParamKind, what: &str) -> (Option<ValueId>, Option<ValueId>) {
        let Some(p) = self.param(layer, kind) else { return (None, None) };
        let before = self.grads[p.0 as usize];
        let shape = self.model.param(p).shape.clone();
        let name = self.local_name(what);
        let grad = self.value(name, Role::Grad, shape, self.real);
        self.values[grad.0 as usize].param = Some(p);
        self.grads[p.0 as usize] = Some(grad);
        (before, Some(grad))
    }

    fn affine_bwd(
        &mut self,
        layer: &Layer,
        dy: ValueId,
        x: ValueId,
        bias: bool,
        input_grad: bool,
        conv: Option<(Window, usize)>,
    ) -> Option<ValueId> {
        let (w_before, dw) = self.param_grad(layer, ParamKind::Weight, "gW");
        let (b_before, db) = self.param_grad(layer, ParamKind::Bias, "gB");
        let shape = self.shape(x);
        let dx = input_grad.then(|| self.real("gA", shape));
        let w = self.param_value(layer, ParamKind::Weight);
        let inputs = [Some(dy), Some(x), w, w_before, b_before].into_iter().flatten().collect();
        let outputs = [dw, db, dx].into_iter().flatten().collect();
        let accumulate = w_before.is_some();
        let kind = match conv {
            Some((window, groups)) => NodeKind::Conv2dBwd { window, groups, bias, input_grad, accumulate },
            None => NodeKind::LinearBwd { bias, input_grad, accumulate },
        };
        self.node(kind, inputs, outputs);
        dx
    }

    fn norm_bwd(
        &mut self,
        layer: &Layer,
        dy: ValueId,
        x: ValueId,
        mean: ValueId,
        rstd: ValueId,
        batch: bool,
    ) -> ValueId {
        let (g_before, dgamma) = self.param_grad(layer, ParamKind::Gamma, "gW");
        let (b_before, dbeta) = self.param_grad(layer, ParamKind::Beta, "gB");
        let shape = self.shape(x);
        let dx = self.real("gA", shape);
        let gamma = self.param_value(layer, ParamKind::Gamma);
        let inputs =
            [Some(dy), Some(x), gamma, Some(mean), Some(rstd), g_before, b_before].into_iter().flatten().collect();
        let outputs = [Some(dx), dgamma, dbeta].into_iter().flatten().collect();
        let accumulate = g_before.is_some();
        let kind = if batch { NodeKind::BatchNormBwd { accumulate } } else { NodeKind::LayerNormBwd { accumulate } };
        self.node(kind, inputs, outputs);
        dx
    }
}
