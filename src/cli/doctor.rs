//! `stepgraph doctor`: what this machine offers, what is missing, and how to get it.

use super::compile_kernels;
use super::doctor_args::DoctorArgs;
use super::kernel_folder::{Cache, NOT_KEPT, cache_advice, change_cache, is_writable};
use super::output;
use crate::exec::available_bytes;
use crate::exec::cpu::{WrongThreads, asked_threads, cpu_name, detect_isa, threads_variable, usable_cores};
use crate::exec::cuda::{Probe, gpu, hide_variable, probe_again};
use crate::select::MOST_THREADS;
use crate::tensor::{Bytes, plural};
use crate::train::runs::RunStore;
use directories::ProjectDirs;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    os: String,
    cpu: Option<String>,
    /// Processor cores that the program may use, within the limits of control groups.
    cores: usize,
    /// The instruction set that kernels are chosen for; `STEPGRAPH_ISA` lowers it.
    isa: &'static str,
    isa_found: Vec<&'static str>,
    /// The most threads that share a step.
    threads: usize,
    threads_why: String,
    memory_available_bytes: Option<u64>,
    /// Whether this build can open a window, and whether there is a display to open it on.
    studio: bool,
    display: Option<String>,
    executors: Vec<&'static str>,
    /// GPUs and the libraries that the CUDA executor loads.
    cuda: Probe,
    /// The device that `--device auto` chooses, and why.
    auto_device: String,
    folders: Vec<Folder>,
    /// Compiled GPU kernels on disk; `None` if they are not kept.
    kernel_cache: Option<Cache>,
    advice: Vec<String>,
}

#[derive(Serialize)]
struct Folder {
    purpose: &'static str,
    path: String,
    writable: bool,
}

/// Prints the report.
///
/// # Errors
/// If the cache of kernels cannot be changed as requested, if kernels cannot be compiled, or if standard output fails.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    if args.compile_kernels.is_some() {
        compile_kernels::check()?;
    }
    let cleared_bytes = change_cache(args)?;
    if let Some(precision) = args.compile_kernels {
        compile_kernels::run(precision)?;
    }
    let cache = Cache::now(cleared_bytes);
    let report = examine(cache, args);
    if args.json { output::print_json(&report) } else { output::print(&text(&report)) }
}

fn examine(kernel_cache: Option<Cache>, args: &DoctorArgs) -> Report {
    let cuda = probe_again();
    let folders = folders();
    let studio = cfg!(feature = "studio");
    let display = display();
    let mut advice = Vec::new();
    if !studio {
        advice.push("The window: build with `cargo build --release`, without --no-default-features.".to_owned());
    }
    if display.is_none() {
        advice.push("A display: the studio needs X11 or Wayland; every other command works without one.".to_owned());
    }
    for library in cuda.libraries.iter().filter(|l| l.state.is_err()) {
        advice.push(format!("{}: {}.", library.name, library.help));
    }
    let (executors, auto_device) = match gpu(0) {
        Ok(gpu) => (vec!["cpu", "cuda"], format!("{}, because a GPU works here", gpu.label())),
        Err(why) => (vec!["cpu"], format!("the CPU, because no GPU can be used: {why}")),
    };
    for folder in folders.iter().filter(|f| !f.writable) {
        advice.push(format!(
            "{}: make {} writable, or set {} to a folder that is.",
            folder.purpose,
            folder.path,
            if folder.purpose == "runs" { "STEPGRAPH_RUNS" } else { "HOME" }
        ));
    }
    advice.extend(kernel_cache.as_ref().into_iter().flat_map(|cache| cache_advice(cache, args)));
    advice.extend(hide_variable().err().map(|wrong| format!("{wrong}.")));
    Report {
        version: env!("CARGO_PKG_VERSION"),
        os: os(),
        cpu: cpu_name(),
        cores: usable_cores(),
        isa: detect_isa().name(),
        isa_found: instructions(),
        threads: asked_threads().unwrap_or_else(|| usable_cores().min(MOST_THREADS)),
        threads_why: threads_why(threads_variable()),
        memory_available_bytes: available_bytes(),
        studio,
        display,
        executors,
        cuda,
        auto_device,
        folders,
        kernel_cache,
        advice,
    }
}

/// How the number of threads of a step is chosen.
fn threads_why(asked: Result<Option<usize>, WrongThreads>) -> String {
    match asked {
        Ok(None) => "the fastest number for each step, by estimate or as `bench --tune` measured; --threads N sets it"
            .to_owned(),
        Ok(Some(count)) => format!("{count}, by STEPGRAPH_THREADS"),
        Err(wrong) => format!("no step can be prepared: {wrong}"),
    }
}

