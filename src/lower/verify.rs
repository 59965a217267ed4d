//! The program's referee: arguments, sizes and order, by rules of its own.

use super::program::{LValueId, Op, Program};
use crate::ops;
use crate::ops::Dir;
use crate::ops::OpKind;
use std::collections::HashSet;
use thiserror::Error;

/// A broken rule, with the operation that breaks it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProgramError {
    #[error("op {op} ({name}): slot {slot} is empty")]
    MissingArgument { op: usize, name: &'static str, slot: &'static str },
    #[error("op {op} ({name}): slot {slot} holds {value} with {found} elements, expected {expected}")]
    Size { op: usize, name: &'static str, slot: &'static str, value: String, found: usize, expected: usize },
    #[error("op {op} ({name}) reads {value} before anything makes it")]
    ReadBeforeMade { op: usize, name: &'static str, value: String },
    #[error("value {value} lies outside the memory of {of}")]
    Alias { value: String, of: String },
    #[error("the program makes {value} twice")]
    MadeTwice { value: String },
}

/// Checks that every needed slot is bound, that sizes agree with the operations' dimensions, and that values are made before they are read.
///
/// # Errors
/// The first broken rule.
pub fn verify(program: &Program) -> Result<(), ProgramError> {
    for value in &program.values {
        if let Some(alias) = value.alias {
            let of = program.value(alias.of);
            if alias.start + value.shape.len() > of.shape.len() || value.dtype != of.dtype {
                return Err(ProgramError::Alias { value: value.name.clone(), of: of.name.clone() });
            }
        }
    }
    let written: HashSet<LValueId> = program.ops.iter().flat_map(Op::writes).collect();
    let mut made: HashSet<LValueId> = HashSet::new();
    for (index, op) in program.ops.iter().enumerate() {
        let name = op.kind.name();
        for (slot, arg) in op.kind.slots().iter().zip(&op.args) {
            let Some(arg) = *arg else {
                if required(&op.kind, slot.name) && slot.dir != Dir::Work {
                    return Err(ProgramError::MissingArgument { op: index, name, slot: slot.name });
                }
                continue;
            };
            let (found, value) = (program.value(arg).shape.len(), program.value(arg).name.clone());
            if let Some(expected) = expected_len(&op.kind, slot.name)
                && found != expected
            {
                return Err(ProgramError::Size { op: index, name, slot: slot.name, value, found, expected });
            }
            if slot.dir == Dir::In && !is_made(program, arg, &written, &made) {
                return Err(ProgramError::ReadBeforeMade { op: index, name, value });
            }
        }
        for value in op.writes() {
            if !made.insert(value) {
                return Err(ProgramError::MadeTwice { value: program.value(value).name.clone() });
            }
        }
    }
    Ok(())
}

/// A value is there where an operation made it, or where it is a view or part of one that is there. The flat gradient is there once its parts are.
fn is_made(program: &Program, id: LValueId, written: &HashSet<LValueId>, made: &HashSet<LValueId>) -> bool {
    if made.contains(&id) {
        return true;
    }
    if written.contains(&id) {
        return false;
    }
    let value = program.value(id);
    value.persistent
        || value.alias.is_some_and(|a| is_made(program, a.of, written, made))
        || program
            .values
            .iter()
            .enumerate()
            .any(|(i, v)| v.alias.is_some_and(|a| a.of == id) && made.contains(&LValueId(i as u32)))
}

