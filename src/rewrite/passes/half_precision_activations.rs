//! Activations and their gradients are stored in half precision, with everything that shares their memory.

use crate::lower::{LValueId, Program};
use crate::ops::{OpKind, Trans};
use crate::rewrite::pass::{Goal, Pass};
use crate::rewrite::rewriter::Rewriter;
use crate::tensor::DType;

pub(super) const PASS: Pass = Pass {
    name: "half_precision_activations",
    about: "Activations and their gradients are stored in half precision, with everything that shares their memory.",
    when: "on a GPU in bf16 and f16",
    applies: |goal| goal.half().is_some(),
    run,
};

fn run(rw: &mut Rewriter, goal: &Goal) {
    let Some(half) = goal.half() else { return };
    for (index, is_stored_in_half) in stored_in_half(rw.program()).into_iter().enumerate() {
        if is_stored_in_half {
            rw.value_mut(LValueId(index as u32)).dtype = half;
        }
    }
}

/// By value, whether it is an activation or the gradient of one, or shares its memory.
#[must_use]
pub fn stored_in_half(program: &Program) -> Vec<bool> {
    let homes = homes(program);
    (0..program.values.len() as u32).map(|i| homes[program.root(LValueId(i)).0.0 as usize]).collect()
}

/// Whether each value's memory holds activations.
fn homes(program: &Program) -> Vec<bool> {
    let mut homes = vec![false; program.values.len()];
    for op in &program.ops {
        for (slot, arg) in op.kind.slots().iter().zip(&op.args) {
            if let Some(id) = arg
                && is_activation(&op.kind, slot.name)
                && program.value(*id).dtype == DType::F32
                && program.value(*id).param.is_none()
            {
                homes[program.root(*id).0.0 as usize] = true;
            }
        }
    }
    homes
}

/// Whether a slot holds activations or their gradients.
fn is_activation(kind: &OpKind, slot: &str) -> bool {
    match kind {
        OpKind::Gemm(g) => match slot {
            "a" | "saved" | "z" => true,
            "b" => matches!(g.trans, Trans::Tn),
            "c" => !matches!(g.trans, Trans::Tn),
            _ => false,
        },
        OpKind::Conv2d(_) | OpKind::Conv2dBwdX(_) => matches!(slot, "a" | "saved" | "z" | "c"),
        OpKind::Conv2dBwdW(_) | OpKind::WeightStep(_) | OpKind::BiasStep(_) => matches!(slot, "a" | "b"),
        OpKind::LossMean(_)
        | OpKind::StepInc { .. }
        | OpKind::BiasCorr(_)
        | OpKind::UpdateMetrics(_)
        | OpKind::ScaleUpdate(_)
        | OpKind::StepMetrics(_) => false,
        update if update.flat_update().is_some() => false,
        _ => {
            let of_layers = ["x", "y", "dy", "dx", "saved", "residual", "a", "b"];
            let of_losses = ["logits", "probs", "dlogits", "scores", "target"];
            of_layers.contains(&slot) || of_losses.contains(&slot)
        }
    }
}
