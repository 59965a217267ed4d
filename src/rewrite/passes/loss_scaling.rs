//! Multiplies the gradient of the loss by a scale that the step itself adapts, so that small gradients are not lost in
//! `f16`.

use crate::ir::{Phase, Role};
use crate::lower::{Alias, LValue, Op};
use crate::ops::{self, OpKind, SCALER};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::{Rewriter, made_like};
use crate::tensor::DType;

pub(super) fn run(rw: &mut Rewriter, _: &Goal) {
    let Some(update) = rw.program().ops.iter().position(|op| op.kind.slot("scaler").is_some()) else { return };
    let Some(grad) = rw.op(update).arg("grad") else { return };
    let before = rw.state("scaler".into(), DType::F32, SCALER);
    let scale = rw.view("loss_scale".into(), before, 1);
    let after = rw.view("scaler.new".into(), before, SCALER);
    let skipped = LValue {
        name: "skipped_steps".into(),
        role: Role::State,
        dtype: DType::F32,
        alias: Some(Alias { of: before, start: 4 }),
        ..rw.program().value(scale).clone()
    };
    let skipped = rw.push(skipped);
    for number in 0..rw.len() {
        rw.bind(number, "scaler", after);
        rw.bind(number, "scale", scale);
        rw.bind(number, "skipped", skipped);
    }
    let kind = OpKind::ScaleUpdate(ops::ScaleUpdate { len: rw.program().value(grad).shape.len() });
    let bound = [("grad", Some(grad)), ("scaler_prev", Some(before)), ("scaler", Some(after))];
    let op = Op { phase: Phase::Optimizer, ..made_like(rw.op(update), kind, &bound) };
    rw.insert_before(update, op, &[]);
}
