//! Stores activations and their gradients in half precision, with everything that shares their memory.

use crate::lower::{LValueId, Program};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::Rewriter;
use crate::tensor::DType;

pub(super) fn run(rw: &mut Rewriter, goal: &Goal) {
    let Some(half) = goal.half() else { return };
    for (index, is_stored_in_half) in stored_in_half(rw.program()).into_iter().enumerate() {
        if is_stored_in_half {
            rw.value_mut(LValueId(index as u32)).dtype = half;
        }
    }
}

/// By value, whether it is an activation or the gradient of one, or shares the memory of one. This also works for a
/// program in `f64`, to find the values that another program would store in half precision.
#[must_use]
pub fn stored_in_half(program: &Program) -> Vec<bool> {
    let homes = homes(program);
    (0..program.values.len() as u32).map(|i| homes[program.root(LValueId(i)).0.0 as usize]).collect()
}

/// Whether each value's memory holds activations.
fn homes(program: &Program) -> Vec<bool> {
    let mut homes = vec![false; program.values.len()];
    for op in &program.ops {
        for (slot, arg) in op.args.iter().enumerate() {
            if let Some(id) = arg
                && op.kind.is_activation(slot)
                && matches!(program.value(*id).dtype, DType::F32 | DType::F64)
                && program.value(*id).param.is_none()
            {
                homes[program.root(*id).0.0 as usize] = true;
            }
        }
    }
    homes
}
