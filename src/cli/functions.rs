//! `stepgraph functions`: measures how exact the functions of a step are, over all inputs.

use super::choices::Device;
use super::error::wrong;
use super::progress::LINE_EVERY;
use super::{device, numbers, output};
use crate::exec::cuda::usable;
use crate::exec::{Accuracy, Function, Survey, Unit};
use crate::select::Target;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Measure how exact the functions of a step are, over all inputs
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  stepgraph functions --every 1009\n  \
    stepgraph functions --device cuda --json > gpu.json\n  stepgraph functions --from gpu.json")]
pub struct FunctionsArgs {
    /// Where to measure: auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    pub device: Device,
    /// Test every Kth bit pattern
    #[arg(long, default_value_t = 1, value_name = "K", allow_negative_numbers = true, value_parser = numbers::positive)]
    pub every: u64,
    /// Print the results as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print results that --json wrote, and measure nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["device", "every"])]
    pub from: Option<PathBuf>,
}

/// The result for one function on one device or instruction set.
#[derive(Deserialize, Serialize)]
struct Row {
    function: String,
    on: String,
    #[serde(flatten)]
    accuracy: Accuracy,
}

/// All results.
#[derive(Deserialize, Serialize)]
struct Report {
    device: String,
    /// The distance of the tested bit patterns of an `f32`; 1 tests all of them.
    every: u64,
    rows: Vec<Row>,
}

/// Measures every function and prints a table.
///
/// # Errors
/// If the device cannot be used, or fails, or the file of earlier results cannot be read.
pub fn run(args: &FunctionsArgs) -> anyhow::Result<()> {
    let report = args.from.as_deref().map_or_else(|| measured(args), kept)?;
    if args.json { output::print_json(&report) } else { output::print(&text(&report)) }
}

/// Reads the results from a file.
fn kept(path: &Path) -> anyhow::Result<Report> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|cause| wrong(format!("{name} cannot be read: {cause}")))?;
    serde_json::from_str(&text)
        .map_err(|cause| wrong(format!("{name} has no results of `stepgraph functions --json`: {cause}")))
}

/// Measures every function on the requested device.
fn measured(args: &FunctionsArgs) -> anyhow::Result<Report> {
    let (target, name) = device::choose(args.device, 1, [])?;
    let units = units(&target, args.device)?;
    let mut report = Report { device: name, every: args.every, rows: Vec::new() };
    for function in Function::all() {
        let progress = Progress::new(&function.name());
        let survey = Survey { every: args.every, progress: &|share| progress.report(share) };
        let found = survey.measure(function, &units)?;
        progress.finish();
        let rows = units.iter().zip(found);
        let row = |(unit, accuracy): (&Unit, Accuracy)| Row { function: function.name(), on: unit.name(), accuracy };
        report.rows.extend(rows.map(row));
    }
    Ok(report)
}

/// What computes the functions on a device; on a CPU, each of its instruction sets.
fn units(target: &Target, asked: Device) -> anyhow::Result<Vec<Unit>> {
    match target.as_cuda() {
        Some(facts) => {
            let gpu = usable(facts.ordinal).map_err(|why| {
                wrong(format!("{asked:?} cannot be used: {why}; `stepgraph doctor` reports what is missing"))
            })?;
            Ok(vec![Unit::Gpu(gpu)])
        }
        None => Ok(Unit::cpu()),
    }
}

