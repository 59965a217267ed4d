//! `stepgraph arena`: places the buffers of a file.

use super::args::ArenaArgs;
use super::error::wrong;
use super::output;
use super::result_places::{Kind, Places};
use crate::plan::arena::csv::{Table, read, write};
use crate::plan::arena::{Budget, Report, plan_best, referee};
use crate::tensor::Bytes;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Summary<'a> {
    buffers: usize,
    planner: &'static str,
    arena_bytes: u64,
    lower_bound_bytes: u64,
    unshared_bytes: u64,
    /// Arena over lower bound.
    ratio: f64,
    /// Whether no placement is smaller.
    proved_optimal: bool,
    seconds: f64,
    tried: &'a [crate::plan::arena::Attempt],
    placement: Vec<Placed<'a>>,
}

#[derive(Serialize)]
struct Placed<'a> {
    id: &'a str,
    lower: u64,
    upper: u64,
    size: u64,
    offset: u64,
}

/// Reads, places, checks and prints.
///
/// # Errors
/// If the file is wrong or a picture cannot be written.
pub fn run(args: &ArenaArgs) -> anyhow::Result<()> {
    let mut places = Places::default();
    places.reads("the table", Some(args.file.as_path()).filter(|path| *path != Path::new("-")));
    let svg = places.writes("the picture", Kind::Picture, args.svg.as_deref())?;
    let table = load(&args.file)?;
    let started = Instant::now();
    let report = plan_best(&table.problem, Budget { time: Some(Duration::from_secs_f64(args.time.0)) });
    let seconds = started.elapsed().as_secs_f64();
    referee::check(&table.problem, &report.placement).context("the referee rejects the placement")?;
    let proof =
        if report.proved_optimal { "no placement is smaller" } else { "a smaller one may exist; increase --time" };
    output::note(&format!(
        "{}: {} ({} bytes), {:.4} of the lower bound {}, unshared {}; by {} in {seconds:.2} s; {proof}",
        output::counted(table.ids.len() as u64, "buffer"),
        Bytes(report.placement.height),
        report.placement.height,
        report.ratio,
        report.lower_bound,
        Bytes(report.unshared),
        report.planner
    ));
    if args.json {
        output::print_json(&summary(&table, &report, seconds))?;
    } else {
        let mut text = Vec::new();
        write(&mut text, &table, &report.placement)?;
        output::print(&String::from_utf8_lossy(&text))?;
    }
    if let Some(path) = svg {
        output::write_picture(&path, &picture(&table, &report))?;
    }
    Ok(())
}

fn load(path: &Path) -> anyhow::Result<Table> {
    let refuse = |e: &dyn std::fmt::Display| wrong(format!("{}: {e}", path.display()));
    if path == Path::new("-") {
        return read(std::io::stdin().lock()).map_err(|e| refuse(&e));
    }
    if path.is_dir() {
        return Err(refuse(&"this is a folder, expected a file with the columns id,lower,upper,size"));
    }
    let file = File::open(path).map_err(|e| refuse(&format!("cannot be read: {e}")))?;
    read(std::io::BufReader::new(file)).map_err(|e| refuse(&e))
}

fn summary<'a>(table: &'a Table, report: &'a Report, seconds: f64) -> Summary<'a> {
    let rows = table.problem.items().iter().zip(&table.ids).zip(&report.placement.offsets);
    Summary {
        buffers: table.ids.len(),
        planner: report.planner.name(),
        arena_bytes: report.placement.height,
        lower_bound_bytes: report.lower_bound,
        unshared_bytes: report.unshared,
        ratio: report.ratio,
        proved_optimal: report.proved_optimal,
        seconds,
        tried: &report.tried,
        placement: rows
            .map(|((item, id), &offset)| Placed { id, lower: item.lower, upper: item.upper, size: item.size, offset })
            .collect(),
    }
}

/// The horizontal axis is time, the vertical axis the address; each rectangle is a buffer.
fn picture(table: &Table, report: &Report) -> String {
    const WIDTH: f64 = 1200.0;
    const HEIGHT: f64 = 640.0;
    let items = table.problem.items();
    let first = items.iter().map(|i| i.lower).min().unwrap_or(0);
    let last = items.iter().map(|i| i.upper).max().unwrap_or(1);
    let (sx, sy) = (WIDTH / (last - first).max(1) as f64, HEIGHT / report.placement.height.max(1) as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 -28 {WIDTH} {}\" font-family=\"sans-serif\" \
         font-size=\"14\">\n\
         <rect y=\"-28\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n<text x=\"4\" y=\"-10\">{} in {}, {:.4} of \
         the lower bound</text>\n",
        HEIGHT + 28.0,
        output::counted(items.len() as u64, "buffer"),
        Bytes(report.placement.height),
        report.ratio
    );
    for ((item, id), &offset) in items.iter().zip(&table.ids).zip(&report.placement.offsets) {
        let (x, w) = ((item.lower - first) as f64 * sx, item.duration() as f64 * sx);
        let (h, top) = (item.size as f64 * sy, HEIGHT - (offset + item.size) as f64 * sy);
        let id = id.replace('&', "&amp;").replace('<', "&lt;");
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<rect x=\"{x:.2}\" y=\"{top:.2}\" width=\"{w:.2}\" height=\"{h:.2}\" fill=\"#009e73\" stroke=\"#ffffff\" \
             stroke-width=\"0.5\"><title>{id}: {} \
             bytes at {offset}, alive {}..{}</title></rect>",
            item.size, item.lower, item.upper
        );
    }
    out.push_str("</svg>\n");
    out
}
