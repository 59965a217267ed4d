//! The plan as a table, as usual in the field: the buffers of each layer, and those of the loss.

use super::binding_plan::{BindingPlan, BufferId};
use crate::ir::{Phase, Role};
use crate::lower::LValueId;
use crate::model::{LayerId, Model};
use crate::tensor::{DType, Shape};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// A tensor in its buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorRef {
    pub name: String,
    pub shape: Shape,
    pub dtype: DType,
    pub bytes: u64,
    /// First byte in the arena.
    pub offset: u64,
    pub buffer: BufferId,
    /// The other values that share its first byte.
    pub aliases: Vec<String>,
}

/// The buffers of one layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerLayerBufs {
    /// `L{i}:{Class}`, with `#{pass}` for later applications of repeated layers.
    pub name: String,
    pub layer: LayerId,
    pub pass: u32,
    /// The output.
    pub y: Option<TensorRef>,
    /// The value before the activation, if it is kept.
    pub z: Option<TensorRef>,
    /// Gradients of the input, the weight and the bias.
    #[serde(rename = "gA")]
    pub grad_a: Option<TensorRef>,
    #[serde(rename = "gW")]
    pub grad_w: Option<TensorRef>,
    #[serde(rename = "gB")]
    pub grad_b: Option<TensorRef>,
    /// The largest scratch memory among its operations.
    pub work: Option<TensorRef>,
}

/// The buffers of the loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossBufs {
    /// The gradient of the loss with respect to the output.
    #[serde(rename = "dY")]
    pub grad_y: Option<TensorRef>,
    pub out_shape: Shape,
}

/// The capture plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapturePlan {
    pub layers: Vec<PerLayerBufs>,
    pub loss: LossBufs,
    /// The first input.
    pub x: Option<TensorRef>,
    /// The other inputs, if the network has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more: Vec<TensorRef>,
    pub y: Option<TensorRef>,
}

impl CapturePlan {
    /// The table of a plan.
    #[must_use]
    pub fn new(plan: &BindingPlan, model: &Model) -> Self {
        let tensors = Tensors::new(plan);
        let forward = plan.program.ops.iter().filter(|o| o.phase == Phase::Forward);
        let mut keys: Vec<(LayerId, u32)> = forward.filter_map(|op| Some((op.layer?, op.pass))).collect();
        // Layers without operations, such as flatten and fused activations, have a row too.
        let mut has_row = vec![false; model.layers.len()];
        keys.iter().for_each(|(layer, _)| has_row[layer.0 as usize] = true);
        let is_run = model.run_layers();
        let others = (0..model.layers.len()).filter(|&i| is_run[i] && !model.layers[i].spec.is_block() && !has_row[i]);
        keys.extend(others.map(|i| (LayerId(i as u32), 0)));
        keys.sort_by_key(|(layer, pass)| (*pass, *layer));
        keys.dedup();
        let layers = keys.into_iter().map(|(layer, pass)| tensors.of_layer(model, layer, pass)).collect();
        let program = &plan.program;
        let out_shape = program.value(program.output).shape.clone();
        let loss = LossBufs { grad_y: tensors.named("loss.dY"), out_shape };
        let y = program.targets().and_then(|y| tensors.tensor(y));
        let more = program.all_samples().skip(1).filter_map(|x| tensors.tensor(x)).collect();
        Self { layers, loss, x: tensors.tensor(program.samples()), more, y }
    }
}

/// Maps that are used for every layer.
struct Tensors<'p> {
    plan: &'p BindingPlan,
    /// The first value of each name.
    by_name: HashMap<&'p str, LValueId>,
    /// Whether an operation has the value as an argument, or it is an input.
    is_used: Vec<bool>,
    /// The largest scratch memory among the operations of each application of a layer; the last one of several equals.
    work: HashMap<(LayerId, u32), BufferId>,
}

