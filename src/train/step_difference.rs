//! The differences between two steps of one network: operations, kernels, and costs.

use crate::compile::Compiled;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The cost of a step, from its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepFigures {
    pub operations: usize,
    /// Different kernels.
    pub kernels: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// The least number of bytes that its operations read and write.
    pub bytes_moved: u64,
    /// Size of what does not survive the step.
    pub transient_bytes: u64,
    /// Estimated time, in microseconds.
    pub estimated_us: f64,
}

/// A number about a step with its unit, so that it is formatted like such numbers elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    Count(u64),
    Bytes(u64),
    /// A time in microseconds.
    Micros(f64),
}

impl StepFigures {
    /// The numbers that two steps are compared by, in the order in which they are shown: each with its name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Figure); 6] {
        [
            ("Operations", Figure::Count(self.operations as u64)),
            ("Kernels", Figure::Count(self.kernels as u64)),
            ("FLOPs", Figure::Count(self.flops)),
            ("Bytes moved", Figure::Bytes(self.bytes_moved)),
            ("Transient memory", Figure::Bytes(self.transient_bytes)),
            ("Estimated time", Figure::Micros(self.estimated_us)),
        ]
    }

    /// The numbers of a compiled step.
    #[must_use]
    pub fn of(compiled: &Compiled) -> Self {
        let (plan, selection) = (&compiled.plan, &compiled.selection);
        Self {
            operations: selection.choices.len(),
            kernels: kernels_of(compiled).len(),
            flops: selection.flops(),
            bytes_moved: selection.choices.iter().map(|choice| choice.bytes).sum(),
            transient_bytes: plan.arena_bytes - plan.persistent_bytes,
            estimated_us: selection.cost_us(),
        }
    }
}

/// Equal operations that one of two steps has more often than the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationsApart {
    /// Their layer, or their phase if they belong to none.
    pub owner: String,
    pub kernel: String,
    pub dims: String,
    /// How many more there are.
    pub count: usize,
}

/// The differences between two steps; the first of each pair belongs to the first step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepDifference {
    pub figures: [StepFigures; 2],
    /// Operations that only this step has, in its order.
    pub operations: [Vec<OperationsApart>; 2],
    /// Kernels that only this step runs.
    pub kernels: [Vec<String>; 2],
}

impl StepDifference {
    /// Compares two steps.
    #[must_use]
    pub fn between(steps: [&Compiled; 2]) -> Self {
        let [a, b] = steps.map(operations_of);
        let [kernels_a, kernels_b] = steps.map(kernels_of);
        let alone = |own: &BTreeSet<String>, other: &BTreeSet<String>| own.difference(other).cloned().collect();
        Self {
            figures: steps.map(StepFigures::of),
            operations: [apart(&a, &b), apart(&b, &a)],
            kernels: [alone(&kernels_a, &kernels_b), alone(&kernels_b, &kernels_a)],
        }
    }

    /// Whether both have the same operations with the same kernels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.iter().all(Vec::is_empty)
    }
}

/// What distinguishes one operation of a network from another: its owner, its kernel and its dimensions.
type Operation = (String, String, String);

/// The operations of a step, with their number and the index of the first.
fn operations_of(compiled: &Compiled) -> BTreeMap<Operation, (usize, usize)> {
    let mut found: BTreeMap<Operation, (usize, usize)> = BTreeMap::new();
    for (index, op) in compiled.plan.program.ops.iter().enumerate() {
        let kernel = compiled.selection.choices[index].kernel.clone();
        let entry = found.entry((compiled.owner(index), kernel, op.kind.dims())).or_insert((0, index));
        entry.0 += 1;
    }
    found
}

/// The operations that `own` has more often than `other`, in its order.
fn apart(
    own: &BTreeMap<Operation, (usize, usize)>,
    other: &BTreeMap<Operation, (usize, usize)>,
) -> Vec<OperationsApart> {
    let more = |(operation, (count, place)): (&Operation, &(usize, usize))| {
        let count = count.saturating_sub(other.get(operation).map_or(0, |(count, _)| *count));
        let (owner, kernel, dims) = operation.clone();
        (count > 0).then_some((*place, OperationsApart { owner, kernel, dims, count }))
    };
    let mut found: Vec<_> = own.iter().filter_map(more).collect();
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, operations)| operations).collect()
}

fn kernels_of(compiled: &Compiled) -> BTreeSet<String> {
    compiled.selection.choices.iter().map(|choice| choice.kernel.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{Options, compile};
    use crate::model::{Model, check, read_preset};
    use crate::select::{Isa, Target};

    fn step(model: &Model, path: &str) -> Compiled {
        let path = model.path_named(path, 0).unwrap();
        compile(&model.along(&path), &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap()
    }

    #[test]
    fn steps_differ_by_what_a_path_leaves_out() {
        let text = r#"{"name": "n", "input": {"shape": [6], "batch": 4}, "layers": [{"type": "dense", "units": 3},
            {"type": "residual", "choose": {"by": "cycle", "values": [1, 0]}, "layers": [{"type": "dense", "units": 3},
            {"type": "activation", "function": "tanh"}]}, {"type": "dense", "units": 2}],
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let model = check(&read_preset(text).unwrap()).model.unwrap();
        let (with, without) = (step(&model, "L1=1"), step(&model, "L1=0"));
        let none = StepDifference::between([&with, &with]);
        assert!(none.is_empty() && none.kernels.iter().all(Vec::is_empty));
        assert_eq!(none.figures[0], none.figures[1]);
        let found = StepDifference::between([&with, &without]);
        let count = |side: usize| found.operations[side].iter().map(|operations| operations.count).sum::<usize>();
        let [a, b] = &found.figures;
        assert_eq!(a.operations - count(0), b.operations - count(1));
        assert_eq!(a.operations, with.plan.program.ops.len());
        assert!(a.operations > b.operations && a.flops > b.flops && a.bytes_moved > b.bytes_moved, "{a:?} {b:?}");
        // The layers of the block are in only one of the steps.
        let owners: Vec<&str> = found.operations[0].iter().map(|operations| operations.owner.as_str()).collect();
        assert!(owners.iter().any(|owner| owner.contains("tanh") || owner.contains("Dense")), "{owners:?}");
        let turned = StepDifference::between([&without, &with]);
        assert_eq!((&turned.operations[0], &turned.kernels[1]), (&found.operations[1], &found.kernels[0]));
    }
}
