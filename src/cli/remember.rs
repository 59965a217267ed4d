//! What `stepgraph bench --tune` keeps for every later command: the fastest kernels of a step, and the fastest number
//! of threads.

use super::error::wrong;
use super::output;
use super::presets::Loaded;
use crate::compile::{Options, compile};
use crate::select::Target;
use crate::train::{TuningFile, processor, tune, tune_threads, tuning_is_off};
use std::sync::Arc;

/// The user's file of times.
fn tuning_file() -> anyhow::Result<TuningFile> {
    if tuning_is_off() {
        return Err(wrong("--tune would remember times that STEPGRAPH_NO_TUNING makes every command ignore; unset it"));
    }
    let file = TuningFile::of_user();
    file.ok_or_else(|| wrong("this system names no cache folder for the times; set HOME or XDG_CACHE_HOME"))
}

/// Times a preset's whole step with several numbers of threads and adds the times to the user's file.
///
/// # Errors
/// Where times are ignored, cannot be kept, or the machine cannot run the step.
pub(super) fn threads(found: &Loaded) -> anyhow::Result<()> {
    let file = tuning_file()?;
    let fastest = tune_threads(&found.model, &file)?;
    output::note(&format!("{}: {fastest}; remembered in {}", found.preset.name, file.path().display()));
    Ok(())
}

/// Times every kernel of a preset's operations and adds the times to the user's file.
///
/// # Errors
/// Where times are ignored, cannot be kept, or the machine cannot run the step.
pub(super) fn kernels(found: &Loaded, target: &Target) -> anyhow::Result<()> {
    let file = tuning_file()?;
    let tuning = Arc::new(tune(&found.model, target, processor())?);
    let before = compile(&found.model, &Options::train(target.clone()))?;
    let options = Options { tuning: Some(Arc::clone(&tuning)), ..Options::train(target.clone()) };
    let after = compile(&found.model, &options)?;
    let both = before.selection.choices.iter().zip(&after.selection.choices);
    let moved = both.filter(|(a, b)| (a.variant, a.shared) != (b.variant, b.shared)).count();
    let (distinct, timed) = (tuning.times.len(), tuning.times.values().map(Vec::len).sum::<usize>());
    file.remember(Arc::unwrap_or_clone(tuning))
        .map_err(|e| anyhow::anyhow!("{} cannot be written: {e}", file.path().display()))?;
    output::note(&format!(
        "{}: {timed} kernels timed for {distinct} distinct operations; {moved} of {} calls run otherwise than by estimate; remembered in {}",
        found.preset.name,
        after.selection.choices.len(),
        file.path().display()
    ));
    Ok(())
}
