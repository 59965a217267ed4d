//! Fusions that only GPU kernels do: sums with what precedes and follows them.
//!
//! A GPU is short of launches and of memory traffic, so the tail of a residual block (normalisation, sum, activation) is one pass there.

use crate::lower::{LValueId, Op, OpKind, Program};
use crate::ops;

/// Joins sums with activations behind them, and batch normalisations with sums behind them.
#[must_use]
pub(super) fn join(program: &Program) -> Program {
    let mut program = program.clone();
    let mut ops: Vec<Option<Op>> = program.ops.iter().cloned().map(Some).collect();
    for index in 0..ops.len() {
        join_activation(&program, &mut ops, index);
    }
    for index in 0..ops.len() {
        join_norm(&program, &mut ops, index);
    }
    program.ops = ops.into_iter().flatten().collect();
    program
}

/// The one operation that reads a value, where nothing else reads it or any view of it, and it does not outlive the step.
fn sole_reader(program: &Program, ops: &[Option<Op>], id: LValueId) -> Option<usize> {
    let home = program.root(id);
    if program.value(home.0).persistent || program.root(program.output).0 == home.0 {
        return None;
    }
    let reads = |op: &Op| op.reads().filter(|r| program.root(*r).0 == home.0).count();
    let mut readers = ops.iter().enumerate().filter_map(|(i, op)| op.as_ref().filter(|o| reads(o) > 0).map(|o| (i, o)));
    let (index, op) = readers.next()?;
    (readers.next().is_none() && reads(op) == 1 && op.reads().any(|r| r == id)).then_some(index)
}

fn absorb(into: &mut Op, other: &Op) {
    if into.fused.is_empty() {
        into.fused.push(into.kind.name().to_owned());
    }
    into.fused.push(other.kind.name().to_owned());
    into.nodes.extend(other.nodes.iter().copied());
}

/// `Add` at `index` with the activation, or the activation's derivative, that alone reads its sum.
fn join_activation(program: &Program, ops: &mut [Option<Op>], index: usize) {
    let Some(add) = ops[index].clone().filter(|o| matches!(o.kind, OpKind::Add { .. })) else { return };
    let (Some(sum), OpKind::Add(ops::Add { len })) = (add.arg("y"), add.kind.clone()) else { return };
    let Some(at) = sole_reader(program, ops, sum) else { return };
    let Some(reader) = ops[at].clone() else { return };
    let (kind, saved, y) = match reader.kind {
        OpKind::Act(ops::Act { func, .. }) if func.saves_output() => {
            (OpKind::AddAct(ops::AddAct { len, act: Some(func), act_grad: None }), None, reader.arg("y"))
        }
        OpKind::ActBwd(ops::ActBwd { func, .. }) if reader.arg("dy") == Some(sum) => (
            OpKind::AddAct(ops::AddAct { len, act: None, act_grad: Some(func) }),
            reader.arg("saved"),
            reader.arg("dx"),
        ),
        _ => return,
    };
    let mut joined = Op { args: vec![add.arg("a"), add.arg("b"), saved, y], ..add.clone() };
    absorb(&mut joined, &reader);
    joined.kind = kind;
    ops[at] = Some(Op { phase: reader.phase, ..joined });
    ops[index] = None;
}

/// `BatchNorm` at `index` with the sum that alone reads its output, and the activation that was joined to it.
fn join_norm(program: &Program, ops: &mut [Option<Op>], index: usize) {
    let Some(norm) = ops[index].clone() else { return };
    let OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act: None }) = norm.kind else { return };
    // A pass adds one value: what was joined with a sum before stays as it is, or that sum would be lost.
    if norm.arg("residual").is_some() {
        return;
    }
    let Some(out) = norm.arg("y") else { return };
    let Some(at) = sole_reader(program, ops, out) else { return };
    let Some(sum) = ops[at].clone() else { return };
    let act = match sum.kind {
        OpKind::Add { .. } => None,
        OpKind::AddAct(ops::AddAct { act, act_grad: None, .. }) => act,
        _ => return,
    };
    let beside = if sum.arg("a") == Some(out) { sum.arg("b") } else { sum.arg("a") };
    // The sum lies where the normalised values would lie: both orders must be the same.
    let same = |id: Option<LValueId>| id.is_some_and(|id| program.value(id).layout == program.value(out).layout);
    if !same(beside) || !same(sum.arg("y")) {
        return;
    }
    let mut joined = norm;
    absorb(&mut joined, &sum);
    joined.kind = OpKind::BatchNorm(ops::BatchNorm { rows, channels, eps, momentum, act });
    for (slot, value) in [("y", sum.arg("y")), ("residual", beside)] {
        if let Some(i) = joined.kind.slot(slot) {
            joined.args[i] = value;
        }
    }
    ops[at] = Some(joined);
    ops[index] = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for};
    use crate::model::{check, read_preset};
    use crate::select::fuse;
    use crate::tensor::DType;

    /// Sums of the forward pass by themselves, and normalisations that add something.
    fn sums_of(layers: &str) -> [usize; 2] {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [4], "batch": 2}}, "layers": [{layers}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let graph = build(&model, Mode::Train, Metrics::default(), DType::F32);
        let joined = join(&fuse(&lower_for(&graph, &model, FilterOrder::Ohwi)));
        let forward = || joined.ops.iter().filter(|op| op.phase == crate::ir::Phase::Forward);
        let alone = forward().filter(|op| matches!(op.kind, OpKind::Add { .. } | OpKind::AddAct { .. })).count();
        let with_norm = forward().filter(|op| op.kind.name() == "batch_norm" && op.arg("residual").is_some());
        [alone, with_norm.count()]
    }

    #[test]
    fn every_sum_of_blocks_in_blocks_is_kept() {
        let block = |inner: &str| format!(r#"{{"type": "residual", "layers": [{inner}]}}"#);
        let norm = r#"{"type": "batch_norm"}"#;
        let relu = r#"{"type": "activation", "function": "relu"}"#;
        assert_eq!(sums_of(&block(norm)), [0, 1]);
        assert_eq!(sums_of(&block(&block(norm))), [1, 1]);
        assert_eq!(sums_of(&block(&block(&block(norm)))), [2, 1]);
        // An activation ends what one pass does.
        assert_eq!(sums_of(&format!("{}, {relu}", block(&block(norm)))), [1, 1]);
    }
}