fn os() -> String {
    let kind = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| kind.clone(), |n| format!("{}, {kind}", n.trim_matches('"')))
}

#[cfg(target_arch = "x86_64")]
fn instructions() -> Vec<&'static str> {
    let all = [
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
    ];
    all.into_iter().filter(|(_, found)| *found).map(|(name, _)| name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> Vec<&'static str> {
    Vec::new()
}

/// The display that a window would open on. Only Unix systems other than macOS may lack one.
fn display() -> Option<String> {
    if cfg!(any(target_os = "macos", target_os = "windows")) {
        return Some("the system's own".to_owned());
    }
    let of = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    of("WAYLAND_DISPLAY").map(|d| format!("Wayland {d}")).or_else(|| of("DISPLAY").map(|d| format!("X11 {d}")))
}

fn folders() -> Vec<Folder> {
    let dirs = ProjectDirs::from("", "", "stepgraph");
    let runs = RunStore::of_user().ok().map(|s| ("runs", s.folder().to_owned()));
    // The window keeps its settings there.
    let settings = dirs.as_ref().map(|d| ("settings", d.data_dir().to_owned()));
    let cache = dirs.as_ref().map(|d| ("cache", d.cache_dir().to_owned()));
    let folder = |(purpose, path): (&'static str, PathBuf)| Folder {
        purpose,
        writable: is_writable(&path),
        path: path.display().to_string(),
    };
    settings.into_iter().chain(runs).chain(cache).map(folder).collect()
}

fn text(r: &Report) -> String {
    let mut out = format!("stepgraph {}\n", r.version);
    let mut row = |name: &str, value: String| out.push_str(&format!("{name:<10} {value}\n"));
    row("system", r.os.clone());
    let cores = if r.cores == 1 { "1 usable core".to_owned() } else { format!("{} usable cores", r.cores) };
    row("processor", format!("{}, {cores}", r.cpu.as_deref().unwrap_or("unknown")));
    row("threads", r.threads_why.clone());
    let found = if r.isa_found.is_empty() { "nothing beyond the baseline".to_owned() } else { r.isa_found.join(", ") };
    row("kernels", format!("{} (found: {found})", r.isa));
    row("memory", r.memory_available_bytes.map_or_else(|| "unknown".to_owned(), |b| format!("{} free", Bytes(b))));
    let studio = if r.studio { "in this build" } else { "not in this build" };
    row("studio", format!("{studio}; display: {}", r.display.as_deref().unwrap_or("none")));
    row("executors", format!("{}; --device auto takes {}", r.executors.join(", "), r.auto_device));
    for d in &r.cuda.devices {
        let (major, minor) = d.capability;
        let memory = Bytes(d.memory_bytes);
        row(
            &format!("cuda:{}", d.ordinal),
            format!("{}, compute capability {major}.{minor}, {} multiprocessors, {memory}", d.name, d.multiprocessors),
        );
    }
    for l in &r.cuda.libraries {
        row(
            "cuda",
            match &l.state {
                Ok(version) => format!("{:<10} {version}", l.name),
                Err(why) => format!("{:<10} not usable: {why}", l.name),
            },
        );
    }
    if r.cuda.libraries.is_empty() {
        row("cuda", format!("not looked for: {}", r.cuda.why_none));
    }
    for f in &r.folders {
        let state = if f.writable { "writable" } else { "NOT writable" };
        row(f.purpose, format!("{} ({state})", f.path));
    }
    match &r.kernel_cache {
        Some(cache) => {
            let Cache { path, entries, bytes, limit_bytes, writable, cleared_bytes } = cache;
            let cleared = cleared_bytes.map_or_else(String::new, |b| format!("; {} were removed", Bytes(b)));
            let (used, limit) = (Bytes(*bytes), Bytes(*limit_bytes));
            let noun = plural(*entries as u64, "GPU kernel");
            let state = if *writable { "" } else { " (NOT writable)" };
            row("gpu cache", format!("{path}{state}: {entries} {noun}, {used} of at most {limit}{cleared}"));
        }
        None => row("gpu cache", NOT_KEPT.to_owned()),
    }
    for line in &r.advice {
        out.push_str(&output::wrapped(&format!("- {line}"), 110, ""));
    }
    out
}
