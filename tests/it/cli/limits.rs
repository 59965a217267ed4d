//! The resources of commands: memory, estimated before it is allocated, and threads.

use super::{at, command, json, stderr, stdout, succeeded};
use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// A network of dense layers on the digits.
fn preset(layers: &[usize], input: usize, data: &str) -> String {
    let dense: Vec<String> = layers.iter().map(|units| format!(r#"{{ "type": "dense", "units": {units} }}"#)).collect();
    format!(
        r#"{{ "version": 1, "name": "large", "input": {{ "shape": [{input}], "batch": 16 }}, "layers": [{}],
            "loss": {{ "type": "softmax_cross_entropy" }}, "optimizer": {{ "type": "adam", "lr": 0.0001 }},
            "data": {data}, "train": {{ "steps": 2, "seed": 1 }} }}"#,
        dense.join(", ")
    )
}

const MOONS: &str = r#"{ "type": "moons", "samples": 200, "noise": 0.1 }"#;

/// Like [`command`], under a limit on the address space in KiB.
fn limited(kib: u64, args: &[&str]) -> Output {
    let program = command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]).arg(program.get_program());
    shell.args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().unwrap()
}

#[test]
fn a_run_of_large_parameters_takes_little_beside_its_arena() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = at(&folder, "large.json");
    std::fs::write(&file, preset(&[4096, 4096, 10], 64, r#"{ "type": "digits" }"#)).unwrap();
    let run = |args: &[&str]| -> Value {
        let args = [&["train", &file, "--json", "--device", "cpu"], args].concat();
        let output = command(&args).env("XDG_CACHE_HOME", at(&folder, "cache")).output().unwrap();
        let summary: Value = serde_json::from_str(&succeeded(&args, &output)).unwrap();
        let [peak, arena] = ["peak_rss_bytes", "arena_bytes"].map(|name| summary[name].as_u64().unwrap());
        println!("{args:?}: peak {} MiB, arena {} MiB", peak / MIB, arena / MIB);
        assert!(arena > 256 * MIB);
        assert!(peak <= arena * 13 / 10 + 64 * MIB, "{args:?}: {} MiB for {} MiB", peak / MIB, arena / MIB);
        summary
    };
    let (weights, checkpoint) = (at(&folder, "w.safetensors"), at(&folder, "c.safetensors"));
    let plain = run(&["--steps", "2"]);
    let written = run(&["--steps", "2", "--save", &weights, "--checkpoint", &checkpoint, "--eval-every", "1"]);
    assert_eq!((&plain["loss"], &plain["held_out"]), (&written["loss"], &written["held_out"]));
    run(&["--steps", "1", "--init", &weights]);
    // A continued run gives the same result as one without a pause.
    let resumed = run(&["--steps", "3", "--resume", &checkpoint]);
    assert_eq!(resumed["loss"], run(&["--steps", "3"])["loss"]);
    // A snapshot on the disk does not outlive the program.
    let left = std::fs::read_dir(at(&folder, "cache/stepgraph"))
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_run_that_turns_to_nan_goes_back_to_its_snapshot_on_the_disk() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = at(&folder, "large.json");
    let text = preset(&[2500, 2500, 300, 300, 300, 10], 64, r#"{ "type": "digits" }"#).replace("0.0001", "1e6");
    std::fs::write(&file, text).unwrap();
    let log = at(&folder, "log.jsonl");
    let args = ["train", &file, "--device", "cpu", "--steps", "5", "--log", &log];
    let output = command(&args).env("XDG_CACHE_HOME", at(&folder, "cache")).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("the first value that is not finite is"), "{message}");
}

#[test]
fn memory_that_does_not_fit_is_refused_before_it_is_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let file = at(&folder, "large.json");
    std::fs::write(&file, preset(&[8192, 8192, 2], 2, MOONS)).unwrap();
    for command in ["train", "bench"] {
        let output = limited(900_000, &[command, &file, "--device", "cpu"]);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            message.contains("this takes ") && message.contains("are free: 1.0 GiB for the step's arena"),
            "{message}"
        );
        assert!(message.contains("use fewer units or a smaller batch") && stdout(&output).is_empty(), "{message}");
    }
    // The arguments are not wrong: every command has the same status.
    let [weights, capsule] = ["w.safetensors", "x.capsule"].map(|name| at(&folder, name));
    super::succeed(&["train", "xor", "--steps", "1", "--save", &weights]);
    for args in [
        &["verify", &file, "--device", "cpu"][..],
        &["predict", &file, "--device", "cpu", "--init", &weights],
        &["capsule", "make", &file, &capsule, "--device", "cpu", "--steps", "1"],
        &["export", &file, &at(&folder, "x.py")],
    ] {
        let kib = if args[0] == "export" { 250_000 } else { 900_000 };
        let output = limited(kib, args);
        let message = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""), "{args:?}: {message}");
        assert!(message.contains("of memory, and ") && message.contains(" are free"), "{args:?}: {message}");
    }
    assert_eq!(super::listing(folder.path()), ["large.json", "w.safetensors"]);
}

