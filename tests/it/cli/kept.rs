//! Kept runs, exports and capsules, as a user runs the commands.

use super::{at, command, listing, stderr, stdout, succeeded, was_refused};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

/// The program with a separate folder for runs.
fn run(folder: &Path, args: &[&str]) -> Output {
    command(args).env("STEPGRAPH_RUNS", folder.join("runs")).output().unwrap()
}

fn succeed(folder: &Path, args: &[&str]) -> String {
    succeeded(args, &run(folder, args))
}

fn refused(folder: &Path, args: &[&str]) -> String {
    was_refused(args, &run(folder, args))
}

fn list(folder: &Path) -> Vec<Value> {
    serde_json::from_str(&succeed(folder, &["runs", "--json", "--all"])).unwrap()
}

/// Keeps a run of 20 steps of `xor`, and returns its folder.
fn kept_run(here: &Path) -> PathBuf {
    succeed(here, &["train", "xor", "--steps", "20", "--keep"]);
    here.join("runs").join(list(here)[0]["id"].as_str().unwrap())
}

#[test]
fn a_run_is_kept_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &["train", "xor", "--steps", "20"]);
    assert_eq!(list(here), Vec::<Value>::new());
    succeed(here, &["train", "xor", "--steps", "40", "--seed", "5", "--keep"]);
    let runs = list(here);
    let run = &runs[0];
    assert_eq!(
        (run["state"].as_str(), run["steps"].as_u64(), run["seed"].as_u64()),
        (Some("finished"), Some(40), Some(5))
    );
    assert!(run["held_out_accuracy"].is_f64() && run["has_weights"] == true && run["preset"]["name"] == "xor");
    let id = run["id"].as_str().unwrap();
    succeed(here, &["runs", "rename", "last", "first try"]);
    assert!(
        succeed(here, &["runs"]).contains("first try") && succeed(here, &["runs", "show", "first try"]).contains(id)
    );
    succeed(here, &["runs", "hide", id]);
    assert!(!succeed(here, &["runs"]).contains(id) && succeed(here, &["runs", "--all"]).contains(id));
    succeed(here, &["runs", "delete", &id[..10]]);
    assert!(list(here).is_empty());
    let trash: Vec<Value> = serde_json::from_str(&succeed(here, &["runs", "trash", "--json"])).unwrap();
    assert!(trash[0]["id"] == id && succeed(here, &["runs", "trash"]).contains("first try"));
    assert!(refused(here, &["runs", "restore", "nobody"]).contains("stepgraph runs trash"));
    succeed(here, &["runs", "restore", "first try"]);
    assert_eq!(list(here).len(), 1);
    assert!(refused(here, &["runs", "rename", "last", "two\nlines"]).contains("control characters"));
    assert!(refused(here, &["runs", "rename", id, "last"]).contains("names another run already"));
    // Every action reports as JSON what it did, and prints nothing else to standard output.
    let done = |args: &[&str]| -> Value { serde_json::from_str(&succeed(here, args)).unwrap() };
    for (action, key) in [("hide", "hidden"), ("unhide", "unhidden"), ("delete", "deleted"), ("restore", "restored")] {
        assert_eq!(done(&["runs", action, id, "--json"]), serde_json::json!({ key: [id] }));
    }
    assert_eq!(done(&["runs", "rename", "last", "first try", "--json"])["renamed"][0], id);
    assert_eq!(done(&["runs", "--json", "show", "last"])["name"], "first try");
    assert!(done(&["runs", "path", "last", "--json"])["path"].as_str().unwrap().ends_with(id));
    assert_eq!(done(&["runs", "empty-trash", "--json"])["removed"], 0);
    // The printed preset is the one that was trained, not the original one.
    let preset = stepgraph::model::read_preset(&succeed(here, &["runs", "preset", "last"])).unwrap();
    assert_eq!(preset.train.map(|t| (t.steps, t.seed)), Some((40, 5)));
    assert!(refused(here, &["runs", "show", "nobody"]).contains("no run is called nobody"));
}

