//! The kernels of matrix products.

use super::{all_agree, runs_of, tolerance};
use std::collections::BTreeMap;
use stepgraph::model::Activation;
use stepgraph::ops::{Epilogue, Gemm, OpKind, Trans};
use stepgraph::select::cuda::{CustomKernel, KernelFile, Real};

const DATA: &str = include_str!("product.hpp");

/// Rows, columns and depths: of one tile, of several, and of long sums that are split.
const SIZES: [[usize; 3]; 5] = [[33, 18, 70], [8, 10, 600], [64, 48, 32], [130, 65, 129], [5, 3, 2]];

/// `GemmDirect` loads factors by conditional instructions that are not emulated.
fn is_emulated(kernel: &CustomKernel) -> bool {
    kernel.spec.template != "GemmDirect"
}

/// C++ that runs the kernels of products of these sizes, with what follows them in networks.
fn of_sizes([m, n, k]: [usize; 3], real: Real, counts: &mut BTreeMap<&'static str, usize>) -> String {
    let none = Epilogue::default();
    let relu = Epilogue { bias: true, act: Some(Activation::Relu), ..none };
    let derivative = Epilogue { act_grad: Some(Activation::Relu), ..none };
    let cases =
        [(Trans::Nn, relu, false), (Trans::Nt, derivative, false), (Trans::Tn, none, false), (Trans::Tn, none, true)];
    let mut text = String::new();
    for (trans, epilogue, accumulate) in cases {
        let kind = OpKind::Gemm(Gemm { epilogue, accumulate, ..Gemm::plain(m, n, k, trans) });
        let (number, trans) = (real.cpp(), format!("{trans:?}").to_uppercase());
        let result = if trans == "TN" { "float" } else { number };
        let tolerance = tolerance(real);
        let name = format!("{} {} {m} {n} {k}", real.name(), kind.stem());
        let ends = format!(
            "Ends{{{}, {}, {}, {accumulate}}}",
            epilogue.bias,
            epilogue.act.is_some(),
            epilogue.act_grad.is_some()
        );
        text += &format!(
            "{{ Product<{number}, {result}> one(\"{name}\", {m}, {n}, {k}, {trans}, {ends}, {tolerance});\n{}}}\n",
            runs_of(&kind, real, is_emulated, counts)
        );
    }
    text
}

#[test]
fn members_of_product_kernels_give_the_same_bits_and_the_plain_sums() {
    let runs = |real, counts: &mut _| SIZES.iter().map(|sizes| of_sizes(*sizes, real, counts)).collect();
    all_agree(KernelFile::Gemm, DATA, runs, (&["GemmSimt", "GemmMma"], 20));
}
