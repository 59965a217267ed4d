//! Checks a program independently of the code that made it: arguments, sizes and order.

use super::program::{LValueId, Op, Program};
use crate::ir::Role;
use crate::tensor::DType;
use thiserror::Error;

/// A violated rule, with the operation that violates it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    #[error("op {op} ({name}): slot {slot} is empty")]
    MissingArgument { op: usize, name: &'static str, slot: &'static str },
    #[error("op {op} ({name}): slot {slot} holds {value} with {found} elements, expected {expected}")]
    Size { op: usize, name: &'static str, slot: &'static str, value: String, found: usize, expected: usize },
    #[error("op {op} ({name}) reads {value} before anything makes it")]
    ReadBeforeMade { op: usize, name: &'static str, value: String },
    #[error("value {value} is outside the memory of {of}")]
    Alias { value: String, of: String },
    #[error("the program makes {value} twice")]
    MadeTwice { value: String },
    #[error("{value}, the gradient of a parameter, is stored in {dtype}")]
    NarrowGradient { value: String, dtype: DType },
}

/// Checks that every required slot is bound, that sizes agree with the operations' dimensions, that values are created
/// before they are read, and that gradients of parameters are not stored in half precision.
///
/// # Errors
/// The first violated rule.
pub fn verify(program: &Program) -> Result<(), ProgramError> {
    for value in &program.values {
        if value.role == Role::Grad && value.param.is_some() && !matches!(value.dtype, DType::F32 | DType::F64) {
            return Err(ProgramError::NarrowGradient { value: value.name.clone(), dtype: value.dtype });
        }
        if let Some(alias) = value.alias {
            let of = program.value(alias.of);
            if alias.start + value.shape.len() > of.shape.len() || value.dtype != of.dtype {
                return Err(ProgramError::Alias { value: value.name.clone(), of: of.name.clone() });
            }
        }
    }
    let mut written = vec![false; program.values.len()];
    program.ops.iter().flat_map(Op::makes).for_each(|id| written[id.0 as usize] = true);
    let mut made = Made { program, parts: parts(program), written, made: vec![false; program.values.len()] };
    for (index, op) in program.ops.iter().enumerate() {
        let name = op.kind.name();
        for (place, (slot, arg)) in op.kind.slots().iter().zip(&op.args).enumerate() {
            let Some(arg) = *arg else {
                if op.kind.is_needed(place) {
                    return Err(ProgramError::MissingArgument { op: index, name, slot: slot.name });
                }
                continue;
            };
            let value = program.value(arg);
            let found = value.shape.len();
            if let Some(expected) = op.kind.extent(place)
                && found != expected
            {
                let value = value.name.clone();
                return Err(ProgramError::Size { op: index, name, slot: slot.name, value, found, expected });
            }
            if slot.dir.is_read() && !made.holds(arg) {
                return Err(ProgramError::ReadBeforeMade { op: index, name, value: value.name.clone() });
            }
        }
        for value in op.makes() {
            if std::mem::replace(&mut made.made[value.0 as usize], true) {
                return Err(ProgramError::MadeTwice { value: program.value(value).name.clone() });
            }
        }
    }
    Ok(())
}

/// The values that are parts of each value's memory, or parts of its parts.
fn parts(program: &Program) -> Vec<Vec<LValueId>> {
    let mut parts = vec![Vec::new(); program.values.len()];
    for (index, value) in program.values.iter().enumerate() {
        let mut whole = value.alias;
        while let Some(alias) = whole {
            parts[alias.of.0 as usize].push(LValueId(index as u32));
            whole = program.value(alias.of).alias;
        }
    }
    parts
}

/// Which values exist, up to an operation.
struct Made<'a> {
    program: &'a Program,
    parts: Vec<Vec<LValueId>>,
    /// Whether any operation makes the value.
    written: Vec<bool>,
    /// Whether an operation has made it.
    made: Vec<bool>,
}

impl Made<'_> {
    /// A value exists if an operation has made it, or if it is a view or part of one that exists. The flat gradient
    /// exists once its parts do.
    fn holds(&self, id: LValueId) -> bool {
        let index = id.0 as usize;
        if self.made[index] {
            return true;
        }
        if self.written[index] {
            return false;
        }
        let value = self.program.value(id);
        value.persistent
            || value.alias.is_some_and(|a| self.holds(a.of))
            || self.parts[index].iter().any(|part| self.made[part.0 as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::lower;
    use crate::model::{check, read_preset};
    use crate::ops::{self, OpKind};

    const PRESET: &str = r#"{"version": 1, "name": "t", "input": {"shape": [2, 6, 6], "batch": 4}, "layers": [
        {"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same", "bias": false},
        {"type": "batch_norm"},
        {"type": "residual", "layers": [{"type": "activation", "function": "gelu"},
        {"type": "conv2d", "filters": 4, "kernel": 1}]},
        {"type": "dense", "units": 5}, {"type": "layer_norm"},
        {"type": "conv2d", "filters": 4, "kernel": 2},
        {"type": "avg_pool2d", "size": 2, "stride": 1}, {"type": "flatten"}, {"type": "dropout", "rate": 0.5},
        {"type": "batch_norm"},
        {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 48, "activation": "relu"}]},
        {"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd",
        "lr": 0.01, "momentum": 0.9}}"#;

    fn program(mode: Mode) -> Program {
        let checked = check(&read_preset(PRESET).unwrap());
        assert_eq!(checked.diagnostics, []);
        let model = checked.model.unwrap();
        lower(&build(&model, mode, Metrics::default(), DType::F32), &model)
    }

    #[test]
    fn a_lowered_program_satisfies_every_rule() {
        assert_eq!(verify(&program(Mode::Train)), Ok(()));
        assert_eq!(verify(&program(Mode::Eval)), Ok(()));
    }

    #[test]
    fn each_violated_rule_is_reported() {
        let mut p = program(Mode::Train);
        p.ops[0].args[0] = None;
        assert!(matches!(verify(&p), Err(ProgramError::MissingArgument { op: 0, slot: "a", .. })));
        let mut p = program(Mode::Train);
        p.ops.swap(0, 1);
        assert!(matches!(verify(&p), Err(ProgramError::ReadBeforeMade { op: 0, .. })));
        let mut p = program(Mode::Train);
        let OpKind::Conv2d(ops::Conv2d { geometry, .. }) = &mut p.ops[0].kind else {
            panic!("the first op is a convolution")
        };
        geometry.f += 1;
        assert!(matches!(verify(&p), Err(ProgramError::Size { op: 0, .. })));
        let mut p = program(Mode::Train);
        let slice = p.values.iter().position(|v| v.alias.is_some_and(|a| a.start > 0)).unwrap();
        p.values[slice].alias.as_mut().unwrap().start += 1 << 20;
        assert!(matches!(verify(&p), Err(ProgramError::Alias { .. })));
        let mut p = program(Mode::Train);
        let gradient = p.values.iter().position(|v| v.role == Role::Grad && v.param.is_some()).unwrap();
        p.values[gradient].dtype = DType::Bf16;
        assert!(matches!(verify(&p), Err(ProgramError::NarrowGradient { dtype: DType::Bf16, .. })));
    }
}
