//! `stepgraph doctor --compile-kernels`: compiles the general kernels that many networks need, so that later networks
//! find them in the cache.

use super::error::wrong;
use super::output;
use super::progress::LINE_EVERY;
use crate::exec::cuda::gpu;
use crate::model::Precision;
use crate::select::Kernels;
use crate::tensor::counted;
use crate::train::{KERNEL_GROUPS, compile_common};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::time::Instant;

/// Compiles the kernels of one precision on all processors.
///
/// # Errors
/// If no GPU can be used.
pub fn run(precision: Precision) -> anyhow::Result<()> {
    let device = gpu(0).map_err(|why| wrong(format!("kernels are compiled for a GPU, and none can be used: {why}")))?;
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
    let count = compile_common(&machine, precision, threads, || true, report);
    bar.iter().for_each(ProgressBar::finish_and_clear);
    let (name, seconds) = (precision.name(), started.elapsed().as_secs_f64());
    let kernels = counted(count as u64, "kernel");
    output::note(&format!("compiled {kernels} for {name} networks in {seconds:.1} s"));
    Ok(())
}
