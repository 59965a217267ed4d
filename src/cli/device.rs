//! The choice of a device, and what to say about it.

use super::choices::Device;
use super::error::wrong;
use crate::compile::CpuOnly;
use crate::exec::cpu::{cpu_name, host_target, usable_cores};
use crate::exec::cuda;
use crate::lower::Program;
use crate::model::Model;
use crate::select::{Target, Threads, ThreadsBy, Tuning};
use crate::train::{threads_for, threads_for_step};
use std::sync::Arc;

/// Threads that share the step of a network: as given, or what is best for it on this machine.
#[must_use]
pub fn threads(given: Option<u16>, model: &Model) -> Threads {
    given.map_or_else(|| threads_for(model), asked)
}

/// As [`threads`], by the training step as it was rewritten for a CPU.
#[must_use]
pub fn threads_of_step(given: Option<u16>, program: &Program) -> Threads {
    given.map_or_else(|| threads_for_step(program), asked)
}

/// The number of threads that a command was given.
fn asked(count: u16) -> Threads {
    Threads { count: count.into(), cores: usable_cores(), by: ThreadsBy::Option }
}

/// A CPU's target with another number of threads, and the name that people know it by; a GPU's as it is.
#[must_use]
pub fn with_threads(target: &Target, name: &str, threads: usize) -> (Target, String) {
    match target.as_cpu() {
        Some(cpu) if cpu.threads != threads => named_cpu(threads),
        _ => (target.clone(), name.to_owned()),
    }
}

/// This machine's CPU, and its name for people.
fn named_cpu(threads: usize) -> (Target, String) {
    let target = host_target(threads);
    let name = cpu_name().map_or_else(|| target.name.clone(), |cpu| format!("{} ({cpu})", target.name));
    (target, name)
}

/// Says on standard error how many threads share a CPU's step, and why; nothing where the user asked for them.
pub fn note_threads(target: &Target, threads: &Threads) {
    if target.as_cpu().is_some() && threads.by != ThreadsBy::Option {
        super::output::note(&format!("threads: {threads}"));
    }
}

/// Why no GPU can run one of these networks, where that is so.
fn cpu_only<'a>(models: impl IntoIterator<Item = &'a Model>) -> Option<String> {
    models.into_iter().find_map(CpuOnly::of).map(|found| found.to_string())
}

/// The machine that the plan of a network is made for: a CPU has one thread until their number is chosen. A GPU that is
/// not here is replaced by an H200's facts, because a plan needs no device.
#[must_use]
pub fn choose_to_plan(device: Device, model: &Model) -> Target {
    match device {
        Device::Cpu => host_target(1),
        Device::Auto => match cuda::usable(0).map(|gpu| (gpu, cpu_only([model]))) {
            Ok((_, Some(why))) => {
                super::output::note(&format!("note: the plan is made for the CPU, because {why}"));
                host_target(1)
            }
            Ok((gpu, None)) => gpu.target(),
            Err(_) => host_target(1),
        },
        Device::Cuda(number) => match cuda::gpu(number) {
            Ok(gpu) => gpu.target(),
            Err(why) => {
                super::output::note(&format!("note: {why}; the plan is made for an NVIDIA H200 with all libraries"));
                Target::h200()
            }
        },
    }
}

/// The kernel times remembered from this machine; a file of them that is of no use is reported on standard error and
/// otherwise ignored.
#[must_use]
pub fn tuning(target: &Target) -> Option<Arc<Tuning>> {
    crate::train::remembered_times(target).unwrap_or_else(|why| {
        super::output::note(&format!("note: {why}; `stepgraph bench --tune PRESET` writes it anew"));
        None
    })
}

/// The machine that a command runs on with these networks, as a planning target and as a name for people. Says on
/// standard error what was taken, and why.
///
/// # Errors
/// Where the user insists on a device that cannot be used.
pub fn choose<'a>(
    device: Device,
    threads: usize,
    models: impl IntoIterator<Item = &'a Model>,
) -> anyhow::Result<(Target, String)> {
    let (target, name) = named_cpu(threads);
    match device {
        Device::Cuda(number) => match cuda::gpu(number) {
            Ok(gpu) => {
                super::output::note(&format!("device: {}, as asked", gpu.label()));
                Ok((gpu.target(), gpu.label()))
            }
            Err(why) => Err(wrong(format!(
                "cuda:{number} cannot be used: {why}; `stepgraph doctor` says what is missing; use --device cpu, or \
                 leave the option out"
            ))),
        },
        Device::Auto => match cuda::usable(0) {
            Ok(gpu) => match cpu_only(models) {
                Some(why) => {
                    super::output::note(&format!("device: {name}, because {why}"));
                    Ok((target, name))
                }
                None => {
                    super::output::note(&format!("device: {}, because a GPU works here", gpu.label()));
                    Ok((gpu.target(), gpu.label()))
                }
            },
            Err(why) => {
                super::output::note(&format!("device: {name}, because no GPU can be used: {why}"));
                Ok((target, name))
            }
        },
        Device::Cpu => {
            super::output::note(&format!("device: {name}, as asked"));
            Ok((target, name))
        }
    }
}
