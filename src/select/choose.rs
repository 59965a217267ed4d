//! The choice of a kernel for every operation of a rewritten program.

use super::measured::Measured;
use super::selection::{Policy, SelectError, Selection};
use super::{cuda, on_cpu, on_gpu};
use crate::lower::Program;
use crate::model::Precision;
use crate::select::target::{Device, Target};
use crate::tensor::DType;

/// Chooses a kernel for every operation of a program that was rewritten for this kind of machine: the fastest by the
/// times that were measured on the machine, or the cheapest by estimated cost.
///
/// `precision` is the type of products and activations on a GPU; a CPU computes in the program's own type.
///
/// # Errors
/// If an operation has no kernel on the target.
pub fn select(
    program: Program,
    target: &Target,
    policy: Policy,
    precision: Precision,
    measured: Measured<'_>,
) -> Result<Selection, SelectError> {
    let real = cuda::Real::from(precision);
    match target.device {
        Device::Cpu(cpu) => {
            let tuning = measured.tuning.filter(|_| policy == Policy::Fast && program.real != DType::F64);
            let mut chooser = on_cpu::Chooser::new(&program, (target, cpu), policy, tuning);
            let choices = (0..program.ops.len()).map(|i| chooser.choose(i)).collect::<Result<Vec<_>, SelectError>>()?;
            Ok(Selection { target: target.clone(), program, choices, real: cuda::Real::F32, groups: Vec::new() })
        }
        Device::Cuda(_) if program.real == DType::F64 => Err(SelectError::Real(target.name.clone())),
        Device::Cuda(gpu) => {
            let mut chooser = on_gpu::Chooser::new(&program, (target, gpu), real, measured);
            let choices = (0..program.ops.len()).map(|i| chooser.choose(i)).collect::<Result<Vec<_>, SelectError>>()?;
            let costs: Vec<f64> = choices.iter().map(|c| c.cost_us).collect();
            let (order, groups) = cuda::fuse_horizontally(&program, &costs);
            let ops = order.iter().map(|&i| program.ops[i].clone()).collect();
            let choices = order.iter().map(|&i| choices[i].clone()).collect();
            Ok(Selection { target: target.clone(), program: Program { ops, ..program }, choices, real, groups })
        }
    }
}
