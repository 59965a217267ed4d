//! Adds the gradient that passes around a residual block inside the gradient of the block's row normalisation.

use crate::lower::{LValueId, Op, Program};
use crate::ops::OpKind;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::{join_readers, shares};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    join_readers(rw, "dx", |kind| matches!(kind, OpKind::LayerNormBwd(_)), joined);
}

fn joined(program: &Program, norm: &Op, sum: &Op, out: LValueId) -> Option<Op> {
    // A second one would replace the first.
    if !matches!(sum.kind, OpKind::Add(_)) || norm.arg("residual").is_some() {
        return None;
    }
    let beside = if sum.arg("a") == Some(out) { sum.arg("b") } else { sum.arg("a") }?;
    let y = sum.arg("y")?;
    let is_alike = |id: LValueId| program.value(id).layout == program.value(out).layout;
    if !is_alike(beside) || !is_alike(y) || program.root(beside).0 == program.root(out).0 {
        return None;
    }
    // This delays the gradients of its parameters, so that no operation may need them earlier.
    let [made, added] = [norm, sum].map(|op| program.ops.iter().position(|other| other == op));
    let between = &program.ops[made? + 1..added?];
    let own: Vec<LValueId> = ["dgamma", "dbeta"].iter().filter_map(|slot| norm.arg(slot)).collect();
    let meets = |op: &Op| op.args.iter().flatten().any(|id| own.iter().any(|o| shares(program, *id, *o)));
    if between.iter().any(meets) {
        return None;
    }
    Some(merged(norm, sum, norm.kind.clone(), &[("residual", Some(beside)), ("dx", Some(y))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{classifier, on_gpu};

    #[test]
    fn gradients_around_blocks_are_added_by_the_normalisation() {
        let block = r#"{"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "dense", "units": 64}]}"#;
        let layers = format!(r#"{{"type": "dense", "units": 64}}, {block}, {block}, {{"type": "rms_norm"}}"#);
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            let program = on_gpu(&classifier(&layers, "sgd"), precision);
            let sums = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Add(_))).count();
            let with = program.ops.iter().filter(|op| op.arg("residual").is_some()).count();
            assert_eq!((sums, with), (0, 2), "{precision:?}");
        }
    }
}
