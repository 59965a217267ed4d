//! From a checked model to the graph of its training step, or of its evaluation.

use super::builder::Builder;
use super::graph::{Graph, Input, InputKind, Inputs};
use super::layers::forward;
use super::value::{Role, ValueId};
use super::{Metrics, Mode, Share};
use crate::model::{Model, NamedInput, ParamId, Targets};
use crate::tensor::{DType, Shape};

/// The graph of a model's step; if layers choose, that of the path of evaluations. `real` is the type of every real
/// value: `F32`, or `F64` for checks. If several batches make one step, it is the graph for the last one.
#[must_use]
pub fn build(model: &Model, mode: Mode, metrics: Metrics, real: DType) -> Graph {
    build_share(model, mode, metrics, real, Share::Last)
}

/// Like [`build`]; if several batches make one step, the graph for this share of them.
#[must_use]
pub fn build_share(model: &Model, mode: Mode, metrics: Metrics, real: DType, share: Share) -> Graph {
    if model.chooses() {
        return build_share(&model.in_evaluation(), mode, metrics, real, share);
    }
    let share = (mode == Mode::Train && model.accumulate > 1).then_some(share);
    let updates_parameters = share.is_none_or(|share| share == Share::Last);
    let mut b = Builder::new(model, mode, metrics, real);
    let samples = b.samples();
    let targets = (mode == Mode::Train).then(|| targets(&mut b));
    let params = b.parameters();
    let mut updates = Vec::new();
    if mode == Mode::Train && updates_parameters {
        b.counter = Some(b.source("counter", Role::State, Shape::from([2]), DType::I64));
    }
    if let Some(share) = share {
        b.batches = Some(b.source("batches", Role::State, Shape::from([2]), DType::I64));
        if share != Share::First {
            b.earlier_gradients();
        }
    }
    // If there are several inputs, the branches of the first layer take them by name.
    let mut output = samples[0].value;
    for &root in &model.roots {
        output = forward(&mut b, root, output);
    }
    b.layer = None;
    if let Some(targets) = targets {
        let grad = b.loss(output, targets);
        b.backward(grad);
        b.count_batch(&mut updates);
        if updates_parameters {
            b.optimizer(&params, &mut updates);
        }
    }
    for (&before, &after) in params.iter().zip(&b.current) {
        if before != after {
            updates.push((before, after));
        }
    }
    let Builder { values, nodes, grads, .. } = b;
    let targets = targets.map(|value| Input { name: "y".into(), value, kind: InputKind::Targets });
    let inputs = Inputs(samples.into_iter().chain(targets).collect());
    Graph { mode, metrics, share, values, nodes, inputs, output, params, grads, updates }
}

/// What the loss compares the output with: values for each sample, or a class for each row of the output.
fn targets(b: &mut Builder<'_>) -> ValueId {
    let model = b.model;
    match model.loss.targets() {
        Targets::Classes => b.source("y", Role::Input, model.labels().batched(model.batch), DType::I32),
        Targets::Values | Targets::Binary => b.source("y", Role::Input, model.output.batched(model.batch), b.real),
    }
}

impl Builder<'_> {
    /// The value of each input.
    fn samples(&mut self) -> Vec<Input<ValueId>> {
        let model = self.model;
        let of = |input: &NamedInput| {
            let dtype = if input.content.is_tokens() { DType::I32 } else { self.real };
            let name = input.value_name(&model.inputs);
            let value = self.source(&name, Role::Input, input.shape.batched(model.batch), dtype);
            self.inputs.push(value);
            Input { name, value, kind: InputKind::Samples }
        };
        model.inputs.iter().map(of).collect()
    }

    /// The sum of the gradients of the preceding batches, to which those of this one are added.
    fn earlier_gradients(&mut self) {
        let is_run = self.model.runs();
        let trained = self.model.params.iter().enumerate().filter(|(_, p)| p.kind.is_trained());
        for (index, param) in trained.filter(|(index, _)| is_run[*index]) {
            let sum = self.source(&format!("grad.{}", param.name), Role::Grad, param.shape.clone(), self.real);
            self.values[sum.0 as usize].param = Some(ParamId(index as u32));
            self.values[sum.0 as usize].layer = Some(param.layer);
            self.grads[index] = Some(sum);
        }
    }

    /// The value of each parameter and statistic before the step.
    fn parameters(&mut self) -> Vec<ValueId> {
        for (index, param) in self.model.params.iter().enumerate() {
            let role = if param.kind.is_trained() { Role::Param } else { Role::State };
            let id = self.source(&param.name, role, param.shape.clone(), self.real);
            self.values[id.0 as usize].param = Some(ParamId(index as u32));
            self.values[id.0 as usize].layer = Some(param.layer);
            self.current.push(id);
        }
        self.current.clone()
    }
}
