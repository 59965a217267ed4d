//! Fuses the addition of a bias into a product or convolution.

use crate::ops::slot::bias_add;
use crate::ops::{Epilogue, OpKind};
use crate::rewrite::epilogue::with_epilogue;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::{Uses, with_uses};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    with_uses(rw, |kind| matches!(kind, OpKind::BiasAdd(_)), fuse);
}

fn fuse(rw: &mut Rewriter, uses: &Uses, reader: usize) {
    let op = rw.op(reader);
    let Some(producer) = uses.sole_producer(rw, op.arg("x")) else { return };
    let before = rw.op(producer);
    let kind = with_epilogue(&before.kind, |e| e.is_empty().then_some(Epilogue { bias: true, ..e }));
    // Positions are added like a bias of whole samples, which does not match the product's outputs.
    let fits = |kind: &OpKind| kind.slot("bias").and_then(|slot| kind.extent(slot)) == op.kind.extent(bias_add::BIAS);
    let Some(kind) = kind.filter(fits) else { return };
    let fused = merged(before, op, kind, &[("bias", op.arg("bias")), ("c", op.arg("y"))]);
    rw.fuse(reader, fused, &[producer]);
}
