//! The files of a run that is ended from outside: killed, interrupted, without disk space, with a closed output.
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

/// Waits until the run reports that it has made steps.
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
fn an_interrupted_run_saves_the_requested_results() {
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

/// Runs with a limit on the size of files, which makes writes fail like a full disk.
fn with_small_files(args: &[&str]) -> std::process::Output {
    small_files(args).output().unwrap()
}

fn small_files(args: &[&str]) -> Command {
    limited_files(2, args)
}

/// Like [`small_files`], with a limit of this many of the shell's blocks.
fn limited_files(blocks: u32, args: &[&str]) -> Command {
    let quoted: Vec<String> = args.iter().map(|a| format!("'{a}'")).collect();
    let line =
        format!("trap '' XFSZ; ulimit -f {blocks}; exec '{}' {}", env!("CARGO_BIN_EXE_stepgraph"), quoted.join(" "));
    let mut command = Command::new("sh");
    command.args(["-c", &line]).env("STEPGRAPH_NO_TUNING", "1").env("STEPGRAPH_NO_CUDA", "1");
    command
}

#[test]
fn a_full_disk_is_reported_and_leaves_the_old_result() {
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
fn a_result_that_cannot_be_written_does_not_prevent_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let [save, log, checkpoint] = ["w.safetensors", "run.jsonl", "c.ckpt"].map(|n| at(&folder, n));
    let results = ["--save", &save, "--log", &log, "--checkpoint", &checkpoint];
    // The preset's description makes the checkpoint long: it and the log exceed the limit, the parameters do not.
    let preset = super::SMALL.replace("\"lr\": 0.1 }", "\"lr\": 0.1 }, \"data\": { \"type\": \"xor\" }");
    let preset = preset.replace("\"small\"", &format!("\"small\", \"about\": \"{}\"", "long ".repeat(1000)));
    let preset = preset.replace("\"shape\": [6]", "\"shape\": [2]").replace("\"units\": 4", "\"units\": 2");
    let path = at(&folder, "p.json");
    std::fs::write(&path, preset).unwrap();
    let args = [&["train", &path, "--steps", "300", "--device", "cpu"][..], &results].concat();
    let output = limited_files(8, &args).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("2 things failed") && message.contains("run.jsonl.part cannot be written"), "{message}");
    assert!(message.contains("c.ckpt cannot be written"), "{message}");
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
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("arena.svg cannot be written") && message.contains("choose another place"), "{message}");
    assert!(listing(folder.path()).is_empty());
}

#[test]
fn a_closed_pipe_ends_the_program_without_a_message() {
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
    assert_eq!(child.wait().unwrap().code(), Some(0), "nobody listens to progress, and the run continues");
}

#[test]
fn a_file_of_another_kind_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let letter = at(&folder, "letter.txt");
    let weights = at(&folder, "w.safetensors");
    std::fs::write(&letter, "a letter\n").unwrap();
    // An older result of the same kind is replaced without a message.
    (0..2).for_each(|_| drop(super::succeed(&["train", "xor", "--steps", "2", "--save", &weights])));
    for (args, kind) in [
        (&["train", "xor", "--steps", "2", "--save", &letter][..], "safetensors file"),
        (&["train", "xor", "--steps", "2", "--checkpoint", &letter], "safetensors file"),
        (&["predict", "xor", "--init", &weights, "--out", &letter], "table of answers"),
        (&["plan", "xor", "--svg", &letter], "SVG picture of this program"),
    ] {
        let message = super::refused(args);
        assert!(message.contains(&format!("is not of this kind: {kind}, so it is not replaced")), "{message}");
        assert_eq!(std::fs::read(&letter).unwrap(), b"a letter\n");
    }
    assert_eq!(listing(folder.path()), ["letter.txt", "w.safetensors"]);
}