/// Whether an operation cannot do without a slot.
fn required(kind: &OpKind, slot: &str) -> bool {
    let epilogue = match kind {
        OpKind::Gemm(g) => Some((g.epilogue, g.accumulate)),
        OpKind::Conv2d(ops::Conv2d { epilogue, .. }) | OpKind::Conv2dBwdX(ops::Conv2dBwdX { epilogue, .. }) => {
            Some((*epilogue, false))
        }
        OpKind::Conv2dBwdW(ops::Conv2dBwdW { accumulate, .. }) => Some((super::Epilogue::default(), *accumulate)),
        _ => None,
    };
    if let Some((e, accumulate)) = epilogue {
        return match slot {
            "bias" => e.bias,
            "saved" => e.act_grad.is_some(),
            "z" => e.save_z,
            "c_prev" => accumulate,
            "bias_half" => false,
            _ => true,
        };
    }
    match (kind, slot) {
        (_, "scale" | "scaler" | "shadow" | "total_max" | "ticket" | "residual" | "bias_half" | "skipped") => false,
        (OpKind::AddAct(ops::AddAct { act_grad, .. }), "saved") => act_grad.is_some(),
        (OpKind::DenseCe(ops::DenseCe { act_grad, .. }), "saved") => act_grad.is_some(),
        (OpKind::DenseCe(ops::DenseCe { bias, .. }), "bias") => *bias,
        (OpKind::LossMean { .. }, "row_right" | "accuracy") => false,
        (OpKind::AdamStep { .. } | OpKind::SgdStep { .. }, "grad_norm") => false,
        (OpKind::WeightStep { .. } | OpKind::BiasStep { .. }, "parts") | (OpKind::BiasStep { .. }, "b") => false,
        (OpKind::StepMetrics { .. }, slot) => slot == "parts",
        (_, "update_max" | "grad_norm_seg") => matches!(kind, OpKind::UpdateMetrics { .. }),
        (OpKind::SoftmaxCeFused { .. }, "accuracy") | (OpKind::MaxPool { .. }, "index") => false,
        (OpKind::SgdStep(ops::SgdStep { momentum, .. }), "momentum_prev" | "momentum") => momentum.get() > 0.0,
        (OpKind::BatchNormBwd(ops::BatchNormBwd { act_grad, .. }), "saved") => act_grad.is_some(),
        (
            OpKind::BatchNormBwd(ops::BatchNormBwd { accumulate, .. })
            | OpKind::LayerNormBwd(ops::LayerNormBwd { accumulate, .. }),
            "dgamma_prev" | "dbeta_prev",
        )
        | (OpKind::BiasGrad(ops::BiasGrad { accumulate, .. }), "db_prev") => *accumulate,
        _ => true,
    }
}

