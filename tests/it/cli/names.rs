//! Names that are similar to existing ones, numbers in the environment, and the use of a command's result by another
//! one.

use super::{at, command, refused, stderr, stdout, succeeded, was_refused};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// The program with a separate folder for runs, started in this folder.
fn run(folder: &Path, args: &[&str]) -> Output {
    command(args).current_dir(folder).env("STEPGRAPH_RUNS", folder.join("runs")).output().unwrap()
}

#[test]
fn a_misspelt_preset_is_reported_with_a_similar_name() {
    for args in [&["train", "digits-mpl"][..], &["plan", "Digits-MLP"], &["plan", "digits-mlp.json"]] {
        let message = refused(args);
        assert!(message.contains("did you mean \"digits-mlp\"? bundled are "), "{message}");
    }
    assert!(refused(&["presets", "spiral"]).contains("did you mean \"spirals\"? the bundled presets are "));
    assert!(!refused(&["train", "no-such-preset"]).contains("did you mean"));
    if cfg!(feature = "studio") {
        assert!(refused(&["studio", "spiral"]).contains("did you mean \"spirals\"?"));
        assert!(refused(&["trian"]).contains("did you mean \"train\"?"));
    }
    for args in [["trian", "xor"], ["trian", "cls.json"], ["verfy", "iris"]] {
        let message = refused(&args);
        assert!(message.contains(&format!("there is no command {:?}; did you mean ", args[0])), "{message}");
    }
    // Options are those that the parser knows.
    assert!(refused(&["train", "xor", "--stepz", "3"]).contains("--steps"));
}

#[test]
fn a_misspelt_run_is_reported_with_a_similar_name() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let refused = |args: &[&str]| was_refused(args, &run(here, args));
    succeeded(&["train"], &run(here, &["train", "xor", "--steps", "3", "--keep"]));
    succeeded(&["rename"], &run(here, &["runs", "rename", "last", "first-try"]));
    let message = refused(&["runs", "show", "frist-try"]);
    assert!(message.contains("no run is called frist-try; did you mean \"first-try\"?"), "{message}");
    let message = refused(&["export", "frist-try", "c.csv"]);
    assert!(message.contains("no such file") && message.contains("a kept run is called \"first-try\""), "{message}");
    let message = refused(&["runs", "show", "nobody"]);
    assert!(message.contains("no run is called nobody") && !message.contains("did you mean"), "{message}");
    assert!(refused(&["runs", "restore", "frist-try"]).contains("no run in the trash"));
}

#[test]
fn an_invalid_number_of_threads_is_refused() {
    let with = |args: &[&str], value: &str| command(args).env("STEPGRAPH_THREADS", value).output().unwrap();
    for value in ["abc", "0", "9999"] {
        for args in [&["train", "xor", "--steps", "1"][..], &["plan", "xor"], &["bench", "xor"], &["verify", "xor"]] {
            let message = was_refused(args, &with(args, value));
            assert!(
                message.contains(&format!("STEPGRAPH_THREADS is \"{value}\"; expected a whole number from 1")),
                "{message}"
            );
            assert!(message.contains("unset it"), "{message}");
        }
        // Commands that run no step work as usual, and `doctor` reports the wrong value.
        succeeded(&["presets"], &with(&["presets"], value));
        let report = succeeded(&["doctor"], &with(&["doctor", "--json"], value));
        let report: Value = serde_json::from_str(&report).unwrap();
        assert!(report["threads_why"].as_str().unwrap().contains("STEPGRAPH_THREADS is"), "{report}");
    }
    for value in ["", "1"] {
        succeeded(&["train"], &with(&["train", "xor", "--steps", "1"], value));
    }
}

