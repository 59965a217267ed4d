//! What a run leaves when it is ended from outside: killed, interrupted, out of space, unheard.
#![cfg(unix)]

use super::{at, command, listing, stderr};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A safetensors file without tensors.
const OLDER: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

pub(super) fn spawn(args: &[&str]) -> Child {
    command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the run says that it has made steps.
pub(super) fn wait_for_steps(child: &mut Child) -> BufReader<std::process::ChildStderr> {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("step ") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the run ended before its first step");
    }
    lines
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_killed_run_leaves_no_broken_result() {
    let folder = tempfile::tempdir().unwrap();
    let (save, log) = (at(&folder, "w.safetensors"), at(&folder, "run.jsonl"));
    std::fs::write(&save, OLDER).unwrap();
    let mut child = spawn(&["train", "xor", "--steps", "1000000000", "--save", &save, "--log", &log]);
    let _lines = wait_for_steps(&mut child);
    let part = at(&folder, "run.jsonl.part");
    wait_until("a first write of the log", || std::fs::metadata(&part).is_ok_and(|m| m.len() > 1000));
    signal(&child, "KILL");
    assert!(!child.wait().unwrap().success());
    assert_eq!(std::fs::read(&save).unwrap(), OLDER);
    assert_eq!(listing(folder.path()), ["run.jsonl.part", "w.safetensors"]);
    let text = std::fs::read_to_string(&part).unwrap();
    let whole = &text[..text.rfind('\n').unwrap()];
    for (i, line) in whole.lines().enumerate() {
        let step: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(step["step"], i as u64 + 1);
    }
}

#[test]
fn an_interrupted_run_saves_what_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let [save, log, checkpoint] = ["w.safetensors", "run.jsonl", "c.ckpt"].map(|n| at(&folder, n));
    let mut child = spawn(&[
        "train",
        "xor",
        "--steps",
        "1000000000",
        "--save",
        &save,
        "--log",
        &log,
        "--checkpoint",
        &checkpoint,
        "--json",
    ]);
    let mut lines = wait_for_steps(&mut child);
    signal(&child, "INT");
    let (mut out, mut err) = (String::new(), String::new());
    lines.read_to_string(&mut err).unwrap();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{err}");
    assert!(err.contains("stopped after step") && err.contains("saved after step "), "{err}");
    assert!(["the parameters (", "the checkpoint (", "the log ("].iter().all(|what| err.contains(what)), "{err}");
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&summary["interrupted"], &summary["signal"]), (&true.into(), &"SIGINT".into()));
    let steps = summary["steps"].as_u64().unwrap();
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count() as u64, steps);
    assert_eq!(listing(folder.path()), ["c.ckpt", "run.jsonl", "w.safetensors"]);
    assert!(stepgraph::train::read_tensors(Path::new(&save)).unwrap().get("layers.0.weight").is_some());
}

/// Runs with a limit on the size of files, which ends writes as a full disk does.
fn with_small_files(args: &[&str]) -> std::process::Output {
    let quoted: Vec<String> = args.iter().map(|a| format!("'{a}'")).collect();
    let line = format!("trap '' XFSZ; ulimit -f 2; exec '{}' {}", env!("CARGO_BIN_EXE_stepgraph"), quoted.join(" "));
    Command::new("sh").args(["-c", &line]).output().unwrap()
}

#[test]
fn a_full_disk_is_told_and_leaves_the_old_result() {
    let folder = tempfile::tempdir().unwrap();
    let (save, log) = (at(&folder, "w.safetensors"), at(&folder, "run.jsonl"));
    std::fs::write(&save, OLDER).unwrap();
    let output = with_small_files(&["train", "digits-mlp", "--steps", "5", "--save", &save]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("w.safetensors cannot be written"), "{}", stderr(&output));
    assert_eq!(std::fs::read(&save).unwrap(), OLDER);
    assert_eq!(listing(folder.path()), ["w.safetensors"]);
    let output = with_small_files(&["train", "xor", "--steps", "2000", "--log", &log]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("run.jsonl.part cannot be written"), "{}", stderr(&output));
    assert!(!Path::new(&log).exists(), "a log that is not whole does not get its name");
}

#[test]
fn one_result_that_cannot_be_written_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let [save, log, checkpoint] = ["w.safetensors", "run.jsonl", "c.ckpt"].map(|n| at(&folder, n));
    let results = ["--save", &save, "--log", &log, "--checkpoint", &checkpoint];
    // What the preset says about itself makes the checkpoint long: it and the log are larger than the limit, the parameters are not.
    let preset = super::SMALL.replace("\"lr\": 0.1 }", "\"lr\": 0.1 }, \"data\": { \"type\": \"xor\" }");
    let preset = preset.replace("\"small\"", &format!("\"small\", \"about\": \"{}\"", "long ".repeat(1000)));
    let preset = preset.replace("\"shape\": [6]", "\"shape\": [2]").replace("\"units\": 4", "\"units\": 2");
    let path = at(&folder, "p.json");
    std::fs::write(&path, preset).unwrap();
    let output = with_small_files(&[&["train", &path, "--steps", "300", "--device", "cpu"][..], &results].concat());
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("2 things failed") && told.contains("run.jsonl.part cannot be written"), "{told}");
    assert!(told.contains("c.ckpt cannot be written"), "{told}");
    assert_eq!(listing(folder.path()), ["p.json", "run.jsonl.part", "w.safetensors"]);
    assert!(stepgraph::train::read_tensors(Path::new(&save)).unwrap().get("layers.0.weight").is_some());
    let summary = super::stdout(&output);
    assert!(
        summary.contains("step 300") && summary.contains("w.safetensors") && !summary.contains("c.ckpt"),
        "{summary}"
    );
}

#[test]
fn a_picture_that_cannot_be_written_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "arena.svg");
    let output = with_small_files(&["plan", "stress-200", "--stage", "arena", "--device", "cpu", "--svg", &path]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("arena.svg cannot be written") && told.contains("choose another place"), "{told}");
    assert!(listing(folder.path()).is_empty());
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    for args in [&["plan", "stress-200"][..], &["plan", "stress-200", "--json"], &["presets"], &["--help"]] {
        let mut child = spawn(args);
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        assert!(!text.contains("error") && !text.contains("panicked"), "{args:?}: {text}");
        assert_eq!(output.status.code(), Some(0), "{args:?}");
    }
    let mut child = spawn(&["train", "xor", "--steps", "2000"]);
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0), "nobody listens to progress, and the run goes on");
}

#[test]
fn a_file_of_another_kind_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let letter = at(&folder, "letter.txt");
    let weights = at(&folder, "w.safetensors");
    std::fs::write(&letter, "a letter\n").unwrap();
    // A result of its own kind is made again without a word.
    (0..2).for_each(|_| drop(super::succeed(&["train", "xor", "--steps", "2", "--save", &weights])));
    for (args, kind) in [
        (&["train", "xor", "--steps", "2", "--save", &letter][..], "safetensors file"),
        (&["train", "xor", "--steps", "2", "--checkpoint", &letter], "safetensors file"),
        (&["predict", "xor", "--init", &weights, "--out", &letter], "table of answers"),
        (&["plan", "xor", "--svg", &letter], "SVG picture"),
    ] {
        let told = super::refused(args);
        assert!(told.contains(&format!("is no {kind}, so it is not replaced")), "{told}");
        assert_eq!(std::fs::read(&letter).unwrap(), b"a letter\n");
    }
    assert_eq!(listing(folder.path()), ["letter.txt", "w.safetensors"]);
}
