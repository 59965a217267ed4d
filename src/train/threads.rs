//! The number of threads that share the step of a network on this machine: requested by the user, measured, or
//! estimated.

use super::prepared_step::prepared;
use super::tuning_file::{StepTimes, TuningFile, processor, tuning_is_off};
use super::{TrainError, remembered_times};
use crate::compile::{Options, cpu_program};
use crate::exec::Executor;
use crate::exec::cpu::{asked_threads, detect_isa, host_target, usable_cores};
use crate::lower::Program;
use crate::model::Model;
use crate::select::{Threads, ThreadsBy, Tuning, choose_threads, thread_counts, work_of};
use crate::tensor::Fnv;
use std::collections::BTreeMap;
use std::time::Instant;

/// The default number of threads that share the training step of `model` on this machine.
#[must_use]
pub fn threads_for(model: &Model) -> Threads {
    by_variable().unwrap_or_else(|| match cpu_program(model) {
        Ok(program) => by_program(&program),
        // A network that cannot be lowered is refused when it is compiled.
        Err(_) => choose_threads(&[], usable_cores()),
    })
}

/// Like [`threads_for`], for a training step that was already rewritten for a CPU.
#[must_use]
pub fn threads_for_step(program: &Program) -> Threads {
    by_variable().unwrap_or_else(|| by_program(program))
}

/// The number in `STEPGRAPH_THREADS`.
fn by_variable() -> Option<Threads> {
    asked_threads().map(|count| Threads { count, cores: usable_cores(), by: ThreadsBy::Variable })
}

/// The number that is fastest by measured times, or by estimate.
fn by_program(program: &Program) -> Threads {
    let cores = usable_cores();
    let file = TuningFile::of_user().filter(|_| !tuning_is_off());
    // An unusable file is reported when kernel times are requested.
    let steps = file.and_then(|file| file.steps().ok()).unwrap_or_default();
    let measured = if steps.is_empty() { None } else { by_times(&steps, &step_key(program), cores) };
    measured.unwrap_or_else(|| choose_threads(&work_of(program, detect_isa()), cores))
}

/// The fastest of the numbers that were measured for a step, if there are times for all numbers that are worth trying
/// here.
fn by_times(steps: &[StepTimes], key: &str, cores: usize) -> Option<Threads> {
    let is_this_step = |s: &&StepTimes| s.key == key && s.cpu == processor() && s.isa == detect_isa();
    let times = &steps.iter().find(is_this_step)?.us;
    let known = thread_counts(cores).into_iter().map(|count| Some((count, *times.get(&count)?)));
    let known: Vec<(usize, f64)> = known.collect::<Option<_>>()?;
    let (count, us) = known.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Threads { count, cores, by: ThreadsBy::Measured { us, one_us: known[0].1 } })
}

/// The key of a step: its operations with every dimension.
fn step_key(program: &Program) -> String {
    let mut hash = Fnv::new();
    for op in &program.ops {
        hash.add(Tuning::key(&op.kind).as_bytes());
    }
    format!("{:016x}", hash.sum())
}

/// The number of times that each number of threads is tried: the smallest time is used, so that other load on the
/// machine does not matter.
const ATTEMPTS: usize = 3;
/// The approximate duration of one attempt, in microseconds, and its smallest and largest number of steps.
const ATTEMPT_US: f64 = 60_000.0;
const STEPS: (f64, f64) = (3.0, 1000.0);

/// Times the whole training step of `model` with every number of threads that is worth trying on this machine.
///
/// # Errors
/// If a step cannot be compiled or run.
fn time_threads(model: &Model) -> Result<StepTimes, TrainError> {
    let key = step_key(&cpu_program(model)?);
    let mut us = BTreeMap::new();
    for count in thread_counts(usable_cores()) {
        let target = host_target(count);
        let tuning = remembered_times(&target).ok().flatten();
        let (mut step, mut pool) = prepared(model, &Options { tuning, ..Options::train(target) }, 0)?;
        let start = step.snapshot()?;
        step.run(Executor::Replay, &mut pool)?;
        let began = Instant::now();
        step.run(Executor::Replay, &mut pool)?;
        let one_us = began.elapsed().as_secs_f64() * 1e6;
        let steps = (ATTEMPT_US / one_us.max(0.1)).clamp(STEPS.0, STEPS.1) as usize;
        for _ in 0..ATTEMPTS {
            step.restore(&start)?;
            step.run(Executor::Replay, &mut pool)?;
            let mut times = Vec::with_capacity(steps);
            for _ in 0..steps {
                let began = Instant::now();
                step.run(Executor::Replay, &mut pool)?;
                times.push(began.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            let least = us.entry(count).or_insert(f64::INFINITY);
            *least = least.min(times[steps / 2]);
        }
    }
    Ok(StepTimes { cpu: processor(), isa: detect_isa(), key, us })
}

/// Times the step of `model` with every number of threads; returns the times, which are stored for every command that
/// trains it, and the fastest number.
///
/// # Errors
/// If it cannot be timed.
pub fn tune_threads(model: &Model) -> Result<(StepTimes, Threads), TrainError> {
    let times = time_threads(model)?;
    let found = by_times(std::slice::from_ref(&times), &times.key, usable_cores());
    let fastest = found.unwrap_or_else(|| choose_threads(&[], usable_cores()));
    Ok((times, fastest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BUNDLED, check, read_preset};

    fn model(name: &str) -> Model {
        check(&read_preset(BUNDLED.iter().find(|b| b.name == name).unwrap().text).unwrap()).model.unwrap()
    }

    #[test]
    fn the_fastest_measured_number_of_threads_is_stored_for_its_step() {
        let folder = tempfile::tempdir().unwrap();
        let file = TuningFile::at(folder.path().join("tuning.json"));
        let model = model("xor");
        let (times, found) = tune_threads(&model).unwrap();
        file.remember_step(times).unwrap();
        assert!(matches!(found.by, ThreadsBy::Measured { us, one_us } if us > 0.0 && us <= one_us), "{found}");
        let steps = file.steps().unwrap();
        let key = step_key(&cpu_program(&model).unwrap());
        assert_eq!(by_times(&steps, &key, usable_cores()), Some(found));
        let counts: Vec<usize> = steps[0].us.keys().copied().collect();
        assert_eq!(counts, thread_counts(usable_cores()));
        // Another batch makes another step, and so does a larger number of cores than were tried.
        let other = step_key(&cpu_program(&model.with_batch(model.batch + 1)).unwrap());
        assert_eq!(by_times(&steps, &other, usable_cores()), None);
        assert_eq!(by_times(&steps, &key, 61), None);
    }

    #[test]
    fn measured_times_take_precedence_over_estimates() {
        let program = cpu_program(&model("digits-mlp")).unwrap();
        let us = [(1, 30.0), (2, 20.0), (4, 21.0)].into();
        let times = StepTimes { cpu: processor(), isa: detect_isa(), key: step_key(&program), us };
        let found = by_times(&[times], &step_key(&program), 4).unwrap();
        assert_eq!((found.count, found.by), (2, ThreadsBy::Measured { us: 20.0, one_us: 30.0 }));
        assert_eq!(found.to_string(), "2 threads of 4 cores: fastest when measured, 20 us a step, 30 us on one");
    }
}
