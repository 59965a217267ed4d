//! `train --resume`: what a run uses of its checkpoint and of its preset, and that a killed run can always be resumed.

use super::{at, json, listing, refused, run, stderr, succeed};
use serde_json::{Value, json};
use std::path::Path;

/// The preset digits-mlp with one field of the optimizer changed.
fn with_optimizer(folder: &tempfile::TempDir, name: &str, field: &str, value: Value) -> String {
    let mut preset: Value = serde_json::from_str(&succeed(&["presets", "digits-mlp"])).unwrap();
    preset["optimizer"][field] = value;
    let path = at(folder, name);
    std::fs::write(&path, preset.to_string()).unwrap();
    path
}

#[test]
fn a_changed_rate_is_applied_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let [half, same, other] = ["half.ckpt", "same.safetensors", "other.safetensors"].map(|n| at(&folder, n));
    succeed(&["train", "digits-mlp", "--steps", "20", "--checkpoint", &half]);
    succeed(&["train", "digits-mlp", "--steps", "40", "--resume", &half, "--save", &same]);
    for (field, value) in
        [("lr", json!(0.5)), ("weight_decay", json!(0.5)), ("betas", json!([0.5, 0.6])), ("eps", json!(0.1))]
    {
        let preset = with_optimizer(&folder, "mine.json", field, value.clone());
        let args = ["train", &preset, "--steps", "40", "--resume", &half, "--save", &other, "--json"];
        let output = run(&args);
        let notes = stderr(&output);
        assert!(output.status.success(), "{notes}");
        assert!(notes.contains(&format!("note: optimizer.{field}: the checkpoint has ")), "{notes}");
        assert!(notes.contains("resumed from ") && notes.contains(" after step 20"), "{notes}");
        let doc: Value = serde_json::from_str(&super::stdout(&output)).unwrap();
        let found = doc["recipe_changes"].as_array().unwrap();
        let change = found.iter().find(|c| c["field"] == format!("optimizer.{field}")).unwrap();
        assert_eq!(change["run"], value, "{change}");
        assert!(doc["notes"].as_array().unwrap().iter().any(|n| n.as_str().unwrap().contains("continues with")));
        assert_ne!(std::fs::read(&same).unwrap(), std::fs::read(&other).unwrap(), "{field} acts");
    }
}

#[test]
fn another_batch_seed_or_data_set_is_refused_with_both_values() {
    let folder = tempfile::tempdir().unwrap();
    let half = at(&folder, "half.ckpt");
    succeed(&["train", "digits-mlp", "--steps", "5", "--checkpoint", &half]);
    let preset: Value = serde_json::from_str(&succeed(&["presets", "digits-mlp"])).unwrap();
    let batch = preset["input"]["batch"].as_u64().unwrap();
    let mut other = preset.clone();
    other["input"]["batch"] = json!(batch + 1);
    let path = at(&folder, "other.json");
    std::fs::write(&path, other.to_string()).unwrap();
    let message = refused(&["train", &path, "--steps", "9", "--resume", &half]);
    assert!(message.contains(&format!("input.batch is {batch} there and {} here", batch + 1)), "{message}");
    let message = refused(&["train", "digits-mlp", "--seed", "77", "--resume", &half]);
    assert!(message.contains("train.seed is 0 there and 77 here"), "{message}");
    assert_eq!(listing(folder.path()), ["half.ckpt", "other.json"]);
}

#[test]
fn the_log_of_another_run_is_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let [half, log, other] = ["half.ckpt", "run.jsonl", "other.jsonl"].map(|n| at(&folder, n));
    succeed(&["train", "xor", "--steps", "20", "--checkpoint", &half, "--log", &log]);
    succeed(&["train", "xor", "--steps", "30", "--seed", "5", "--log", &other]);
    let (before, names) = (std::fs::read(&other).unwrap(), listing(folder.path()));
    let message = refused(&["train", "xor", "--steps", "1000000000", "--resume", &half, "--log", &other]);
    assert!(message.contains("other.jsonl belongs to another run: its line of step 20 has loss "), "{message}");
    assert!(message.contains("give another name for the log") && !message.contains("step 21"), "{message}");
    assert_eq!((std::fs::read(&other).unwrap(), listing(folder.path())), (before, names));
    // Its own log may extend beyond the checkpoint: the lines of repeated steps are removed, and this is reported.
    let resume = |steps: &str| run(&["train", "xor", "--steps", steps, "--resume", &half, "--log", &log]);
    assert!(!stderr(&resume("30")).contains("removed"));
    let message = stderr(&resume("25"));
    assert!(message.contains("10 later lines were removed, they are from after the checkpoint"), "{message}");
    let text = std::fs::read_to_string(&log).unwrap();
    let steps = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["step"].as_u64().unwrap());
    assert!(steps.eq(1..=25), "{text}");
}

