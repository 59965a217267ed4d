//! Times kernels and library algorithms on the GPU, and stores the times on disk.
//!
//! Estimates rank custom kernels well and libraries less well, so every operation that has a choice is timed once on
//! each device: all its candidates, in separate memory, before the step is planned.

use super::TrainError;
use super::compared_results::ComparedResults;
use crate::compile::{Compiled, Options, compile};
use crate::exec::cuda::{self, OpTimer, gpu, prefetch, probe};
use crate::lower::Op;
use crate::model::Model;
use crate::select::cuda::{GpuTimes, NOT_OFFERED_US, Real, WRONG_US, is_compared, real_of};
use crate::select::{Choice, Kernels, Selection, Target};
use crate::tensor::Fnv;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Candidates whose estimate is this many times the best one's are not timed: compiling them takes most of the time of
/// the first preparation. At 1.5, networks of small convolutions lost up to half their speed; at 2, none of nine lost
/// anything against 3.5.
const HOPELESS: f64 = 2.0;

/// A candidate that takes this many times as long as the best so far is timed only once.
const GIVE_UP: f64 = 1.5;

/// Changes when times that were kept before are not to be used: because a library runs an operation in a new way, or
/// because candidates are timed on other inputs.
const CANDIDATES: u32 = 3;

/// The key of a device's times: its name, and the versions of driver and libraries.
fn device_name(target: &Target) -> String {
    let versions = probe().libraries.into_iter().filter_map(|l| Some(format!("{} {}", l.name, l.state.ok()?)));
    let (own, versions) = (env!("CARGO_PKG_VERSION"), versions.collect::<Vec<_>>().join(", "));
    format!("{}, {versions}, kernels {own}-{:016x}, candidates {CANDIDATES}", target.name, cuda::source_hash())
}

fn file_of(device: &str) -> Option<PathBuf> {
    Some(cuda::cache_folder()?.join(format!("times-{:016x}.json", Fnv::of(device.as_bytes()))))
}

/// The known times of a GPU, from this process or from disk; `None` for a CPU. A file that cannot be used is ignored,
/// and written again.
#[must_use]
pub fn known_gpu_times(target: &Target) -> Option<Arc<GpuTimes>> {
    target.as_cuda()?;
    if super::tuning_is_off() {
        return None;
    }
    let device = device_name(target);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(times) = kept.get(&device) {
        return Some(Arc::clone(times));
    }
    let text = file_of(&device).and_then(|p| std::fs::read_to_string(p).ok());
    let read = text.and_then(|t| serde_json::from_str::<GpuTimes>(&t).ok()).filter(|t| t.device == device);
    let times = Arc::new(read.unwrap_or_else(|| GpuTimes { device: device.clone(), times: BTreeMap::new() }));
    kept.insert(device, Arc::clone(&times));
    Some(times)
}

static KEPT: Mutex<BTreeMap<String, Arc<GpuTimes>>> = Mutex::new(BTreeMap::new());

/// Like [`known_gpu_times`], after timing everything that a step of this kind needs and that was not known. With
/// `STEPGRAPH_NO_TUNING` nothing is timed, nor with general kernels: timing would take the time that they save, and the
/// times are those of specialised kernels. Interchangeable kernels are the same choice, so that none are timed either.
///
/// # Errors
/// If the step cannot be compiled, or the device fails.
pub fn gpu_times(model: &Model, options: &Options) -> Result<Option<Arc<GpuTimes>>, TrainError> {
    let (Some(known), Some(facts)) = (known_gpu_times(&options.target), options.target.as_cuda()) else {
        return Ok(None);
    };
    let first = compile(model, &Options { gpu_times: Some(Arc::clone(&known)), ..options.clone() })?;
    let open: Vec<String> = wanted(&first.selection, &known);
    if open.is_empty() || options.target.kernels != Kernels::Specialised {
        return Ok(Some(known));
    }
    let device = gpu(facts.ordinal).map_err(crate::exec::ExecError::from)?;
    // A step that does not fit is refused when its memory is allocated; it need not be compiled for minutes before.
    if device.free_bytes().map_or(true, |free| first.plan.arena_bytes > free) {
        return Ok(Some(known));
    }
    device.prepare_all(true);
    let found = time_all(model, options, &first, &open, &known.device, &device);
    device.prepare_all(false);
    let mut all = GpuTimes::clone(&known);
    all.times.extend(found?.times);
    let all = Arc::new(all);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(all.device.clone(), Arc::clone(&all));
    remember(&all);
    Ok(Some(all))
}

/// A step in which every operation runs one of its candidates, and the operations to be timed.
struct Round {
    compiled: Arc<Compiled>,
    timed: Vec<bool>,
}