#[test]
fn the_preset_of_a_run_works_from_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let rows = "1,2,0\n2,1,1\n3,3,1\n".repeat(5);
    std::fs::write(folder.path().join("t.csv"), format!("a,b,y\n{rows}")).unwrap();
    let preset = r#"{ "version": 1, "name": "t", "input": { "shape": [2], "batch": 4 },
        "layers": [{ "type": "dense", "units": 2 }], "loss": { "type": "softmax_cross_entropy" },
        "optimizer": { "type": "sgd", "lr": 0.1 }, "data": { "type": "csv", "path": "t.csv" } }"#;
    std::fs::write(folder.path().join("p.json"), preset).unwrap();
    let here = folder.path();
    succeeded(&["train"], &run(here, &["train", "p.json", "--steps", "3", "--keep"]));
    let printed = succeeded(&["runs"], &run(here, &["runs", "preset", "last"]));
    std::fs::write(elsewhere.path().join("q.json"), printed).unwrap();
    succeeded(&["train"], &run(elsewhere.path(), &["train", "q.json", "--steps", "3"]));
    // A resumed run accepts the same data under another path.
    let checkpoint = at(&folder, "c.ckpt");
    succeeded(&["train"], &run(here, &["train", "p.json", "--steps", "3", "--checkpoint", &checkpoint]));
    succeeded(&["train"], &run(elsewhere.path(), &["train", "q.json", "--steps", "5", "--resume", &checkpoint]));
}

#[test]
fn hidden_runs_are_marked_if_all_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for _ in 0..2 {
        succeeded(&["train"], &run(here, &["train", "xor", "--steps", "3", "--keep"]));
    }
    succeeded(&["hide"], &run(here, &["runs", "hide", "last"]));
    let all = succeeded(&["runs"], &run(here, &["runs", "--all"]));
    let states: Vec<&str> = all.lines().skip(1).map(|l| l.rsplit("  ").next().unwrap()).collect();
    assert_eq!(states, ["finished, hidden", "finished"], "{all}");
    assert!(!succeeded(&["runs"], &run(here, &["runs"])).contains("hidden"));
    assert!(succeeded(&["runs"], &run(here, &["runs", "show", "last"])).contains("\nhidden "));
}

#[test]
fn a_capsule_accepts_only_one_option_for_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = at(&folder, "x.capsule");
    succeeded(&["capsule"], &run(folder.path(), &["capsule", "make", "xor", &file, "--steps", "1"]));
    let both = ["capsule", "replay", &file, "--base", ".", "--data", "t.csv"];
    let message = was_refused(&both, &run(folder.path(), &both));
    assert!(
        message.contains("--base") && message.contains("--data") && message.contains("cannot be used with"),
        "{message}"
    );
    let replayed = succeeded(&["capsule"], &run(folder.path(), &["capsule", "replay", &file]));
    assert!(replayed.contains("bit-equal over 1 step, parameters included"), "{replayed}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_reported() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full");
    let Ok(_) = full() else {
        println!("skipped: this system has no /dev/full");
        return;
    };
    for args in [&["presets"][..], &["plan", "xor"], &["doctor", "--json"], &["train", "xor", "--steps", "1"]] {
        let output = command(args).stdout(full().unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let message = stderr(&output);
        assert!(
            message.contains("error: standard output cannot be written: No space left on device"),
            "{args:?}: {message}"
        );
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_single_item_is_singular() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "a,b,y\n".to_owned() + &"1,2,0\n2,1,1\n".repeat(4);
    std::fs::write(folder.path().join("t.csv"), rows).unwrap();
    let preset = r#"{ "version": 1, "name": "t", "input": { "shape": [2], "batch": 1 },
        "layers": [{ "type": "dense", "units": 2 }], "loss": { "type": "softmax_cross_entropy" },
        "optimizer": { "type": "sgd", "lr": 0.1 }, "data": { "type": "csv", "path": "t.csv", "held_out": 1 } }"#;
    std::fs::write(folder.path().join("p.json"), preset).unwrap();
    let here = folder.path();
    let train = ["train", "p.json", "--steps", "1", "--threads", "1", "--save", "w.safetensors"];
    let is_plain = |output: &Output| {
        let text = stdout(output) + &stderr(output);
        for noun in ["sample", "thread", "step", "layer", "check", "path", "operation", "parameter", "batches"] {
            let wrong =
                text.lines().find(|l| l.contains(&format!(" 1 {noun}s")) && !l.contains(&format!("1 {noun}s/")));
            assert_eq!(wrong, None, "{text}");
        }
        text
    };
    assert!(is_plain(&run(here, &train)).contains("on 1 sample\n"));
    assert!(is_plain(&run(here, &["predict", "p.json", "--init", "w.safetensors"])).contains("1 held-out sample,"));
    assert!(is_plain(&run(here, &["plan", "p.json", "--threads", "1"])).contains("t: 1 layer, 6 parameters"));
    assert!(is_plain(&run(here, &["bench", "p.json", "--seconds", "0.05", "--threads", "1"])).contains("1 thread"));
}
