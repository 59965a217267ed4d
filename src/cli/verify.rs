//! `stepgraph verify`: checks that a step is correct, and prints the measured values.

use super::args::VerifyArgs;
use super::error::wrong;
use super::presets::{DataLook, Loaded};
use super::signals::{self, Signal};
use super::{device, output, presets, verify_random};
use crate::exec::available_bytes;
use crate::model::BUNDLED;
use crate::tensor::Bytes;
use crate::train::{Check, Price, Progress, Proof, TrainError, VerifyOptions, VerifyReport, price, verify_some};
use clap::error::ErrorKind;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

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

/// The results of one preset as JSON.
#[derive(Serialize)]
struct Findings {
    device: String,
    seed: u64,
    #[serde(flatten)]
    report: VerifyReport,
    seconds: f64,
    /// Whether a signal ended it before its last check.
    cancelled: bool,
}

const OUT_ALONE: &str = "--out cannot be used without --random: it names the file for a random network that fails, and \
    no other result is written; leave it out, or give --random N instead of presets";
const NOTHING_GIVEN: &str = "nothing to verify is given: name one or more presets, or give --all or --random N";

/// The message for a wrong command line, if the parser's own message does not say what to do.
#[must_use]
pub fn refusal(words: &[String], kind: ErrorKind) -> Option<&'static str> {
    let is_set = |option: &str| {
        let is_it = |word: &str| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        words.iter().map(String::as_str).take_while(|word| *word != "--").any(is_it)
    };
    if words.first().is_none_or(|first| first != "verify") {
        return None;
    }
    let is_out_alone = is_set("--out") && !is_set("--random");
    match kind {
        ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict if is_out_alone => Some(OUT_ALONE),
        ErrorKind::MissingRequiredArgument => Some(NOTHING_GIVEN),
        _ => None,
    }
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
        let (target, name) = device::with_threads(&machine, &name, threads);
        let options = VerifyOptions {
            replays: args.replays,
            threads,
            tuning: device::tuning(&target),
            machine: Some(target),
            seed: args.seed,
            base: found.base.clone(),
            batches: args.batches.clone(),
            init: args.init.clone(),
            anyway: args.anyway,
            only: None,
        };
        (options, name)
    };
    for found in loaded.iter().filter(|_| !args.anyway) {
        let price = price(&found.preset, &options_of(found).0)?;
        affordable(&found.preset.name, price, args.replays.is_some(), available_bytes())?;
    }
    signals::finish_first("this check");
    let is_list = loaded.len() > 1;
    let mut all: Vec<Findings> = Vec::new();
    for found in &loaded {
        presets::warn_of_precision(&found.preset, &machine);
        let (options, device) = options_of(found);
        all.push(findings_of(found, &options, device, args.json)?);
        if all.last().is_some_and(|last| last.cancelled) {
            break;
        }
    }
    print_findings(&all, is_list, args.json)?;
    Ok(status(&all))
}

/// Verifies a preset, and prints each check when it is done.
fn findings_of(found: &Loaded, options: &VerifyOptions, device: String, json: bool) -> anyhow::Result<Findings> {
    let (name, seed) = (&found.preset.name, options.seed);
    if !json {
        output::print(&format!("{name}\n"))?;
    }
    let (started, ends) = (Instant::now(), signals::flag());
    let (mut closed, mut checks) = (None, Vec::new());
    let outcome = verify_some(&found.preset, options, &Proof::ALL, &ends, |progress| {
        let Progress::Done(_, check) = progress else { return };
        if json {
            output::note(&format!("{name}: {} {}", verdict(check), check.name));
        } else if let Err(error) = output::print(&line(check)) {
            closed.get_or_insert(error);
            // The output is not read any further.
            ends.store(true, Ordering::Relaxed);
        }
        checks.push(check.clone());
    });
    if let Some(error) = closed {
        return Err(error);
    }
    let (report, cancelled) = match outcome {
        Ok(report) => (report, false),
        Err(TrainError::Cancelled) => {
            let passed = checks.iter().all(|check| check.passed != Some(false));
            (VerifyReport { preset: name.clone(), checks, passed }, true)
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Findings { device, seed, report, seconds: started.elapsed().as_secs_f64(), cancelled })
}

/// Prints the results of all presets: as JSON, or how many checks passed. If a signal ended the command, these are the
/// results until then.
fn print_findings(all: &[Findings], is_list: bool, json: bool) -> anyhow::Result<()> {
    if let Some(signal) = ended_by(all) {
        signals::note_ended(signal, "the checks that are not listed were not made");
    }
    if json {
        return match all {
            [one] if !is_list => output::print_json(one),
            several => output::print_json(&several),
        };
    }
    let of = |verdict: Option<bool>| {
        all.iter().flat_map(|found| &found.report.checks).filter(|check| check.passed == verdict).count()
    };
    let (good, bad, skipped) = (of(Some(true)), of(Some(false)), of(None));
    let good = output::counted(good as u64, "check");
    let ended = if ended_by(all).is_some() { "; ended before the last check" } else { "" };
    output::print(&format!("{good} passed, {bad} failed, {skipped} skipped{ended}\n"))
}

/// The signal that ended the command before its last check.
fn ended_by(all: &[Findings]) -> Option<Signal> {
    signals::asked().filter(|_| all.iter().any(|found| found.cancelled))
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
        return Err(anyhow::anyhow!("{name}: the checks take about {needs} of memory, and {free} are free; {help}"));
    }
    let unasked = price.seconds - if asked { price.replay_seconds } else { 0.0 };
    if unasked > TOO_LONG {
        let minutes = output::counted(minutes as u64, "minute");
        return Err(wrong(format!("{name}: the checks take about {minutes} here; {help}")));
    }
    if price.seconds > LONG {
        output::note(&format!("note: {name}: the checks take about {minutes} min here"));
    }
    Ok(())
}

/// 1 if a check of any report failed, otherwise the status of the signal that ended the command.
fn status(all: &[Findings]) -> ExitCode {
    if !all.iter().all(|found| found.report.passed) {
        return ExitCode::from(1);
    }
    ended_by(all).map_or(ExitCode::SUCCESS, Signal::exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_report_is_status_1() {
        let report = |passed| Findings {
            device: "cpu".into(),
            seed: 0,
            report: VerifyReport { preset: "p".into(), checks: Vec::new(), passed },
            seconds: 0.0,
            cancelled: false,
        };
        assert_eq!(status(&[report(true), report(true)]), ExitCode::SUCCESS);
        assert_eq!(status(&[report(true), report(false)]), ExitCode::from(1));
    }

    #[test]
    fn a_file_for_failures_belongs_to_random_networks() {
        let said = |words: &str, kind| refusal(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), kind);
        let out = said("verify --out=a.json", ErrorKind::MissingRequiredArgument).unwrap();
        assert!(out.contains("cannot be used without --random"));
        assert_eq!(said("verify xor --out a.json", ErrorKind::ArgumentConflict), Some(out));
        assert!(said("verify", ErrorKind::MissingRequiredArgument).unwrap().contains("--all or --random N"));
        assert_eq!(said("verify xor --random 3 --out a", ErrorKind::ArgumentConflict), None);
        assert_eq!(said("verify --out a --seed x", ErrorKind::ValueValidation), None);
        assert_eq!(said("train", ErrorKind::MissingRequiredArgument), None);
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
