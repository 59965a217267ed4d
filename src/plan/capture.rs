//! The plan as the field writes it: a table of buffers per layer, and those of the loss.

use super::binding_plan::{BindingPlan, BufferId};
use crate::ir::{Phase, Role};
use crate::lower::LValueId;
use crate::model::{LayerId, Model};
use crate::tensor::{DType, Shape};
use serde::{Deserialize, Serialize};
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
    /// The value before the activation, where it is kept.
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
    pub x: Option<TensorRef>,
    pub y: Option<TensorRef>,
}

impl CapturePlan {
    /// The table of a plan.
    #[must_use]
    pub fn new(plan: &BindingPlan, model: &Model) -> Self {
        let program = &plan.program;
        let by_name = |name: &str| program.find(name).and_then(|v| tensor(plan, v));
        let mut keys: Vec<(LayerId, u32)> = Vec::new();
        for op in program.ops.iter().filter(|o| o.phase == Phase::Forward) {
            if let Some(layer) = op.layer.filter(|l| !keys.contains(&(*l, op.pass))) {
                keys.push((layer, op.pass));
            }
        }
        // Layers without operations of their own, such as flatten and fused activations, have a row too.
        for index in 0..model.layers.len() {
            let id = LayerId(index as u32);
            if !model.layers[index].spec.is_block() && !keys.iter().any(|(l, _)| *l == id) {
                keys.push((id, 0));
            }
        }
        keys.sort_by_key(|(l, p)| (*p, *l));
        let layers = keys
            .into_iter()
            .map(|(layer, pass)| {
                let suffix = if pass > 0 { format!("#{pass}") } else { String::new() };
                let name = format!("{}{suffix}", model.layer(layer).label());
                let find = |what: &str| by_name(&format!("{name}.{what}"));
                PerLayerBufs {
                    y: find("y"),
                    z: find("z"),
                    grad_a: find("gA"),
                    grad_w: find("gW"),
                    grad_b: find("gB"),
                    work: work(plan, layer, pass),
                    name,
                    layer,
                    pass,
                }
            })
            .collect();
        let out_shape = program.value(program.output).shape.clone();
        let loss = LossBufs { grad_y: by_name("loss.dY"), out_shape };
        Self { layers, loss, x: tensor(plan, program.samples()), y: program.targets().and_then(|y| tensor(plan, y)) }
    }
}

fn tensor(plan: &BindingPlan, id: LValueId) -> Option<TensorRef> {
    let (place, value) = (plan.place(id)?, plan.program.value(id));
    let used = value.role == Role::Input || plan.program.ops.iter().any(|op| op.args.contains(&Some(id)));
    if !used {
        return None;
    }
    let shares = |v: &&LValueId| **v != id && plan.place(**v).is_some_and(|p| p.offset == place.offset);
    let aliases =
        plan.buffer(place.buffer).values.iter().filter(shares).map(|v| plan.program.value(*v).name.clone()).collect();
    Some(TensorRef {
        name: value.name.clone(),
        shape: value.shape.clone(),
        dtype: value.dtype,
        bytes: value.bytes(),
        offset: place.offset,
        buffer: place.buffer,
        aliases,
    })
}

fn work(plan: &BindingPlan, layer: LayerId, pass: u32) -> Option<TensorRef> {
    let ops = plan.program.ops.iter().enumerate().filter(|(_, op)| op.layer == Some(layer) && op.pass == pass);
    let id = ops.filter_map(|(i, _)| plan.workspaces[i]).max_by_key(|b| plan.buffer(*b).bytes)?;
    let b = plan.buffer(id);
    let (name, shape) = (b.name.clone(), b.shape.clone());
    Some(TensorRef { name, shape, dtype: b.dtype, bytes: b.bytes, offset: b.offset, buffer: id, aliases: Vec::new() })
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
        writeln!(f, "input: x {}, y {}", cell(&self.x), cell(&self.y))
    }
}
