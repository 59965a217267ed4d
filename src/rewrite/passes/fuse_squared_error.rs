//! Fuses a loss on values, the squared error or another, and its gradient into one operation.

use crate::lower::Op;
use crate::ops::{self, OpKind};
use crate::rewrite::history::absorb;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let readers = rw.find(|kind| matches!(kind, OpKind::MseGrad(_)));
    readers.into_iter().for_each(|reader| fuse(rw, reader));
    let readers = rw.find(|kind| matches!(kind, OpKind::PointLossGrad(_)));
    readers.into_iter().for_each(|reader| fuse_point_loss(rw, reader));
}

fn fuse(rw: &mut Rewriter, reader: usize) {
    let op = rw.op(reader);
    let OpKind::MseGrad(ops::MseGrad { len }) = op.kind else { return };
    let is_loss =
        |p: &Op| matches!(p.kind, OpKind::Mse(_)) && p.arg("y") == op.arg("y") && p.arg("target") == op.arg("target");
    let Some(loss) = (0..reader).find(|&i| rw.is_there(i) && is_loss(rw.op(i))) else { return };
    let bound =
        [("y", op.arg("y")), ("target", op.arg("target")), ("dy", op.arg("dy")), ("loss", rw.op(loss).arg("loss"))];
    let fused = merged(rw.op(loss), op, OpKind::MseFused(ops::MseFused { len }), &bound);
    rw.fuse(reader, fused, &[loss]);
}

/// A mean of a function of each element, with the accuracy if there is one.
fn fuse_point_loss(rw: &mut Rewriter, reader: usize) {
    let op = rw.op(reader);
    let OpKind::PointLossGrad(ops::PointLossGrad { func, delta, len }) = op.kind else { return };
    let [loss_kind, score] =
        [OpKind::PointLoss(ops::PointLoss { func, delta, len }), OpKind::BinaryAccuracy(ops::BinaryAccuracy { len })];
    let is_beside = |p: &Op| p.arg("y") == op.arg("y") && p.arg("target") == op.arg("target");
    let find = |kind: &OpKind| (0..reader).find(|&i| rw.is_there(i) && rw.op(i).kind == *kind && is_beside(rw.op(i)));
    let Some(loss) = find(&loss_kind) else { return };
    let accuracy = find(&score);
    let bound = [
        ("y", op.arg("y")),
        ("target", op.arg("target")),
        ("dy", op.arg("dy")),
        ("loss", rw.op(loss).arg("loss")),
        ("accuracy", accuracy.and_then(|i| rw.op(i).arg("accuracy"))),
    ];
    let kind = OpKind::PointLossFused(ops::PointLossFused { func, delta, len });
    let mut fused = merged(rw.op(loss), op, kind, &bound);
    if let Some(number) = accuracy {
        absorb(&mut fused, rw.op(number));
    }
    let taken: Vec<usize> = accuracy.into_iter().chain([loss]).collect();
    rw.fuse(reader, fused, &taken);
}
