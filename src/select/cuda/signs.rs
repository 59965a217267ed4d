//! Signs in the place of activations, in large networks.
//!
//! The derivative of ReLU needs of a saved activation no more than the sign. Where the weight gradient of the layer behind has been made, the signs take
//! over: a bit an element instead of two or four bytes, while that gradient, which waits for its update, and two gradients of activations are alive.
//! A library's product leaves the derivative to a pass of its own anyway, so that both passes together move as much as the one did.

use super::adapt::{push, set};
use super::layered::is_large;
use crate::ir::Role;
use crate::lower::{Gemm, LValue, LValueId, Layout, Op, OpKind, Program, Scalar, Trans};
use crate::model::Activation;
use crate::ops;
use crate::tensor::{DType, Shape};

/// Multiplications from which a product is a library's: own ones apply the derivative while they write.
const LARGE: usize = 1 << 33;

/// Keeps signs instead of activations where these are needed for nothing else any more.
pub(super) fn keep_signs(program: &mut Program) {
    if !is_large(program) {
        return;
    }
    let mut index = 0;
    while index < program.ops.len() {
        if let Some(len) = fits(program, index) {
            part(program, index, len);
            index += 2;
        }
        index += 1;
    }
}

/// The elements of the activation whose last reader operation `index` is, for its sign alone.
fn fits(program: &Program, index: usize) -> Option<usize> {
    let op = &program.ops[index];
    let OpKind::Gemm(Gemm { m, n, k, trans: Trans::Nt, accumulate: false, epilogue }) = op.kind else { return None };
    let large = m.saturating_mul(n).saturating_mul(k) >= LARGE && (m * n).is_multiple_of(8);
    if !large || epilogue.act_grad != Some(Activation::Relu) || epilogue.bias || epilogue.act.is_some() {
        return None;
    }
    let root = |id| program.root(id).0;
    let saved = root(op.arg("saved")?);
    let read_later = program.ops[index + 1..].iter().flat_map(Op::reads).any(|id| root(id) == saved);
    (!read_later && !program.value(saved).persistent).then_some(m * n)
}

/// Operation `index` becomes three: the signs, the bare product, and the derivative.
fn part(program: &mut Program, index: usize, len: usize) {
    let whole = program.ops[index].clone();
    let (OpKind::Gemm(mut gemm), [Some(a), Some(b), Some(saved), Some(out)]) =
        (whole.kind.clone(), ["a", "b", "saved", "c"].map(|slot| whole.arg(slot)))
    else {
        return;
    };
    gemm.epilogue.act_grad = None;
    let [saved_value, out_value] = [saved, out].map(|id| program.value(id).clone());
    let mask = LValue {
        name: format!("{}.signs", saved_value.name),
        role: Role::Activation,
        dtype: DType::U8,
        shape: Shape::from([len / 8]),
        layout: Layout::Plain,
        alias: None,
        ..saved_value
    };
    let mask = push(program, mask);
    let bare = push(program, LValue { name: format!("{}.product", out_value.name), alias: None, ..out_value });
    let with = |kind: OpKind, fused: Vec<String>, args: &[(&str, LValueId)]| {
        let mut op = Op { args: vec![None; kind.slots().len()], kind, fused, ..whole.clone() };
        for (slot, value) in args {
            set(&mut op, slot, *value);
        }
        op
    };
    let backward = Activation::Relu.backward_name();
    let rest: Vec<String> = whole.fused.iter().filter(|part| *part != backward).cloned().collect();
    // One part is the operation itself.
    let rest = if rest.len() == 1 { Vec::new() } else { rest };
    let bits = OpKind::DropoutBwd(ops::DropoutBwd { len, rate: Scalar::new(0.0) });
    let parts = [
        with(OpKind::SignBits(ops::SignBits { len }), Vec::new(), &[("x", saved), ("mask", mask)]),
        with(OpKind::Gemm(gemm), rest, &[("a", a), ("b", b), ("c", bare)]),
        with(bits, vec![backward.to_owned()], &[("dy", bare), ("mask", mask), ("dx", out)]),
    ];
    program.ops.splice(index..=index, parts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::{FilterOrder, lower_for, verify};
    use crate::model::{check, read_preset};
    use crate::select::cuda::{Real, adapt};
    use crate::select::fuse;

    fn adapted(units: usize, activation: &str) -> Program {
        let text = format!(
            r#"{{"version": 1, "name": "t", "input": {{"shape": [64], "batch": 4096}}, "layers": [
            {{"type": "dense", "units": {units}, "activation": "{activation}"}}, {{"type": "dense", "units": {units}, "activation": "{activation}"}},
            {{"type": "dense", "units": {units}, "activation": "{activation}"}}, {{"type": "dense", "units": 10}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.001}}}}"#
        );
        let model = check(&read_preset(&text).unwrap()).model.unwrap();
        let program = lower_for(&build(&model, Mode::Train, Metrics::default(), DType::F32), &model, FilterOrder::Ohwi);
        let program = adapt(&fuse(&program), Real::Bf16);
        assert_eq!(verify(&program), Ok(()));
        program
    }

    fn signs(program: &Program) -> Vec<usize> {
        let is = |(_, op): &(usize, &Op)| matches!(op.kind, OpKind::SignBits { .. });
        program.ops.iter().enumerate().filter(is).map(|(at, _)| at).collect()
    }

    #[test]
    fn the_last_reader_of_an_activation_is_what_takes_its_signs() {
        let program = adapted(4096, "relu");
        let found = signs(&program);
        // The two large products on the way back; that of the last layer is small.
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
        assert!(signs(&adapted(4096, "silu")).is_empty());
        assert!(signs(&adapted(1024, "relu")).is_empty());
    }
}
