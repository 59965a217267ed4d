//! `--tune` of `stepgraph bench`: times steps and kernels, and stores the times in the user's cache folder if it can be
//! written to.

use super::device;
use super::error::wrong;
use super::output;
use super::presets::Loaded;
use crate::compile::{Options, compile};
use crate::select::{Target, Threads, Tuning};
use crate::train::{TuningFile, processor, tune, tune_threads, tuning_is_off};
use std::io;
use std::sync::Arc;

/// Returns an error if STEPGRAPH_NO_TUNING is set, because then every command ignores measured times.
fn check_wanted() -> anyhow::Result<()> {
    if tuning_is_off() {
        return Err(wrong(
            "--tune would store times that every command ignores while STEPGRAPH_NO_TUNING is set; unset it",
        ));
    }
    Ok(())
}

/// Times a preset's whole step with several numbers of threads, adds the times to the user's file, and returns the
/// fastest number. If the file cannot be written, only this command uses the number, and the reason is reported on
/// standard error.
///
/// # Errors
/// If measured times are switched off, or the step cannot be compiled or run.
pub fn fastest_threads(found: &Loaded) -> anyhow::Result<Threads> {
    check_wanted()?;
    let (times, fastest) = tune_threads(&found.model)?;
    let kept = remember(|file| file.remember_step(times)).unwrap_or_else(not_remembered);
    output::note(&format!("{}: {fastest}; {kept}", found.preset.name));
    Ok(fastest)
}

/// Times every kernel of a preset's operations, adds the times to the user's file, and returns all known times of this
/// machine. If the file cannot be written, only this command uses the times, and the reason is reported on standard
/// error.
///
/// # Errors
/// If measured times are switched off, or a step cannot be compiled or run.
pub fn measured(found: &Loaded, target: &Target) -> anyhow::Result<Option<Arc<Tuning>>> {
    check_wanted()?;
    if target.as_cpu().is_none() {
        let help = "those of a GPU are timed when they are first needed; give --device cpu, or omit --tune";
        return Err(wrong(format!("--tune times the kernels of the CPU; {help}")));
    }
    let times = Arc::new(tune(&found.model, target, processor())?);
    let (calls, moved) = moved(found, target, &times)?;
    let (distinct, timed) = (times.times.len(), times.times.values().map(Vec::len).sum::<usize>());
    let remembered = remember(|file| file.remember(Tuning::clone(&times)));
    let is_kept = remembered.is_ok();
    let kept = remembered.unwrap_or_else(not_remembered);
    output::note(&format!(
        "{}: {} timed for {}; {moved} of {} differ from the choice by estimated cost; {kept}",
        found.preset.name,
        output::counted(timed as u64, "kernel"),
        output::counted(distinct as u64, "distinct operation"),
        output::counted(calls as u64, "call"),
    ));
    let known = device::tuning(target);
    if is_kept {
        return Ok(known);
    }
    let Some(mut all) = known.map(Arc::unwrap_or_clone) else { return Ok(Some(times)) };
    all.merge(Arc::unwrap_or_clone(times));
    Ok(Some(Arc::new(all)))
}

fn not_remembered(why: String) -> String {
    format!("NOT stored, and used by this command alone: {why}")
}

/// The number of calls of a preset's step, and the number of those for which these times choose another kernel, or
/// another number of threads, than estimates do.
fn moved(found: &Loaded, target: &Target, times: &Arc<Tuning>) -> anyhow::Result<(usize, usize)> {
    let before = compile(&found.model, &Options::train(target.clone()))?;
    let options = Options { tuning: Some(Arc::clone(times)), ..Options::train(target.clone()) };
    let after = compile(&found.model, &options)?;
    let both = before.selection.choices.iter().zip(&after.selection.choices);
    let moved = both.filter(|(a, b)| (a.variant, a.shared) != (b.variant, b.shared)).count();
    Ok((after.selection.choices.len(), moved))
}

/// Adds times to the user's file, and reports where it is.
///
/// # Errors
/// If the times cannot be stored, with what to do about it.
fn remember(times: impl FnOnce(&TuningFile) -> io::Result<()>) -> Result<String, String> {
    let file = TuningFile::of_user();
    let file = file.ok_or("this system names no cache folder; set HOME or XDG_CACHE_HOME")?;
    let path = file.path().display();
    let help = "name a folder that can be written to with XDG_CACHE_HOME";
    times(&file).map_err(|e| format!("{path} cannot be written: {e}; {help}"))?;
    Ok(format!("remembered in {path}"))
}
