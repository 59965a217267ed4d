//! A graph under construction: values, nodes, and what the forward pass stores for the backward pass.

use super::graph::{Node, Phase};
use super::nodes::{NodeKind, Save};
use super::value::{NodeId, Role, Value, ValueId};
use super::{Metrics, Mode};
use crate::model::{Layer, LayerId, Model, ParamId, ParamKind};
use crate::tensor::{DType, Shape};

/// The forward pass of a layer.
pub(super) trait Forward {
    /// Adds the nodes of the layer, records how their derivative is made, and returns the layer's output.
    fn forward(&self, b: &mut Builder<'_>, at: &At<'_>) -> ValueId;
}

/// The context of a layer's application.
pub(super) struct At<'m> {
    pub layer: &'m Layer,
    /// Its input; for a first layer that takes its inputs by name, the first of them.
    pub x: ValueId,
    /// The output's shape, with the batch.
    pub out: Shape,
    /// Applies the layers of one of a block's lists once.
    pub inside: fn(&mut Builder<'_>, &Layer, usize, ValueId) -> ValueId,
}

/// What the derivative of one part of the forward pass needs.
pub(super) trait Derivative {
    /// Adds the nodes of the derivative; returns the gradient of the input if it is needed.
    fn backward(&self, b: &mut Builder<'_>, at: &Backward<'_>) -> Option<ValueId>;
}

/// The context of a derivative.
pub(super) struct Backward<'m> {
    pub layer: &'m Layer,
    /// The gradient of the output.
    pub dy: ValueId,
    /// Whether there is a parameter before it, so that its input needs a gradient.
    pub input_grad: bool,
}

/// How the derivative of a part of the forward pass is made, and where the part begins.
#[derive(Default)]
pub(super) struct Tape(Vec<Entry>);

struct Entry {
    derivative: Box<dyn Derivative>,
    layer: LayerId,
    pass: u32,
    input_grad: bool,
}

/// A graph under construction.
pub(super) struct Builder<'m> {
    pub model: &'m Model,
    /// The label of each layer.
    labels: Vec<String>,
    pub mode: Mode,
    pub metrics: Metrics,
    pub real: DType,
    /// The value of each input, in the model's order.
    pub inputs: Vec<ValueId>,
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    /// The current value of each parameter or statistic.
    pub current: Vec<ValueId>,
    pub grads: Vec<Option<ValueId>>,
    /// The counter of steps that were made.
    pub counter: Option<ValueId>,
    /// The counter of batches that were used, if several make one step.
    pub batches: Option<ValueId>,
    tape: Tape,
    /// Whether anything before the current point is trained.
    pub trained_before: bool,
    /// The number of layers so far that draw random numbers: each has its own stream.
    pub streams: u32,
    /// Which application of a repeated layer is built, from 0.
    pub pass: u32,
    pub layer: Option<LayerId>,
    pub phase: Phase,
}

impl<'m> Builder<'m> {
    pub fn new(model: &'m Model, mode: Mode, metrics: Metrics, real: DType) -> Self {
        Self {
            model,
            labels: model.layers.iter().map(Layer::label).collect(),
            mode,
            metrics,
            real,
            inputs: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            current: Vec::new(),
            grads: vec![None; model.params.len()],
            counter: None,
            batches: None,
            tape: Tape::default(),
            trained_before: false,
            streams: 0,
            pass: 0,
            layer: None,
            phase: Phase::Forward,
        }
    }

    /// The value of the input with this name, for branches.
    pub fn input(&self, name: &str) -> Option<ValueId> {
        self.model.inputs.iter().zip(&self.inputs).find(|(input, _)| input.name == name).map(|(_, value)| *value)
    }

    pub fn value(&mut self, name: String, role: Role, shape: Shape, dtype: DType) -> ValueId {
        self.values.push(Value {
            name,
            role,
            shape,
            dtype,
            producer: None,
            param: None,
            layer: self.layer,
            group: None,
        });
        ValueId(self.values.len() as u32 - 1)
    }

    pub fn source(&mut self, name: &str, role: Role, shape: Shape, dtype: DType) -> ValueId {
        self.value(name.to_owned(), role, shape, dtype)
    }

    /// The value that determines random numbers: they differ for each batch.
    pub fn drawn_by(&self) -> Option<ValueId> {
        self.batches.or(self.counter)
    }

    /// A real activation or gradient named after the current layer.
    pub fn real(&mut self, what: &str, shape: Shape) -> ValueId {
        let name = self.local_name(what);
        let role = if self.phase == Phase::Backward { Role::Grad } else { Role::Activation };
        self.value(name, role, shape, self.real)
    }

