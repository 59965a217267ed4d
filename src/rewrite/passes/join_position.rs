//! An embedding adds the learned positions behind it.

use crate::lower::{LValueId, Op, Program};
use crate::ops::{self, OpKind};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::join_readers;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    join_readers(rw, "y", |kind| matches!(kind, OpKind::Embedding(_)), joined);
}

fn joined(program: &Program, table: &Op, sum: &Op, out: LValueId) -> Option<Op> {
    let (OpKind::Embedding(embedding), OpKind::BiasAdd(ops::BiasAdd { cols, .. })) = (&table.kind, &sum.kind) else {
        return None;
    };
    let y = sum.arg("y")?;
    let is_alike = sum.arg("x") == Some(out) && program.value(y).dtype == program.value(out).dtype;
    // A row of what is added covers all positions of a sample.
    if !is_alike || !cols.is_multiple_of(embedding.units.max(1)) || embedding.positions > 0 {
        return None;
    }
    let kind = OpKind::Embedding(ops::Embedding { positions: cols / embedding.units.max(1), ..*embedding });
    Some(merged(table, sum, kind, &[("position", sum.arg("bias")), ("y", Some(y))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{of_tokens, on_gpu};

    #[test]
    fn learned_positions_are_added_where_rows_are_found() {
        for (kind, joined) in [("learned", 5), ("sinusoidal", 0)] {
            let layers = format!(r#"{{"type": "position", "kind": "{kind}"}}, {{"type": "dense", "units": 3}}"#);
            for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
                let program = on_gpu(&of_tokens(&layers, "sgd", [4, 5]), precision);
                let found = program.ops.iter().find_map(|op| match op.kind {
                    OpKind::Embedding(embedding) => Some((embedding.positions, op.arg("position").is_some())),
                    _ => None,
                });
                assert_eq!(found, Some((joined, joined > 0)), "{kind} {precision:?}");
            }
        }
    }
}
