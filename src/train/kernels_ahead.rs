//! A thread that compiles kernels before they are needed, while a run is open.

use super::common_kernels::{KERNEL_GROUPS, compile_common};
use super::edits_ahead::{ask_libraries, compile_for_edits, compile_for_shared_launches};
use crate::exec::return_free_memory;
use crate::model::Preset;
use crate::select::Target;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;

/// Groups of networks whose kernels are compiled, and one more, while this process compiles them; otherwise 0.
static GROUPS: AtomicU64 = AtomicU64::new(0);
/// Whether the user has stopped it, until the process ends.
static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// The share of the kernels that many networks need that are compiled, from 0 to 1, while this process compiles them.
#[must_use]
pub fn kernels_ahead_share() -> Option<f32> {
    GROUPS.load(Ordering::Relaxed).checked_sub(1).map(|groups| groups as f32 / KERNEL_GROUPS as f32)
}

/// Compiles no more kernels that many networks need in this process.
pub fn stop_kernels_ahead() {
    IS_STOPPED.store(true, Ordering::Relaxed);
}

/// Lets the libraries answer for the first time, compiles kernels for changes of a network, for launches that its
/// operations share, and then those that many networks need. When this is dropped, the thread ends after its current
/// kernels.
pub struct KernelsAhead {
    goes_on: Arc<AtomicBool>,
}

impl KernelsAhead {
    /// Starts the thread if the machine's kernels are general.
    pub fn start(preset: &Preset, machine: Option<&Target>) -> Option<Self> {
        let machine = machine.filter(|machine| machine.kernels.are_general())?.clone();
        let goes_on = Arc::new(AtomicBool::new(true));
        let (preset, running) = (preset.clone(), Arc::clone(&goes_on));
        let work = move || {
            let goes_on = || running.load(Ordering::Relaxed);
            ask_libraries(&machine, preset.precision);
            let count = compile_for_edits(&preset, &machine, goes_on);
            log::debug!("{count} kernels were compiled for changes of sizes");
            let count = compile_for_shared_launches(&machine, 1, goes_on);
            log::debug!("{count} kernels were compiled for launches that operations share");
            return_free_memory();
            // Most processors stay free for the run and for the user.
            let threads = std::thread::available_parallelism().map_or(1, |count| (count.get() / 4).max(1));
            let goes_on = || goes_on() && !IS_STOPPED.load(Ordering::Relaxed);
            let report = |groups: u64, _: usize| GROUPS.store(groups + 1, Ordering::Relaxed);
            let count = compile_common(&machine, preset.precision, threads, goes_on, report).count;
            GROUPS.store(0, Ordering::Relaxed);
            log::debug!("{count} kernels that many networks need were compiled");
            return_free_memory();
        };
        match Builder::new().name("stepgraph-ahead".into()).spawn(work) {
            Ok(_) => Some(Self { goes_on }),
            Err(error) => {
                log::warn!("a thread that compiles kernels in advance could not be started: {error}");
                None
            }
        }
    }
}

impl Drop for KernelsAhead {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
    }
}
