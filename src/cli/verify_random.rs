//! `stepgraph verify --random`: the checks on networks that are drawn from seeds.

use super::args::VerifyArgs;
use super::choices::Device;
use super::error::unwritable;
use super::signals::{self, Signal};
use super::{device, output};
use crate::model::write_preset;
use crate::tensor::{write_advice, write_atomic};
use crate::train::{Failure, RandomEvent, RandomReport, RandomRun, VerifyOptions, verify_random};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Replays of the endurance check of each network, unless a number is given.
const REPLAYS: u64 = 20;
/// Threads that share a step, unless a number is given. More than one is needed to check that the number of threads
/// does not change the result.
const THREADS: u16 = 2;
/// The time limit of one network, in seconds; there is no limit if long checks are allowed.
const SECONDS: f64 = 60.0;
const ANYWAY: f64 = 86_400.0;
/// The longest time without a line, if there is no terminal to show a bar.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The seed of the network that is being checked.
static RUNNING: AtomicU64 = AtomicU64::new(0);

/// A failure with the file of its smallest network and the command that repeats it.
#[derive(Serialize)]
struct Kept {
    #[serde(flatten)]
    failure: Failure,
    file: String,
    command: String,
}

/// The whole report as JSON.
#[derive(Serialize)]
struct Findings<'a> {
    device: &'a str,
    #[serde(flatten)]
    report: &'a RandomReport,
    failures: &'a [Kept],
}

/// Verifies `count` random networks; exit status 1 if a check of any of them fails, or the status of the signal that
/// ended the command.
///
/// # Errors
/// If the device cannot be used, or a network that fails cannot be written.
pub fn run(args: &VerifyArgs, count: u64) -> anyhow::Result<ExitCode> {
    let threads = args.cpu.threads.unwrap_or(THREADS);
    let (machine, name) = device::choose(args.device, threads.into(), [])?;
    let out = args.out.as_deref().map(|path| output::writable(path, "the smallest network that fails")).transpose()?;
    let options = VerifyOptions {
        replays: Some(args.replays.unwrap_or(REPLAYS)),
        threads: threads.into(),
        tuning: device::tuning(&machine),
        machine: Some(machine),
        anyway: args.anyway,
        ..VerifyOptions::default()
    };
    let seconds = if args.anyway { ANYWAY } else { SECONDS };
    let run = RandomRun { count, first: args.seed, seconds, options };
    signals::finish_first("this check");
    name_network_of_panics();
    let mut progress = Progress::new(count);
    let (mut kept, mut failed) = (Vec::new(), None);
    let report = verify_random(&run, |event| {
        match event {
            RandomEvent::Begins { seed } => RUNNING.store(seed, Ordering::Relaxed),
            RandomEvent::Check => progress.alive(),
            RandomEvent::Shrinks { seed, check } => {
                progress.say(&format!("network {seed} fails: {check}; shrinking it"))
            }
            RandomEvent::Skipped { seed, why } => progress.say(&format!("network {seed} is left out: {why}")),
            RandomEvent::Done { .. } => progress.done(),
            RandomEvent::Failed(failure) => {
                progress.failures += 1;
                match keep(failure, args, out.as_deref(), kept.len(), threads) {
                    Ok(keep) => {
                        let lines = lines(&keep);
                        kept.push(keep);
                        if args.json {
                            progress.say(&lines);
                        } else {
                            failed = progress.print(&lines).err();
                        }
                    }
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.is_none() && signals::asked().is_none()
    });
    progress.finish();
    if let Some(error) = failed {
        return Err(error);
    }
    if args.json {
        output::print_json(&Findings { device: &name, report: &report, failures: &kept })?;
    } else {
        output::print(&summary(&report, &name, kept.len()))?;
    }
    if !report.passed {
        return Ok(ExitCode::from(1));
    }
    Ok(signals::asked().filter(|_| report.cancelled).map_or(ExitCode::SUCCESS, Signal::exit_code))
}

/// Makes a panic report the seed of its network, so that it can be repeated.
fn name_network_of_panics() {
    let explain = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = RUNNING.load(Ordering::Relaxed);
        output::note(&format!("the network of `stepgraph verify --random 1 --seed {seed}` stopped the program"));
        explain(info);
    }));
}