#[test]
fn a_killed_run_is_interrupted_and_keeps_its_curve() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut child = command(&["train", "xor", "--steps", "1000000000", "--keep"])
        .env("STEPGRAPH_RUNS", here.join("runs"))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let curve = || listing(here).contains(&"runs".to_owned()).then(|| listing(&here.join("runs")).pop()).flatten();
    let size = || {
        curve()
            .and_then(|id| std::fs::metadata(here.join("runs").join(id).join("curve.bin")).ok())
            .map_or(0, |m| m.len())
    };
    let checkpoint = || curve().is_some_and(|id| here.join("runs").join(id).join("checkpoint.safetensors").exists());
    while size() < 500_000 || !checkpoint() {
        assert!(started.elapsed() < Duration::from_secs(60), "the curve grows while the run lasts");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Some hundred thousand bytes are several chunks, the last of which may be incomplete.
    child.kill().unwrap();
    child.wait().unwrap();
    let run = &list(here)[0];
    assert_eq!(run["state"], "interrupted");
    assert!(run["steps"].as_u64().unwrap() > 100 && run["loss"].is_f64(), "{run}");
    succeed(here, &["export", "last", &at(&folder, "c.csv")]);
    let table = std::fs::read_to_string(here.join("c.csv")).unwrap();
    let head = table.lines().next().unwrap_or_default();
    assert!(head.contains(",update_max L0:"), "{head}");
    assert!(table.lines().skip(1).any(|row| !row.ends_with(',')));
    let rows = table.lines().count() as u64;
    assert_eq!(rows, run["steps"].as_u64().unwrap() + 1);
    // Its last checkpoint contains weights and everything that a run needs to continue.
    assert!(run["has_weights"] == true && run["can_continue"] == true, "{run}");
    succeed(here, &["export", "last", &at(&folder, "m.onnx")]);
    let checkpoint = here.join("runs").join(run["id"].as_str().unwrap()).join("checkpoint.safetensors");
    let step = stepgraph::train::checkpoint_step(&checkpoint).unwrap();
    assert!(step > 0 && step <= run["steps"].as_u64().unwrap());
    assert_eq!(run["checkpoint_step"], step);
    let shown = succeed(here, &["runs", "show", "last"]);
    assert!(shown.contains("it can continue from"), "{shown}");
    let listed = stderr(&self::run(here, &["runs"]));
    assert!(listed.contains("was interrupted at step"), "{listed}");
}

#[test]
fn a_kept_run_is_exported_and_nothing_is_replaced_without_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let log = at(&folder, "log.jsonl");
    succeed(here, &["train", "xor", "--steps", "30", "--keep", "--log", &log]);
    let path = at(&folder, "run.jsonl");
    let message: Value = serde_json::from_str(&succeed(here, &["export", "last", &path, "--json"])).unwrap();
    assert_eq!((&message["what"], &message["run"]), (&"xor".into(), &list(here)[0]["id"]));
    // The exported lines equal those of the run's own log.
    let lines = |path: &str| -> Vec<Value> {
        std::fs::read_to_string(path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    };
    assert_eq!(lines(&path), lines(&log));
    assert!(refused(here, &["export", "last", &path]).contains("--replace"));
    succeed(here, &["export", "last", &path, "--replace"]);
    for name in ["a.csv", "a.svg", "a.png", "a.onnx", "a.safetensors", "a.py"] {
        succeed(here, &["export", "last", &at(&folder, name)]);
    }
    succeed(here, &["export", "last", &at(&folder, "logs"), "--format", "tensorboard"]);
    assert!(listing(&here.join("logs"))[0].starts_with("events.out.tfevents."));
    assert!(refused(here, &["export", "last", &at(&folder, "a.docx")]).contains("--format csv"));
    assert!(refused(here, &["export", "xor", &at(&folder, "b.csv")]).contains("without curves"));
    succeed(here, &["export", "digits-cnn", &at(&folder, "cnn.onnx")]);
    // Its weights continue from the end of the run.
    succeed(here, &["train", "xor", "--steps", "5", "--init", &at(&folder, "a.safetensors")]);
}

