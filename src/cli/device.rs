//! The choice of a device, and what to say about it.

use super::args::Device;
use super::error::wrong;
use crate::exec::cpu::{cpu_name, default_threads, host_target};
use crate::select::{Target, Tuning};
use std::sync::Arc;

/// Threads that share a step: as given, or this machine's default.
#[must_use]
pub fn threads(given: Option<u16>) -> usize {
    given.map_or_else(default_threads, usize::from)
}

/// The kernel times remembered from this machine; a file of them that is of no use is told on standard error and otherwise ignored.
#[must_use]
pub fn tuning(target: &Target) -> Option<Arc<Tuning>> {
    crate::train::remembered_times(target).unwrap_or_else(|why| {
        super::output::note(&format!("note: {why}; `stepgraph bench --tune PRESET` writes it anew"));
        None
    })
}

/// The machine that a command runs on, as a planning target and as a name for people. Says on standard error what was taken, and why.
///
/// # Errors
/// Where the user insists on a device that cannot be used.
pub fn choose(device: Device, threads: usize) -> anyhow::Result<(Target, String)> {
    let target = host_target(threads);
    let name = cpu_name().map_or_else(|| target.name.clone(), |cpu| format!("{} ({cpu})", target.name));
    match device {
        Device::Cuda(number) => Err(wrong(format!(
            "cuda:{number} cannot be used: this version has no CUDA executor yet; use --device cpu, or leave the option out"
        ))),
        Device::Auto => {
            super::output::note(&format!("device: {name}; this version has no CUDA executor, so the CPU is taken"));
            Ok((target, name))
        }
        Device::Cpu => {
            super::output::note(&format!("device: {name}, as asked"));
            Ok((target, name))
        }
    }
}
