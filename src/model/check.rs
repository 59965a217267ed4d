//! From the document to a checked model: shapes, parameters, and all mistakes.

use super::activation::Activation;
use super::checked::{Checked, Layer, LayerFacts, Model};
use super::diagnostic::Diagnostic;
use super::groups::groups;
use super::infer::{Infer, Join};
use super::input::{Content, Flow, NamedInput, single};
use super::layers::{LayerSpec, NextActivation};
use super::mistakes::{FieldChecks, Mistakes};
use super::param::{LayerId, Param, ParamId};
use super::path::{LayerPath, ListField, ListId, ListPath};
use super::preset::Preset;
use super::settings::{
    MAX_ELEMENTS, check_amounts, check_inputs, check_loss, check_names, check_optimizer, check_output, check_update,
};
use super::ties::{Named, Tied, is_shared};
use crate::tensor::{Shape, plural};

/// Nested blocks beyond this depth are refused.
const MAX_DEPTH: usize = 16;
/// More layer applications than this are refused, because the step would have millions of operations.
const MAX_APPLICATIONS: usize = 100_000;

/// The activation that is first applied to a layer's output: its own, or that of a later layer if all layers between
/// keep the shape or pool.
fn activation_after(layers: &[LayerSpec], index: usize) -> Option<Activation> {
    layers[index].activation().or_else(|| {
        layers[index + 1..]
            .iter()
            .map(LayerSpec::next_activation)
            .find(|next| *next != NextActivation::Beyond)
            .and_then(|next| match next {
                NextActivation::Is(function) => Some(function),
                NextActivation::Stops | NextActivation::Beyond => None,
            })
    })
}

struct Checker<'a> {
    batch: usize,
    /// The names of all inputs.
    names: Vec<&'a str>,
    /// The inputs without mistakes.
    inputs: &'a [NamedInput],
    layers: Vec<Layer>,
    params: Vec<Param>,
    facts: Vec<LayerFacts>,
    /// The heads with which steps may end, with their output for a sample.
    exits: Vec<(LayerPath, Shape)>,
    mistakes: &'a mut Mistakes,
}

