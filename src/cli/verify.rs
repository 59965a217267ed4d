//! `stepgraph verify`: checks that a step is correct, and prints the measured values.

use super::args::VerifyArgs;
use super::error::wrong;
use super::presets::{DataLook, Loaded};
use super::{device, output, presets, verify_random};
use crate::exec::available_bytes;
use crate::model::BUNDLED;
use crate::tensor::Bytes;
use crate::train::{Check, Price, VerifyOptions, VerifyReport, price, verify};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

const fn verdict(check: &Check) -> &'static str {
    match check.passed {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "skip",
    }
}

fn line(check: &Check) -> String {
    let mut out = format!("  {}  {:<48} {}\n", verdict(check), check.name, check.figures);
    for detail in &check.detail {
        out.push_str(&format!("          {detail}\n"));
    }
    out
}

/// Verifies every preset; exit status 1 if a check fails.
///
/// # Errors
/// If a preset, its data or a given file is wrong, or a step cannot run.
pub fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    if let Some(count) = args.random {
        return verify_random::run(args, count);
    }
    let names: Vec<&OsStr> = if args.all {
        BUNDLED.iter().map(|b| OsStr::new(b.name)).collect()
    } else {
        args.presets.iter().map(OsString::as_os_str).collect()
    };
    let looks = if args.batches.is_some() { DataLook::Ignore } else { DataLook::Report };
    // Every preset is read before the first one is verified, so that a misspelt name is reported at once.
    let loaded = presets::load_all(names, looks)?;
    let threads_of = |found: &Loaded| device::threads(args.cpu.threads, &found.model).count;
    let (machine, name) =
        device::choose(args.device, loaded.first().map_or(1, threads_of), loaded.iter().map(|found| &found.model))?;
    let options_of = |found: &Loaded| {
        let threads = threads_of(found);
        let (target, _) = device::with_threads(&machine, &name, threads);
        VerifyOptions {
            replays: args.replays,
            threads,
            tuning: device::tuning(&target),
            machine: Some(target),
            seed: args.seed,
            base: found.base.clone(),
            batches: args.batches.clone(),
            init: args.init.clone(),
            anyway: args.anyway,
        }
    };
    for found in loaded.iter().filter(|_| !args.anyway) {
        let price = price(&found.preset, &options_of(found))?;
        affordable(&found.preset.name, price, args.replays.is_some(), available_bytes())?;
    }
    let mut reports: Vec<VerifyReport> = Vec::new();
    for found in loaded {
        presets::warn_of_precision(&found.preset, &machine);
        reports.push(report_of(&found, &options_of(&found), args.json)?);
    }
    print_reports(&reports, args.json)?;
    Ok(status(&reports))
}

/// Verifies a preset, and prints each check when it is done.
fn report_of(found: &Loaded, options: &VerifyOptions, json: bool) -> anyhow::Result<VerifyReport> {
    if !json {
        output::print(&format!("{}\n", found.preset.name))?;
    }
    let mut closed = None;
    let report = verify(&found.preset, options, |check| {
        if json {
            output::note(&format!("{}: {} {}", found.preset.name, verdict(check), check.name));
        } else if let Err(error) = output::print(&line(check)) {
            closed.get_or_insert(error);
        }
    })?;
    closed.map_or(Ok(report), Err)
}

/// Prints the results of all presets: as JSON, or how many checks passed.
fn print_reports(reports: &[VerifyReport], json: bool) -> anyhow::Result<()> {
    if json {
        return match reports {
            [one] => output::print_json(one),
            several => output::print_json(&several),
        };
    }
    let of = |verdict: Option<bool>| reports.iter().flat_map(|r| &r.checks).filter(|c| c.passed == verdict).count();
    let (good, bad, skipped) = (of(Some(true)), of(Some(false)), of(None));
    let good = output::counted(good as u64, "check");
    output::print(&format!("{good} passed, {bad} failed, {skipped} skipped\n"))
}

/// Refuses checks that take hours or do not fit into memory, and reports long ones. If the user gave the number of
/// replays (`asked`), their time is accepted.
fn affordable(name: &str, price: Price, asked: bool, free: Option<u64>) -> anyhow::Result<()> {
    const LONG: f64 = 30.0;
    const TOO_LONG: f64 = 600.0;
    let minutes = (price.seconds / 60.0).ceil();
    let help = "give --anyway to continue, or verify the same layers with fewer units or a smaller input";
    if let Some(free) = free.filter(|free| *free < price.bytes) {
        let (needs, free) = (Bytes(price.bytes), Bytes(free));
        // A machine with more memory could run the checks: the arguments are not wrong.
        return Err(anyhow::anyhow!("{name}: the proofs take about {needs} of memory, and {free} are free; {help}"));
    }
    let unasked = price.seconds - if asked { price.replay_seconds } else { 0.0 };
    if unasked > TOO_LONG {
        let minutes = output::counted(minutes as u64, "minute");
        return Err(wrong(format!("{name}: the proofs take about {minutes} here; {help}")));
    }
    if price.seconds > LONG {
        output::note(&format!("note: {name}: the proofs take about {minutes} min here"));
    }
    Ok(())
}

/// 1 if a check of any report failed.
fn status(reports: &[VerifyReport]) -> ExitCode {
    if reports.iter().all(|r| r.passed) { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_report_is_status_1() {
        let report = |passed| VerifyReport { preset: "p".into(), checks: Vec::new(), passed };
        assert_eq!(status(&[report(true), report(true)]), ExitCode::SUCCESS);
        assert_eq!(status(&[report(true), report(false)]), ExitCode::from(1));
    }

    #[test]
    fn checks_that_take_too_long_are_refused() {
        let price = |seconds, bytes| Price { seconds, replay_seconds: 3500.0, bytes };
        let at = |seconds, bytes| affordable("net", price(seconds, bytes), false, Some(1 << 30));
        assert!(affordable("net", price(3600.0, 1), true, Some(1 << 30)).is_ok());
        assert!(at(20.0, 1 << 20).is_ok() && at(90.0, 1 << 20).is_ok());
        assert!(at(4000.0, 1).unwrap_err().to_string().contains("about 67 minutes here; give --anyway"));
        assert!(at(1.0, 2 << 30).unwrap_err().to_string().contains("2.0 GiB of memory, and 1.0 GiB are free"));
    }
}