/// Writes the smallest network that still fails.
fn keep(failure: &Failure, args: &VerifyArgs, out: Option<&Path>, before: usize, threads: u16) -> anyhow::Result<Kept> {
    let path = place(failure, out, before);
    write_atomic(&path, write_preset(&failure.smallest).as_bytes()).map_err(|cause| {
        let message = format!("{} cannot be written: {cause}; {}", path.display(), write_advice(&cause));
        unwritable(cause, message)
    })?;
    let file = path.display().to_string();
    let command = command(failure.seed, &file, args, threads);
    Ok(Kept { failure: failure.clone(), file, command })
}

/// The file for the smallest network of a failure: the requested one, or one beside it if that already exists.
fn place(failure: &Failure, out: Option<&Path>, before: usize) -> PathBuf {
    let Some(out) = out else {
        let name = &failure.network;
        return PathBuf::from(if before == 0 { format!("{name}.json") } else { format!("{name}-{before}.json") });
    };
    if before == 0 {
        return out.to_owned();
    }
    let mut name: OsString = out.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{before}"));
    if let Some(extension) = out.extension() {
        name.push(".");
        name.push(extension);
    }
    out.with_file_name(name)
}

/// The command that repeats a failure.
fn command(seed: u64, file: &str, args: &VerifyArgs, threads: u16) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let file = if file.chars().all(is_plain) { file.to_owned() } else { format!("'{}'", file.replace('\'', "'\\''")) };
    let device = match args.device {
        Device::Auto => String::new(),
        Device::Cpu => " --device cpu".into(),
        Device::Cuda(number) => format!(" --device cuda:{number}"),
    };
    let replays = args.replays.unwrap_or(REPLAYS);
    format!("stepgraph verify {file} --seed {seed}{device} --threads {threads} --replays {replays}")
}

/// The message about a failure.
fn lines(kept: &Kept) -> String {
    let Kept { failure, file, command } = kept;
    let Failure { network, precision, check, line, layers: [from, to], is_smallest, .. } = failure;
    let ended = if *is_smallest { "" } else { ", where the time for it was over" };
    format!(
        "FAIL  {network} ({}): {check}: {line}\n      {from} layers made {to}{ended}: {file}\n      {command}\n",
        precision.name()
    )
}

/// The closing lines.
fn summary(report: &RandomReport, device: &str, failures: usize) -> String {
    let last = report.first.wrapping_add((report.networks + report.skipped_networks).saturating_sub(1));
    let sum = |of: fn(&crate::train::Tally) -> u64| report.checks.iter().map(of).sum::<u64>();
    let ended = if report.cancelled { ", ended before the last" } else { "" };
    let mut out = format!(
        "{} networks (seeds {} to {last}) on {device}: {} with failures, {} left out{ended}; {:.1} s\n",
        output::count(report.networks),
        report.first,
        report.failed_networks,
        report.skipped_networks,
        report.seconds
    );
    for tally in &report.checks {
        let worst = match (tally.worst_ratio, tally.worst_seed) {
            (Some(ratio), Some(seed)) => format!(", largest error {ratio:.3} of its bound (network {seed})"),
            _ => String::new(),
        };
        out.push_str(&format!(
            "  {:<4}  {:<42} {:>6} passed, {} failed, {} skipped{worst}\n",
            tally.precision.name(),
            tally.check,
            tally.passed,
            tally.failed,
            tally.skipped
        ));
        for (reason, count) in &tally.reasons {
            out.push_str(&format!("          {count} skipped: {reason}\n"));
        }
    }
    out.push_str(&format!(
        "{} checks passed, {} failed, {} skipped; {failures} failures written\n",
        output::count(sum(|t| t.passed)),
        sum(|t| t.failed),
        sum(|t| t.skipped)
    ));
    out
}

/// A bar on a terminal, otherwise a line every few seconds; both on standard error.
struct Progress {
    bar: Option<ProgressBar>,
    count: u64,
    done: u64,
    failures: u64,
    reported: Instant,
}

