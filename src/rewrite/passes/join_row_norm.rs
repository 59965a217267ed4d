//! A product normalises the rows that it makes, or turns the gradient that it makes back through a normalisation.
//!
//! A normalisation of short rows is a launch of its own that takes longer to start than to run. Where a tile of the
//! product in front of it holds whole rows, it is part of the product's epilogue.

use crate::lower::{LValueId, Op, Program};
use crate::ops::{self, Gemm, GradientPart, OpKind, ROW_PRODUCT_COLUMNS};
use crate::rewrite::history::absorb;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::rewrite::uses::{Uses, shares, with_uses};

/// Multiplications of a product at most: what tiles of whole rows are fast enough for.
const SMALL: usize = 1 << 25;
/// Rows of the smallest tile.
const TILE_ROWS: usize = 8;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let wanted = |kind: &OpKind| match kind {
        OpKind::LayerNorm(_) => true,
        OpKind::LayerNormBwd(norm) => norm.part == GradientPart::Input,
        _ => false,
    };
    with_uses(rw, wanted, join);
}

/// Joins a normalisation, or its gradient, with the product in front of it.
fn join(rw: &mut Rewriter, uses: &Uses, number: usize) {
    let norm = rw.op(number).clone();
    let made = norm.arg(if matches!(norm.kind, OpKind::LayerNorm(_)) { "x" } else { "dy" });
    let Some(product) = uses.producer(rw, made).filter(|&at| at < number && rw.is_there(at)) else { return };
    if let Some(joined) = joined(rw.op(product), &norm)
        && !is_read_between(rw.program(), product, number)
    {
        rw.fuse(number, joined, &[product]);
    }
}

/// Whether an operation between a product and its reader touches what the product makes.
fn is_read_between(program: &Program, product: usize, reader: usize) -> bool {
    let Some(made) = program.ops[product].arg("c") else { return true };
    let touches = |op: &Op| op.args.iter().flatten().any(|id| shares(program, *id, made));
    program.ops[product + 1..reader].iter().any(touches)
}

/// A product and what follows it as one operation, in the place of the latter.
fn joined(product: &Op, norm: &Op) -> Option<Op> {
    let OpKind::Gemm(gemm) = product.kind else { return None };
    let Gemm { m, n, k, trans, accumulate, epilogue, together } = gemm;
    let ops::Epilogue { bias, act, save_z, act_grad } = epilogue;
    let plain = act.is_none() && act_grad.is_none() && !save_z && together == 0;
    let fits = ROW_PRODUCT_COLUMNS.contains(&n) && m.is_multiple_of(TILE_ROWS) && m * n * k <= SMALL;
    let (kind, rows, cols) = match norm.kind {
        OpKind::LayerNorm(ops::LayerNorm { rows, cols, eps, rms }) => {
            let kind = ops::GemmNorm { m, n, k, trans, accumulate, bias, eps, rms };
            (OpKind::GemmNorm(kind), rows, cols)
        }
        OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, rms, .. }) if !accumulate && !bias => {
            (OpKind::GemmNormBwd(ops::GemmNormBwd { m, n, k, trans, rms }), rows, cols)
        }
        _ => return None,
    };
    if !plain || !fits || (rows, cols) != (m, n) {
        return None;
    }
    let of_product = ["a", "b", "bias", "c_prev", "c"].map(|slot| (slot, product.arg(slot)));
    let of_norm = ["gamma", "beta", "y", "x", "mean", "rstd", "residual", "dx"].map(|slot| (slot, norm.arg(slot)));
    let bound: Vec<(&str, Option<LValueId>)> =
        of_product.into_iter().chain(of_norm).filter(|(slot, _)| kind.slot(slot).is_some()).collect();
    let mut op = Op { fused: product.fused.clone(), ..made_like(product, kind, &bound) };
    if op.fused.is_empty() {
        op.fused.push(product.kind.name().to_owned());
    }
    absorb(&mut op, norm);
    Some(Op { phase: norm.phase, pass: norm.pass, ..op })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{network, on_gpu};

    fn counts(units: usize, batch: usize, precision: Precision) -> [usize; 3] {
        let block = format!(
            r#"{{"type": "residual", "layers": [{{"type": "layer_norm"}}, {{"type": "dense", "units": {units}}}]}}"#
        );
        let layers = format!(r#"{{"type": "dense", "units": {units}}}, {block}, {block}, {{"type": "rms_norm"}}"#);
        let program = on_gpu(&network(&layers, "sgd", batch), precision);
        let count = |is: fn(&OpKind) -> bool| program.ops.iter().filter(|op| is(&op.kind)).count();
        [
            count(|kind| matches!(kind, OpKind::GemmNorm(_))),
            count(|kind| matches!(kind, OpKind::GemmNormBwd(_))),
            count(|kind| matches!(kind, OpKind::LayerNorm(_))),
        ]
    }

    #[test]
    fn short_rows_are_normalised_where_they_are_made() {
        // The gradient of the last normalisation is behind that of the classes.
        assert_eq!(counts(64, 1024, Precision::F32), [3, 2, 0]);
        // Gradients of few rows stay whole, and have columns to sum.
        assert_eq!(counts(64, 64, Precision::F32), [3, 0, 0]);
        for (units, batch, precision) in [(96, 64, Precision::F32), (64, 60, Precision::F32), (64, 64, Precision::Bf16)]
        {
            assert_eq!(counts(units, batch, precision), [0, 0, 3], "{units} {batch} {precision:?}");
        }
    }

    #[test]
    fn a_joined_operation_has_the_arguments_of_both() {
        let layers = r#"{"type": "dense", "units": 64}, {"type": "layer_norm"}, {"type": "dense", "units": 64}"#;
        let program = on_gpu(&network(layers, "sgd", 64), Precision::F32);
        let op = program.ops.iter().find(|op| matches!(op.kind, OpKind::GemmNorm(_))).unwrap();
        assert_eq!(op.fused, ["gemm", "bias_add", "layer_norm"]);
        for slot in ["a", "b", "bias", "gamma", "beta", "c", "y", "mean", "rstd"] {
            assert!(op.arg(slot).is_some(), "{slot}");
        }
    }
}