#[test]
fn a_capsule_is_made_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let file = at(&folder, "x.capsule");
    succeed(here, &["capsule", "make", "xor", &file, "--steps", "30"]);
    assert!(refused(here, &["capsule", "make", "xor", &file]).contains("--replace"));
    let report: Value = serde_json::from_str(&succeed(here, &["capsule", "replay", &file, "--json"])).unwrap();
    assert_eq!((report["is_bit_equal"].as_bool(), report["replayed"].as_u64()), (Some(true), Some(30)));
    // On another instruction set the plan differs, and the replay reports where.
    let other =
        command(&["capsule", "replay", &file, "--device", "cpu"]).env("STEPGRAPH_ISA", "portable").output().unwrap();
    let text = stdout(&other);
    assert!(text.contains("the plan differs") && text.contains("op 0: "), "{text}");
    // A kept run is repeated, and its capsule says whether the result was the same.
    succeed(here, &["train", "xor", "--steps", "20", "--keep"]);
    let made = run(here, &["capsule", "make", "last", &at(&folder, "kept.capsule"), "--json"]);
    assert!(stderr(&made).contains("agree to the bit over 20 steps"), "{}", stderr(&made));
    let report: Value = serde_json::from_str(&stdout(&made)).unwrap();
    assert_eq!((report["preset"].as_str(), report["steps"].as_u64()), (Some("xor"), Some(20)));
    assert!(report["is_bit_equal"] == true && report["parts_at_step"].is_null(), "{report}");
    assert!(report["file"].as_str().unwrap().ends_with("kept.capsule"));
    succeed(
        here,
        &["train", "xor", "--steps", "20", "--keep", "--init", &{
            let path = at(&folder, "w.safetensors");
            succeed(here, &["export", "last", &path]);
            path
        }],
    );
    let made = run(here, &["capsule", "make", "last", &at(&folder, "other.capsule"), "--json"]);
    assert_eq!(made.status.code(), Some(1));
    let report: Value = serde_json::from_str(&stdout(&made)).unwrap();
    assert!(report["is_bit_equal"] == false && report["parts_at_step"] == 1, "{report}");
    assert!(stderr(&made).contains("the kept run differs from step 1 on"), "{}", stderr(&made));
    std::fs::write(&file, "a letter").unwrap();
    assert!(refused(here, &["capsule", "replay", &file]).contains("is not a capsule"));
}

#[test]
fn a_damaged_run_is_listed_exported_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &["train", "xor", "--steps", "20", "--keep"]);
    let id = list(here)[0]["id"].as_str().unwrap().to_owned();
    let started = list(here)[0]["started_ms"].as_u64().unwrap();
    std::fs::write(here.join("runs").join(&id).join("run.json"), "{\"version\": 1, \"seed").unwrap();
    let output = run(here, &["runs"]);
    assert!(stdout(&output).contains("damaged") && stderr(&output).contains("run.json is damaged"));
    let found = &list(here)[0];
    assert!(
        found["state"] == "damaged" && found["steps"] == 20 && found["error"].as_str().unwrap().contains("run.json")
    );
    // Its id contains the start time to the second.
    assert_eq!(found["started_ms"], started / 1000 * 1000);
    succeed(here, &["export", &id, &at(&folder, "a.csv")]);
    succeed(here, &["export", &id, &at(&folder, "a.safetensors")]);
    assert!(refused(here, &["export", &id, &at(&folder, "a.onnx")]).contains("cannot be read by this version"));
    for args in [&["export", "last", &at(&folder, "b.csv")][..], &["runs", "show", "last"]] {
        assert!(refused(here, args).contains("which is the last"));
    }
    // The newest readable run is used, although a damaged one is newer.
    std::fs::rename(here.join("runs").join(&id), here.join("runs/99990101-000000-xor")).unwrap();
    succeed(here, &["train", "xor", "--steps", "5", "--keep"]);
    let sound = list(here).into_iter().find(|r| r["state"] == "finished").unwrap()["id"].as_str().unwrap().to_owned();
    std::fs::write(
        here.join("runs/99990101-000000-xor/run.json"),
        "{\"started_ms\": 9000000000000, \"steps\": \"many\"}",
    )
    .unwrap();
    assert!(succeed(here, &["runs", "path", "last"]).contains(&sound));
    assert!(refused(here, &["runs", "rename", "9999", &sound]).contains("names another run already"));
    succeed(here, &["runs", "delete", "last", "9999"]);
    assert!(list(here).is_empty());
}

