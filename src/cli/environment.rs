//! Environment variables that are set to values that the program does not know.

use super::notes::note;
use crate::exec::cpu::isa_variable;
use crate::exec::cuda::{hide_variable, kernels_variable, limit_variable};
use log::LevelFilter;
use std::path::PathBuf;

/// The level of the log that `STEPGRAPH_LOG` sets; errors if it is not set.
///
/// # Errors
/// If its value is not a level.
pub fn log_level() -> Result<LevelFilter, String> {
    match std::env::var("STEPGRAPH_LOG") {
        Ok(text) if !text.is_empty() => text.parse().map_err(|_| {
            format!("STEPGRAPH_LOG is {text:?}; expected off, error, warn, info, debug or trace; error is used")
        }),
        _ => Ok(LevelFilter::Error),
    }
}

/// Writes a warning for each variable whose value is not valid. Commands that share a step between threads refuse a
/// wrong `STEPGRAPH_THREADS` themselves.
pub fn report_wrong_values() {
    let runs = std::env::var_os("STEPGRAPH_RUNS").map(PathBuf::from).filter(|path| path.exists() && !path.is_dir());
    let wrong = [
        runs.map(|path| format!("STEPGRAPH_RUNS is {path:?}, which is not a folder; runs are not kept")),
        isa_variable().err(),
        kernels_variable().err().map(|why| format!("{why}; until then no GPU is used")),
        limit_variable().err(),
        hide_variable().err(),
        log_level().err(),
    ];
    for why in wrong.into_iter().flatten() {
        note(&format!("warning: {why}"));
    }
}