/// A folder with a preset whose parameters take ten gigabytes, and the preset's path.
fn huge() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = at(&folder, "huge.json");
    std::fs::write(&file, preset(&[50_000, 50_000, 2], 2, MOONS)).unwrap();
    (folder, file)
}

#[test]
fn parameters_of_ten_gigabytes_are_refused_at_once() {
    let (_folder, file) = huge();
    let started = Instant::now();
    let output = limited(24 << 20, &["train", &file, "--device", "cpu"]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("37.3 GiB for the step's arena"), "{message}");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn an_export_that_does_not_fit_is_refused_at_once() {
    let (folder, file) = huge();
    let started = Instant::now();
    let output = limited(4 << 20, &["export", &file, &at(&folder, "a.safetensors")]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("this takes 18.7 GiB of memory") && message.contains("9.3 GiB for the parameters"),
        "{message}"
    );
    // A format's own limit is not reported as a lack of memory.
    let output = limited(4 << 20, &["export", &file, &at(&folder, "a.onnx")]);
    let message = super::was_refused(&["export"], &output);
    assert!(
        message.contains("take 9.3 GiB, and ONNX allows 2.0 GiB") && message.contains("export safetensors"),
        "{message}"
    );
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(super::listing(folder.path()), ["huge.json"]);
}

#[test]
fn the_number_of_threads_and_its_reason_are_reported() {
    let counts = |summary: &Value| (summary["threads"].as_u64(), summary["threads_why"]["by"].clone());
    let train = ["train", "digits-mlp", "--device", "cpu", "--steps", "1", "--json"];
    let (count, by) = counts(&json(&train));
    assert_eq!(by, "estimated");
    assert_eq!(counts(&json(&[&train[..], &["--threads", "3"]].concat())), (Some(3), "option".into()));
    let output = command(&train).env("STEPGRAPH_THREADS", "2").output().unwrap();
    let summary: Value = serde_json::from_str(&succeeded(&train, &output)).unwrap();
    assert_eq!(counts(&summary), (Some(2), "variable".into()));
    assert!(stderr(&output).contains("threads: 2 threads by STEPGRAPH_THREADS"), "{}", stderr(&output));
    let plan = json(&["plan", "digits-mlp", "--device", "cpu", "--json"]);
    assert_eq!((plan["threads"]["count"].as_u64(), &plan["threads"]["by"]), (count, &by));
    let bench = json(&["bench", "digits-mlp", "--device", "cpu", "--seconds", "0.01", "--json"]);
    assert_eq!(counts(&bench), (count, by));
    let doctor = json(&["doctor", "--json"]);
    assert!(doctor["cores"].as_u64().unwrap() >= 1 && doctor["threads_why"].as_str().unwrap().contains("bench --tune"));
}

#[test]
fn the_number_of_threads_that_was_measured_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| -> Value {
        let mut command = command(args);
        command.env("XDG_CACHE_HOME", at(&folder, "cache")).env_remove("STEPGRAPH_NO_TUNING");
        serde_json::from_str(&succeeded(args, &command.output().unwrap())).unwrap()
    };
    let tuned = run(&["bench", "xor", "--device", "cpu", "--seconds", "0.01", "--tune", "--json"]);
    assert_eq!(tuned["threads_why"]["by"], "measured");
    let trained = run(&["train", "xor", "--device", "cpu", "--steps", "1", "--json"]);
    assert_eq!((&trained["threads"], &trained["threads_why"]), (&tuned["threads"], &tuned["threads_why"]));
}
