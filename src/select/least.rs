//! Lower limits for every kernel: the bytes that an operation must move and the arithmetic that it must do.
//!
//! Times are compared with these numbers, so they never count more than necessary: an argument is moved once even if a
//! kernel reads it several times, and elements that windows skip, the padding, and the gaps between the segments of a
//! flat vector are left out.

use crate::lower::{LValueId, Op, Program};
use crate::ops::Dir;

/// The bytes that an operation must read and write.
#[must_use]
pub fn bytes(program: &Program, op: &Op) -> u64 {
    let mut sum = 0;
    let mut seen: Vec<(bool, LValueId, usize, u64)> = Vec::new();
    for (index, (slot, value)) in op.kind.slots().iter().zip(&op.args).enumerate() {
        let Some(id) = value.filter(|_| slot.dir != Dir::Work) else { continue };
        let ((root, start), value) = (program.root(id), program.value(id));
        let place = (slot.dir == Dir::Out, root, start, value.bytes());
        // The same values in two slots are moved once.
        if !seen.contains(&place) {
            seen.push(place);
            sum += op.kind.least_bytes(index, value.shape.len(), value.dtype.size());
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use crate::compile::{Options, compile};
    use crate::model::{BUNDLED, check, read_preset};
    use crate::select::target::{Isa, Target};

    #[test]
    fn the_least_cost_never_exceeds_the_counted_one() {
        for bundled in BUNDLED {
            let Some(model) = check(&read_preset(bundled.text).unwrap()).model else { continue };
            let compiled = compile(&model, &Options::train(Target::cpu(Isa::Avx2, 1))).unwrap();
            let found = &compiled.selection;
            for (op, choice) in found.program.ops.iter().zip(&found.choices) {
                let name = op.kind.name();
                assert!(choice.bytes > 0 && choice.least_flops <= choice.flops, "{}: {name}", bundled.name);
                // The estimate may count an argument twice; labels and counters have their own sizes.
                let counted = op.kind.bytes_moved(4);
                assert!(choice.bytes <= counted + 64, "{}: {name} {} {counted}", bundled.name, choice.bytes);
            }
        }
    }
}