impl Checker<'_> {
    /// The input with this name, if it has no mistake.
    fn input(&self, name: &str) -> Option<&NamedInput> {
        self.inputs.iter().find(|input| input.name == name)
    }

    fn fail(&mut self, path: &LayerPath, field: &str, message: String, help: &str) {
        FieldChecks::new(path, self.mistakes).fail(field, message, help);
    }

    /// Checks a list of layers from a known or unknown input; returns the ids and the output.
    fn walk(&mut self, specs: &[LayerSpec], parent: &ListPath, input: Option<Flow>) -> (Vec<LayerId>, Option<Flow>) {
        let mut flow = input;
        let mut ids = Vec::with_capacity(specs.len());
        for (index, spec) in specs.iter().enumerate() {
            let path = parent.child(index);
            let (id, output) = self.layer(spec, specs, index, &path, flow.clone());
            ids.push(id);
            // The output of a block that must keep the shape is taken to be that of its input, even if something inside
            // it is wrong.
            flow = output
                .map(Flow::real)
                .or_else(|| flow.filter(|f| !f.content.is_tokens() && self.must_keep_shape(spec, &path)));
        }
        (ids, flow)
    }

    /// Whether a layer is a block whose output has the shape of its input.
    fn must_keep_shape(&self, spec: &LayerSpec, path: &LayerPath) -> bool {
        spec.must_keep_shape() && self.mistakes.is_read(&format!("{path}.times"))
    }

    fn layer(
        &mut self,
        spec: &LayerSpec,
        siblings: &[LayerSpec],
        index: usize,
        path: &LayerPath,
        input: Option<Flow>,
    ) -> (LayerId, Option<Shape>) {
        let id = LayerId(self.layers.len() as u32);
        let input = self.taken(spec, path, input);
        let shape = input.as_ref().map(|flow| flow.shape.clone());
        let content = input.as_ref().map_or(Content::Real, |flow| flow.content);
        let fact = self.facts.len();
        self.facts.push(LayerFacts {
            path: path.clone(),
            kind: spec.kind(),
            input: shape.clone(),
            output: None,
            params: 0,
        });
        // A layer whose input is unknown is still listed; its index in `layers` matters only if there are no mistakes.
        self.layers.push(Layer {
            path: path.clone(),
            spec: spec.clone(),
            input: shape.unwrap_or_default(),
            output: Shape::default(),
            content,
            params: Vec::new(),
            lists: Vec::new(),
        });
        let first_param = self.params.len();
        let output = if spec.is_block() {
            self.block(spec, path, id, input)
        } else if self.mistakes.is_read(&format!("{path}.type")) {
            self.leaf(spec, activation_after(siblings, index), path, id, input.as_ref())
        } else {
            // The replacement for a layer that could not be read is not a layer of the document.
            None
        };
        let trained = |p: &&Param| p.kind.is_trained();
        self.facts[fact].params = self.params[first_param..]
            .iter()
            .filter(trained)
            .fold(0usize, |a, p| a.saturating_add(p.shape.checked_len().unwrap_or(usize::MAX)));
        self.facts[fact].output.clone_from(&output);
        self.layers[id.0 as usize].output = output.clone().unwrap_or_default();
        (id, output)
    }

    /// The input shape that a layer sees; `None` for tokens if it needs numbers.
    fn taken(&mut self, spec: &LayerSpec, path: &LayerPath, input: Option<Flow>) -> Option<Flow> {
        let is_read = self.mistakes.is_read(&format!("{path}.type"));
        if is_read && !spec.takes_tokens() && input.as_ref().is_some_and(|flow| flow.content.is_tokens()) {
            let help = "tokens are not numbers to compute with: put an `embedding` first";
            self.fail(path, "", format!("{} takes numbers, and its input is tokens", spec.kind().type_name), help);
            return None;
        }
        input
    }

    fn leaf(
        &mut self,
        spec: &LayerSpec,
        activation: Option<Activation>,
        path: &LayerPath,
        id: LayerId,
        input: Option<&Flow>,
    ) -> Option<Shape> {
        let mut fields = FieldChecks::new(path, self.mistakes);
        spec.check_fields(&mut fields);
        let Flow { shape, content } = input?;
        let mut cx =
            Infer { input: shape, content: *content, batch: self.batch, fields, activation, params: Vec::new() };
        let output = spec.infer(&mut cx);
        let params = cx.params;
        if params.iter().any(|(_, s, _)| too_large(s, 1)) || output.as_ref().is_some_and(|s| too_large(s, self.batch)) {
            self.fail_size(path, output.as_ref());
            return None;
        }
        for (kind, shape, init) in params {
            let param = ParamId(self.params.len() as u32);
            let name = format!("{}.{}", path.dotted(), kind.file_name());
            self.params.push(Param { name, layer: id, kind, shape, init, group: 0 });
            self.layers[id.0 as usize].params.push(param);
        }
        output
    }

    fn block(&mut self, spec: &LayerSpec, path: &LayerPath, id: LayerId, input: Option<Flow>) -> Option<Shape> {
        if path.depth() > MAX_DEPTH {
            self.fail(path, "", format!("blocks nested {} deep", path.depth()), "at most 16 levels");
            return None;
        }
        spec.check_fields(&mut FieldChecks::new(path, self.mistakes));
        self.check_exit(spec, path);
        let lists = spec.lists();
        if let Some((empty, _)) = lists.iter().find(|(_, layers)| layers.is_empty() && !spec.may_be_empty()) {
            let (message, help) = ("the block is empty".into(), "add at least one layer to it, or remove the block");
            self.fail(path, &empty.to_string(), message, help);
            return input.map(|flow| flow.shape);
        }
        let mut outputs = Vec::with_capacity(lists.len());
        for (list, layers) in lists {
            let taken = self.taken_by(spec, path, list, input.as_ref());
            let (ids, output) = self.walk(layers, &path.list(list), taken);
            self.layers[id.0 as usize].lists.push(ids);
            outputs.push(self.given_by(path, list, output));
        }
        let outputs: Vec<Shape> = outputs.into_iter().collect::<Option<_>>()?;
        if spec.ends_at(1) {
            self.exits.extend(outputs.first().map(|head| (path.clone(), head.clone())));
        }
        let fields = FieldChecks::new(path, self.mistakes);
        let input_shape = input.as_ref().map(|flow| &flow.shape);
        let output = spec.join(&mut Join { input: input_shape, outputs: &outputs, fields })?;
        if too_large(&output, self.batch) {
            self.fail_size(path, Some(&output));
            return None;
        }
        let input = input.map(|flow| flow.shape);
        let times = spec.times().unwrap_or(1);
        if times == 0 {
            return None;
        }
        if let Some(input) = input.filter(|input| self.must_keep_shape(spec, path) && output != *input) {
            let why = if spec.times().is_some() { "repeated layers" } else { "the layers of a residual block" };
            let message = format!("the block turns {input} into {output}");
            self.fail(path, "layers", message, &format!("{why} must keep the shape"));
            return None;
        }
        Some(output)
    }
}

