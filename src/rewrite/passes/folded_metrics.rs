//! Lets the optimizer's operation write the totals of its metrics.

use crate::lower::Op;
use crate::ops::OpKind;
use crate::rewrite::history::absorb;
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, set};

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let ops = &rw.program().ops;
    let Some(at) = ops.iter().position(|op| matches!(op.kind, OpKind::UpdateMetrics(_))) else { return };
    let metrics = &ops[at];
    let source = metrics.arg("update_max_seg");
    // If gradients are clipped or summed over batches, their norms are computed before the update.
    let norms = metrics.arg("grad_norm_seg");
    let is_update = |op: &Op| {
        let is_measured_there = op.arg("update_max") == source && op.arg("grad_norm_seg") == norms;
        source.is_some() && is_measured_there && op.kind.slot("total_max").is_some()
    };
    let (Some(update), Some(max), Some(norm)) =
        (ops.iter().position(is_update), metrics.arg("update_max"), metrics.arg("grad_norm"))
    else {
        return;
    };
    let mut op = ops[update].clone();
    set(&mut op, "total_max", max);
    set(&mut op, "grad_norm", norm);
    absorb(&mut op, metrics);
    rw.fuse(update, op, &[at]);
}