#[test]
fn evaluations_are_in_the_lines_of_their_steps() {
    let folder = tempfile::tempdir().unwrap();
    let log = at(&folder, "run.jsonl");
    let doc = json(&["train", "iris", "--steps", "50", "--eval-every", "20", "--log", &log, "--json"]);
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let steps: Vec<u64> = (1..=50).filter(|s| lines[*s as usize - 1].get("held_out_loss").is_some()).collect();
    assert_eq!((lines.len(), steps), (50, vec![20, 40, 50]));
    for found in doc["evaluations"].as_array().unwrap() {
        let line = &lines[found["step"].as_u64().unwrap() as usize - 1];
        assert_eq!((&line["held_out_loss"], &line["held_out_accuracy"]), (&found["loss"], &found["accuracy"]));
    }
}

#[test]
fn a_name_that_is_too_long_is_refused_before_the_first_step() {
    let folder = tempfile::tempdir().unwrap();
    for (option, length) in [("--save", 256), ("--checkpoint", 256), ("--log", 256), ("--log", 252)] {
        let name = at(&folder, &"n".repeat(length));
        let message = refused(&["train", "xor", "--steps", "3", option, &name]);
        assert!(
            message.contains("longer than this file system allows") && !message.contains("step 1"),
            "{option}: {message}"
        );
    }
    let weights = at(&folder, "w");
    succeed(&["train", "xor", "--steps", "3", "--save", &weights]);
    let name = at(&folder, &"n".repeat(256));
    for args in [
        &["predict", "xor", "--init", &weights, "--out", &name][..],
        &["plan", "xor", "--svg", &name],
        &["export", "xor", &name, "--format", "safetensors"],
        &["capsule", "make", "xor", &name, "--steps", "3"],
    ] {
        assert!(refused(args).contains("long"), "{args:?}");
    }
    // If one of three files cannot be written, none is.
    let script = at(&folder, &format!("{}.py", "n".repeat(240)));
    assert!(refused(&["export", "xor", &script]).contains("long"));
    assert_eq!(listing(folder.path()), ["w"]);
    // Temporary names are short, so that the longest name of the system works.
    let longest = "n".repeat(255);
    succeed(&["train", "xor", "--steps", "3", "--save", &at(&folder, &longest)]);
    assert_eq!(listing(folder.path()), [longest.as_str(), "w"]);
}

#[test]
fn incomplete_files_of_a_killed_program_are_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let left = at(&folder, ".stepgraph-AbCdEf.part");
    std::fs::write(&left, "half").unwrap();
    let living = stepgraph::tensor::temporary_in(folder.path()).unwrap();
    refused(&["train", "xor", "--resume", "nothing", "--save", &at(&folder, "w")]);
    assert!(!Path::new(&left).exists(), "before the first step");
    assert!(living.path().exists(), "and not what another program writes");
}

#[cfg(unix)]
mod killed {
    use super::super::command;
    use super::*;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    /// The step of the last complete line in a log, or in the unfinished log of a killed run.
    fn last_step(log: &str) -> u64 {
        let text = std::fs::read_to_string(format!("{log}.part")).or_else(|_| std::fs::read_to_string(log)).unwrap();
        let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        let step = |line: &str| serde_json::from_str::<Value>(line).unwrap()["step"].as_u64().unwrap();
        whole.lines().last().map_or(0, step)
    }