impl Checker<'_> {
    /// An exit must be at a place where the network can end: in its outermost list of layers, or in a path of a branch
    /// there.
    fn check_exit(&mut self, spec: &LayerSpec, path: &LayerPath) {
        if !spec.ends_at(1) {
            return;
        }
        let mut place = path.split();
        while let Some((list, _)) = place {
            let outer = self.layers.iter().find(|layer| layer.path == list.block);
            if let Some(outer) = outer.filter(|outer| outer.spec.list_field() != Some(ListField::Paths)) {
                let (kind, message) = (outer.spec.kind().type_name, "an exit inside of another block");
                let help = format!("move it out of {} ({kind}), where the step can end", list.block);
                self.fail(path, "", message.into(), &help);
                return;
            }
            place = list.block.split();
        }
    }

    /// The head of an exit must have the network's output shape.
    fn check_heads(&mut self, output: &Shape) {
        for (path, head) in std::mem::take(&mut self.exits) {
            if head != *output {
                let message = format!("the head gives {head}, and the network gives {output}");
                self.fail(
                    &path,
                    "layers",
                    message,
                    "steps that end here have the same targets, so give the same shape",
                );
            }
        }
    }

    /// The input of a list of a block: the input of the network that it names, or the block's input.
    fn taken_by(&mut self, spec: &LayerSpec, path: &LayerPath, list: ListId, input: Option<&Flow>) -> Option<Flow> {
        let field = format!("{}[{}].input", list.field.name(), list.number);
        let names = self.names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let Some(name) = spec.input_of(list) else {
            // If the network has several inputs, the first layer has no single input.
            if input.is_none() && self.names.len() > 1 && *path == LayerPath::from([0]) {
                self.fail(path, &field, "is missing".into(), &format!("name the input that it takes: {names}"));
            }
            return input.cloned();
        };
        if !self.names.contains(&name) {
            let help = format!("known here: {names}; without the field it takes what the block takes");
            self.fail(path, &field, format!("the network has no input named \"{name}\""), &help);
        }
        self.input(name).map(NamedInput::flow)
    }

    /// The output of a list of a block; tokens cannot be joined.
    fn given_by(&mut self, path: &LayerPath, list: ListId, output: Option<Flow>) -> Option<Shape> {
        let output = output?;
        if output.content.is_tokens() {
            let entry = format!("{}[{}]", list.field.name(), list.number);
            let help = "tokens are not numbers to compute with: put an `embedding` into it";
            self.fail(path, &entry, "its output is tokens".into(), help);
            return None;
        }
        Some(output.shape)
    }

    /// Adds the weight of the embedding to each layer that uses it, as the first of its parameters.
    fn tie(&mut self) {
        let shared = self.layers.iter().filter(|layer| is_shared(&layer.spec));
        let known: Vec<String> = shared.map(|layer| layer.path.dotted()).collect();
        for at in 0..self.layers.len() {
            let Layer { path, spec, input, output, .. } = &self.layers[at];
            let Some(place) = spec.tied() else { continue };
            let sizes = input.0.last().zip(output.0.last()).map(|(inputs, units)| [*inputs, *units]);
            let find = |path: &LayerPath| {
                let layer = self.layers.iter().find(|layer| layer.path == *path)?;
                let weight = layer.params.first().map(|id| (*id, &self.params[id.0 as usize].shape.0));
                let table = weight.and_then(|(id, dims)| Some((id, <[usize; 2]>::try_from(dims.as_slice()).ok()?)));
                Some(Named { spec: &layer.spec, table })
            };
            let tied = Tied { path, place, sizes };
            if let Some(weight) = tied.weight(find, &known, self.mistakes) {
                self.layers[at].params.insert(0, weight);
            }
        }
    }

    fn fail_size(&mut self, path: &LayerPath, output: Option<&Shape>) {
        let noun = plural(self.batch as u64, "sample");
        let of = |s: &Shape| format!(" with an output of {s} for each of {} {noun}", self.batch);
        let found = output.map_or_else(String::new, of);
        self.fail(path, "", format!("this layer is too large{found}"), "one buffer may hold at most 2^40 values");
    }
}