/// The table, with one line for results that are the same on all instruction sets.
fn text(report: &Report) -> String {
    let every = match report.every {
        1 => "all 2^32 inputs".to_owned(),
        n => {
            format!("every {} of 2^32 inputs, {} of them", output::ordinal(n), output::count((1u64 << 32).div_ceil(n)))
        }
    };
    let mut lines: Vec<(String, &Row)> = Vec::new();
    for rows in report.rows.chunk_by(|a, b| a.function == b.function) {
        if rows.iter().all(|row| row.accuracy.is_same(&rows[0].accuracy)) {
            lines.push((rows.iter().map(|row| row.on.as_str()).collect::<Vec<_>>().join(", "), &rows[0]));
        } else {
            lines.extend(rows.iter().map(|row| (row.on.clone(), row)));
        }
    }
    let width = lines.iter().map(|(on, _)| on.len()).max().unwrap_or(0);
    let mut out = format!(
        "{}, {every}\nunits: error in units in the last place of the exact result; relative: error over it; both of \
         normal \
         results\nabsolute: error of results up to 2; denormal: error of smaller results in multiples of 2^-149\n\n\
         {:<12} {:<width$} {:>12} {:>15} {:>10} {:>10} {:>12}  {}\n",
        report.device, "function", "on", "units", "at", "relative", "absolute", "denormal", "wrong"
    );
    for (on, Row { function, accuracy: a, .. }) in lines {
        out.push_str(&format!(
            "{function:<12} {on:<width$} {:>12} {:>15} {:>10.1e} {:>10.1e} {:>12}  {}\n",
            units_text(a.units),
            format!("{:e}", a.units_at),
            a.relative,
            a.absolute,
            units_text(a.denormal_units),
            match a.wrong_at {
                None => "none".to_owned(),
                Some(bits) => format!("{} such as {:e}", a.wrong, f32::from_bits(bits)),
            }
        ));
    }
    out
}

/// A number of units in the last place, with three decimals if it is small enough for them to matter.
fn units_text(units: f64) -> String {
    if units < 1e4 { format!("{units:.3}") } else { format!("{units:.1e}") }
}

/// Shows the progress of one function: a bar on a terminal, otherwise a line when it is done.
struct Progress {
    bar: Option<ProgressBar>,
    name: String,
    /// Thousandths of the work that are done.
    done: AtomicU64,
    /// When the last line was written.
    line: Mutex<Instant>,
}

impl Progress {
    fn new(name: &str) -> Self {
        let bar = output::is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            let style = ProgressStyle::with_template("{bar:28} {msg}, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(name.to_owned());
            bar
        });
        Self { bar, name: name.to_owned(), done: AtomicU64::new(0), line: Mutex::new(Instant::now()) }
    }

    fn report(&self, share: f64) {
        let now = (share * 1000.0) as u64;
        if self.done.fetch_max(now, Ordering::Relaxed) >= now {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_position(now);
        } else if let Ok(mut line) = self.line.try_lock()
            && line.elapsed() > LINE_EVERY
        {
            *line = Instant::now();
            output::note(&format!("{}: {:.0} %", self.name, share * 100.0));
        }
    }

    fn finish(self) {
        match self.bar {
            Some(bar) => bar.finish_and_clear(),
            None => output::note(&format!("{}: done", self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::temporary::temporary_file;

    #[test]
    fn equal_results_of_all_instruction_sets_take_one_line() {
        let row = |on: &str, units| Row {
            function: "tanh".into(),
            on: on.into(),
            accuracy: Accuracy { inputs: 7, units, ..Accuracy::default() },
        };
        let report =
            |units| Report { device: "a CPU".into(), every: 7, rows: vec![row("portable", 0.5), row("avx2", units)] };
        let lines = |units| text(&report(units)).lines().filter(|l| l.starts_with("tanh")).count();
        assert_eq!((lines(0.5), lines(0.6)), (1, 2));
        assert!(text(&report(0.5)).contains("every 7th of 2^32 inputs"));
    }

    #[test]
    fn stored_results_are_shown_as_they_were_measured() {
        let accuracy = Accuracy { inputs: 3, units: 0.8, units_at: -1.5, wrong_at: Some(7), ..Accuracy::default() };
        let rows = vec![Row { function: "exp".into(), on: "portable".into(), accuracy }];
        let report = Report { device: "a CPU".into(), every: 2, rows };
        let (_folder, path) = temporary_file("kept.json");
        std::fs::write(&path, serde_json::to_string(&report).unwrap()).unwrap();
        assert_eq!(text(&kept(&path).unwrap()), text(&report));
        std::fs::write(&path, "{}").unwrap();
        let refused = kept(&path).err().unwrap().to_string();
        assert!(refused.contains("no results of `stepgraph functions --json`"), "{refused}");
    }
}
