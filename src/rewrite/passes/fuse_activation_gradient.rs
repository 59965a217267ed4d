//! Fuses the derivative of an activation into the input gradient of the following layer.

use crate::ops::{self, Epilogue, OpKind};
use crate::rewrite::epilogue::{is_forward, with_epilogue};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::{Uses, with_uses};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    with_uses(rw, |kind| matches!(kind, OpKind::ActBwd(_)), fuse);
}

fn fuse(rw: &mut Rewriter, uses: &Uses, reader: usize) {
    let op = rw.op(reader);
    let OpKind::ActBwd(ops::ActBwd { func, .. }) = op.kind else { return };
    let Some(producer) = uses.sole_producer(rw, op.arg("dy")) else { return };
    let before = rw.op(producer);
    if is_forward(before) {
        return;
    }
    let kind = with_epilogue(&before.kind, |e| e.is_empty().then_some(Epilogue { act_grad: Some(func), ..e }));
    let Some(kind) = kind else { return };
    let fused = merged(before, op, kind, &[("saved", op.arg("saved")), ("c", op.arg("dx"))]);
    rw.fuse(reader, fused, &[producer]);
}
