//! The kernels of a softmax with its loss.

use super::{all_agree, runs_of, tolerance};
use std::collections::BTreeMap;
use stepgraph::ops::{OpKind, Scalar, SoftmaxCeFused};
use stepgraph::select::cuda::{KernelFile, Real};

const DATA: &str = include_str!("loss.hpp");

/// A batch of scores: rows, classes, label smoothing, parts of the batch, and `Scores` of `loss.hpp`.
type Case = (usize, usize, f64, usize, &'static str);

/// Rows that lanes of a warp share, and rows that a block shares: some blocks process several. Numbers of classes are
/// even and odd. If scores are large, their differences must be computed before they are multiplied.
const CASES: [Case; 7] = [
    (50, 10, 0.1, 1, "{0, 1, false}"),
    (37, 100, 0.0, 1, "{0, 1, true}"),
    (4, 1_504, 0.0, 1, "{0, 3, true}"),
    (4, 1_501, 0.0, 2, "{0, 3, true}"),
    (5, 1_100, 0.1, 1, "{0, 3, false}"),
    (3, 1_056, 0.1, 4, "{0, 1, true}"),
    (6, 2_000, 0.0, 1, "{1e6, 2e4, false}"),
];

/// C++ that runs the kernels of a case.
fn of_case(case: Case, real: Real, counts: &mut BTreeMap<&'static str, usize>) -> String {
    let (rows, classes, smoothing, parts, scores) = case;
    let kind = OpKind::SoftmaxCeFused(SoftmaxCeFused { rows, classes, smoothing: Scalar::new(smoothing), parts });
    let name = format!("{} {} {rows} {classes} {smoothing} {scores}", real.name(), kind.stem());
    format!(
        "{{ SoftmaxLoss<{}> one(\"{name}\", {rows}, {classes}, {smoothing}, {parts}, Scores{scores}, {});\n{}}}\n",
        real.cpp(),
        tolerance(real),
        runs_of(&kind, real, |_| true, counts)
    )
}

#[test]
fn members_of_loss_kernels_give_the_same_bits_and_the_plain_sums() {
    let runs = |real, counts: &mut _| CASES.iter().map(|case| of_case(*case, real, counts)).collect();
    all_agree(KernelFile::Loss, DATA, runs, (&["SoftmaxCeFused"], CASES.len()));
}
