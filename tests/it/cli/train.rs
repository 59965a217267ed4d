//! `train`: its summary, its log, and that the result of a run does not depend on how it is run.

use super::{at, json, run, small, stderr, succeed};
use serde_json::Value;

fn read(path: &str) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_summary_is_one_json_object() {
    let doc = json(&["train", "circles", "--steps", "60", "--seed", "4", "--json"]);
    assert_eq!((&doc["preset"], &doc["steps"], &doc["seed"]), (&"circles".into(), &60.into(), &4.into()));
    assert_eq!((&doc["executor"], &doc["interrupted"]), (&"replay".into(), &false.into()));
    for name in ["loss", "seconds", "steps_per_s", "samples_per_s", "feed_us", "prepare_ms", "compile_ms"] {
        assert!(doc[name].as_f64().is_some_and(|v| v >= 0.0), "{name} of {doc}");
    }
    assert!(doc["step_us"]["median"].as_f64().unwrap() > 0.0);
    assert_eq!(doc["held_out"]["samples"], 200);
    assert!(doc["held_out"]["accuracy"].as_f64().is_some() && doc["held_out"]["loss"].as_f64().is_some());
    assert_eq!(doc["arena_bytes"], doc["lower_bound_bytes"]);
}

#[test]
fn a_bundled_preset_learns() {
    let doc = json(&["train", "digits-mlp", "--json"]);
    let accuracy = doc["held_out"]["accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.93, "writers never seen: {accuracy}");
    let doc = json(&["train", "digits-mlp", "--held-out", "0.2", "--split", "shuffled", "--json"]);
    let accuracy = doc["held_out"]["accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.98, "a shuffled fifth: {accuracy}");
}

#[test]
fn the_log_has_every_step_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let log = at(&folder, "run.jsonl");
    succeed(&["train", "digits-mlp", "--steps", "300", "--log", &log]);
    let text = String::from_utf8(read(&log)).unwrap();
    assert!(text.ends_with('\n'));
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 300);
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(line["step"], i as u64 + 1);
        for name in ["loss", "update_max", "step_us", "accuracy", "grad_norm"] {
            assert!(line[name].as_f64().is_some_and(f64::is_finite), "{name} of {line}");
        }
        assert!(line["update_max"].as_f64().unwrap() > 0.0 && line["step_us"].as_f64().unwrap() > 0.0);
    }
    assert!(lines[299]["loss"].as_f64().unwrap() < lines[0]["loss"].as_f64().unwrap());
    assert_eq!(super::listing(folder.path()), ["run.jsonl"], "no temporary file is left");
    let output = run(&["train", "xor", "--steps", "3", "--log", &log]);
    assert!(
        output.status.success() && stderr(&output).contains("of an earlier run is replaced"),
        "{}",
        stderr(&output)
    );
    assert_eq!(read(&log).iter().filter(|b| **b == b'\n').count(), 3);
    std::fs::write(&log, "a letter\n").unwrap();
    let message = super::refused(&["train", "xor", "--steps", "3", "--log", &log]);
    assert!(message.contains("is no log of a run, so it is not replaced") && read(&log) == b"a letter\n", "{message}");
    assert_eq!(super::listing(folder.path()), ["run.jsonl"]);
}

#[test]
fn progress_is_a_few_plain_lines_without_a_terminal() {
    let output = run(&["train", "xor", "--steps", "500"]);
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("step ")).collect();
    assert!((5..=20).contains(&lines.len()) && lines.last().unwrap().starts_with("step 500/500"), "{text}");
    assert!(
        !text.contains('\x1b') && text.contains("device: CPU") && text.contains("because no GPU can be used"),
        "{text}"
    );
}

#[test]
fn eager_replay_and_threads_give_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for (i, more) in [&["--executor", "eager"][..], &["--executor", "replay"], &["--threads", "1"], &["--threads", "3"]]
        .iter()
        .enumerate()
    {
        let path = at(&folder, &format!("{i}.safetensors"));
        let mut args = vec!["train", "digits-mlp", "--steps", "50", "--seed", "9", "--save", &path];
        args.extend_from_slice(more);
        succeed(&args);
        files.push(read(&path));
    }
    assert!(files.windows(2).all(|f| f[0] == f[1]), "the saved parameters differ");
    let other = at(&folder, "other.safetensors");
    succeed(&["train", "digits-mlp", "--steps", "50", "--seed", "8", "--save", &other]);
    assert_ne!(read(&other), files[0], "another seed is another run");
}

