//! The part of an operation's epilogue that a library does not compute.

use crate::ops::{self, Epilogue, OpKind};

/// The part of an epilogue that a library does not compute: operations in order, with the slot of the product for each
/// of their slots.
#[must_use]
pub fn epilogue_ops(kind: &OpKind, done: Epilogue) -> Vec<(OpKind, Vec<(&'static str, &'static str)>)> {
    let (e, rows, cols) = match kind {
        OpKind::Gemm(g) => (g.epilogue, g.m, g.n),
        OpKind::Conv2d(ops::Conv2d { geometry: g, epilogue }) => (*epilogue, g.n * g.ho * g.wo, g.f),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, epilogue }) => (*epilogue, g.n * g.h * g.w, g.c),
        _ => return Vec::new(),
    };
    let len = rows * cols;
    let raw = product_slot(kind);
    let mut out = Vec::new();
    if e.bias && !done.bias {
        out.push((OpKind::BiasAdd(ops::BiasAdd { rows, cols }), vec![("x", raw), ("bias", "bias"), ("y", raw)]));
    }
    if let Some(func) = e.act.filter(|_| done.act.is_none()) {
        out.push((OpKind::Act(ops::Act { func, len }), vec![("x", raw), ("y", "c")]));
    }
    if let Some(func) = e.act_grad.filter(|_| done.act_grad.is_none()) {
        out.push((OpKind::ActBwd(ops::ActBwd { func, len }), vec![("dy", "c"), ("saved", "saved"), ("dx", "c")]));
    }
    out
}

/// The slot that a library writes its plain product to: `z` if the value before the activation is kept.
#[must_use]
pub fn product_slot(kind: &OpKind) -> &'static str {
    let e = match kind {
        OpKind::Gemm(g) => g.epilogue,
        OpKind::Conv2d(ops::Conv2d { epilogue, .. }) | OpKind::Conv2dBwdX(ops::Conv2dBwdX { epilogue, .. }) => {
            *epilogue
        }
        _ => Epilogue::default(),
    };
    if e.save_z { "z" } else { "c" }
}
