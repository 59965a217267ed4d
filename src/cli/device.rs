//! The choice of a device, and what to say about it.

use super::choices::Device;
use super::error::wrong;
use crate::compile::CpuOnly;
use crate::exec::cpu::{cpu_name, host_target, usable_cores};
use crate::exec::cuda;
use crate::lower::Program;
use crate::model::Model;
use crate::select::{Kernels, Target, Threads, ThreadsBy, Tuning};
use crate::train::{threads_for, threads_for_step};
use std::sync::Arc;

/// The number of threads that share the step of a network: as given, or the best for it on this machine.
#[must_use]
pub fn threads(given: Option<u16>, model: &Model) -> Threads {
    given.map_or_else(|| threads_for(model), asked)
}

/// As [`threads`], for a training step that was already rewritten for a CPU.
#[must_use]
pub fn threads_of_step(given: Option<u16>, program: &Program) -> Threads {
    given.map_or_else(|| threads_for_step(program), asked)
}

/// The number of threads that a command was given.
fn asked(count: u16) -> Threads {
    Threads { count: count.into(), cores: usable_cores(), by: ThreadsBy::Option }
}

/// A CPU's target with another number of threads, and its name for the user; a GPU's target unchanged.
#[must_use]
pub fn with_threads(target: &Target, name: &str, threads: usize) -> (Target, String) {
    match target.as_cpu() {
        Some(cpu) if cpu.threads != threads => named_cpu(threads),
        _ => (target.clone(), name.to_owned()),
    }
}

/// This machine's CPU as a target, and its name for the user.
fn named_cpu(threads: usize) -> (Target, String) {
    let target = host_target(threads);
    let name = cpu_name().map_or_else(|| target.name.clone(), |cpu| format!("{} ({cpu})", target.name));
    (target, name)
}

/// Reports on standard error how many threads share a CPU's step, and why; reports nothing if the user chose the
/// number.
pub fn note_threads(target: &Target, threads: &Threads) {
    if target.as_cpu().is_some() && threads.by != ThreadsBy::Option {
        super::output::note(&format!("threads: {threads}"));
    }
}

/// Why no GPU can run one of these networks; `None` if a GPU can run all of them.
fn cpu_only<'a>(models: impl IntoIterator<Item = &'a Model>) -> Option<String> {
    models.into_iter().find_map(CpuOnly::of).map(|found| found.to_string())
}

/// The machine that a network is planned for; a CPU has one thread until their number is chosen. If the requested GPU
/// does not exist, the data of an H200 are used, because a plan needs no device.
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
                let kernels = cuda::kernels_variable().unwrap_or_default();
                let with = match kernels {
                    Kernels::Specialised => String::new(),
                    others => format!(" and {} kernels", others.name()),
                };
                let target = cuda::absent_gpu();
                let libraries = match target.as_cuda().map(|gpu| (gpu.has_cublaslt, gpu.has_cudnn)) {
                    Some((true, true)) => "all libraries",
                    Some((true, false)) => "cuBLASLt, but without cuDNN",
                    Some((false, true)) => "cuDNN, but without cuBLASLt",
                    _ => "no libraries",
                };
                super::output::note(&format!(
                    "note: {why}; the plan is made for an NVIDIA H200 with {libraries}{with}"
                ));
                target.with_kernels(kernels)
            }
        },
    }
}

/// The remembered kernel times of this machine; a file that cannot be used is reported on standard error and otherwise
/// ignored.
#[must_use]
pub fn tuning(target: &Target) -> Option<Arc<Tuning>> {
    crate::train::remembered_times(target).unwrap_or_else(|why| {
        super::output::note(&format!("note: {why}; `stepgraph bench --tune PRESET` writes it again"));
        None
    })
}

/// The machine that a command runs these networks on, as a target and as a name for the user. Reports on standard error
/// which machine was chosen, and why.
///
/// # Errors
/// If the requested device cannot be used.
pub fn choose<'a>(
    device: Device,
    threads: usize,
    models: impl IntoIterator<Item = &'a Model>,
) -> anyhow::Result<(Target, String)> {
    let (target, name) = named_cpu(threads);
    match device {
        Device::Cuda(number) => match cuda::gpu(number) {
            Ok(gpu) => {
                super::output::note(&format!("device: {}, as requested", gpu.label()));
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
            super::output::note(&format!("device: {name}, as requested"));
            Ok((target, name))
        }
    }
}