#[test]
fn a_full_disk_is_status_1_for_every_result() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, weights) = (at(&folder, "runs"), at(&folder, "w.safetensors"));
    let train = ["train", "digits-mlp", "--steps", "300", "--keep", "--save", &weights];
    super::succeeded(&train, &command(&train).env("STEPGRAPH_RUNS", &runs).output().unwrap());
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| at(&out, name);
    let names = ["a.csv", "a.jsonl", "a.png", "a.svg", "a.safetensors", "a.py", "a.onnx"];
    let exports = names.map(|name| vec!["export".to_owned(), "last".into(), path(name)]);
    let others = [
        vec!["export".to_owned(), "last".into(), path("events"), "--format".into(), "tensorboard".into()],
        vec!["export".into(), "digits-cnn".into(), path("b.safetensors")],
        vec!["capsule".into(), "make".into(), "xor".into(), path("a.capsule"), "--steps".into(), "200".into()],
        vec!["predict".into(), "digits-mlp".into(), "--init".into(), weights.clone(), "--out".into(), path("p.csv")],
        vec!["plan".into(), "stress-200".into(), "--svg".into(), path("plan.svg")],
        vec!["train".into(), "digits-mlp".into(), "--steps".into(), "3".into(), "--checkpoint".into(), path("c.ckpt")],
        vec!["train".into(), "xor".into(), "--steps".into(), "2000".into(), "--log".into(), path("run.jsonl")],
    ];
    for args in exports.into_iter().chain(others) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = small_files(&args).env("STEPGRAPH_RUNS", &runs).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {message}");
        assert!(message.contains("cannot be written") && !message.contains("panicked"), "{args:?}: {message}");
    }
    let left = listing(out.path());
    assert!(left.iter().all(|name| name == "events" || name == "run.jsonl.part"), "{left:?}");
    assert!(listing(&out.path().join("events")).is_empty());
}

#[test]
fn a_full_standard_output_is_status_1() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        println!("skipped: this system has no /dev/full");
        return;
    };
    for args in [
        &["presets"][..],
        &["plan", "xor"],
        &["train", "xor", "--steps", "3"],
        &["bench", "xor", "--seconds", "0.1", "--json"],
        &["verify", "xor", "--replays", "20"],
        &["doctor"],
        &["completions", "bash"],
    ] {
        let output = command(args).stdout(full.try_clone().unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("error: "), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn an_unwritable_path_is_status_2_for_every_result() {
    let folder = tempfile::tempdir().unwrap();
    let file = at(&folder, "file");
    std::fs::write(&file, "a letter").unwrap();
    let inside = at(&folder, "file/a");
    let missing = at(&folder, "no/such/a");
    for path in [&inside, &missing] {
        for args in [
            &["export", "xor", path, "--format", "onnx"][..],
            &["export", "xor", path, "--format", "pytorch"],
            &["export", "xor", path, "--format", "safetensors"],
            &["capsule", "make", "xor", path, "--steps", "1000000000"],
            &["plan", "xor", "--svg", path],
        ] {
            super::refused(args);
        }
    }
    let (runs, train) = (at(&folder, "runs"), ["train", "xor", "--steps", "3", "--keep"]);
    super::succeeded(&train, &command(&train).env("STEPGRAPH_RUNS", &runs).output().unwrap());
    for place in [&file, &inside] {
        let args = ["export", "last", place, "--format", "tensorboard"];
        super::was_refused(&args, &command(&args).env("STEPGRAPH_RUNS", &runs).output().unwrap());
    }
    // The log is written beside its name.
    std::fs::create_dir(at(&folder, "run.jsonl.part")).unwrap();
    let message = super::refused(&["train", "xor", "--steps", "1000000000", "--log", &at(&folder, "run.jsonl")]);
    assert!(message.contains("run.jsonl.part") && message.contains("this is a folder; name a file in it"), "{message}");
    assert_eq!(listing(folder.path()), ["file", "run.jsonl.part", "runs"]);
}

/// The tensors of a file without its metadata, as earlier versions wrote weights.
fn without_metadata(path: &str) {
    let tensors = stepgraph::train::read_tensors(Path::new(path)).unwrap().tensors;
    let named: Vec<_> = tensors.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
    super::save(Path::new(path), &named);
}

/// The command does not replace a file with other contents, and leaves it unchanged.
fn refused(args: &[&str], file: &str, holds: &str) {
    let before = std::fs::read(file).unwrap();
    let message = super::refused(args);
    assert!(message.contains(&format!("{file} holds {holds}")), "{message}");
    assert!(message.contains("so it is not replaced") && message.contains("another name"), "{message}");
    assert_eq!(std::fs::read(file).unwrap(), before, "{file}");
}

#[test]
fn tensors_of_another_kind_are_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| at(&folder, name);
    let [weights, old, own, others, script] = ["w.st", "old.st", "own.ckpt", "iris.ckpt", "iris.py"].map(path);
    let [capsule, batches, foreign, empty] = ["xor.capsule", "batches.st", "foreign.st", "empty.st"].map(path);
    let [of_iris, old_of_iris, data, old_data] =
        ["iris.weights.safetensors", "old-iris.st", "iris.data.safetensors", "old-data.st"].map(path);
    super::succeed(&["train", "xor", "--steps", "2", "--save", &weights, "--checkpoint", &own]);
    super::succeed(&["train", "iris", "--steps", "2", "--checkpoint", &others]);
    super::succeed(&["export", "iris", &script]);
    super::succeed(&["capsule", "make", "xor", &capsule, "--steps", "3"]);
    super::save(Path::new(&batches), &[("batch.x", super::zeros(&[1, 2])), ("batch.y", super::zeros(&[1]))]);
    super::save(Path::new(&foreign), &[("model.embed.weight", super::zeros(&[2]))]);
    std::fs::write(&empty, OLDER).unwrap();
    for (from, to) in [(&weights, &old), (&of_iris, &old_of_iris), (&data, &old_data)] {
        std::fs::copy(from, to).unwrap();
        without_metadata(to);
    }
    let another = "of another network (layers.";
    let save = |file| ["train", "xor", "--steps", "1000000000", "--save", file];
    let checkpoint = |file| ["train", "xor", "--steps", "1000000000", "--checkpoint", file];
    let make = |file| ["capsule", "make", "xor", file, "--replace", "--steps", "1000000000"];
    let export = |file| ["export", "xor", file, "--format", "safetensors", "--replace"];
    let before = listing(folder.path());
    for (file, holds) in [(&own, "a checkpoint"), (&data, "exported data"), (&old_data, "exported data")] {
        refused(&save(file), file, holds);
        refused(&make(file), file, holds);
        refused(&export(file), file, holds);
    }
    for (file, holds) in [(&capsule, "a capsule"), (&batches, "batches"), (&foreign, "tensors that are not parameters")]
    {
        refused(&save(file), file, holds);
        refused(&checkpoint(file), file, holds);
        refused(&export(file), file, holds);
    }
    for file in [&of_iris, &old_of_iris] {
        refused(&checkpoint(file), file, "the weights of a network");
        refused(&make(file), file, "the weights of a network");
    }
    for file in [&weights, &old] {
        refused(&checkpoint(file), file, "the weights of a network");
    }
    refused(&checkpoint(&others), &others, &format!("a checkpoint {another}"));
    assert_eq!(listing(folder.path()), before);
    // An older result of the same kind is replaced without a message, and so is an empty file.
    for file in [&weights, &old, &empty] {
        super::succeed(&["train", "xor", "--steps", "2", "--save", file]);
    }
    super::succeed(&["train", "xor", "--steps", "2", "--checkpoint", &own]);
    super::succeed(&["capsule", "make", "xor", &capsule, "--steps", "3", "--replace"]);
    super::succeed(&["export", "iris", &script, "--replace"]);
    super::succeed(&["export", "xor", &of_iris, "--replace"]);
    assert_eq!(listing(folder.path()), before);
}

#[test]
fn a_checkpoint_that_is_replaced_is_named_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = at(&folder, "c.safetensors");
    let train = |steps, more: &[&str]| {
        let args = [&["train", "xor", "--steps", steps, "--checkpoint", &checkpoint], more].concat();
        let output = super::run(&args);
        super::succeeded(&args, &output);
        super::stderr(&output)
    };
    assert!(!train("5", &[]).contains("which this run's first checkpoint replaces"));
    assert!(!train("9", &["--resume", &checkpoint]).contains("which this run's first checkpoint replaces"));
    let message = train("3", &[]);
    assert!(
        message.contains("holds another run until step 9, which this run's first checkpoint replaces"),
        "{message}"
    );
}

