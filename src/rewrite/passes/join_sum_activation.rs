//! Fuses an activation, or the derivative of one, into the preceding sum.

use crate::lower::{LValueId, Op, Program};
use crate::ops::{self, OpKind};
use crate::rewrite::history::{absorb, parts};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::rewrite::uses::join_readers;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    join_readers(rw, "y", |kind| matches!(kind, OpKind::Add(_)), joined);
}

fn joined(_: &Program, add: &Op, reader: &Op, sum: LValueId) -> Option<Op> {
    let OpKind::Add(ops::Add { len }) = add.kind else { return None };
    let (act, act_grad, saved, y) = match reader.kind {
        OpKind::Act(ops::Act { func, .. }) if func.saves_output() => (Some(func), None, None, reader.arg("y")),
        OpKind::ActBwd(ops::ActBwd { func, .. }) if reader.arg("dy") == Some(sum) => {
            (None, Some(func), reader.arg("saved"), reader.arg("dx"))
        }
        _ => return None,
    };
    let kind = OpKind::AddAct(ops::AddAct { len, act, act_grad });
    let bound = [("a", add.arg("a")), ("b", add.arg("b")), ("saved", saved), ("y", y)];
    let mut joined = Op { phase: reader.phase, fused: parts(add), ..made_like(add, kind, &bound) };
    absorb(&mut joined, reader);
    Some(joined)
}
