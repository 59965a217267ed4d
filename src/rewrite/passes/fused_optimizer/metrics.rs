//! The metrics of updates that are fused into gradients: every update writes those of its tiles, and one operation at
//! the end combines them.

use crate::ir::Role;
use crate::lower::{Alias, LValue, Op};
use crate::model::ParamId;
use crate::ops::{self, OpKind, Segment};
use crate::rewrite::history::absorb;
use crate::rewrite::rewriter::{Rewriter, made_like, set};
use crate::tensor::{DType, Shape};

/// Gives every update its range of a vector of partial metrics; returns the operation that combines them, which
/// replaces the update's own metrics and their `totals`.
pub(super) fn measure<'a>(
    rw: &mut Rewriter,
    update: &Op,
    totals: Option<&Op>,
    steps: impl Iterator<Item = &'a mut Op>,
) -> Op {
    let mut steps: Vec<&mut Op> = steps.collect();
    let mut segments = Vec::with_capacity(steps.len());
    let mut total = 0;
    for step in &steps {
        let len = step.kind.step_parts();
        segments.push(Segment { start: total, len });
        total += len;
    }
    let blank = LValue::vector("update_parts".into(), Role::Metric, DType::F32, 2 * total);
    let parts = rw.push(blank.clone());
    let params: Vec<ParamId> = rw.program().segments.iter().map(|(param, _)| *param).collect();
    for ((step, segment), param) in steps.iter_mut().zip(&segments).zip(params) {
        let of = rw.program().value(rw.program().params[param.0 as usize].value).name.clone();
        let value = rw.push(LValue {
            name: format!("update_parts.{of}"),
            param: Some(param),
            alias: Some(Alias { of: parts, start: 2 * segment.start }),
            shape: Shape::from([2 * segment.len]),
            layer: step.layer,
            ..blank.clone()
        });
        set(step, "parts", value);
    }
    let bound = [
        ("parts", Some(parts)),
        ("update_max_seg", update.arg("update_max")),
        ("grad_norm_seg", update.arg("grad_norm_seg")),
        ("update_max", totals.and_then(|op| op.arg("update_max"))),
        ("grad_norm", totals.and_then(|op| op.arg("grad_norm"))),
    ];
    let mut closing = made_like(update, OpKind::StepMetrics(ops::StepMetrics { segments }), &bound);
    closing.fused.push(update.kind.name().to_owned());
    totals.iter().for_each(|totals| absorb(&mut closing, totals));
    closing
}
