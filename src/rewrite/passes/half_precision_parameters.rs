//! Lets products read a copy of the parameters in half precision, which the optimizer writes beside the `f32`
//! parameters.
//!
//! Moments, statistics, weight gradients and losses stay `f32`.

use crate::ir::Role;
use crate::lower::{Alias, LValue, LValueId};
use crate::ops::{OpKind, Trans};
use crate::rewrite::pass::Goal;
use crate::rewrite::rewriter::Rewriter;
use crate::tensor::DType;
use std::collections::HashMap;

pub(super) fn run(rw: &mut Rewriter, goal: &Goal) {
    let Some(half) = goal.half() else { return };
    let len = rw.program().flat_len();
    let flat = rw.state(format!("params.{half}"), half, len);
    let mut copies = Copies { flat, half, made: HashMap::new() };
    for number in 0..rw.len() {
        let op = rw.op(number);
        let weight = op.kind.weight().and_then(|slot| Some((op.kind.slots()[slot].name, op.args[slot]?)));
        if let Some((slot, weight)) = weight {
            let copy = copies.of(rw, weight);
            rw.bind(number, slot, copy);
        }
    }
    // Libraries add biases of the type in which the product is stored; the bias of a weight's gradient stays `f32`.
    for number in 0..rw.len() {
        let op = rw.op(number);
        let is_product = matches!(&op.kind, OpKind::Gemm(g) if !matches!(g.trans, Trans::Tn));
        if let Some(bias) = op.arg("bias").filter(|_| is_product) {
            let copy = copies.of(rw, bias);
            rw.bind(number, "bias_half", copy);
        }
    }
    let after = rw.view(format!("params.{half}.new"), flat, len);
    for number in 0..rw.len() {
        let op = rw.op(number);
        let Some(update) = op.kind.update() else { continue };
        let Some(masters) = op.args[update.param[1]] else { continue };
        let (start, own) = (rw.program().root(masters).1, rw.program().value(masters).shape.len());
        // A path of a network updates only some of the parameters.
        let mut copy = after;
        if own < len {
            copy = rw.view(format!("params.{half}.{start}.new"), flat, own);
            rw.value_mut(copy).alias = Some(Alias { of: flat, start });
        }
        rw.bind(number, "shadow", copy);
    }
}

/// The copies of single parameters, by name.
struct Copies {
    /// The vector that contains all of them.
    flat: LValueId,
    half: DType,
    made: HashMap<String, LValueId>,
}

impl Copies {
    /// The range of the vector with a parameter's copy.
    fn of(&mut self, rw: &mut Rewriter, param: LValueId) -> LValueId {
        let (_, start) = rw.program().root(param);
        let master = rw.program().value(param);
        let name = format!("{}.{}", master.name, self.half);
        if let Some(found) = self.made.get(&name) {
            return *found;
        }
        let alias = Some(Alias { of: self.flat, start });
        let copy = LValue { name: name.clone(), role: Role::State, dtype: self.half, alias, ..master.clone() };
        let copy = rw.push(copy);
        self.made.insert(name, copy);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Precision;
    use crate::rewrite::sample::{of_tokens, on_gpu};

    #[test]
    fn every_product_with_a_bias_reads_it_in_its_own_type() {
        let tied = r#"{"type": "dense", "units": 20000, "tied": "layers.0"}"#;
        let own = r#"{"type": "dense", "units": 24, "activation": "relu"}, {"type": "dense", "units": 20000}"#;
        for (layers, count) in [(tied, 1), (own, 2)] {
            for (precision, half) in [(Precision::Bf16, DType::Bf16), (Precision::F16, DType::F16)] {
                let program = on_gpu(&of_tokens(layers, "adam", [2, 64]), precision);
                let biased = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Gemm(g) if g.epilogue.bias));
                let narrow: Vec<_> = biased.map(|op| op.arg("bias_half").map(|id| program.value(id).dtype)).collect();
                assert_eq!(narrow, vec![Some(half); count], "{layers}");
            }
        }
    }
}