/// The candidates of the operations in `open`: in each round every operation runs its next one. Candidates with a much
/// higher estimate are left out.
fn rounds(model: &Model, options: &Options, first: &Selection, open: &[String]) -> Result<Vec<Round>, TrainError> {
    let count = first.choices.iter().map(|c| c.candidates.len()).max().unwrap_or(1);
    let mut out = Vec::with_capacity(count);
    for round in 0..count {
        let options = Options { gpu_times: None, force: Some(round), ..options.clone() };
        let compiled = Arc::new(compile(model, &options)?);
        let mut done = BTreeSet::new();
        let choices = &compiled.selection.choices;
        let timed = compiled.plan.program.ops.iter().zip(choices).map(|(op, choice)| {
            let key = key_of(&compiled.selection, op);
            let estimates = || choice.candidates.iter().filter_map(|c| c.cost_us);
            let best = estimates().fold(f64::INFINITY, f64::min);
            let own = choice.candidates.iter().filter(|c| !is_library(&c.kernel)).filter_map(|c| c.cost_us);
            // A library's results are compared with those of the best kernel.
            let is_reference = is_compared(&op.kind) && choice.cost_us <= own.fold(f64::INFINITY, f64::min);
            let hopeless = choice.cost_us > HOPELESS * best && !is_library(&choice.kernel) && !is_reference;
            round < estimates().count() && !hopeless && open.contains(&key) && done.insert(key)
        });
        let timed: Vec<bool> = timed.collect();
        out.push(Round { compiled, timed });
    }
    out.retain(|r| r.timed.contains(&true));
    Ok(out)
}

/// Times every candidate of the operations in `open`.
fn time_all(
    model: &Model,
    options: &Options,
    first: &Compiled,
    open: &[String],
    name: &str,
    device: &Arc<cuda::Gpu>,
) -> Result<GpuTimes, TrainError> {
    let mut found = GpuTimes { device: name.to_owned(), times: BTreeMap::new() };
    let started = Instant::now();
    let rounds = rounds(model, options, &first.selection, open)?;
    let ops: Vec<(&Compiled, usize)> = rounds
        .iter()
        .flat_map(|r| r.timed.iter().enumerate().filter(|(_, t)| **t).map(|(i, _)| (&*r.compiled, i)))
        .collect();
    // Operations without a choice are needed anyway, and are compiled while the libraries prepare theirs.
    let choices = first.selection.choices.iter().enumerate();
    let single = choices.filter(|(_, choice)| !is_open(choice));
    let wanted: Vec<(&Compiled, usize)> = ops.iter().copied().chain(single.map(|(index, _)| (first, index))).collect();
    let _prefetched = prefetch(device, &wanted)?;
    let ready = started.elapsed();
    let mut compared = ComparedResults::default();
    for round in &rounds {
        // A library's scratch memory may be all that does not fit.
        if device.free_bytes().is_ok_and(|free| round.compiled.plan.arena_bytes > free) {
            log::debug!("{}: candidates that do not fit into the free memory are not timed", model.name);
            continue;
        }
        let timer = OpTimer::new(Arc::clone(&round.compiled), Arc::clone(device), &round.timed)?;
        for (index, op) in round.compiled.plan.program.ops.iter().enumerate().filter(|(i, _)| round.timed[*i]) {
            let key = key_of(&round.compiled.selection, op);
            let so_far =
                found.times.get(&key).map_or(f64::INFINITY, |t| t.values().copied().fold(f64::INFINITY, f64::min));
            let choice = &round.compiled.selection.choices[index];
            let us = if timer.stood_in(index) { NOT_OFFERED_US } else { timer.time_op(index, GIVE_UP * so_far)? };
            found.keep(&key, &choice.kernel, us);
            if us < NOT_OFFERED_US {
                let real = real_of(&round.compiled.selection.program, op, round.compiled.selection.real);
                compared.add((&key, real), (op, choice), |seed| Ok(timer.results(index, seed)?))?;
            }
        }
    }
    for wrong in compared.different() {
        log::warn!("{} is not used: {}", wrong.kernel, wrong.why);
        found.times.entry(wrong.key).or_default().insert(wrong.kernel, WRONG_US);
    }
    log::debug!(
        "{}: {} candidates of {} operations timed in {:.2?}, compiled in {ready:.2?} before",
        model.name,
        ops.len(),
        open.len(),
        started.elapsed().saturating_sub(ready)
    );
    Ok(found)
}

/// Whether a library computes this candidate.
fn is_library(kernel: &str) -> bool {
    kernel.contains("_cublaslt") || kernel.contains("_cudnn")
}

fn key_of(selection: &Selection, op: &Op) -> String {
    let real: Real = real_of(&selection.program, op, selection.real);
    GpuTimes::key(&op.kind, real)
}

/// Whether an operation can be run in more than one way.
fn is_open(choice: &Choice) -> bool {
    choice.candidates.iter().filter(|candidate| candidate.cost_us.is_some()).count() > 1
}

/// The operations that have a choice and no times yet.
fn wanted(selection: &Selection, known: &GpuTimes) -> Vec<String> {
    let with_choice = selection.program.ops.iter().zip(&selection.choices).filter(|(_, choice)| is_open(choice));
    let mut keys: Vec<String> = with_choice.map(|(op, _)| key_of(selection, op)).collect();
    keys.retain(|k| !known.times.contains_key(k));
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn remember(times: &GpuTimes) {
    let Some(path) = file_of(&times.device) else { return };
    let written = serde_json::to_vec_pretty(times).map_err(std::io::Error::other).and_then(|text| {
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        crate::tensor::write_atomic(&path, &text)
    });
    if let Err(error) = written {
        log::warn!("kernel times are not kept in {}: {error}", path.display());
    }
}
