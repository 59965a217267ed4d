//! The lowered program: values with a place in memory, and operations in order.

use super::flat::ParamOrder;
use crate::ir::{Inputs, Mode, NodeId, Phase, Role};
use crate::model::{LayerId, OptimizerSpec, ParamId};
use crate::ops::{Dir, OpKind, Segment};
use crate::tensor::{DType, Shape, position_id};
use serde::{Deserialize, Serialize};
use std::fmt;

position_id! {
    /// A value of a program: its position in [`Program::values`].
    LValueId
}

impl fmt::Display for LValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// The order in which a sample's elements are in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// The order of the logical shape.
    #[default]
    Plain,
    /// A logical `[c, h, w]` (or its flattened form) is stored as `[h, w, c]`.
    ChannelsLast { c: usize, h: usize, w: usize },
}

impl Layout {
    /// The layout that kernels require for images; plain if both orders are the same.
    #[must_use]
    pub const fn image(c: usize, h: usize, w: usize) -> Self {
        if c == 1 || h * w == 1 { Self::Plain } else { Self::ChannelsLast { c, h, w } }
    }
}

/// A value that is inside the memory of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    pub of: LValueId,
    /// First element inside the other value.
    pub start: usize,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LValue {
    pub name: String,
    pub role: Role,
    pub dtype: DType,
    /// Logical shape, with the batch.
    pub shape: Shape,
    pub layout: Layout,
    /// Set if the value shares the memory of another one: views, slices of flat vectors, values updated or accumulated
    /// in place.
    pub alias: Option<Alias>,
    /// True if it exists before the step or is read after it.
    pub persistent: bool,
    pub layer: Option<LayerId>,
    pub pass: u32,
    pub param: Option<ParamId>,
}

impl LValue {
    /// A separate vector that belongs to no layer and lasts no longer than the step.
    #[must_use]
    pub fn vector(name: String, role: Role, dtype: DType, len: usize) -> Self {
        Self {
            name,
            role,
            dtype,
            shape: Shape::from([len]),
            layout: Layout::Plain,
            alias: None,
            persistent: false,
            layer: None,
            pass: 0,
            param: None,
        }
    }

    /// Bytes of its elements, without padding.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.shape.len() * self.dtype.size()) as u64
    }
}

/// One operation with its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    #[serde(flatten)]
    pub kind: OpKind,
    /// Arguments by slot; `None` if the slot is unused.
    pub args: Vec<Option<LValueId>>,
    pub layer: Option<LayerId>,
    pub pass: u32,
    pub phase: Phase,
    /// The nodes of the graph that it computes.
    pub nodes: Vec<NodeId>,
    /// The plain operations that were fused into it, by name; empty if it is itself a plain operation.
    pub fused: Vec<String>,
}

impl Op {
    /// The value in the slot with this name.
    #[must_use]
    pub fn arg(&self, slot: &str) -> Option<LValueId> {
        self.kind.slot(slot).and_then(|i| self.args[i])
    }

    /// The bound values of one direction, with their slots' names; a value that is read and written is among both.
    pub fn bound(&self, dir: Dir) -> impl Iterator<Item = (&'static str, LValueId)> + '_ {
        self.kind
            .slots()
            .iter()
            .zip(&self.args)
            .filter(move |(s, _)| s.dir.is_among(dir))
            .filter_map(|(s, a)| a.map(|a| (s.name, a)))
    }

    /// The values it reads.
    pub fn reads(&self) -> impl Iterator<Item = LValueId> + '_ {
        self.bound(Dir::In).map(|(_, v)| v)
    }

    /// The values it creates; values that it reads and writes in place existed before.
    pub fn makes(&self) -> impl Iterator<Item = LValueId> + '_ {
        let slots = self.kind.slots().iter().zip(&self.args);
        slots.filter(|(slot, _)| slot.dir == Dir::Out).filter_map(|(_, arg)| *arg)
    }

    /// The values it writes.
    pub fn writes(&self) -> impl Iterator<Item = LValueId> + '_ {
        self.bound(Dir::Out).map(|(_, v)| v)
    }
}

/// Where a parameter is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParamSlot {
    /// Its value before the step; after it, the same memory holds the new one.
    pub value: LValueId,
    pub order: ParamOrder,
    /// Its gradient, if it is trained and the program trains.
    pub grad: Option<LValueId>,
}

