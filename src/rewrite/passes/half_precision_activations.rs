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
                && !is_of_parameter(program, *id)
            {
                homes[program.root(*id).0.0 as usize] = true;
            }
        }
    }
    homes
}

/// Whether a value, or one that contains it, belongs to a parameter: for example the part of a gradient that is set to
/// zero, because no sample has its positions.
fn is_of_parameter(program: &Program, id: LValueId) -> bool {
    let mut next = Some(id);
    while let Some(id) = next {
        let value = program.value(id);
        if value.param.is_some() {
            return true;
        }
        next = value.alias.map(|alias| alias.of);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::ops::OpKind;
    use crate::rewrite::sample::{of_tokens, on_gpu};

    #[test]
    fn gradients_of_parameters_stay_in_single_precision_where_they_are_set_to_zero() {
        let layers = r#"{"type": "position"}, {"type": "dense", "units": 8}"#;
        let short = of_tokens(layers, "adam", [2, 6]).with_length(4).unwrap();
        for precision in [Precision::Bf16, Precision::F16] {
            let program = on_gpu(&short, precision);
            let grads = program.find("grads").unwrap();
            let is_unused = |id: &LValueId| program.root(*id).0 == grads;
            let fills = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Fill(_)));
            let unused: Vec<LValueId> = fills.filter_map(|op| op.arg("y")).filter(is_unused).collect();
            let [unused] = unused[..] else { panic!("{precision:?}: {unused:?}") };
            assert_eq!([grads, unused].map(|id| program.value(id).dtype), [DType::F32; 2], "{precision:?}");
        }
    }
}
