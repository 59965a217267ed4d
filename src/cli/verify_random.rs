//! `stepgraph verify --random`: the checks on networks that are drawn from seeds.

use super::args::VerifyArgs;
use super::choices::Device;
use super::error::wrong;
use super::progress::LINE_EVERY;
use super::signals::{self, Signal};
use super::{device, output};
use crate::model::{read_preset, write_preset};
use crate::tensor::{write_advice, write_atomic};
use crate::train::{Failure, RandomEvent, RandomReport, RandomRun, Tally, VerifyOptions, ratio_text, verify_random};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Replays of the endurance check of each network, unless a number is given.
const REPLAYS: u64 = 20;
/// Threads that share a step, unless a number is given. More than one is needed to check that the number of threads
/// does not change the result.
const THREADS: u16 = 2;
/// The time limit of one network, in seconds; there is no limit if long checks are allowed.
const SECONDS: f64 = 60.0;
const ANYWAY: f64 = 86_400.0;

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
/// If the seeds are too large, the device cannot be used, or a network that fails cannot be written.
pub fn run(args: &VerifyArgs, count: u64) -> anyhow::Result<ExitCode> {
    seeds_fit(args.seed, count)?;
    let out = result_place(args)?;
    let threads = args.cpu.threads.unwrap_or(THREADS);
    let (machine, name) = device::choose(args.device, threads.into(), [])?;
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
    keep_network_of_panics(run.clone(), out.clone());
    let mut progress = Progress::new(count);
    let (mut kept, mut failed) = (Vec::new(), None);
    let report = verify_random(&run, |event| {
        match event {
            RandomEvent::Begins { seed } => RUNNING.store(seed, Ordering::Relaxed),
            RandomEvent::Check => progress.alive(),
            RandomEvent::Shrinks { seed, check } => {
                progress.say(&format!("the network of seed {seed} fails: {check}; it is being reduced"))
            }
            RandomEvent::Skipped { seed, why } => progress.say(&format!("seed {seed} is left out: {why}")),
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
    print_findings(&report, &name, &kept, args.json)?;
    if let Some(error) = failed {
        return Err(error);
    }
    if !report.passed {
        return Ok(ExitCode::from(1));
    }
    Ok(ended_by(&report).map_or(ExitCode::SUCCESS, Signal::exit_code))
}

/// The signal that ended the command before its last network.
fn ended_by(report: &RandomReport) -> Option<Signal> {
    signals::asked().filter(|_| report.cancelled)
}

/// Prints the results until the command ended, even if a network that fails cannot be written.
fn print_findings(report: &RandomReport, device: &str, failures: &[Kept], json: bool) -> anyhow::Result<()> {
    if let Some(signal) = ended_by(report) {
        signals::note_ended(signal, "the results are those of the networks before that");
    }
    if json {
        output::print_json(&Findings { device, report, failures })
    } else {
        output::print(&summary(report, device, failures.len()))
    }
}

/// Refuses a first seed whose last network would have a seed of more than 64 bits.
fn seeds_fit(first: u64, count: u64) -> anyhow::Result<()> {
    let most = u64::MAX - (count - 1);
    if first > most {
        return Err(wrong(format!(
            "--seed {first} is too large for {}, whose seeds follow each other: give {most} or less",
            output::counted(count, "network")
        )));
    }
    Ok(())
}

/// The file of `--out`, if given. Before the first network is checked, it is verified that networks can be written
/// there or to the current folder.
fn result_place(args: &VerifyArgs) -> anyhow::Result<Option<PathBuf>> {
    const WHAT: &str = "the smallest network that fails";
    let Some(path) = args.out.as_deref() else {
        let default = PathBuf::from(format!("random-{}.json", args.seed));
        let more = |error: anyhow::Error| {
            let text = format!("{error}; or name another place with --out");
            error.context(text)
        };
        output::writable(&default, WHAT).map_err(more)?;
        return Ok(None);
    };
    let place = output::writable(path, WHAT)?;
    let is_network = std::fs::read_to_string(&place).is_ok_and(|text| text.is_empty() || read_preset(&text).is_ok());
    if place.exists() && !is_network {
        let path = path.display();
        return Err(wrong(format!("{path} is there and is no network, so it is not replaced; give another name")));
    }
    Ok(Some(place))
}

/// Makes a panic report the seed of its network, so that it can be repeated, and write the network.
fn keep_network_of_panics(run: RandomRun, out: Option<PathBuf>) {
    let explain = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let seed = RUNNING.load(Ordering::Relaxed);
        output::note(&format!("the network of `stepgraph verify --random 1 --seed {seed}` stopped the program"));
        let name = format!("random-{seed}-stopped.json");
        let path = out.as_ref().map_or_else(|| PathBuf::from(&name), |out| out.with_file_name(&name));
        match write_atomic(&path, write_preset(&run.network(seed)).as_bytes()) {
            Ok(()) => output::note(&format!("that network is in {}", path.display())),
            Err(cause) => output::note(&format!("that network cannot be written to {}: {cause}", path.display())),
        }
        explain(info);
    }));
}