    #[test]
    fn a_run_that_is_killed_at_any_time_can_be_resumed_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let [checkpoint, log] = ["c.ckpt", "run.jsonl"].map(|n| at(&folder, n));
        let results = ["--checkpoint", &checkpoint, "--checkpoint-every", "50", "--log", &log];
        let endless = ["train", "xor", "--threads", "1", "--steps", "1000000000"];
        let resume = ["--resume", &checkpoint];
        for round in 0..12u64 {
            let is_there = Path::new(&checkpoint).exists();
            let more = if is_there { &resume[..] } else { &[] };
            let before = std::fs::metadata(&checkpoint).and_then(|m| m.modified()).ok();
            let mut command = command(&[&endless[..], &results, more].concat());
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            // Until there is a new checkpoint, and then for a time that varies from round to round.
            let started = Instant::now();
            while std::fs::metadata(&checkpoint).and_then(|m| m.modified()).ok() == before {
                assert!(started.elapsed() < Duration::from_secs(60), "round {round} wrote no checkpoint");
                assert!(child.try_wait().unwrap().is_none(), "round {round} was refused");
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(round * 7919 % 61));
            child.kill().unwrap();
            child.wait().unwrap();
            let step = stepgraph::train::checkpoint_step(Path::new(&checkpoint)).unwrap();
            assert!(last_step(&log) >= step, "the log ends with {} and the checkpoint is of {step}", last_step(&log));
        }
        let end = stepgraph::train::checkpoint_step(Path::new(&checkpoint)).unwrap() + 30;
        let steps = end.to_string();
        let args = [&["train", "xor", "--threads", "1", "--steps", &steps][..], &results, &resume].concat();
        succeed(&args);
        let text = std::fs::read_to_string(&log).unwrap();
        let found = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["step"].as_u64().unwrap());
        assert!(found.eq(1..=end));
        assert_eq!(listing(folder.path()), ["c.ckpt", "run.jsonl"], "nothing half written is left");
    }

    #[test]
    fn a_kept_run_that_is_killed_before_its_first_checkpoint_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let in_place = |args: &[&str]| {
            let mut command = command(args);
            command.env("STEPGRAPH_RUNS", &runs);
            command
        };
        let endless = ["train", "xor", "--threads", "1", "--steps", "1000000000", "--keep"];
        let mut child = in_place(&endless).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Instant::now();
        let own = || std::fs::read_dir(&runs).ok()?.flatten().next().map(|e| e.path());
        let size = |name: &str| own().and_then(|own| std::fs::metadata(own.join(name)).ok()).map_or(0, |m| m.len());
        while size("curve.bin") < 1000 {
            assert!(started.elapsed() < Duration::from_secs(60), "the curve grows while the run lasts");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if size("checkpoint.safetensors") > 0 {
            println!("skipped: this machine was so slow that the run had a checkpoint");
            return;
        }
        let message = stderr(&in_place(&["runs"]).output().unwrap());
        assert!(
            message.contains("was interrupted at step") && message.contains("ended before its first checkpoint"),
            "{message}"
        );
        assert!(message.contains("train it again"), "{message}");
        let shown = super::super::stdout(&in_place(&["runs", "show", "last"]).output().unwrap());
        assert!(
            shown.contains("ended before its first checkpoint") && shown.contains("stepgraph runs preset"),
            "{shown}"
        );
        let own = own().unwrap();
        for path in [own.join("checkpoint.safetensors"), own.clone()] {
            let args = ["train", "xor", "--steps", "9", "--resume", path.to_str().unwrap()];
            let message = super::super::was_refused(&args, &in_place(&args).output().unwrap());
            assert!(message.contains("has no checkpoint") && message.contains("train it again"), "{message}");
        }
        // The folder of a run that has a checkpoint is proposed.
        let whole = ["train", "xor", "--steps", "9", "--keep"];
        assert!(in_place(&whole).output().unwrap().status.success());
        let folders = std::fs::read_dir(&runs).unwrap().flatten().map(|e| e.path());
        let kept = folders.into_iter().find(|p| p.join("checkpoint.safetensors").is_file()).unwrap();
        let args = ["train", "xor", "--steps", "12", "--resume", kept.to_str().unwrap()];
        let message = super::super::was_refused(&args, &in_place(&args).output().unwrap());
        assert!(message.contains("is the file checkpoint.safetensors in that folder"), "{message}");
    }
}
