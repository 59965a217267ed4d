//! Which operations can have an epilogue, and the same operations with another one.

use crate::ir::Phase;
use crate::lower::Op;
use crate::ops::{self, Epilogue, OpKind, Trans};

/// Whether the operation is a forward product: weight gradients have no epilogue, and input gradients only derivatives.
pub(super) fn is_forward(op: &Op) -> bool {
    op.phase == Phase::Forward && matches!(op.kind, OpKind::Gemm(_) | OpKind::Conv2d(_))
}

/// The same product with another epilogue, if it can have one and `change` returns one.
pub(super) fn with_epilogue(kind: &OpKind, change: impl Fn(Epilogue) -> Option<Epilogue>) -> Option<OpKind> {
    match *kind {
        OpKind::Gemm(mut g) if g.trans != Trans::Tn && !g.accumulate => {
            g.epilogue = change(g.epilogue)?;
            Some(OpKind::Gemm(g))
        }
        OpKind::Conv2d(ops::Conv2d { geometry, epilogue }) => {
            Some(OpKind::Conv2d(ops::Conv2d { geometry, epilogue: change(epilogue)? }))
        }
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue }) => {
            Some(OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry, epilogue: change(epilogue)? }))
        }
        _ => None,
    }
}
