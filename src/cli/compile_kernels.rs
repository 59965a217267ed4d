//! `stepgraph doctor --compile-kernels`: compiles the general kernels that many networks need, so that later networks
//! find them in the cache.

use super::error::wrong;
use super::kernel_folder::{NOT_KEPT, is_writable};
use super::output;
use super::progress::LINE_EVERY;
use crate::exec::cuda::{Gpu, KernelCache, limit_variable, usable};
use crate::model::Precision;
use crate::select::Kernels;
use crate::tensor::{Bytes, counted};
use crate::train::{CompiledCommon, KERNEL_GROUPS, compile_common};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

/// The GPU that kernels can be compiled for, and the folder that they are kept in.
///
/// # Errors
/// If no GPU can be used, or compiled kernels cannot be kept.
pub fn check() -> anyhow::Result<(Arc<Gpu>, KernelCache)> {
    let device =
        usable(0).map_err(|why| wrong(format!("kernels are compiled for a GPU, and none can be used: {why}")))?;
    let cache = KernelCache::of_user().ok_or_else(|| wrong(NOT_KEPT))?;
    if !is_writable(cache.folder()) {
        let folder = cache.folder().display();
        return Err(wrong(format!("{folder} is not writable; set STEPGRAPH_CACHE to a folder that is")));
    }
    Ok((device, cache))
}

/// How to set a larger limit of the cache.
fn limit_advice() -> &'static str {
    match limit_variable() {
        Ok(Some(_)) => "set STEPGRAPH_CACHE_MIB to more",
        _ => "set more with --cache-limit",
    }
}

/// Compiles the kernels of one precision on all processors.
///
/// # Errors
/// As [`check`], and if the limit of the cache is 0.
pub fn run(precision: Precision) -> anyhow::Result<()> {
    let (device, cache) = check()?;
    let (folder, limit) = (cache.folder().display(), Bytes(cache.limit_bytes()));
    if cache.limit_bytes() == 0 {
        return Err(wrong(format!("no kernels are kept, because the limit of their cache is 0; {}", limit_advice())));
    }
    let machine = device.target().with_kernels(Kernels::General);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bar = output::is_terminal().then(|| {
        let style = ProgressStyle::with_template("{bar:28} {percent} % of the networks, {eta} left, {msg}");
        ProgressBar::new(KERNEL_GROUPS).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    });
    let started = Instant::now();
    let said = Cell::new(started);
    let report = |groups: u64, count: usize| {
        let compiled = format!("{} compiled", counted(count as u64, "kernel"));
        match &bar {
            Some(bar) => {
                bar.set_message(compiled);
                bar.set_position(groups);
            }
            None if said.get().elapsed() >= LINE_EVERY => {
                said.set(Instant::now());
                output::note(&format!("{} % of the networks: {compiled}", 100 * groups / KERNEL_GROUPS));
            }
            None => {}
        }
    };
    let CompiledCommon { count, is_half_full } = compile_common(&machine, precision, threads, || true, report);
    bar.iter().for_each(ProgressBar::finish_and_clear);
    let (name, seconds) = (precision.name(), started.elapsed().as_secs_f64());
    let kernels = counted(count as u64, "kernel");
    output::note(&format!("compiled {kernels} for {name} networks in {seconds:.1} s"));
    if is_half_full {
        output::note(&format!(
            "ended early: half of the cache is used, of {limit} in {folder}; the other half is for kernels that are \
             compiled when they are needed; {}, or remove all with --clear-cache",
            limit_advice()
        ));
    }
    Ok(())
}