/// The number of elements that a slot must hold.
fn expected_len(kind: &OpKind, slot: &str) -> Option<usize> {
    Some(match (kind, slot) {
        (_, "scale" | "total_max" | "grad_norm" | "ticket" | "skipped") => 1,
        (_, "scaler" | "scaler_prev") => super::SCALER,
        (OpKind::Cast(ops::Cast { len }) | OpKind::ScaleUpdate(ops::ScaleUpdate { len }), _) => *len,
        (OpKind::Gemm(g), "a") => g.m * g.k,
        (OpKind::Gemm(g), "b") => g.k * g.n,
        (OpKind::Gemm(g), "bias" | "bias_half") => g.n,
        (OpKind::Gemm(g), _) => g.m * g.n,
        (
            OpKind::Conv2d(ops::Conv2d { geometry: g, .. })
            | OpKind::Conv2dBwdX(ops::Conv2dBwdX { geometry: g, .. })
            | OpKind::Conv2dBwdW(ops::Conv2dBwdW { geometry: g, .. }),
            _,
        ) => {
            let (x, y) = (g.n * g.h * g.w * g.c, g.n * g.ho * g.wo * g.f);
            let w = g.kernel[0] * g.kernel[1] * (g.c / g.groups) * g.f;
            match (kind, slot) {
                (_, "bias" | "bias_half") => g.f,
                (OpKind::Conv2d { .. } | OpKind::Conv2dBwdW { .. }, "a") => x,
                (OpKind::Conv2dBwdX { .. }, "a") | (OpKind::Conv2dBwdW { .. }, "b") => y,
                (_, "b") | (OpKind::Conv2dBwdW { .. }, _) => w,
                (OpKind::Conv2dBwdX { .. }, _) => x,
                _ => y,
            }
        }
        (OpKind::BiasAdd(ops::BiasAdd { cols, .. }), "bias")
        | (OpKind::BiasGrad(ops::BiasGrad { cols, .. }), "db" | "db_prev") => *cols,
        (OpKind::BiasAdd(ops::BiasAdd { rows, cols }) | OpKind::BiasGrad(ops::BiasGrad { rows, cols, .. }), _) => {
            rows * cols
        }
        (
            OpKind::DropoutBwd(ops::DropoutBwd { len, .. })
            | OpKind::Dropout(ops::Dropout { len, .. })
            | OpKind::SignBits(ops::SignBits { len }),
            "mask",
        ) => len.div_ceil(8),
        (OpKind::Dropout { .. }, "counter") | (OpKind::StepInc | OpKind::BiasCorr { .. }, _) => 2,
        (
            OpKind::Act(ops::Act { len, .. })
            | OpKind::ActBwd(ops::ActBwd { len, .. })
            | OpKind::Fill(ops::Fill { len })
            | OpKind::SignBits(ops::SignBits { len })
            | OpKind::Add(ops::Add { len })
            | OpKind::AddAct(ops::AddAct { len, .. }),
            _,
        )
        | (OpKind::Dropout(ops::Dropout { len, .. }) | OpKind::DropoutBwd(ops::DropoutBwd { len, .. }), _) => *len,
        (OpKind::Transpose(ops::Transpose { n, rows, cols }), _) => n * rows * cols,
        (
            OpKind::BatchNorm(ops::BatchNorm { rows, channels, .. })
            | OpKind::BatchNormEval(ops::BatchNormEval { rows, channels, .. })
            | OpKind::BatchNormBwd(ops::BatchNormBwd { rows, channels, .. }),
            _,
        ) => {
            if matches!(slot, "x" | "y" | "dy" | "dx" | "saved" | "residual") {
                rows * channels
            } else {
                *channels
            }
        }
        (
            OpKind::LayerNorm(ops::LayerNorm { rows, cols, .. })
            | OpKind::LayerNormBwd(ops::LayerNormBwd { rows, cols, .. }),
            _,
        ) => match slot {
            "x" | "y" | "dy" | "dx" => rows * cols,
            "mean" | "rstd" => *rows,
            _ => *cols,
        },
        (OpKind::MaxPool(ops::MaxPool { geometry: g }) | OpKind::AvgPool(ops::AvgPool { geometry: g }), "x")
        | (
            OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g }) | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry: g }),
            "dx",
        ) => g.n * g.h * g.w * g.c,
        (OpKind::MaxPool(ops::MaxPool { geometry: g }) | OpKind::AvgPool(ops::AvgPool { geometry: g }), _)
        | (
            OpKind::MaxPoolBwd(ops::MaxPoolBwd { geometry: g }) | OpKind::AvgPoolBwd(ops::AvgPoolBwd { geometry: g }),
            _,
        ) => g.n * g.ho * g.wo * g.c,
        (OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, hw, c }), "x")
        | (OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, hw, c }), "dx") => n * hw * c,
        (
            OpKind::GlobalAvgPool(ops::GlobalAvgPool { n, c, .. })
            | OpKind::GlobalAvgPoolBwd(ops::GlobalAvgPoolBwd { n, c, .. }),
            _,
        ) => n * c,
        (
            OpKind::SoftmaxCe(ops::SoftmaxCe { rows, classes, .. })
            | OpKind::SoftmaxCeGrad(ops::SoftmaxCeGrad { rows, classes, .. })
            | OpKind::SoftmaxCeFused(ops::SoftmaxCeFused { rows, classes, .. })
            | OpKind::Accuracy(ops::Accuracy { rows, classes }),
            _,
        ) => match slot {
            "labels" | "row_loss" => *rows,
            "loss" | "accuracy" => 1,
            _ => rows * classes,
        },
        (OpKind::DenseCe(ops::DenseCe { rows, features, classes, .. }), _) => match slot {
            "a" | "saved" | "dx" => rows * features,
            "b" => features * classes,
            "bias" => *classes,
            "dlogits" => rows * classes,
            _ => *rows,
        },
        (_, "loss") | (OpKind::LossMean { .. }, "accuracy") => 1,
        (OpKind::LossMean(ops::LossMean { rows }), _) => *rows,
        (
            OpKind::Mse(ops::Mse { len })
            | OpKind::MseGrad(ops::MseGrad { len })
            | OpKind::MseFused(ops::MseFused { len }),
            _,
        ) => *len,
        (
            OpKind::AdamStep(ops::AdamStep { segments, .. }) | OpKind::SgdStep(ops::SgdStep { segments, .. }),
            "update_max" | "grad_norm_seg",
        ) => segments.len(),
        (OpKind::AdamStep { .. } | OpKind::SgdStep { .. }, "hyper" | "corr") => 2,
        (OpKind::AdamStep(ops::AdamStep { len, .. }) | OpKind::SgdStep(ops::SgdStep { len, .. }), _) => *len,
        (OpKind::UpdateMetrics(ops::UpdateMetrics { segments }), "update_max_seg" | "grad_norm_seg") => *segments,
        (OpKind::StepMetrics(ops::StepMetrics { segments }), "update_max_seg" | "grad_norm_seg") => segments.len(),
        (OpKind::StepMetrics(ops::StepMetrics { segments }), "parts") => {
            2 * segments.iter().map(|s| s.len).sum::<usize>()
        }
        (OpKind::UpdateMetrics { .. } | OpKind::StepMetrics { .. }, _) => 1,
        (OpKind::WeightStep { .. } | OpKind::BiasStep { .. }, "hyper" | "corr") => 2,
        (OpKind::WeightStep { .. } | OpKind::BiasStep { .. }, "parts") => 2 * kind.step_parts(),
        (OpKind::WeightStep(ops::WeightStep { m, k, .. }), "a") => m * k,
        (OpKind::WeightStep(ops::WeightStep { n, k, .. }), "b") => n * k,
        (OpKind::WeightStep(ops::WeightStep { m, n, .. }), _) => m * n,
        (OpKind::BiasStep(ops::BiasStep { rows, cols, .. }), "a") => rows * cols,
        (OpKind::BiasStep(ops::BiasStep { cols, .. }), _) => *cols,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Metrics, Mode, build};
    use crate::lower::lower;
    use crate::model::{check, read_preset};
    use crate::tensor::DType;

    const PRESET: &str = r#"{"version": 1, "name": "t", "input": {"shape": [2, 6, 6], "batch": 4}, "layers": [
        {"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same", "bias": false},
        {"type": "batch_norm"},
        {"type": "residual", "layers": [{"type": "activation", "function": "gelu"}, {"type": "conv2d", "filters": 4, "kernel": 1}]},
        {"type": "dense", "units": 5}, {"type": "layer_norm"},
        {"type": "conv2d", "filters": 4, "kernel": 2},
        {"type": "avg_pool2d", "size": 2, "stride": 1}, {"type": "flatten"}, {"type": "dropout", "rate": 0.5},
        {"type": "batch_norm"},
        {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 48, "activation": "relu"}]},
        {"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9}}"#;

    fn program(mode: Mode) -> Program {
        let checked = check(&read_preset(PRESET).unwrap());
        assert_eq!(checked.diagnostics, []);
        let model = checked.model.unwrap();
        lower(&build(&model, mode, Metrics::default(), DType::F32), &model)
    }

    #[test]
    fn a_lowered_program_holds_every_rule() {
        assert_eq!(verify(&program(Mode::Train)), Ok(()));
        assert_eq!(verify(&program(Mode::Eval)), Ok(()));
    }

    #[test]
    fn each_broken_rule_is_named() {
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
    }
}
