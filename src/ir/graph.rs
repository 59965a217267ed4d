//! Nodes, and the graph that holds them with their values.

use super::nodes::NodeKind;
use super::value::{NodeId, Value, ValueId};
use super::{Metrics, Mode, Share};
use crate::model::LayerId;
use crate::tensor::DType;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// The part of the step that a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Forward,
    Loss,
    Backward,
    Optimizer,
    Metric,
}

impl Phase {
    pub const ALL: [Self; 5] = [Self::Forward, Self::Loss, Self::Backward, Self::Optimizer, Self::Metric];

    /// The name used in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Loss => "loss",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Metric => "metric",
        }
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    #[serde(flatten)]
    pub kind: NodeKind,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    pub layer: Option<LayerId>,
    /// Which application of a repeated layer it is, from 0.
    pub pass: u32,
    pub phase: Phase,
}

/// What an input of a step contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    Samples,
    Targets,
}

/// One named input of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input<Id> {
    pub name: String,
    pub value: Id,
    pub kind: InputKind,
}

/// The inputs of a step, of which at least one holds samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inputs<Id>(pub Vec<Input<Id>>);

impl<Id: Copy + PartialEq> Inputs<Id> {
    /// The first input of samples.
    #[must_use]
    pub fn samples(&self) -> Id {
        match self.of_kind(InputKind::Samples) {
            Some(value) => value,
            None => unreachable!("every step has samples"),
        }
    }

    /// The first input of targets; `None` in evaluation.
    #[must_use]
    pub fn targets(&self) -> Option<Id> {
        self.of_kind(InputKind::Targets)
    }

    /// Every input of samples, in the model's order.
    pub fn all_samples(&self) -> impl Iterator<Item = Id> + '_ {
        self.0.iter().filter(|input| input.kind == InputKind::Samples).map(|input| input.value)
    }

    /// Whether a value is an input.
    #[must_use]
    pub fn contains(&self, id: Id) -> bool {
        self.0.iter().any(|input| input.value == id)
    }

    /// Every input.
    pub fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.0.iter().map(|input| input.value)
    }

    /// The same inputs with other ids.
    #[must_use]
    pub fn map<Other>(&self, mut other: impl FnMut(Id) -> Other) -> Inputs<Other> {
        let of = |i: &Input<Id>| Input { name: i.name.clone(), value: other(i.value), kind: i.kind };
        Inputs(self.0.iter().map(of).collect())
    }

    fn of_kind(&self, kind: InputKind) -> Option<Id> {
        self.0.iter().find(|input| input.kind == kind).map(|input| input.value)
    }
}

/// The name of the targets in JSON; inputs under other names are samples.
const TARGETS: &str = "y";

/// Each input with its name; for a step without targets, these are null.
impl<Id: Copy + PartialEq + Serialize> Serialize for Inputs<Id> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.0.iter().map(|input| (input.name.as_str(), Some(input.value)));
        let absent = self.targets().is_none().then_some((TARGETS, None));
        serializer.collect_map(named.chain(absent))
    }
}

impl<'de, Id: Deserialize<'de>> Deserialize<'de> for Inputs<Id> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InputsOf(PhantomData))
    }
}

/// Reads inputs in the order in which they are written.
struct InputsOf<Id>(PhantomData<Id>);

impl<'de, Id: Deserialize<'de>> Visitor<'de> for InputsOf<Id> {
    type Value = Inputs<Id>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the inputs of a step by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut inputs = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Option<Id>>()? {
            let kind = if name == TARGETS { InputKind::Targets } else { InputKind::Samples };
            inputs.extend(value.map(|value| Input { name, value, kind }));
        }
        Ok(Inputs(inputs))
    }
}

/// The graph of the whole step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    pub mode: Mode,
    pub metrics: Metrics,
    /// Which of several batches it is for, if several make one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    /// The batch: samples, and targets except in evaluation. In JSON, each is under its name.
    #[serde(flatten)]
    pub inputs: Inputs<ValueId>,
    /// The network's output before the loss.
    pub output: ValueId,
    /// The value of each parameter before the step, by [`ParamId`](crate::model::ParamId).
    pub params: Vec<ValueId>,
    /// The final gradient of each trained parameter.
    pub grads: Vec<Option<ValueId>>,
    /// The value that each surviving value becomes at the end of the step: parameters, statistics, moments, counters.
    /// The two share memory.
    pub updates: Vec<(ValueId, ValueId)>,
}

impl Graph {
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The value with this name, if there is one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.values.iter().position(|v| v.name == name).map(|i| ValueId(i as u32))
    }

    /// The samples.
    #[must_use]
    pub fn samples(&self) -> ValueId {
        self.inputs.samples()
    }

    /// The type of real values.
    #[must_use]
    pub fn real(&self) -> DType {
        self.value(self.output).dtype
    }

    /// The targets; `None` in evaluation.
    #[must_use]
    pub fn targets(&self) -> Option<ValueId> {
        self.inputs.targets()
    }

    /// The optimizer's state for each trained parameter, before the step, with the name of the state.
    #[must_use]
    pub fn moments(&self) -> Vec<(ValueId, &'static str)> {
        let step = self.nodes.iter().find_map(|node| match &node.kind {
            NodeKind::OptimizerStep(step) => Some((node, step.rule.states())),
            _ => None,
        });
        let Some((node, states)) = step else { return Vec::new() };
        // They are the last inputs: one for each state and each trained parameter.
        let trained = self.grads.iter().flatten().count();
        let moments = &node.inputs[node.inputs.len() - states.len() * trained..];
        moments.iter().enumerate().map(|(index, value)| (*value, states[index / trained])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_written_under_their_names() {
        let of = |name: &str, value, kind| Input { name: name.into(), value: ValueId(value), kind };
        let samples = of("x", 0, InputKind::Samples);
        let several = Inputs(vec![of("x.words", 3, InputKind::Samples), of("x.image", 1, InputKind::Samples)]);
        assert_eq!(several.all_samples().collect::<Vec<_>>(), [ValueId(3), ValueId(1)]);
        let train = Inputs(vec![samples.clone(), of("y", 7, InputKind::Targets)]);
        let eval = Inputs(vec![samples]);
        assert_eq!((train.samples(), train.targets(), eval.targets()), (ValueId(0), Some(ValueId(7)), None));
        let texts = [r#"{"x":0,"y":7}"#, r#"{"x":0,"y":null}"#, r#"{"x.words":3,"x.image":1,"y":null}"#];
        for (inputs, text) in [train, eval, several].into_iter().zip(texts) {
            assert_eq!(serde_json::to_string(&inputs).unwrap(), text);
            assert_eq!(serde_json::from_str::<Inputs<ValueId>>(text).unwrap(), inputs);
        }
    }
}
