//! Fuses the derivative of an activation into the backward pass of the preceding batch normalisation.

use crate::lower::{LValueId, Op};
use crate::ops::{self, OpKind};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::{Uses, with_uses};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    with_uses(rw, |kind| matches!(kind, OpKind::BatchNormBwd(_)), fuse);
}

fn fuse(rw: &mut Rewriter, uses: &Uses, reader: usize) {
    let op = rw.op(reader);
    let OpKind::BatchNormBwd(norm @ ops::BatchNormBwd { act_grad: None, .. }) = op.kind else { return };
    let Some(derivative) = uses.sole_producer(rw, op.arg("dy")) else { return };
    if let Some(fused) = fused(rw.op(derivative), op, norm) {
        rw.fuse(reader, fused, &[derivative]);
    }
}

fn fused(derivative: &Op, reader: &Op, norm: ops::BatchNormBwd) -> Option<Op> {
    let OpKind::ActBwd(ops::ActBwd { func, .. }) = derivative.kind else { return None };
    if !func.saves_output() {
        return None;
    }
    let kind = OpKind::BatchNormBwd(ops::BatchNormBwd { act_grad: Some(func), ..norm });
    let mut bound: Vec<(&str, Option<LValueId>)> =
        reader.kind.slots().iter().zip(&reader.args).map(|(s, a)| (s.name, *a)).collect();
    bound.extend([("dy", derivative.arg("dy")), ("saved", derivative.arg("saved"))]);
    let mut fused = merged(derivative, reader, kind, &bound);
    // The result belongs to the normalisation's layer, regardless of the activation's layer.
    fused.layer = reader.layer;
    Some(fused)
}