#[test]
fn weights_of_another_network_are_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let [weights, first, second] =
        ["w.safetensors", "w.1.safetensors", "w.2.safetensors"].map(|name| at(&folder, name));
    let save = |preset, steps| {
        let args = ["train", preset, "--steps", steps, "--save", &weights];
        let output = super::run(&args);
        super::succeeded(&args, &output);
        super::stderr(&output)
    };
    save("iris", "2");
    let of_iris = std::fs::read(&weights).unwrap();
    let message = save("xor", "2");
    assert!(message.contains("holds the weights of another network (layers."), "{message}");
    assert!(message.contains(&format!("they get the name {first} when the new ones are saved")), "{message}");
    assert!(
        message.contains(&format!("the weights of another network that were in {weights} are now in {first}")),
        "{message}"
    );
    assert_eq!(std::fs::read(&first).unwrap(), of_iris);
    // Those of the same network are replaced.
    let of_xor = std::fs::read(&weights).unwrap();
    let message = save("xor", "3");
    assert!(!message.contains("another network"), "{message}");
    assert_ne!(std::fs::read(&weights).unwrap(), of_xor);
    save("iris", "2");
    assert_eq!(std::fs::read(&first).unwrap(), of_iris);
    assert_eq!(std::fs::read(&weights).unwrap(), of_iris);
    assert!(Path::new(&second).is_file());
}