/// The optimizer's state for one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The name of the optimizer's state: `momentum`, `m`.
    pub state: &'static str,
    pub param: ParamId,
    pub value: LValueId,
}

/// The step as a list of operations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub mode: Mode,
    /// The type of real values.
    pub real: DType,
    pub values: Vec<LValue>,
    pub ops: Vec<Op>,
    /// The batch: samples, and targets except in evaluation.
    #[serde(flatten)]
    pub inputs: Inputs<LValueId>,
    /// The network's output before the loss; its memory may be overwritten by its gradient.
    pub output: LValueId,
    /// Every parameter and running statistic, by [`ParamId`].
    pub params: Vec<ParamSlot>,
    /// The range of the flat vectors of each parameter that the step trains, in the order of these vectors: that of
    /// [`ParamId`], if every step runs all layers.
    pub segments: Vec<(ParamId, Segment)>,
}

impl Program {
    /// The samples.
    #[must_use]
    pub fn samples(&self) -> LValueId {
        self.inputs.samples()
    }

    /// Every input of samples, in the model's order.
    pub fn all_samples(&self) -> impl Iterator<Item = LValueId> + '_ {
        self.inputs.all_samples()
    }

    /// The optimizer's state for each parameter, before the step; after it, the same memory contains the new values.
    /// Each is a range of the flat vector of one of the optimizer's states.
    pub fn moments(&self) -> impl Iterator<Item = Moment> {
        let states = OptimizerSpec::all_states();
        self.values.iter().enumerate().filter_map(move |(index, value)| {
            let (Role::State, Some(param), Some(alias)) = (value.role, value.param, value.alias) else { return None };
            let flat = self.value(alias.of);
            let state = states.iter().find(|state| flat.param.is_none() && flat.name == **state)?;
            Some(Moment { state, param, value: LValueId(index as u32) })
        })
    }

    /// The targets; `None` in evaluation.
    #[must_use]
    pub fn targets(&self) -> Option<LValueId> {
        self.inputs.targets()
    }

    #[must_use]
    pub fn value(&self, id: LValueId) -> &LValue {
        &self.values[id.0 as usize]
    }

    /// The value whose memory contains this one, and the first element in it. Aliases of aliases are followed.
    #[must_use]
    pub fn root(&self, id: LValueId) -> (LValueId, usize) {
        let (mut id, mut start) = (id, 0);
        while let Some(alias) = self.value(id).alias {
            start += alias.start;
            id = alias.of;
        }
        (id, start)
    }

    /// The value with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<LValueId> {
        self.values.iter().position(|v| v.name == name).map(|i| LValueId(i as u32))
    }

    /// Elements of the flat parameter vector, including padding; for a path of a network, including the parameters that
    /// it leaves out.
    #[must_use]
    pub fn flat_len(&self) -> usize {
        let flat = self.values.iter().find(|value| value.role == Role::Param && value.param.is_none());
        flat.map_or(0, |flat| flat.shape.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::lower;
    use crate::model::{OptimizerSpec, check, read_preset};
    use crate::tensor::DType;

    #[test]
    fn moments_are_those_of_the_optimizer() {
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [4], "batch": 2}, "layers": [
            {"type": "dense", "units": 3}, {"type": "batch_norm"}], "loss": {"type": "mse"}, "optimizer": OPTIMIZER}"#;
        for (optimizer, states) in [
            (r#"{"type": "sgd", "lr": 0.1}"#, &[][..]),
            (r#"{"type": "sgd", "lr": 0.1, "momentum": 0.9}"#, &["momentum"]),
            (r#"{"type": "adamw", "lr": 0.1}"#, &["m", "v"]),
        ] {
            let model = check(&read_preset(&text.replace("OPTIMIZER", optimizer)).unwrap()).model.unwrap();
            let program = lower(&build(&model, Mode::Train, Metrics::default(), DType::F32), &model);
            let found: Vec<String> = program.moments().map(|m| program.value(m.value).name.clone()).collect();
            let trained = model.params.iter().filter(|p| p.kind.is_trained());
            let names: Vec<String> = trained.map(|p| p.name.clone()).collect();
            let wanted: Vec<String> =
                states.iter().flat_map(|state| names.iter().map(move |name| format!("{state}.{name}"))).collect();
            assert_eq!(found, wanted);
        }
        assert_eq!(OptimizerSpec::all_states(), ["m", "momentum", "v"]);
    }
}
