//! Adds what is summed with the output of a batch normalisation inside the normalisation. Together with the preceding
//! pass, the end of a residual block (normalisation, sum, activation) becomes one operation, which saves launches and
//! memory traffic on a GPU.

use crate::lower::{LValueId, Op, Program};
use crate::ops::{self, OpKind};
use crate::rewrite::history::absorb;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, set};
use crate::rewrite::uses::join_readers;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    join_readers(rw, "y", |kind| matches!(kind, OpKind::BatchNorm(ops::BatchNorm { act: None, .. })), joined);
}

fn joined(program: &Program, norm: &Op, sum: &Op, out: LValueId) -> Option<Op> {
    let OpKind::BatchNorm(dimensions) = norm.kind else { return None };
    // A normalisation can add one value. A second one would replace the first.
    if norm.arg("residual").is_some() {
        return None;
    }
    let act = match sum.kind {
        OpKind::Add(_) => None,
        OpKind::AddAct(ops::AddAct { act, act_grad: None, .. }) => act,
        _ => return None,
    };
    let beside = if sum.arg("a") == Some(out) { sum.arg("b") } else { sum.arg("a") };
    // The sum is stored in the memory of the normalised values, so that both must have the same layout.
    let same = |id: Option<LValueId>| id.is_some_and(|id| program.value(id).layout == program.value(out).layout);
    if !same(beside) || !same(sum.arg("y")) {
        return None;
    }
    let mut joined = norm.clone();
    // The activation is a field of the normalisation, and is not listed separately among its parts.
    absorb(&mut joined, &Op { fused: Vec::new(), ..sum.clone() });
    joined.kind = OpKind::BatchNorm(ops::BatchNorm { act, ..dimensions });
    for (slot, value) in [("y", sum.arg("y")), ("residual", beside)] {
        value.iter().for_each(|value| set(&mut joined, slot, *value));
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use crate::ir::Phase;
    use crate::model::Precision;
    use crate::ops::OpKind;
    use crate::rewrite::sample::{network, on_gpu};

    /// Separate sums of the forward pass, and normalisations that add something.
    fn sums_of(layers: &str) -> [usize; 2] {
        let program = on_gpu(&network(layers, "sgd", 2), Precision::F32);
        let forward = || program.ops.iter().filter(|op| op.phase == Phase::Forward);
        let alone = forward().filter(|op| matches!(op.kind, OpKind::Add { .. } | OpKind::AddAct { .. })).count();
        let with_norm = forward().filter(|op| op.kind.name() == "batch_norm" && op.arg("residual").is_some());
        [alone, with_norm.count()]
    }

    #[test]
    fn every_sum_of_nested_blocks_is_preserved() {
        let block = |inner: &str| format!(r#"{{"type": "residual", "layers": [{inner}]}}"#);
        let norm = r#"{"type": "batch_norm"}"#;
        let relu = r#"{"type": "activation", "function": "relu"}"#;
        assert_eq!(sums_of(&block(norm)), [0, 1]);
        assert_eq!(sums_of(&block(&block(norm))), [1, 1]);
        assert_eq!(sums_of(&block(&block(&block(norm)))), [2, 1]);
        // A sum with an activation cannot be fused further.
        assert_eq!(sums_of(&format!("{}, {relu}", block(&block(norm)))), [1, 1]);
    }
}