#[test]
fn a_bad_folder_of_runs_is_reported_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    std::fs::write(here.join("runs"), "a letter").unwrap();
    let log = at(&folder, "run.jsonl");
    let message = refused(here, &["train", "xor", "--steps", "5", "--keep", "--log", &log]);
    assert!(message.contains("runs cannot be kept there") && message.contains("STEPGRAPH_RUNS"), "{message}");
    assert_eq!(listing(here), ["runs"]);
    for args in [&["runs"][..], &["runs", "show", "last"], &["export", "last", &log]] {
        let output = run(here, args);
        assert!(!output.status.success() && stderr(&output).contains("cannot be read"), "{}", stderr(&output));
    }
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let file = at(&folder, "p.json");
    let named = |name: &str| std::fs::write(&file, super::SMALL.replace("\"small\"", name)).unwrap();
    named("\"a\\n\\u001b[2Jb\"");
    let message = refused(here, &["plan", &file]);
    assert!(
        message.contains("name: ") && message.contains("control characters") && !message.contains('\u{1b}'),
        "{message}"
    );
    succeed(here, &["train", "xor", "--steps", "5", "--keep"]);
    let own = here.join("runs").join(list(here)[0]["id"].as_str().unwrap());
    std::fs::write(own.join("label.json"), "{\"name\": \"a\\n\\u001b[2Jb\"}").unwrap();
    let message = succeed(here, &["runs"]);
    assert!(message.lines().count() == 2 && message.contains("[2Jb") && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn exports_report_what_they_wrote_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let report: Value =
        serde_json::from_str(&succeed(here, &["export", "xor", &at(&folder, "x.onnx"), "--json"])).unwrap();
    assert_eq!((report["format"].as_str(), report["files"].as_array().unwrap().len()), (Some("onnx"), 1));
    assert!(report["notes"][0].as_str().unwrap().contains("--weights FILE"), "{report}");
    assert!(refused(here, &["export", "xor", &at(&folder, "no/such/x.onnx")]).contains("no"));
    succeed(here, &["train", "regression", "--steps", "10", "--keep"]);
    let message = refused(here, &["export", "last", &at(&folder, "a.svg"), "--plot", "accuracy"]);
    assert!(message.contains("has no accuracy; it has loss, "), "{message}");
    // A folder of that name is neither a run nor a preset.
    for name in ["xor", "last"] {
        std::fs::create_dir(here.join(name)).unwrap();
        let output = command(&["export", name, "f.safetensors", "--replace"])
            .env("STEPGRAPH_RUNS", here.join("runs"))
            .current_dir(here)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn a_log_continues_with_the_run_that_continues() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let [log, half] = ["run.jsonl", "half.ckpt"].map(|n| at(&folder, n));
    succeed(here, &["train", "xor", "--steps", "20", "--checkpoint", &half, "--log", &log]);
    succeed(here, &["train", "xor", "--steps", "30", "--resume", &half, "--log", &log]);
    let lines = std::fs::read_to_string(&log).unwrap();
    let steps: Vec<u64> =
        lines.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=30).collect::<Vec<_>>());
    succeed(here, &["train", "xor", "--steps", "10", "--log", &log]);
    let message = refused(here, &["train", "xor", "--steps", "30", "--resume", &half, "--log", &log]);
    assert!(message.contains("ends with step 10") && message.contains("another name"), "{message}");
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 10);
    // If no steps are left, the log stays unchanged, including the lines after the checkpoint.
    succeed(here, &["train", "xor", "--steps", "25", "--log", &log]);
    let (before, names) = (std::fs::read(&log).unwrap(), listing(here));
    succeed(here, &["train", "xor", "--steps", "20", "--resume", &half, "--log", &log]);
    assert_eq!((std::fs::read(&log).unwrap(), listing(here)), (before, names));
}