    pub fn local_name(&self, what: &str) -> String {
        let pass = if self.pass > 0 { format!("#{}", self.pass) } else { String::new() };
        match self.layer {
            Some(id) => format!("{}{pass}.{what}", self.labels[id.0 as usize]),
            None => what.to_owned(),
        }
    }

    pub fn node(&mut self, kind: impl Into<NodeKind>, inputs: Vec<ValueId>, outputs: Vec<ValueId>) {
        let id = NodeId(self.nodes.len() as u32);
        for out in &outputs {
            self.values[out.0 as usize].producer = Some(id);
        }
        let (layer, pass, phase) = (self.layer, self.pass, self.phase);
        self.nodes.push(Node { kind: kind.into(), inputs, outputs, layer, pass, phase });
    }

    pub fn shape(&self, id: ValueId) -> Shape {
        self.values[id.0 as usize].shape.clone()
    }

    /// Keeps a value for the backward pass.
    pub fn save(&mut self, id: ValueId) -> ValueId {
        if self.mode == Mode::Eval {
            return id;
        }
        let Value { name, role, shape, dtype, .. } = self.values[id.0 as usize].clone();
        let saved = self.value(format!("{name}.saved"), role, shape, dtype);
        self.node(Save {}, vec![id], vec![saved]);
        saved
    }

    /// Records how the derivative of the part that was just built is made.
    pub fn record(&mut self, derivative: impl Derivative + 'static) {
        if let (Mode::Train, Some(layer)) = (self.mode, self.layer) {
            let (pass, input_grad) = (self.pass, self.trained_before);
            self.tape.0.push(Entry { derivative: Box::new(derivative), layer, pass, input_grad });
        }
    }

    pub fn param(&self, layer: &Layer, kind: ParamKind) -> Option<ParamId> {
        layer.params.iter().copied().find(|&p| self.model.param(p).kind == kind)
    }

    pub fn param_value(&self, layer: &Layer, kind: ParamKind) -> Option<ValueId> {
        self.param(layer, kind).map(|p| self.current[p.0 as usize])
    }

    /// The gradient value of a parameter, and the value that it is added to, if there is already one.
    pub fn param_grad(&mut self, layer: &Layer, kind: ParamKind, what: &str) -> (Option<ValueId>, Option<ValueId>) {
        let Some(p) = self.param(layer, kind) else { return (None, None) };
        let before = self.grads[p.0 as usize];
        let shape = self.model.param(p).shape.clone();
        let name = self.local_name(what);
        let grad = self.value(name, Role::Grad, shape, self.real);
        self.values[grad.0 as usize].param = Some(p);
        self.grads[p.0 as usize] = Some(grad);
        (before, Some(grad))
    }

    /// The gradient of an input, from a node that has no other result, if it is needed.
    pub fn input_gradient(
        &mut self,
        at: &Backward<'_>,
        kind: impl Into<NodeKind>,
        inputs: Vec<ValueId>,
        shape: Shape,
    ) -> Option<ValueId> {
        if !at.input_grad {
            return None;
        }
        let dx = self.real("gA", shape);
        self.node(kind, inputs, vec![dx]);
        Some(dx)
    }

    /// Builds a part of the forward pass whose derivatives are recorded separately, for a block that determines the
    /// flow of their gradients itself. The current layer is restored.
    pub fn apart(&mut self, part: impl FnOnce(&mut Self) -> ValueId) -> (Tape, ValueId) {
        let (outer, layer) = (std::mem::take(&mut self.tape), self.layer);
        let output = part(self);
        self.layer = layer;
        (std::mem::replace(&mut self.tape, outer), output)
    }

    /// Builds the backward pass of a part of the forward pass, from the gradient of its output to the first trained
    /// layer. Returns the gradient of its input if it is needed.
    pub fn back_over(&mut self, tape: &Tape, output_grad: ValueId) -> Option<ValueId> {
        let (model, place) = (self.model, (self.layer, self.pass));
        let mut dy = Some(output_grad);
        for entry in tape.0.iter().rev() {
            self.layer = Some(entry.layer);
            self.pass = entry.pass;
            let Some(grad) = dy else {
                // Nothing before this point is trained.
                break;
            };
            let at = Backward { layer: model.layer(entry.layer), dy: grad, input_grad: entry.input_grad };
            dy = entry.derivative.backward(self, &at);
        }
        (self.layer, self.pass) = place;
        dy
    }

    /// Builds the backward pass of everything that the forward pass recorded, from the loss to the first trained layer.
    pub fn backward(&mut self, loss_grad: ValueId) {
        self.phase = Phase::Backward;
        self.layer = None;
        self.pass = 0;
        let tape = std::mem::take(&mut self.tape);
        self.back_over(&tape, loss_grad);
    }
}