/// Writes the smallest network that still fails.
fn keep(failure: &Failure, args: &VerifyArgs, out: Option<&Path>, before: usize, threads: u16) -> anyhow::Result<Kept> {
    let path = place(failure, out, before);
    write_atomic(&path, write_preset(&failure.smallest).as_bytes()).map_err(|cause| {
        // The path was checked before the first network, so that this is not a mistake in the command line.
        let (path, advice, seed) = (path.display(), write_advice(&cause), failure.seed);
        let again = format!("`stepgraph verify --random 1 --seed {seed}` finds the failure again");
        anyhow::anyhow!("{path} cannot be written: {cause}; {advice}; {again}")
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
    let ended = if *is_smallest { "" } else { ", where the reduction was ended by its time limit or a signal" };
    let from = output::counted(*from as u64, "layer");
    format!(
        "FAIL  {network} ({}): {check}: {line}\n      {from} made {to}{ended}: {file}\n      {command}\n",
        precision.name()
    )
}

/// The closing lines.
fn summary(report: &RandomReport, device: &str, failures: usize) -> String {
    let seeds = match report.networks + report.skipped_networks {
        0 => String::new(),
        1 => format!(" (seed {})", report.first),
        count => format!(" (seeds {} to {})", report.first, report.first.saturating_add(count - 1)),
    };
    let sum = |of: fn(&Tally) -> u64| report.checks.iter().map(of).sum::<u64>();
    let ended = if report.cancelled { ", ended before the last" } else { "" };
    let mut out = format!(
        "{}{seeds} on {device}: {} with failures, {} left out{ended}; {:.1} s\n",
        output::counted(report.networks, "network"),
        report.failed_networks,
        report.skipped_networks,
        report.seconds
    );
    for tally in &report.checks {
        let worst = match (tally.worst_ratio, tally.worst_seed) {
            (Some(ratio), Some(seed)) => {
                format!(", largest error {} of its bound (seed {seed})", ratio_text(ratio, 3))
            }
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
        "{} passed, {} failed, {} skipped; {} written\n",
        output::counted(sum(|t| t.passed), "check"),
        sum(|t| t.failed),
        sum(|t| t.skipped),
        output::counted(failures as u64, "failure")
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
            bar.set_message(output::counted(self.failures, "failure"));
            bar.set_position(self.done);
        }
        self.alive();
    }

    /// Reports the progress, if it is time.
    fn alive(&mut self) {
        if self.bar.is_none() && self.reported.elapsed() >= LINE_EVERY {
            self.reported = Instant::now();
            let failures = output::counted(self.failures, "failure");
            output::note(&format!("{} of {}, {failures}", self.done, output::counted(self.count, "network")));
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
        assert!(text.contains("3 passed, 1 failed, 2 skipped, largest error 2.000 of its bound (seed 9)"), "{text}");
        assert!(text.contains("\n          2 skipped: dropout masks differ\n"), "{text}");
        let one = RandomReport { first: 7, networks: 1, ..RandomReport::default() };
        assert!(summary(&one, "cpu", 0).starts_with("1 network (seed 7) on cpu: 0 with failures"));
        assert!(summary(&one, "cpu", 1).ends_with("0 checks passed, 0 failed, 0 skipped; 1 failure written\n"));
        let none = RandomReport { cancelled: true, ..RandomReport::default() };
        assert!(summary(&none, "cpu", 0).starts_with("0 networks on cpu: 0 with failures, 0 left out, ended before"));
    }

    #[test]
    fn seeds_that_would_start_over_are_refused() {
        assert!(seeds_fit(u64::MAX, 1).is_ok() && seeds_fit(u64::MAX - 4, 5).is_ok() && seeds_fit(0, u64::MAX).is_ok());
        let message = seeds_fit(u64::MAX, 5).unwrap_err().to_string();
        assert!(message.contains("too large for 5 networks") && message.ends_with("18446744073709551611 or less"));
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
