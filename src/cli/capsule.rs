//! `stepgraph capsule`: writes a run into one file, and replays it bit for bit.

use super::choices::Device;
use super::error::wrong;
use super::output;
use super::result_places::{Kind, Places};
use super::run_args::{CapsuleAction, CapsuleArgs, MakeArgs, ReplayArgs};
use super::runs::{Named, find};
use super::{device, presets};
use crate::data::DataError;
use crate::model::{Preset, check};
use crate::train::capsule::{Capsule, spec_of_run};
use crate::train::runs::{Curves, Quantity};
use crate::train::{Purpose, SessionSpec, TrainError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Makes or replays a capsule; exit status 1 if the replay is not equal.
///
/// # Errors
/// If an argument, preset or file is wrong, or a run fails.
pub fn run(args: &CapsuleArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        CapsuleAction::Make(args) => make(args),
        CapsuleAction::Replay(args) => replay(args),
    }
}

/// The input of a capsule: how to train, and the curves of the kept run that is repeated.
fn source(args: &MakeArgs) -> anyhow::Result<(SessionSpec, Option<Curves>)> {
    let mut places = Places::default();
    let found = match find(&args.what)? {
        Named::Run(store, entry) => {
            let kept = store.curves(&entry.id)?;
            let spec = spec_of_run(&store, &entry)?;
            places.reads_data(&spec.preset, &spec.base);
            (spec, Some(kept))
        }
        Named::Preset(found) => {
            places.reads_preset(&found);
            presets::warn_of_precision(&found.preset, &crate::exec::cpu::host_target(1));
            let best = device::threads(None, &found.model).count;
            (SessionSpec { threads: best, ..SessionSpec::new(found.preset, found.base) }, None)
        }
    };
    places.writes("the capsule", Kind::Capsule, Some(&args.file))?;
    Ok(found)
}

fn make(args: &MakeArgs) -> anyhow::Result<ExitCode> {
    let file = &args.file;
    if file.exists() && !args.replace {
        return Err(wrong(format!("{} exists; give --replace, or another name", file.display())));
    }
    let (mut spec, kept) = source(args)?;
    spec.overrides.seed = args.seed.or(spec.overrides.seed);
    let threads = args.threads.map_or(spec.threads, usize::from);
    let (target, _) = device::choose(args.device, threads, &check(&spec.preset).model)?;
    let purpose = Purpose::Capsule;
    spec = SessionSpec { threads, tuning: device::tuning(&target), machine: Some(target), purpose, ..spec };
    let made = kept.as_ref().map(Curves::last_step).filter(|s| *s > 0);
    let steps = args.steps.or(made).or(spec.preset.train.map(|t| t.steps as u64)).unwrap_or(1000);
    let capsule = Capsule::make(&spec, steps, |_| true)?;
    // Another seed makes it another run.
    let parted = kept.as_ref().filter(|_| args.seed.is_none()).map(|kept| parts_at(kept, &capsule.losses()));
    capsule.write(file)?;
    output::note(&format!("wrote {}: {}", file.display(), output::counted(capsule.header.steps, "step")));
    if args.json {
        output::print_json(&serde_json::json!({
            "what": args.what.to_string_lossy(),
            "file": file.display().to_string(),
            "preset": capsule.preset.name,
            "seed": capsule.header.seed,
            "steps": capsule.header.steps,
            "device": capsule.header.device,
            "plan_hash": capsule.header.plan_hash,
            // Null if no kept run of the same seed was repeated.
            "is_bit_equal": parted.map(|p| p.is_ok()),
            "parts_at_step": parted.and_then(Result::err),
        }))?;
    }
    Ok(match parted {
        Some(Err(step)) => {
            output::note(&format!(
                "the kept run differs from step {step} on: its learning rate, kernels, data or weights were not those \
                 of its preset; the capsule repeats the preset"
            ));
            ExitCode::from(1)
        }
        Some(Ok(steps)) => {
            let steps = output::counted(steps as u64, "step");
            output::note(&format!("the kept run and its capsule agree to the bit over {steps}"));
            ExitCode::SUCCESS
        }
        None => ExitCode::SUCCESS,
    })
}

fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let mut capsule = Capsule::read(&args.file)?;
    if !args.data.is_empty() {
        capsule.set_data(&args.data)?;
    }
    let target = args.device.map(|d| target(d, capsule.header.threads, &capsule.preset)).transpose()?;
    let tuning = device::tuning(&crate::exec::cpu::host_target(capsule.header.threads.max(1)));
    let base = args.base.clone().unwrap_or_else(|| capsule.base(folder(&args.file)));
    let report = capsule.replay(base, target, tuning, |_| true).map_err(lost_data)?;
    if args.json {
        output::print_json(&report)?
    } else {
        output::print(&report.to_string())?
    }
    Ok(if report.bits.is_bit_equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The error of a replay; if the data are not found, it explains how to name another path.
fn lost_data(error: TrainError) -> anyhow::Error {
    match error {
        TrainError::Data(DataError::Read { .. } | DataError::Several(_)) => {
            wrong(format!("{error}; if the data were moved, give their path with --data PATH"))
        }
        other => other.into(),
    }
}

/// The number of steps that a kept run and its capsule share, or the step at which they first differ.
fn parts_at(kept: &Curves, losses: &[f32]) -> Result<usize, usize> {
    let before = kept.before as usize;
    let mut pairs = kept.values(Quantity::Loss).iter().zip(losses.iter().skip(before));
    let count = pairs.len();
    pairs.position(|(a, b)| a.to_bits() != b.to_bits()).map_or(Ok(count), |at| Err(before + at + 1))
}

fn target(device: Device, threads: usize, preset: &Preset) -> anyhow::Result<crate::select::Target> {
    device::choose(device, threads.clamp(1, 64), &check(preset).model).map(|(target, _)| target)
}

fn folder(file: &Path) -> PathBuf {
    output::folder_of(file).to_owned()
}
