//! A sum applies the activation behind it, or the derivative of one.

use crate::lower::{LValueId, Op};
use crate::ops::{self, OpKind};
use crate::rewrite::history::{absorb, parts};
use crate::rewrite::pass::{Goal, Pass};
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::rewrite::uses::Readers;

pub(super) const PASS: Pass = Pass {
    name: "join_sum_activation",
    about: "A sum applies the activation, or the derivative of one, that alone reads it.",
    when: "on a GPU",
    applies: Goal::is_gpu,
    run,
};

fn run(rw: &mut Rewriter, _: &Goal) {
    let sums = rw.find(|kind| matches!(kind, OpKind::Add(_)));
    let sums: Vec<(usize, LValueId)> =
        sums.into_iter().filter_map(|number| Some((number, rw.op(number).arg("y")?))).collect();
    let readers = Readers::of(rw.program(), sums.iter().map(|(_, sum)| *sum));
    for (number, sum) in sums {
        let Some(reader) = readers.sole(rw, sum) else { continue };
        if let Some(joined) = joined(rw.op(number), rw.op(reader), sum) {
            rw.fuse(reader, joined, &[number]);
        }
    }
}

fn joined(add: &Op, reader: &Op, sum: LValueId) -> Option<Op> {
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