impl<'p> Tensors<'p> {
    fn new(plan: &'p BindingPlan) -> Self {
        let program = &plan.program;
        let mut is_used: Vec<bool> = program.values.iter().map(|value| value.role == Role::Input).collect();
        program.ops.iter().flat_map(|op| op.args.iter().flatten()).for_each(|id| is_used[id.0 as usize] = true);
        let mut by_name = HashMap::new();
        for (index, value) in program.values.iter().enumerate() {
            by_name.entry(value.name.as_str()).or_insert(LValueId(index as u32));
        }
        let mut work = HashMap::new();
        for (op, buffer) in program.ops.iter().zip(&plan.workspaces) {
            let (Some(layer), Some(buffer)) = (op.layer, *buffer) else { continue };
            let largest = work.entry((layer, op.pass)).or_insert(buffer);
            if plan.buffer(buffer).bytes >= plan.buffer(*largest).bytes {
                *largest = buffer;
            }
        }
        Self { plan, by_name, is_used, work }
    }

    fn of_layer(&self, model: &Model, layer: LayerId, pass: u32) -> PerLayerBufs {
        let suffix = if pass > 0 { format!("#{pass}") } else { String::new() };
        let name = format!("{}{suffix}", model.layer(layer).label());
        let find = |what: &str| self.named(&format!("{name}.{what}"));
        PerLayerBufs {
            y: find("y"),
            z: find("z"),
            grad_a: find("gA"),
            grad_w: find("gW"),
            grad_b: find("gB"),
            work: self.work.get(&(layer, pass)).map(|buffer| self.scratch(*buffer)),
            name,
            layer,
            pass,
        }
    }

    fn named(&self, name: &str) -> Option<TensorRef> {
        self.by_name.get(name).and_then(|id| self.tensor(*id))
    }

    fn tensor(&self, id: LValueId) -> Option<TensorRef> {
        let plan = self.plan;
        let (place, value) = (plan.place(id)?, plan.program.value(id));
        if !self.is_used[id.0 as usize] {
            return None;
        }
        let shares = |v: &&LValueId| **v != id && plan.place(**v).is_some_and(|p| p.offset == place.offset);
        let aliases = plan.buffer(place.buffer).values.iter().filter(shares);
        Some(TensorRef {
            name: value.name.clone(),
            shape: value.shape.clone(),
            dtype: value.dtype,
            bytes: value.bytes(),
            offset: place.offset,
            buffer: place.buffer,
            aliases: aliases.map(|v| plan.program.value(*v).name.clone()).collect(),
        })
    }

    fn scratch(&self, id: BufferId) -> TensorRef {
        let b = self.plan.buffer(id);
        let (name, shape) = (b.name.clone(), b.shape.clone());
        TensorRef { name, shape, dtype: b.dtype, bytes: b.bytes, offset: b.offset, buffer: id, aliases: Vec::new() }
    }
}

impl fmt::Display for CapturePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = |t: &Option<TensorRef>| {
            t.as_ref().map_or_else(|| "-".to_owned(), |t| format!("{}@{:#x}", t.shape, t.offset))
        };
        writeln!(f, "{:<22} {:<28} {:<28} {:<28} {:<28} {:<20} work", "layer", "y", "z", "gA", "gW", "gB")?;
        for l in &self.layers {
            let cells = [&l.y, &l.z, &l.grad_a, &l.grad_w].map(|t| format!("{:<28}", cell(t))).join(" ");
            writeln!(f, "{:<22} {cells} {:<20} {}", l.name, cell(&l.grad_b), cell(&l.work))?;
        }
        writeln!(f, "loss: dY {} of {}", cell(&self.loss.grad_y), self.loss.out_shape)?;
        if !self.more.is_empty() {
            let named = |t: &TensorRef| format!("{} {}", t.name, cell(&Some(t.clone())));
            let all: Vec<String> = self.x.iter().chain(&self.more).map(named).collect();
            return writeln!(f, "inputs: {}, y {}", all.join(", "), cell(&self.y));
        }
        writeln!(f, "input: x {}, y {}", cell(&self.x), cell(&self.y))
    }
}