#[test]
fn a_stray_file_is_not_a_run_and_a_damaged_run_is_restored_by_its_reported_name() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &["train", "xor", "--steps", "20", "--keep"]);
    std::fs::write(here.join("runs/stray.txt"), "a letter").unwrap();
    let all = list(here);
    assert_eq!(all.len(), 1);
    let message = refused(here, &["runs", "delete", "stray.txt"]);
    assert!(message.contains("no run is called stray.txt") && here.join("runs/stray.txt").exists(), "{message}");
    std::fs::write(here.join("runs").join(all[0]["id"].as_str().unwrap()).join("run.json"), "{").unwrap();
    let message = stderr(&run(here, &["runs", "delete", all[0]["id"].as_str().unwrap()]));
    succeed(here, &["runs", "restore", message.trim().rsplit(' ').next().unwrap()]);
    assert_eq!(list(here)[0]["id"], all[0]["id"]);
    // A folder that is not listed has a name as well.
    std::fs::create_dir_all(here.join("runs/trash/bare")).unwrap();
    succeed(here, &["runs", "restore", "bare"]);
    assert!(here.join("runs/bare").is_dir());
}

#[test]
fn missing_or_truncated_files_of_a_run_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let own = kept_run(here);
    let (csv, curve, checkpoint) = (at(&folder, "a.csv"), own.join("curve.bin"), own.join("checkpoint.safetensors"));
    let [curves, weights] = [&curve, &checkpoint].map(|p| std::fs::read(p).unwrap());
    let damaged = |what: &str| {
        let output = run(here, &["runs"]);
        assert!(stdout(&output).contains("damaged") && stderr(&output).contains(what), "{}", stderr(&output));
    };
    for (left, what) in [(None, "its curves are missing"), (Some(30), "its curves end at step 0 of 20")] {
        match left {
            Some(bytes) => std::fs::write(&curve, &curves[..bytes]).unwrap(),
            None => std::fs::remove_file(&curve).unwrap(),
        }
        damaged(what);
        let message = refused(here, &["export", "last", &csv]);
        assert!(message.contains(what) && !message.contains("no step yet"), "{message}");
        assert!(!message.contains("export what can be read"), "{message}");
    }
    std::fs::write(&curve, &curves[..curves.len() - 1]).unwrap();
    damaged("its curves ");
    let noise: Vec<u8> = (0..curves.len()).map(|i| (i * 167 + 91) as u8).collect();
    std::fs::write(&curve, &noise).unwrap();
    damaged("its first bytes are not those of a file of curves");
    std::fs::write(&curve, [&curves[..8], &noise].concat()).unwrap();
    damaged("its curves end at step 0 of 20");
    // Damage further inside is found when the whole file is read.
    let mut inside = curves.clone();
    inside[30] ^= 0x10;
    std::fs::write(&curve, &inside).unwrap();
    assert!(succeed(here, &["runs", "show", "last"]).contains("damaged: "), "a flipped bit among the curves");
    std::fs::write(&curve, &curves).unwrap();
    assert_eq!(list(here)[0]["state"], "finished");
    for (left, what) in [(&weights[..weights.len() - 1], "it ends after"), (b"a letter of words", "not the header")] {
        std::fs::write(&checkpoint, left).unwrap();
        damaged(what);
        assert_eq!((&list(here)[0]["can_continue"], &list(here)[0]["has_weights"]), (&false.into(), &false.into()));
        let message = succeed(here, &["runs", "show", "last"]);
        assert!(message.lines().any(|l| l.starts_with("weights") && l.ends_with("damaged")), "{message}");
    }
    std::fs::write(&checkpoint, &weights).unwrap();
    assert_eq!(list(here)[0]["can_continue"], true);
}

