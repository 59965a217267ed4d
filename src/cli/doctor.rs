//! `stepgraph doctor`: what this machine offers, what is missing, and how to get it.

use super::args::DoctorArgs;
use super::output;
use crate::exec::available_bytes;
use crate::exec::cpu::{cpu_name, default_threads, detect_isa};
use crate::tensor::Bytes;
use directories::ProjectDirs;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Report {
    version: &'static str,
    os: String,
    cpu: Option<String>,
    cores: usize,
    /// The instruction set that kernels are chosen for; `STEPGRAPH_ISA` lowers it.
    isa: &'static str,
    isa_found: Vec<&'static str>,
    threads: usize,
    memory_available_bytes: Option<u64>,
    /// Whether this build can open a window, and whether a display is there to open it on.
    studio: bool,
    display: Option<String>,
    executors: Vec<&'static str>,
    cuda: Vec<Library>,
    folders: Vec<Folder>,
    advice: Vec<String>,
}

#[derive(Serialize)]
struct Library {
    name: &'static str,
    purpose: &'static str,
    /// Where the file lies; it is not loaded.
    found: Option<PathBuf>,
}

#[derive(Serialize)]
struct Folder {
    purpose: &'static str,
    path: PathBuf,
    writable: bool,
}

/// Reports.
///
/// # Errors
/// Where standard output fails.
pub fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let report = examine();
    if args.json { output::print_json(&report) } else { output::print(&told(&report)) }
}

fn examine() -> Report {
    let cuda = libraries();
    let folders = folders();
    let studio = cfg!(feature = "studio");
    let display = display();
    let mut advice = Vec::new();
    if !studio {
        advice.push("The window: build with `cargo build --release`, without --no-default-features.".to_owned());
    }
    if display.is_none() {
        advice.push("A display: the studio needs X11 or Wayland; every other command works without.".to_owned());
    }
    if cuda.iter().any(|l| l.found.is_none()) {
        advice.push(
            "CUDA: nothing to do now. This version has no CUDA executor, so these libraries would not be used. The driver (libcuda) comes with \
             NVIDIA's driver package, NVRTC and cuBLASLt with the CUDA toolkit or the PyPI wheels nvidia-cuda-nvrtc and nvidia-cublas, cuDNN with \
             nvidia-cudnn."
                .to_owned(),
        );
    }
    for folder in folders.iter().filter(|f| !f.writable) {
        advice.push(format!(
            "{}: make {} writable, or set HOME to a folder that is.",
            folder.purpose,
            folder.path.display()
        ));
    }
    Report {
        version: env!("CARGO_PKG_VERSION"),
        os: os(),
        cpu: cpu_name(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        isa: detect_isa().name(),
        isa_found: instructions(),
        threads: default_threads(),
        memory_available_bytes: available_bytes(),
        studio,
        display,
        executors: vec!["cpu"],
        cuda,
        folders,
        advice,
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
    all.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
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

fn libraries() -> Vec<Library> {
    let windows = cfg!(target_os = "windows");
    let names: [(&str, &str, &str); 4] = [
        ("libcuda.so.1", "nvcuda.dll", "the driver"),
        ("libnvrtc.so", "nvrtc64", "compiles kernels"),
        ("libcublasLt.so", "cublasLt64", "matrix products"),
        ("libcudnn.so", "cudnn64", "convolutions"),
    ];
    let places = library_folders();
    let cached = loader_cache();
    names
        .into_iter()
        .map(|(unix, windows_name, purpose)| {
            let name = if windows { windows_name } else { unix };
            Library { name, purpose, found: find(name, &places, &cached) }
        })
        .collect()
}

/// The folders in which the dynamic loader would look.
fn library_folders() -> Vec<PathBuf> {
    let variable = if cfg!(target_os = "windows") { "PATH" } else { "LD_LIBRARY_PATH" };
    let listed = std::env::var_os(variable).unwrap_or_default();
    let usual = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/usr/local/cuda/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    std::env::split_paths(&listed).filter(|p| !p.as_os_str().is_empty()).chain(usual.map(PathBuf::from)).collect()
}

/// The paths in the loader's cache: text between zero bytes that looks like one.
fn loader_cache() -> Vec<PathBuf> {
    let bytes = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
    let texts = bytes.split(|b| *b == 0).filter_map(|t| std::str::from_utf8(t).ok());
    texts.filter(|t| t.starts_with('/') && t.contains(".so")).map(PathBuf::from).collect()
}

/// The first file whose name starts with `name`, in the cache or the folders.
fn find(name: &str, folders: &[PathBuf], cached: &[PathBuf]) -> Option<PathBuf> {
    let fits = |path: &Path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(name));
    let listed = |folder: &PathBuf| {
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(folder).ok()?.filter_map(|e| Some(e.ok()?.path())).filter(|p| fits(p)).collect();
        found.sort();
        found.into_iter().next()
    };
    cached.iter().find(|p| fits(p) && p.exists()).cloned().or_else(|| folders.iter().find_map(listed))
}

fn folders() -> Vec<Folder> {
    let Some(dirs) = ProjectDirs::from("", "", "stepgraph") else { return Vec::new() };
    let all = [("settings", dirs.config_dir()), ("runs", dirs.data_dir()), ("cache", dirs.cache_dir())];
    all.into_iter()
        .map(|(purpose, path)| Folder { purpose, path: path.to_owned(), writable: is_writable(path) })
        .collect()
}

/// Whether a folder, or the nearest one above it that exists, takes files; nothing is left behind.
fn is_writable(path: &Path) -> bool {
    path.ancestors().find(|p| p.is_dir()).is_some_and(|p| tempfile::tempfile_in(p).is_ok())
}

fn told(r: &Report) -> String {
    let mut out = format!("stepgraph {}\n", r.version);
    let mut row = |name: &str, value: String| out.push_str(&format!("{name:<10} {value}\n"));
    row("system", r.os.clone());
    row("processor", format!("{}, {} cores, using {}", r.cpu.as_deref().unwrap_or("unknown"), r.cores, r.threads));
    let found = if r.isa_found.is_empty() { "nothing beyond the baseline".to_owned() } else { r.isa_found.join(", ") };
    row("kernels", format!("{} (found: {found})", r.isa));
    row("memory", r.memory_available_bytes.map_or_else(|| "unknown".to_owned(), |b| format!("{} free", Bytes(b))));
    let studio = if r.studio { "in this build" } else { "not in this build" };
    row("studio", format!("{studio}; display: {}", r.display.as_deref().unwrap_or("none")));
    row(
        "executors",
        format!(
            "{}; CUDA does not exist in this version, the libraries below are only looked for",
            r.executors.join(", ")
        ),
    );
    for l in &r.cuda {
        let found = l.found.as_ref().map_or_else(|| "not found".to_owned(), |p| p.display().to_string());
        row("cuda", format!("{:<15} {:<16} {found}", l.name, l.purpose));
    }
    for f in &r.folders {
        let state = if f.writable { "writable" } else { "NOT writable" };
        row(f.purpose, format!("{} ({state})", f.path.display()));
    }
    for line in &r.advice {
        out.push_str(&output::wrapped(&format!("- {line}"), 110, ""));
    }
    out
}
