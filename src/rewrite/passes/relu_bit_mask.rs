//! Keeps one bit for each element instead of the activation, in large networks.
//!
//! The derivative of ReLU needs only the sign of a saved activation. Once the weight gradient of the layer that reads
//! the activation is computed, a bit mask replaces the activation: one bit for each element instead of two or four
//! bytes, at a time when that gradient, which waits for its update, and two gradients of activations are alive. A
//! library's product leaves the derivative to a separate kernel in any case, so that writing the mask and reading it
//! again moves no more bytes than that kernel did.

use crate::ir::Role;
use crate::lower::{LValue, LValueId, Layout, Op};
use crate::model::Activation;
use crate::ops::{self, Gemm, OpKind, Scalar, Trans};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::rewrite::updates::is_large;
use crate::tensor::{DType, Shape};

/// Products of at least this many multiplications are left to a library; custom kernels apply the derivative in their
/// epilogue.
const LARGE: usize = 1 << 33;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    if !is_large(rw.program()) {
        return;
    }
    for number in 0..rw.len() {
        if let Some(found) = fits(rw, number) {
            split(rw, number, found);
        }
    }
}

/// A product and the values that it binds.
struct Found {
    gemm: Gemm,
    a: LValueId,
    b: LValueId,
    saved: LValueId,
    out: LValueId,
}

/// The product with a number, if it is the last reader of an activation and needs only its sign.
fn fits(rw: &Rewriter, number: usize) -> Option<Found> {
    let (program, op) = (rw.program(), rw.op(number));
    let OpKind::Gemm(gemm @ Gemm { m, n, k, trans: Trans::Nt, accumulate: false, epilogue, .. }) = op.kind else {
        return None;
    };
    let large = m.saturating_mul(n).saturating_mul(k) >= LARGE && (m * n).is_multiple_of(8);
    if !large || epilogue.act_grad != Some(Activation::Relu) || epilogue.bias || epilogue.act.is_some() {
        return None;
    }
    let root = |id| program.root(id).0;
    let home = root(op.arg("saved")?);
    let read_later = program.ops[number + 1..].iter().flat_map(Op::reads).any(|id| root(id) == home);
    if read_later || program.value(home).persistent {
        return None;
    }
    let (a, b, saved, out) = (op.arg("a")?, op.arg("b")?, op.arg("saved")?, op.arg("c")?);
    Some(Found { gemm, a, b, saved, out })
}

/// One operation becomes three: the bit mask, the bare product, and the derivative.
fn split(rw: &mut Rewriter, number: usize, found: Found) {
    let Found { mut gemm, a, b, saved, out } = found;
    let (whole, len) = (rw.op(number).clone(), gemm.m * gemm.n);
    gemm.epilogue.act_grad = None;
    let [saved_value, out_value] = [saved, out].map(|id| rw.program().value(id).clone());
    let mask = rw.push(LValue {
        name: format!("{}.signs", saved_value.name),
        role: Role::Activation,
        dtype: DType::U8,
        shape: Shape::from([len / 8]),
        layout: Layout::Plain,
        alias: None,
        ..saved_value
    });
    let bare = rw.push(LValue { name: format!("{}.product", out_value.name), alias: None, ..out_value });
    let derivative = Activation::Relu.backward_name();
    let mut rest: Vec<String> = whole.fused.iter().filter(|part| *part != derivative).cloned().collect();
    // One of the operations is the original one.
    if rest.len() == 1 {
        rest.clear();
    }
    let with = |kind: OpKind, fused: Vec<String>, args: &[(&str, LValueId)]| {
        let args: Vec<(&str, Option<LValueId>)> = args.iter().map(|(slot, value)| (*slot, Some(*value))).collect();
        Op { fused, ..made_like(&whole, kind, &args) }
    };
    let signs = with(OpKind::SignBits(ops::SignBits { len }), Vec::new(), &[("x", saved), ("mask", mask)]);
    let product = with(OpKind::Gemm(gemm), rest, &[("a", a), ("b", b), ("c", bare)]);
    let bits = OpKind::DropoutBwd(ops::DropoutBwd { len, rate: Scalar::new(0.0) });
    let bits = with(bits, vec![derivative.to_owned()], &[("dy", bare), ("mask", mask), ("dx", out)]);
    rw.insert_before(number, signs, &[number]);
    rw.replace(number, product);
    rw.insert_behind(number, bits, &[number]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::Program;
    use crate::model::Precision;
    use crate::rewrite::sample::{network, on_gpu};

    fn rewritten(units: usize, activation: &str) -> Program {
        let layer = format!(r#"{{"type": "dense", "units": {units}, "activation": "{activation}"}}"#);
        on_gpu(&network(&[layer.as_str(); 3].join(", "), "adam", 4096), Precision::Bf16)
    }

    fn signs(program: &Program) -> Vec<usize> {
        let is = |(_, op): &(usize, &Op)| matches!(op.kind, OpKind::SignBits(_));
        program.ops.iter().enumerate().filter(is).map(|(at, _)| at).collect()
    }

    #[test]
    fn only_the_last_reader_of_an_activation_uses_the_bit_mask() {
        let program = rewritten(4096, "relu");
        let found = signs(&program);
        // The two large products of the backward pass; that of the last layer is small.
        assert_eq!(found.len(), 2);
        for at in found {
            let [signs, product, derivative] = &program.ops[at..at + 3] else { panic!("three operations") };
            let activation = program.root(signs.arg("x").unwrap()).0;
            let read_later =
                program.ops[at + 1..].iter().flat_map(Op::reads).any(|id| program.root(id).0 == activation);
            assert!(!read_later, "operation {at}");
            assert_eq!((product.arg("c"), product.arg("saved")), (derivative.arg("dy"), None));
            assert_eq!(derivative.arg("mask"), signs.arg("mask"));
            assert_eq!(derivative.fused, ["relu_bwd"]);
        }
    }

    #[test]
    fn other_derivatives_and_small_products_keep_the_activation() {
        assert!(signs(&rewritten(4096, "silu")).is_empty());
        assert!(signs(&rewritten(1024, "relu")).is_empty());
    }
}