#[test]
fn given_batches_and_parameters_are_used_in_order() {
    let folder = small(6, &[0, 1, 2, 3]);
    let (preset, batches) = (at(&folder, "small.json"), at(&folder, "batches.safetensors"));
    let (start, end, log) =
        (at(&folder, "start.safetensors"), at(&folder, "end.safetensors"), at(&folder, "log.jsonl"));
    succeed(&["train", &preset, "--batches", &batches, "--steps", "2", "--save", &start]);
    let doc = json(&[
        "train",
        &preset,
        "--batches",
        &batches,
        "--init",
        &start,
        "--steps",
        "100",
        "--save",
        &end,
        "--log",
        &log,
        "--json",
    ]);
    assert_eq!(doc["steps"], 6, "as many steps as batches");
    assert!(doc["held_out"].is_null());
    assert_eq!(read(&log).iter().filter(|b| **b == b'\n').count(), 6);
    let again = at(&folder, "again.safetensors");
    succeed(&["train", &preset, "--batches", &batches, "--init", &start, "--save", &again, "--executor", "eager"]);
    assert_eq!(read(&end), read(&again));
}

#[test]
fn a_resumed_run_ends_where_an_unbroken_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, rest, half, log] =
        ["whole.safetensors", "rest.safetensors", "half.ckpt", "rest.jsonl"].map(|n| at(&folder, n));
    succeed(&["train", "digits-mlp", "--steps", "60", "--save", &whole]);
    succeed(&["train", "digits-mlp", "--steps", "25", "--checkpoint", &half]);
    succeed(&["train", "digits-mlp", "--steps", "60", "--resume", &half, "--save", &rest, "--log", &log]);
    assert_eq!(read(&whole), read(&rest));
    let first: Value = serde_json::from_str(String::from_utf8(read(&log)).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(first["step"], 26);
    assert!(super::refused(&["train", "xor", "--resume", &half]).contains("half.ckpt"));
    assert!(super::refused(&["train", "digits-mlp", "--resume", &whole]).contains("not a checkpoint"));
    let other = at(&folder, "other.json");
    std::fs::write(&other, succeed(&["presets", "digits-mlp"]).replace("relu", "tanh")).unwrap();
    let message = super::refused(&["train", &other, "--resume", &half]);
    assert!(message.contains("half.ckpt: was made with another recipe") && message.contains("tanh"), "{message}");
}

#[test]
fn a_run_continues_with_the_split_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = at(&folder, "c.ckpt");
    let given = ["train", "iris", "--held-out", "0.3", "--split", "last"];
    let with = |more: &[&str]| -> Vec<String> { given.iter().chain(more).map(|a| (*a).to_owned()).collect() };
    let run_on = |args: Vec<String>| run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(run_on(with(&["--steps", "10", "--checkpoint", &checkpoint])).status.success());
    for more in [&["--held-out", "0.2", "--split", "last"][..], &["--held-out", "0.3", "--split", "shuffled"], &[]] {
        let args = [&["train", "iris", "--steps", "20", "--resume", &checkpoint][..], more].concat();
        let message = super::refused(&args);
        assert!(
            message.contains("data.held_out is 0.3 there") || message.contains("data.split is last there"),
            "{message}"
        );
    }
    let output = run_on(with(&["--steps", "20", "--resume", &checkpoint]));
    assert!(output.status.success(), "{}", stderr(&output));
    // If every step was made before, the summary has no speed.
    let output = run_on(with(&["--steps", "10", "--resume", &checkpoint]));
    assert!(output.status.success(), "{}", stderr(&output));
    let message = super::stdout(&output);
    assert!(message.contains("nothing was left to do, as step 10 was made before"), "{message}");
    assert!(!message.contains("samples/s") && !stderr(&output).contains("made already"), "{message}");
}

#[test]
fn evaluations_during_a_run_are_in_the_summary() {
    let doc = json(&["train", "iris", "--steps", "50", "--eval-every", "20", "--json"]);
    let steps: Vec<u64> = doc["evaluations"].as_array().unwrap().iter().map(|e| e["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [20, 40, 50]);
}

#[test]
fn a_diverging_loss_names_its_origin_and_keeps_the_log() {
    let folder = small(6, &[0, 1, 2, 3]);
    let text = super::SMALL.replace("softmax_cross_entropy", "mse").replace("\"lr\": 0.1", "\"lr\": 1e6");
    std::fs::write(folder.path().join("wild.json"), text).unwrap();
    let x: Vec<f32> = (0..40 * 48).map(|i| ((i % 13) as f32 - 6.0) * 10.0).collect();
    let tensors = [
        ("batch.x", stepgraph::tensor::HostTensor::from_slice([40, 8, 6], &x).unwrap()),
        ("batch.y", super::zeros(&[40, 8, 4])),
    ];
    super::save(&folder.path().join("wild.safetensors"), &tensors);
    let (log, out) = (at(&folder, "log.jsonl"), at(&folder, "out.safetensors"));
    let output = run(&[
        "train",
        &at(&folder, "wild.json"),
        "--batches",
        &at(&folder, "wild.safetensors"),
        "--log",
        &log,
        "--save",
        &out,
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("the loss is") && text.contains("not finite"), "{text}");
    assert!(read(&log).iter().filter(|b| **b == b'\n').count() < 40);
    assert!(!std::path::Path::new(&out).exists());
}
