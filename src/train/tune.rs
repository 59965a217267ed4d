//! Times every kernel that can run an operation, on the machine and inside the operation's step.
//!
//! The step is compiled once for each way to run it: with each instruction set, and with its calls shared among the
//! threads or run by one. Every such step runs for some time and its calls are timed one by one, so that each kernel
//! finds the caches as in training.

use super::TrainError;
use super::prepared_step::prepared;
use crate::compile::{Options, compile};
use crate::exec::Executor;
use crate::exec::cpu::kernels;
use crate::model::Model;
use crate::select::{Isa, Target, Timing, TunedDevice, Tuning, Variant};
use std::sync::Arc;
use std::time::Instant;

/// The number of times that each way is built and measured: the smallest time is used, so that other load on the
/// machine does not matter.
const VISITS: usize = 3;
/// The approximate duration of one visit, and its smallest and largest number of rounds.
const VISIT_US: f64 = 60_000.0;
const ROUNDS: (f64, f64) = (5.0, 41.0);
/// Rounds after which parameters are restored, so that none reach values that take longer to compute.
const RESTORE_EVERY: usize = 8;

/// The times of all fast kernels of the training step of `model`, for every distinct operation. The plain-loop
/// references are left out: they exist for comparison, and would take most of the time.
///
/// # Errors
/// If a step cannot be compiled or run.
pub fn tune(model: &Model, target: &Target, cpu: String) -> Result<Tuning, TrainError> {
    let device = TunedDevice::of(target, cpu);
    let (Some(device), Some(facts)) = (device, target.as_cpu()) else {
        return Err(
            crate::exec::ExecError::Gpu(format!("{} times its kernels automatically", target.name).into()).into()
        );
    };
    let by_estimate = compile(model, &Options::train(target.clone()))?;
    let kinds: Vec<_> = by_estimate.plan.program.ops.iter().map(|o| &o.kind).collect();
    let mut found = Tuning::new(device.clone());
    let isas = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| *isa <= facts.isa);
    let ways: Vec<(Variant, bool)> =
        isas.flat_map(|isa| [(Variant::Fast(isa), true), (Variant::Fast(isa), false)]).collect();
    for _ in 0..VISITS {
        for &(variant, shared) in &ways {
            let shares = |kind| kernels::resolve(kind, variant, facts.threads).is_some_and(|k| k.parallel);
            // A step that shares nothing runs on one thread already.
            let another = facts.threads > 1 && kinds.iter().any(|k| shares(k));
            if !(shared || another) {
                continue;
            }
            let forced = kinds.iter().map(|k| (Tuning::key(k), vec![Timing { variant, shared, us: 0.0 }])).collect();
            let forced = Tuning { device: device.clone(), times: forced };
            let medians = visit(model, target, forced)?;
            for ((kind, us), choice_us) in kinds.iter().zip(&medians).zip(kinds.iter().map(|k| shares(k))) {
                // Without sharing, only calls that would be shared differ.
                if shared || choice_us {
                    keep(&mut found, &Tuning::key(kind), Timing { variant, shared, us: *us });
                }
            }
        }
    }
    Ok(found)
}

/// Stores the smallest time of a way; operations that occur twice share their times.
fn keep(found: &mut Tuning, key: &str, timing: Timing) {
    let times = found.times.entry(key.to_owned()).or_default();
    match times.iter_mut().find(|t| (t.variant, t.shared) == (timing.variant, timing.shared)) {
        Some(known) => known.us = known.us.min(timing.us),
        None => times.push(timing),
    }
}

/// The median time of every call, in microseconds, with the kernels of `forced`.
fn visit(model: &Model, target: &Target, forced: Tuning) -> Result<Vec<f64>, TrainError> {
    let options = Options { tuning: Some(Arc::new(forced)), ..Options::train(target.clone()) };
    let (mut step, mut pool) = prepared(model, &options, 0)?;
    step.warm_up(&mut pool)?;
    let start = step.snapshot()?;
    let began = Instant::now();
    step.run(Executor::Replay, &mut pool)?;
    let one_us = began.elapsed().as_secs_f64() * 1e6;
    let rounds = (VISIT_US / one_us.max(0.1) / 2.0).clamp(ROUNDS.0, ROUNDS.1) as usize;
    let mut samples: Vec<Vec<f64>> = Vec::new();
    for round in 0..rounds {
        if round % RESTORE_EVERY == 0 {
            step.restore(&start)?;
        }
        // A replay immediately before wakes the other threads, as in training.
        step.run(Executor::Replay, &mut pool)?;
        let times = step.time_calls(1, &mut pool)?;
        samples.resize(times.len(), Vec::with_capacity(rounds));
        samples.iter_mut().zip(times).for_each(|(s, us)| s.push(us));
    }
    for times in &mut samples {
        times.sort_by(f64::total_cmp);
    }
    Ok(samples.iter().map(|s| s[s.len() / 2]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::cpu::host_target;
    use crate::model::{BUNDLED, check, read_preset};

    #[test]
    fn every_operation_gets_a_time_of_every_kernel_and_the_tuned_step_runs() {
        let preset = read_preset(BUNDLED.iter().find(|b| b.name == "xor").unwrap().text).unwrap();
        let model = check(&preset).model.unwrap();
        let target = host_target(2);
        let tuning = tune(&model, &target, "here".into()).unwrap();
        let isas = target.as_cpu().unwrap().isa as usize + 1;
        let options = Options { tuning: Some(Arc::new(tuning.clone())), ..Options::train(target) };
        let (mut step, mut pool) = prepared(&model, &options, 0).unwrap();
        let compiled = Arc::clone(step.compiled());
        for (op, choice) in compiled.plan.program.ops.iter().zip(&compiled.selection.choices) {
            let times = tuning.of(&op.kind);
            assert!(times.len() >= isas && times.iter().all(|t| t.us.is_finite()), "{times:?}");
            assert_eq!(choice.cost_us, times.iter().map(|t| t.us).fold(f64::INFINITY, f64::min));
        }
        step.warm_up(&mut pool).unwrap();
    }
}
