//! The commands as a user runs them: the real program, its output, its exit status, and its files.

mod doctor;
mod exactness;
mod exports;
mod files;
mod generate;
mod inputs;
mod kept;
#[cfg(target_os = "linux")]
mod limits;
mod mistakes;
mod names;
mod notes;
mod plan;
mod predict;
mod prepared;
mod random;
mod resume;
mod signals;
mod together;
mod tokenizers;
mod train;
mod verify;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use stepgraph::tensor::{DType, HostTensor, Shape};

/// The program with these arguments, not started yet.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepgraph"));
    // Times that are stored on this machine must not affect the tests. Tests use the CPU on every machine, and choose
    // kernels by estimate.
    command.env("STEPGRAPH_NO_TUNING", "1").env("STEPGRAPH_NO_CUDA", "1");
    command.args(args).env_remove("STEPGRAPH_ISA").env_remove("STEPGRAPH_THREADS").env_remove("STEPGRAPH_LOG");
    command.env_remove("STEPGRAPH_HIDE").env_remove("STEPGRAPH_KERNELS");
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A Python with these modules: `STEPGRAPH_PYTHON`, or the system's.
fn python_with(modules: &str) -> Result<String, String> {
    let name = std::env::var("STEPGRAPH_PYTHON").unwrap_or_else(|_| "python3".into());
    let asked = Command::new(&name).args(["-c", &format!("import {modules}")]).output();
    match asked {
        Ok(found) if found.status.success() => Ok(name),
        Ok(found) => Err(stderr(&found).lines().last().unwrap_or_default().to_owned()),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Standard output of a command that must succeed.
fn succeed(args: &[&str]) -> String {
    succeeded(args, &run(args))
}

fn succeeded(args: &[&str], output: &Output) -> String {
    assert!(output.status.success(), "{args:?}: {:?}\n{}", output.status, stderr(output));
    stdout(output)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&succeed(args)).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

/// Standard error of a command that must report a mistake: exit status 2, and no standard output.
fn refused(args: &[&str]) -> String {
    was_refused(args, &run(args))
}

fn was_refused(args: &[&str], output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", stdout(output));
    assert!(!text.contains("panicked") && !text.contains("defect"), "{text}");
    text
}

/// For each wrong value of an option, the message names the option, the value, and what is expected.
fn refuses_values(cases: &[(&str, &[&str], &str)], message: impl Fn(&str, &str) -> String) {
    for &(option, wrong, expected) in cases {
        for value in wrong {
            let message = message(option, value);
            assert!([option, value, expected].iter().all(|part| message.contains(part)), "{message}");
        }
    }
}

/// The names in a folder.
fn listing(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A small network without data: 6 inputs, 4 classes, batch 8.
const SMALL: &str = r#"{
  "version": 1, "name": "small", "input": { "shape": [6], "batch": 8 },
  "layers": [{ "type": "dense", "units": 5, "activation": "relu" }, { "type": "dense", "units": 4 }],
  "loss": { "type": "softmax_cross_entropy" }, "optimizer": { "type": "sgd", "lr": 0.1 }
}"#;

/// A folder with `small.json` and `batches.safetensors`: `count` batches with these labels, repeated.
fn small(count: usize, labels: &[i32]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("small.json"), SMALL).unwrap();
    let x: Vec<f32> = (0..count * 48).map(|i| ((i * 7919 % 101) as f32 - 50.0) / 25.0).collect();
    let y: Vec<i32> = (0..count * 8).map(|i| labels[i % labels.len()]).collect();
    let tensors = [
        ("batch.x", HostTensor::from_slice([count, 8, 6], &x).unwrap()),
        ("batch.y", HostTensor::from_slice([count, 8], &y).unwrap()),
    ];
    save(&folder.path().join("batches.safetensors"), &tensors);
    folder
}

fn save(path: &Path, tensors: &[(&str, HostTensor)]) {
    use safetensors::tensor::{Dtype, TensorView};
    let dtype = |t: &HostTensor| match t.dtype {
        DType::F32 => Dtype::F32,
        DType::I32 => Dtype::I32,
        other => panic!("{other} is not written here"),
    };
    let views = tensors.iter().map(|(n, t)| (*n, TensorView::new(dtype(t), t.shape.0.clone(), t.bytes()).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn zeros(shape: &[usize]) -> HostTensor {
    HostTensor::zeros(DType::F32, Shape(shape.to_vec()))
}

/// A path inside a folder, as an argument.
fn at(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

fn bundled() -> Vec<&'static str> {
    stepgraph::model::BUNDLED.iter().map(|b| b.name).collect()
}

fn data_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

#[test]
fn help_of_every_command_has_examples() {
    let help = succeed(&["--help"]);
    let names = ["studio", "train", "plan", "verify", "predict", "generate", "bench", "arena", "presets", "doctor"];
    for name in names.into_iter().chain(["functions", "completions"]) {
        assert!(help.contains(name), "{help}");
        let text = succeed(&[name, "--help"]);
        assert!(text.contains("Examples:") && text.contains(&format!("stepgraph {name}")), "{text}");
    }
    assert_eq!(succeed(&["--version"]).trim(), concat!("stepgraph ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn presets_are_listed_and_printed() {
    let list = succeed(&["presets"]);
    let names: Vec<Value> =
        json(&["presets", "--json"]).as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    assert!(names.len() >= 10);
    assert_eq!(names, bundled());
    assert!(bundled().iter().all(|n| list.contains(n)));
    let printed = succeed(&["presets", "xor"]);
    assert!(stepgraph::model::read_preset(&printed).is_ok());
    assert!(refused(&["presets", "nothing"]).contains("digits-mlp"));
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = succeed(&["completions", shell]);
        assert!(["train", "plan", "verify", "bench", "arena", "doctor"].iter().all(|c| script.contains(c)), "{shell}");
    }
}

#[test]
fn verify_proves_a_small_preset_and_prints_json() {
    let report = json(&["verify", "xor", "--replays", "50", "--json"]);
    assert_eq!(report["preset"], "xor");
    assert_eq!(report["passed"], true);
    assert!(report["checks"].as_array().unwrap().len() >= 8);
    let text = succeed(&["verify", "xor", "iris", "--replays", "50"]);
    assert!(text.contains("xor\n") && text.contains("iris\n") && text.contains(" 0 failed"), "{text}");
}

#[test]
fn bench_changes_sizes_that_fit_the_data() {
    let report = json(&["bench", "iris", "--edits", "60", "--device", "cpu", "--json"]);
    let edits = report["edits"].as_array().unwrap();
    assert!(report["preset"] == "iris" && edits.len() == 60, "{report}");
    let batches: Vec<u64> =
        edits.iter().filter(|edit| edit["place"] == "/input/batch").map(|edit| edit["to"].as_u64().unwrap()).collect();
    assert!(batches.len() > 2 && batches.iter().all(|batch| *batch <= 120), "{batches:?}");
    let text = succeed(&["bench", "xor", "--edits", "2", "--device", "cpu"]);
    assert!(text.contains("after 2 changes of one size") && text.contains("the first step and the rest"), "{text}");
}

#[test]
fn bench_reports_both_executors() {
    let report = json(&["bench", "xor", "--seconds", "0.2", "--json"]);
    for kind in ["eager_us", "replay_us"] {
        let [low, mid, high] = ["p10", "median", "p99"].map(|q| report[kind][q].as_f64().unwrap());
        assert!(0.0 < low && low <= mid && mid <= high, "{report}");
    }
    assert!(report["preset"] == "xor" && report["device"].is_string() && report["host_us"].as_f64().unwrap() > 0.0);
    assert_eq!(report["launches"].as_u64().unwrap() as usize, report["ops"].as_array().unwrap().len());
    // No operation is faster than its floor, and no step is faster than the sum of its operations' floors.
    for part in report["ops"].as_array().unwrap().iter().chain([&report]) {
        let [floor, gap] = ["floor_us", "gap"].map(|k| part[k].as_f64().unwrap());
        assert!(floor > 0.0 && gap >= 1.0, "{part}");
    }
    assert_eq!(report["ceilings"]["levels"].as_array().unwrap().len(), 4);
    let several = json(&["bench", "xor", "iris", "--seconds", "0.1", "--json"]);
    assert_eq!(several.as_array().unwrap().len(), 2);
}

#[test]
fn bench_times_networks_in_turn() {
    let report = json(&["bench", "xor", "iris", "--in-turn", "--device", "cpu", "--json"]);
    let us: Vec<f64> = report["networks"].as_array().unwrap().iter().map(|n| n["us"].as_f64().unwrap()).collect();
    assert!(us.len() == 2 && us[0] > 0.0 && report["start_us"].as_f64().unwrap() >= us[0], "{report}");
    assert_eq!((&report["worst_us"], &report["ready_us"]["median"]), (&us[1].into(), &us[1].into()));
    // There is nothing to say of networks after the only one.
    let one = json(&["bench", "xor", "--in-turn", "--device", "cpu", "--json"]);
    assert!(one["ready_us"].is_null() && one["worst_us"].is_null() && one["networks"].as_array().unwrap().len() == 1);
    let text = succeed(&["bench", "xor", "--in-turn", "--device", "cpu"]);
    assert!(text.contains(" after the start of the command\n") && !text.contains("median"), "{text}");
}

#[test]
fn tuned_kernels_are_remembered_and_a_damaged_file_is_ignored() {
    let cache = tempfile::tempdir().unwrap();
    let tuned = |args: &[&str]| {
        let mut command = command(args);
        command.env_remove("STEPGRAPH_NO_TUNING").env("XDG_CACHE_HOME", cache.path()).env("HOME", cache.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        (stdout(&output), stderr(&output))
    };
    let (before, _) = tuned(&["plan", "xor", "--stage", "selected"]);
    assert!(!before.contains("measured"), "{before}");
    let (report, notes) = tuned(&["bench", "xor", "--seconds", "0.1", "--tune", "--json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["tuned_calls"], report["launches"], "{notes}");
    assert!(notes.contains("remembered in "), "{notes}");
    let (after, _) = tuned(&["plan", "xor", "--stage", "selected"]);
    assert!(after.contains("measured"), "{after}");
    // The same file gives the same plan, and without it the plan is the previous one.
    assert_eq!(tuned(&["plan", "xor", "--stage", "selected"]).0, after);
    assert_eq!(succeed(&["plan", "xor", "--stage", "selected"]), before);
    tuned(&["train", "xor", "--steps", "20"]);
    tuned(&["verify", "xor", "--replays", "30"]);
    assert!(refused(&["bench", "xor", "--tune"]).contains("STEPGRAPH_NO_TUNING"));
    let mut files = vec![cache.path().to_owned()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if path.ends_with("tuning.json") {
            std::fs::write(&path, "{\"format\": ").unwrap();
        }
    }
    let (ignored, notes) = tuned(&["plan", "xor", "--stage", "selected"]);
    assert!(notes.contains("remembered kernel times are ignored") && notes.contains("--tune"), "{notes}");
    assert_eq!(ignored, before);
}

#[test]
fn times_that_cannot_be_stored_are_measured_and_used() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "a letter").unwrap();
    let mut places = vec![folder.path().join("file")];
    // No user can create folders there.
    places.extend(cfg!(target_os = "linux").then(|| "/proc".into()));
    for place in places {
        let mut command = command(&["bench", "xor", "--seconds", "0.1", "--tune", "--json"]);
        command.env_remove("STEPGRAPH_NO_TUNING").env("XDG_CACHE_HOME", &place).env("HOME", &place);
        let output = command.output().unwrap();
        let notes = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{notes}");
        let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(report["tuned_calls"], report["launches"], "{notes}");
        let message = notes.lines().find(|line| line.contains("kernels timed")).unwrap();
        assert!(message.contains("NOT stored") && message.contains(place.to_str().unwrap()), "{message}");
        assert!(message.contains("tuning.json cannot be written: ") && message.contains("XDG_CACHE_HOME"), "{message}");
    }
    assert_eq!(listing(folder.path()), ["file"]);
}

#[test]
fn a_build_without_a_window_reports_it() {
    if cfg!(feature = "studio") {
        println!("skipped: this build has a window");
        return;
    }
    let output = run(&["studio"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cargo build --release"), "{}", stderr(&output));
}

#[test]
fn the_studio_refuses_a_file_that_is_not_a_preset() {
    if !cfg!(feature = "studio") {
        println!("skipped: this build has no window");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let broken = at(&folder, "broken.json");
    std::fs::write(&broken, "{\"name\": 3}").unwrap();
    for args in [&["studio", broken.as_str()][..], &[broken.as_str()]] {
        let text = refused(args);
        assert!(text.contains("broken.json has") && text.contains("name: found 3"), "{text}");
    }
}