impl Progress {
    fn new(count: u64) -> Self {
        let bar = output::is_terminal().then(|| {
            let bar = ProgressBar::new(count);
            let style = ProgressStyle::with_template("{bar:28} {pos}/{len} networks, {eta} left, {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, count, done: 0, failures: 0, reported: Instant::now() }
    }

    /// Records that a network is finished.
    fn done(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} failures", self.failures));
            bar.set_position(self.done);
        }
        self.alive();
    }

    /// Reports the progress, if it is time.
    fn alive(&mut self) {
        if self.bar.is_none() && self.reported.elapsed() >= LINE_EVERY {
            self.reported = Instant::now();
            output::note(&format!("{}/{} networks, {} failures", self.done, self.count, self.failures));
        }
    }

    /// Prints a line to standard error without disturbing the bar.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(line)),
            None => output::note(line),
        }
    }

    /// Prints lines to standard output without disturbing the bar.
    fn print(&self, lines: &str) -> anyhow::Result<()> {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::print(lines)),
            None => output::print(lines),
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use crate::model::Precision;
    use crate::model::random::{Size, random_preset};
    use crate::train::Tally;
    use clap::Parser;

    fn args(words: &[&str]) -> VerifyArgs {
        let words = ["stepgraph", "verify", "--random", "5"].iter().chain(words);
        match Cli::try_parse_from(words).unwrap().command {
            Some(Command::Verify(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    fn failure(seed: u64) -> Failure {
        Failure {
            network: format!("random-{seed}"),
            seed,
            precision: Precision::F32,
            check: "loss scale".into(),
            line: "loss[0]: error 2.0e0, bound 1.0e0, ratio 2.00".into(),
            smallest: random_preset(seed, Size::SMALL),
            layers: [5, 1],
            is_smallest: true,
        }
    }

    #[test]
    fn every_failure_has_a_separate_file_and_the_command_that_repeats_it() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("small one.json");
        let args = args(&["--seed", "7", "--device", "cpu", "--replays", "30"]);
        for (before, name) in ["small one.json", "small one-1.json"].into_iter().enumerate() {
            let kept = keep(&failure(9), &args, Some(&out), before, 2).unwrap();
            let written = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!(written, write_preset(&failure(9).smallest));
            assert!(kept.command.starts_with("stepgraph verify '") && kept.command.contains(name), "{}", kept.command);
            assert!(kept.command.ends_with("' --seed 9 --device cpu --threads 2 --replays 30"), "{}", kept.command);
            let lines = lines(&kept);
            assert!(
                lines.starts_with("FAIL  random-9 (f32): loss scale: loss[0]: error")
                    && lines.contains("5 layers made 1")
            );
        }
        assert_eq!(place(&failure(3), None, 0), PathBuf::from("random-3.json"));
        assert_eq!(place(&failure(3), None, 2), PathBuf::from("random-3-2.json"));
        let missing = folder.path().join("none/a.json");
        assert!(keep(&failure(3), &args, Some(&missing), 0, 2).is_err());
    }

    #[test]
    fn the_summary_counts_what_passed_and_names_the_worst() {
        let tally = Tally {
            check: "loss scale".into(),
            precision: Precision::F32,
            passed: 3,
            failed: 1,
            skipped: 2,
            reasons: [("dropout masks differ".to_owned(), 2)].into(),
            worst_ratio: Some(2.0),
            worst_seed: Some(9),
        };
        let report =
            RandomReport { first: 5, networks: 6, failed_networks: 1, checks: vec![tally], ..RandomReport::default() };
        let text = summary(&report, "cpu", 1);
        assert!(text.contains("6 networks (seeds 5 to 10) on cpu: 1 with failures, 0 left out;"), "{text}");
        assert!(text.contains("3 passed, 1 failed, 2 skipped, largest error 2.000 of its bound (network 9)"), "{text}");
        assert!(text.contains("\n          2 skipped: dropout masks differ\n"), "{text}");
    }

    #[test]
    fn networks_are_random_or_named() {
        for words in [&["xor"][..], &["--all"], &["--init", "a"], &["--batches", "a"]] {
            let words = ["stepgraph", "verify", "--random", "5"].iter().chain(words);
            assert!(Cli::try_parse_from(words).is_err());
        }
        assert!(Cli::try_parse_from(["stepgraph", "verify", "xor", "--out", "a.json"]).is_err());
        assert!(Cli::try_parse_from(["stepgraph", "verify", "--random", "0"]).is_err());
    }
}
