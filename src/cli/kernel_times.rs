//! `--tune` of `stepgraph bench`: times kernels, and remembers the times where the user's cache folder takes them.

use super::device;
use super::error::wrong;
use super::output;
use super::presets::Loaded;
use crate::compile::{Options, compile};
use crate::select::{Target, Tuning};
use crate::train::{TuningFile, processor, tune, tuning_is_off};
use std::sync::Arc;

/// Times every kernel of the presets' operations, adds the times to the user's file, and returns all that are known of
/// this machine then. Where the file cannot be written, the times are this command's alone, and standard error says why.
///
/// # Errors
/// Where remembered times are switched off, or a step cannot be compiled or run.
pub fn measured(loaded: &[Loaded], target: &Target) -> anyhow::Result<Option<Arc<Tuning>>> {
    if tuning_is_off() {
        return Err(wrong("--tune would remember times that STEPGRAPH_NO_TUNING makes every command ignore; unset it"));
    }
    if target.as_cpu().is_none() {
        let help = "those of a GPU are timed where they are first needed; give --device cpu, or leave --tune out";
        return Err(wrong(format!("--tune times the kernels of the CPU; {help}")));
    }
    let mut unkept: Option<Tuning> = None;
    for found in loaded {
        let times = Arc::new(tune(&found.model, target, processor())?);
        let (calls, moved) = moved(found, target, &times)?;
        let (distinct, timed) = (times.times.len(), times.times.values().map(Vec::len).sum::<usize>());
        let times = Arc::unwrap_or_clone(times);
        let kept = remember(times.clone()).unwrap_or_else(|why| {
            match &mut unkept {
                Some(known) => known.merge(times),
                None => unkept = Some(times),
            }
            format!("NOT remembered, and used by this command alone: {why}")
        });
        output::note(&format!(
            "{}: {timed} kernels timed for {distinct} distinct operations; \
             {moved} of {calls} calls run otherwise than by estimate; {kept}",
            found.preset.name,
        ));
    }
    let known = device::tuning(target);
    let Some(unkept) = unkept else { return Ok(known) };
    let all = match known.map(Arc::unwrap_or_clone) {
        Some(mut known) => {
            known.merge(unkept);
            known
        }
        None => unkept,
    };
    Ok(Some(Arc::new(all)))
}

/// The calls of a preset's step, and how many of them run otherwise with these times than by estimate.
fn moved(found: &Loaded, target: &Target, times: &Arc<Tuning>) -> anyhow::Result<(usize, usize)> {
    let before = compile(&found.model, &Options::train(target.clone()))?;
    let options = Options { tuning: Some(Arc::clone(times)), ..Options::train(target.clone()) };
    let after = compile(&found.model, &options)?;
    let both = before.selection.choices.iter().zip(&after.selection.choices);
    let moved = both.filter(|(a, b)| (a.variant, a.shared) != (b.variant, b.shared)).count();
    Ok((after.selection.choices.len(), moved))
}

/// Adds times to the user's file, and says where that is.
///
/// # Errors
/// Why they are not remembered, with what to do.
fn remember(times: Tuning) -> Result<String, String> {
    let file = TuningFile::of_user();
    let file = file.ok_or("this system names no cache folder; set HOME or XDG_CACHE_HOME")?;
    let path = file.path().display();
    let help = "name a folder that can be written to with XDG_CACHE_HOME";
    file.remember(times).map_err(|e| format!("{path} cannot be written: {e}; {help}"))?;
    Ok(format!("remembered in {path}"))
}
