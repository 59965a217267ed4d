//! Adds what is summed with the result of a product inside the product: the end of a residual block of attention or of
//! dense layers.
//!
//! The sum is computed before the result is rounded, and neither is written or read in between.

use crate::lower::{LValueId, Op, Program};
use crate::ops::{Gemm, OpKind, Trans};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, merged};
use crate::rewrite::uses::join_readers;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    join_readers(rw, "c", |kind| matches!(kind, OpKind::Gemm(gemm) if adds_up(gemm)), joined);
}

/// Whether the product's epilogue does nothing after the addition: an activation must not be applied to the sum, and
/// gradients of weights are floats.
const fn adds_up(gemm: &Gemm) -> bool {
    let e = gemm.epilogue;
    !gemm.accumulate && !matches!(gemm.trans, Trans::Tn) && e.act.is_none() && e.act_grad.is_none() && !e.save_z
}

fn joined(program: &Program, product: &Op, sum: &Op, out: LValueId) -> Option<Op> {
    let (OpKind::Gemm(gemm), OpKind::Add(_)) = (&product.kind, &sum.kind) else { return None };
    let beside = if sum.arg("a") == Some(out) { sum.arg("b") } else { sum.arg("a") }?;
    let y = sum.arg("y")?;
    let is_alike = |id: LValueId| {
        let (value, of) = (program.value(id), program.value(out));
        value.layout == of.layout && value.dtype == of.dtype
    };
    if !is_alike(beside) || !is_alike(y) || program.root(beside).0 == program.root(out).0 {
        return None;
    }
    let kind = OpKind::Gemm(Gemm { accumulate: true, ..*gemm });
    Some(merged(product, sum, kind, &[("c_prev", Some(beside)), ("c", Some(y))]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{classifier, on_gpu};

    /// Separate sums, and products that add something other than gradients of weights.
    fn sums_of(layers: &str, precision: Precision) -> [usize; 2] {
        let program = on_gpu(&classifier(layers, "sgd"), precision);
        let alone = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Add { .. } | OpKind::AddAct { .. }));
        let with = program.ops.iter().filter(|op| match op.kind {
            OpKind::Gemm(g) => g.accumulate && g.trans != Trans::Tn,
            _ => false,
        });
        [alone.count(), with.count()]
    }

    #[test]
    fn sums_at_the_end_of_residual_blocks_are_fused_into_their_product() {
        let dense = r#"{"type": "residual", "layers": [{"type": "dense", "units": 64, "activation": "tanh"},
            {"type": "dense", "units": 64}]}"#;
        let dense = format!(r#"{{"type": "dense", "units": 64}}, {dense}"#);
        for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
            // Also the sum of the backward pass: the gradient around the block and that of the block.
            assert_eq!(sums_of(&dense, precision), [0, 2], "{precision:?}");
        }
    }

    #[test]
    fn a_sum_is_not_fused_into_a_product_with_an_activation() {
        let active = r#"{"type": "dense", "units": 64}, {"type": "residual", "layers": [
            {"type": "dense", "units": 64, "activation": "gelu"}]}"#;
        let [alone, with] = sums_of(active, Precision::F32);
        assert_eq!((alone, with), (1, 1));
    }
}