#[test]
fn a_checkpoint_with_a_wrong_bit_is_refused_by_every_reader() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &["train", "xor", "--steps", "20", "--keep"]);
    let checkpoint = here.join("runs").join(list(here)[0]["id"].as_str().unwrap()).join("checkpoint.safetensors");
    let mut bytes = std::fs::read(&checkpoint).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    std::fs::write(&checkpoint, bytes).unwrap();
    let file = checkpoint.to_str().unwrap();
    for args in [
        &["predict", "xor", "--run", "last"][..],
        &["predict", "xor", "--init", file],
        &["train", "xor", "--steps", "5", "--init", file],
        &["train", "xor", "--steps", "30", "--resume", file],
        &["export", "last", &at(&folder, "a.onnx")],
        &["export", "xor", &at(&folder, "a.safetensors"), "--weights", file],
    ] {
        let message = refused(here, args);
        assert!(message.contains("its contents do not match its checksum"), "{args:?}: {message}");
    }
    let message = succeed(here, &["runs", "show", "last"]);
    let line = |name: &str| message.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    assert!(line("state").contains("damaged: ") && line("state").contains("checksum"), "{message}");
    assert!(line("weights").ends_with("damaged"), "{message}");
    // Files that contain only weights have no checksum.
    let plain = at(&folder, "w.safetensors");
    succeed(here, &["train", "xor", "--steps", "5", "--save", &plain]);
    succeed(here, &["predict", "xor", "--init", &plain]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_unwritable_folder_is_not_reported_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &["train", "xor", "--steps", "5", "--keep"]);
    let message = refused(folder.path(), &["export", "last", "/proc/x.csv"]);
    assert!(message.contains("in the folder /proc") && !message.contains("there is no folder"), "{message}");
}

#[cfg(unix)]
#[test]
fn a_pipe_among_the_files_of_a_run_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let own = kept_run(here);
    for name in ["lock", "label.json", "curve.bin", "run.json"] {
        std::fs::remove_file(own.join(name)).or_else(|_| std::fs::metadata(&own).map(drop)).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(own.join(name)).status().unwrap().success());
        let message = stderr(&run(here, &["runs"]));
        assert!(!name.starts_with(['c', 'r']) || message.contains("a device or a pipe"), "{name}: {message}");
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_no_damaged_run_behind() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    // No file may grow, as on a full disk.
    let output = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" train xor --steps 20 --keep"])
        .arg(env!("CARGO_BIN_EXE_stepgraph"))
        .envs([("STEPGRAPH_NO_TUNING", "1"), ("STEPGRAPH_NO_CUDA", "1")])
        .env("STEPGRAPH_RUNS", &runs)
        .output()
        .unwrap();
    assert!(!output.status.success() && stderr(&output).contains("cannot be written"), "{}", stderr(&output));
    assert_eq!(listing(&runs), Vec::<String>::new());
}

#[test]
fn a_kept_run_can_be_evaluated_and_files_of_another_kind_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, &["train", "circles", "--steps", "100", "--seed", "5", "--keep"]);
    let found: Value =
        serde_json::from_str(&succeed(here, &["predict", "circles", "--run", "last", "--json"])).unwrap();
    assert_eq!(found["accuracy"], list(here)[0]["held_out_accuracy"]);
    assert!(refused(here, &["predict", "circles", "--run", "nobody"]).contains("no run is called nobody"));
    let letter = at(&folder, "letter.txt");
    std::fs::write(&letter, "a letter of many words").unwrap();
    assert!(refused(here, &["predict", "circles", "--init", &letter]).contains("holds no weights"));
    assert!(refused(here, &["capsule", "replay", &letter]).contains("is not a capsule"));
    assert!(refused(here, &["export", "last", &at(&folder, "noext")]).contains("--format csv"));
    assert!(!here.join("noext").exists());
}
