//! Every kernel against its reference: one operation of a step on fresh random inputs, on the device and by
//! plain loops in f64 that carry a bound for the rounding of every value.
//!
//! Outputs are poisoned before the kernel runs, so that elements that are not written are found. Values beside the
//! outputs in flat vectors must not change.

use super::bound_call::BoundCall;
use super::reference_bounds::{Coarse, Judged, flushed, judge, rounds_factors};
use super::reference_run::{filters_of, run};
use super::reference_updates::totals;
use super::reference_values::{Host, Values, from_bytes, to_bytes};
use super::step::Step;
use crate::exec::backend::ReferenceCheck;
use crate::exec::cpu::kernels::reference::bounded::Bounded;
use crate::exec::error::ExecError;
use crate::lower::LValueId;
use crate::model::Rng;
use crate::ops::Dir;
use crate::select::cuda::{Real, real_of};
use std::sync::Arc;

/// Compares one operation with its reference. Afterwards the step's values are undefined.
///
/// # Errors
/// If the device fails. A difference is not an error: it is part of the result.
pub(super) fn compare(step: &mut Step, index: usize, seed: u64) -> Result<ReferenceCheck, ExecError> {
    let program = &step.ops.compiled.plan.program;
    let op = &program.ops[index];
    let real = real_of(program, op, step.ops.compiled.selection.real);
    let coarse = Some(Coarse::of(real, &op.kind));
    match real {
        _ if !rounds_factors(&op.kind, &step.ops.compiled.selection.choices[index]) => {
            compare_as::<Bounded<24, 24>>(step, index, seed, None)
        }
        Real::F32 => compare_as::<Bounded<24, 24>>(step, index, seed, None),
        Real::Tf32 | Real::F16 => compare_as::<Bounded<24, 11>>(step, index, seed, coarse),
        Real::Bf16 => compare_as::<Bounded<24, 8>>(step, index, seed, coarse),
    }
}

/// Like [`compare`], for products that round their operands as in `coarse`.
fn compare_as<T: Judged>(
    step: &mut Step,
    index: usize,
    seed: u64,
    coarse: Option<Coarse>,
) -> Result<ReferenceCheck, ExecError> {
    let compiled = Arc::clone(&step.ops.compiled);
    let (program, plan) = (&compiled.plan.program, &compiled.plan);
    let op = &program.ops[index];
    let mut check = ReferenceCheck {
        op: index,
        kernel: compiled.selection.choices[index].kernel.clone(),
        calls: step.ops.calls[index].iter().map(BoundCall::name).collect(),
        ratio: 0.0,
        at: String::new(),
        wrong: String::new(),
    };
    let mut values: Values<'_, T> =
        Values::drawn(op, program, &mut Rng::new(seed, index as u64), &mut Rng::new(seed, 0x0FAD_0000 + index as u64));
    for (root, host) in &values.hosts {
        let Some(place) = plan.place(*root) else { continue };
        let bytes = match host {
            Host::Real(values) => to_bytes(values, program.value(*root).dtype),
            Host::Raw(bytes) => bytes.clone(),
        };
        let address = step.ops.env.address(plan, place);
        step.transfers.stage(address, bytes.len(), |out| out.copy_from_slice(&bytes))?;
    }
    if let Some(half) = &step.half {
        half.set_fresh(step.ops.env.memory.store.changed());
    }
    step.run_ops(index, index + 1)?;
    step.synchronize()?;
    run(&mut values, filters_of(op, program));
    let mut wrong = Vec::new();
    for root in values.hosts.keys() {
        let Some(place) = plan.place(*root) else { continue };
        let mut bytes = vec![0; program.value(*root).bytes() as usize];
        step.transfers.read(step.ops.env.address(plan, place), &mut bytes)?;
        let verdict = judge_value(&values, *root, &bytes, coarse);
        if verdict.ratio > 1.0 {
            wrong.push(verdict.text.clone());
        }
        // A value that is not a real number is right or wrong, without a bound.
        if verdict.ratio > check.ratio && verdict.is_real {
            (check.ratio, check.at) = (verdict.ratio, verdict.text);
        }
    }
    check.wrong = wrong.join("; ");
    Ok(check)
}

/// The result of comparing one value.
struct ValueVerdict {
    /// The largest ratio of an error to its bound; above 1 if the error is too large.
    ratio: f64,
    text: String,
    is_real: bool,
}

/// Compares a value with the result of plain loops.
fn judge_value<T: Judged>(
    values: &Values<'_, T>,
    root: LValueId,
    bytes: &[u8],
    coarse: Option<Coarse>,
) -> ValueVerdict {
    let value = values.program.value(root);
    let slack = flushed(values.kind);
    match values.hosts.get(&root) {
        Some(Host::Real(expected)) => {
            let is_root = |id: LValueId| values.program.root(id).0 == root;
            let is_parts = values.slots.iter().any(|s| s.name == "parts" && s.dir == Dir::Out && is_root(s.id));
            let found = from_bytes(bytes, value.dtype);
            // How a kernel distributes parts is not specified.
            let judged = if is_parts {
                let found = totals(&found.iter().map(|v| T::exact(*v)).collect::<Vec<T>>()).map(T::f64);
                judge(&found, &totals(expected), value.dtype, coarse, slack)
            } else {
                judge(&found, expected, value.dtype, coarse, slack)
            };
            let text = format!("{} {}", value.name, judged.text);
            ValueVerdict { ratio: judged.ratio, text, is_real: true }
        }
        Some(Host::Raw(expected)) => match bytes.iter().zip(expected).position(|(f, e)| f != e) {
            Some(at) => {
                let (name, found, expected) = (&value.name, bytes[at], expected[at]);
                let text = format!("{name} differs at byte {at}: {found:#x}, expected {expected:#x}");
                ValueVerdict { ratio: f64::INFINITY, text, is_real: false }
            }
            None => ValueVerdict { ratio: 0.0, text: String::new(), is_real: false },
        },
        None => ValueVerdict { ratio: 0.0, text: String::new(), is_real: false },
    }
}
