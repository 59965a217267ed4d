//! Fuses an activation into the preceding product, convolution or batch normalisation.

use crate::lower::{LValueId, Op};
use crate::model::Activation;
use crate::ops::{self, Epilogue, OpKind};
use crate::rewrite::epilogue::{is_forward, with_epilogue};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::{Uses, with_uses};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    with_uses(rw, |kind| matches!(kind, OpKind::Act(_)), fuse);
}

fn fuse(rw: &mut Rewriter, uses: &Uses, reader: usize) {
    let OpKind::Act(ops::Act { func, .. }) = rw.op(reader).kind else { return };
    let x = rw.op(reader).arg("x");
    let Some(producer) = uses.producer(rw, x) else { return };
    let is_sole = uses.sole_producer(rw, x).is_some();
    let fused = match behind_norm(rw.op(producer), rw.op(reader), func) {
        Some(fused) => is_sole.then_some(fused),
        // The fused product is at the place of the activation, which is too late for earlier readers of the product.
        None if !uses.is_first_reader(x, reader) => None,
        None => behind_product(rw.op(producer), rw.op(reader), func, !is_sole),
    };
    if let Some(fused) = fused {
        rw.fuse(reader, fused, &[producer]);
    }
}

/// A batch normalisation with an activation whose derivative is computed from its output.
fn behind_norm(norm: &Op, reader: &Op, func: Activation) -> Option<Op> {
    let act = Some(func);
    let kind = match norm.kind {
        OpKind::BatchNorm(norm @ ops::BatchNorm { act: None, .. }) => OpKind::BatchNorm(ops::BatchNorm { act, ..norm }),
        OpKind::BatchNormEval(norm @ ops::BatchNormEval { act: None, .. }) => {
            OpKind::BatchNormEval(ops::BatchNormEval { act, ..norm })
        }
        _ => return None,
    };
    func.saves_output().then(|| merged(norm, reader, kind, &[("y", reader.arg("y"))]))
}

/// A forward product with an activation. If the value before the activation has other readers (`keep`), it is written
/// too, unless the backward pass of the activation uses its output.
fn behind_product(product: &Op, reader: &Op, func: Activation, keep: bool) -> Option<Op> {
    if keep && func.saves_output() {
        return None;
    }
    let kind = with_epilogue(&product.kind, |e| {
        let free = e.act.is_none() && e.act_grad.is_none() && !e.save_z;
        free.then_some(Epilogue { act: Some(func), save_z: keep, ..e })
    });
    let kind = kind.filter(|_| is_forward(product))?;
    let z: Option<LValueId> = if keep { product.arg("c") } else { None };
    Some(merged(product, reader, kind, &[("c", reader.arg("y")), ("z", z)]))
}