/// Whether this many tensors of a shape exceed the limit of one buffer.
fn too_large(shape: &Shape, times: usize) -> bool {
    shape.checked_len().and_then(|n| n.checked_mul(times)).is_none_or(|n| n > MAX_ELEMENTS)
}

/// The number of layer applications of a list, with repeats multiplied by `times`.
fn applications<'a>(specs: impl IntoIterator<Item = &'a LayerSpec>, times: fn(usize) -> usize) -> usize {
    let one = |s: &LayerSpec| {
        let inside = s.lists().into_iter().map(|(_, l)| applications(l, times)).fold(0, usize::saturating_add);
        match s.times() {
            Some(n) => inside.saturating_mul(times(n)),
            None => inside.saturating_add(1),
        }
    };
    specs.into_iter().map(one).fold(0, usize::saturating_add)
}

/// Checks a document.
#[must_use]
pub fn check(preset: &Preset) -> Checked {
    check_after(preset, Vec::new())
}

/// Checks that there is something to train.
fn check_trained(preset: &Preset, facts: &[LayerFacts], params: &[Param], mistakes: &mut Mistakes) {
    // If the output of a layer is not known, its parameters are not known either.
    let are_all_known = facts.iter().all(|fact| fact.output.is_some());
    if are_all_known && !preset.layers.is_empty() && !params.iter().any(|p| p.kind.is_trained()) {
        let help = "add a layer with weights, such as dense or conv2d";
        mistakes.fail("layers", "nothing here can be trained", help);
    }
}

/// Sets the group of each parameter.
fn put_groups(layers: &[Layer], roots: &[LayerId], params: &mut [Param]) {
    let of_params = groups(layers, roots, params.len());
    for (param, group) in params.iter_mut().zip(of_params) {
        param.group = group;
    }
}

/// Checks a document in which the reader found the mistakes `read`, as far as it could be read.
pub(super) fn check_after(preset: &Preset, read: Vec<Diagnostic>) -> Checked {
    let mut mistakes = Mistakes::after(read);
    let inputs = check_inputs(&preset.input, &mut mistakes);
    check_names(preset, &mut mistakes);
    check_loss(preset.loss, &mut mistakes);
    check_optimizer(&preset.optimizer, &mut mistakes);
    check_update(preset, &mut mistakes);
    check_amounts(preset, &mut mistakes);
    if applications(&preset.layers, |n| n) > MAX_APPLICATIONS {
        mistakes.fail("layers", "more than 100000 layer applications", "use fewer layers or smaller `times`");
        if applications(&preset.layers, |_| 1) > MAX_APPLICATIONS {
            return Checked { model: None, facts: Vec::new(), diagnostics: mistakes.into_list() };
        }
    }
    // If the batch size is wrong, the layers are checked with a valid one.
    let batch = if (1..=1 << 30).contains(&preset.input.batch) { preset.input.batch } else { 2 };
    let mut checker = Checker {
        batch,
        names: preset.input.inputs.iter().map(|input| input.name.as_str()).collect(),
        inputs: &inputs,
        layers: Vec::new(),
        params: Vec::new(),
        facts: Vec::new(),
        exits: Vec::new(),
        mistakes: &mut mistakes,
    };
    // No layer takes several inputs: branches take them by name.
    let input = single(&preset.input.inputs).and_then(|only| checker.input(&only.name)).map(NamedInput::flow);
    let (roots, output) = checker.walk(&preset.layers, &ListPath::default(), input);
    let output = output.map(|flow| flow.shape);
    checker.tie();
    output.iter().for_each(|output| checker.check_heads(output));
    let Checker { layers, mut params, facts, .. } = checker;
    if let Some(output) = &output {
        check_output(preset, output, &mut mistakes);
        check_trained(preset, &facts, &params, &mut mistakes);
    }
    put_groups(&layers, &roots, &mut params);
    let diagnostics = mistakes.into_list();
    let model = match output {
        Some(output) if diagnostics.is_empty() => Some(Model {
            name: preset.name.clone(),
            inputs,
            batch,
            of_path: None,
            layers,
            roots,
            params,
            output,
            loss: preset.loss,
            optimizer: preset.optimizer,
            update: preset.update,
            precision: preset.precision,
            accumulate: preset.train.map_or(1, |t| t.accumulate),
        }),
        _ => None,
    };
    Checked { model, facts, diagnostics }
}
