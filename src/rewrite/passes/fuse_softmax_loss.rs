//! Fuses softmax, cross entropy, its mean, the accuracy and the gradient into one operation.

use crate::lower::Op;
use crate::ops::{self, OpKind};
use crate::rewrite::history::absorb;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::{Uses, with_uses};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    with_uses(rw, |kind| matches!(kind, OpKind::SoftmaxCeGrad(_)), fuse);
}

fn fuse(rw: &mut Rewriter, uses: &Uses, reader: usize) {
    let op = rw.op(reader);
    let OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, smoothing }) = op.kind else { return };
    let Some(producer) = uses.sole_producer(rw, op.arg("probs")) else { return };
    let softmax = rw.op(producer);
    if !matches!(softmax.kind, OpKind::SoftmaxCe(_)) {
        return;
    }
    let logits = softmax.arg("logits");
    let find = |want: &dyn Fn(&Op) -> bool| (0..reader).find(|&i| rw.is_there(i) && want(rw.op(i)));
    let is_mean = |p: &Op| matches!(p.kind, OpKind::LossMean(_)) && p.arg("row_loss") == softmax.arg("row_loss");
    let Some(mean) = find(&is_mean) else { return };
    let score = OpKind::Accuracy(ops::Accuracy { rows, classes });
    let accuracy = find(&|p: &Op| p.kind == score && p.arg("scores") == logits);
    let bound = [
        ("logits", logits),
        ("labels", op.arg("labels")),
        ("dlogits", op.arg("dlogits")),
        ("loss", rw.op(mean).arg("loss")),
        ("accuracy", accuracy.and_then(|i| rw.op(i).arg("accuracy"))),
    ];
    let kind = OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, smoothing, parts: 1 });
    let mut fused = merged(softmax, op, kind, &bound);
    let mut taken = vec![producer];
    for number in accuracy.into_iter().chain([mean]) {
        absorb(&mut fused, rw.op(number));
        taken.push(number);
    }
    rw.fuse(reader, fused, &taken);
}
