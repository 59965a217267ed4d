//! The epilogue of a product: as a type of its kernels, and the part that a library does not compute.

use super::custom::{act_number, any_act, cpp_act};
use crate::ops::{self, Epilogue, OpKind};

/// The C++ type of an epilogue.
#[must_use]
pub fn epilogue_type(e: &Epilogue) -> String {
    format!("Epilogue<{}, {}, {}, {}>", e.bias, cpp_act(e.act), e.save_z, cpp_act(e.act_grad))
}

/// The type of an epilogue whose functions are read from this number. A product without bias, activation and a value
/// before it has none of them; the others read which activation follows, and store the value before it if the slot is
/// bound.
#[must_use]
pub fn any_epilogue(e: &Epilogue, number: usize) -> String {
    let follows = e.bias || e.save_z || e.act.is_some();
    let act = if follows { "ANY" } else { "NONE" };
    format!("Epilogue<{}, {act}, {follows}, {}, {number}>", e.bias, any_act(e.act_grad))
}

/// The functions of an epilogue as the upper 16 bits of a number.
#[must_use]
pub const fn epilogue_functions(e: &Epilogue) -> u64 {
    act_number(e.act) << 48 | act_number(e.act_grad) << 56
}

/// The epilogue of a product or a convolution, and the rows and columns of its result.
pub(super) const fn epilogue_of(kind: &OpKind) -> Option<(Epilogue, [usize; 2])> {
    match kind {
        OpKind::Gemm(g) => Some((g.epilogue, [g.m, g.n])),
        OpKind::Conv2d(ops::Conv2d { geometry: g, epilogue }) => Some((*epilogue, [g.n * g.ho * g.wo, g.f])),
        OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, epilogue }) => Some((*epilogue, [g.n * g.h * g.w, g.c])),
        _ => None,
    }
}

/// The part of an epilogue that a library does not compute: operations in order, with the slot of the product for each
/// of their slots.
#[must_use]
pub fn epilogue_ops(kind: &OpKind, done: Epilogue) -> Vec<(OpKind, Vec<(&'static str, &'static str)>)> {
    let Some((e, [rows, cols])) = epilogue_of(kind) else { return Vec::new() };
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
    if epilogue_of(kind).is_some_and(|(epilogue, _)| epilogue.save_z) { "z" } else { "c" }
}
