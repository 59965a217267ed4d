//! Weights contain how their samples were prepared and divided: how `predict`, `train --resume`, exports and capsules
//! use that.

use super::{at, command, stderr, stdout, succeeded, was_refused};
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// The network that learns the table: 3 features, 2 classes, batches of 16.
const PRESET: &str = r#"{
  "version": 1, "name": "table", "input": { "shape": [3], "batch": 16 },
  "layers": [{ "type": "dense", "units": 8, "activation": "relu" }, { "type": "dense", "units": 2 }],
  "loss": { "type": "softmax_cross_entropy" }, "optimizer": { "type": "adam", "lr": 0.02 },
  "data": { "type": "csv", "path": "table.csv" }, "train": { "steps": 200, "seed": 0 }
}"#;

/// Row `i` of the table: `a` and `b` determine the class, far from 0, and `c` does not.
fn row(i: usize) -> ([f64; 3], &'static str) {
    let noise = |k: usize| ((i * 7919 + k * 104_729) % 97) as f64 / 97.0 - 0.5;
    let side = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    ([250.0 + 20.0 * side + 3.0 * noise(1), 0.01 * (side + noise(2)), 5.0 * noise(3)], ["yes", "no"][i % 2])
}

/// A table of these rows with its columns in this order.
fn table(rows: impl Iterator<Item = usize>, columns: &str) -> String {
    let mut text = format!("{columns}\n");
    for i in rows {
        let ([a, b, c], answer) = row(i);
        let cell = |name: &str| match name {
            "a" => a.to_string(),
            "b" => b.to_string(),
            "c" => c.to_string(),
            "answer" => answer.to_owned(),
            _ => format!("row {i}"),
        };
        text.push_str(&columns.split(',').map(cell).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

/// A folder with the preset and its table of 120 rows.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("table.json", PRESET);
        place.write("table.csv", &table(0..120, "a,b,c,answer"));
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn at(&self, name: &str) -> String {
        at(&self.0, name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    /// A preset that differs in its table, which has this text.
    fn other(&self, name: &str, text: &str) -> String {
        self.write(&format!("{name}.csv"), text);
        self.write(&format!("{name}.json"), &PRESET.replace("table.csv", &format!("{name}.csv")));
        self.at(&format!("{name}.json"))
    }

    fn run(&self, args: &[&str]) -> Output {
        command(args).current_dir(self.path()).env("STEPGRAPH_RUNS", self.path().join("runs")).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&succeeded(args, &self.run(args))).unwrap()
    }

    fn refused(&self, args: &[&str]) -> String {
        was_refused(args, &self.run(args))
    }

    /// Trains with the last 50 samples held out, and saves in every way.
    fn trained(&self) -> Value {
        let split = ["--seed", "3", "--split", "last", "--held-out", "50"];
        let files = ["--save", "w.safetensors", "--checkpoint", "c.ckpt", "--keep", "--json"];
        self.json(&[&["train", "table.json"][..], &split, &files].concat())
    }
}

/// Every way to name the weights that [`Place::trained`] leaves.
const WEIGHTS: [[&str; 2]; 3] = [["--run", "last"], ["--init", "w.safetensors"], ["--init", "c.ckpt"]];

#[test]
fn weights_are_evaluated_on_what_their_own_run_held_out() {
    let place = Place::new();
    let trained = place.trained();
    for weights in WEIGHTS {
        let ask = |more: &[&str]| place.json(&[&["predict", "table.json"][..], &weights, &["--json"], more].concat());
        let found = ask(&["--out", "answers.csv"]);
        assert_eq!((&found["samples"], &found["part"]), (&50.into(), &"held_out".into()), "{weights:?}");
        assert_eq!(found["accuracy"], trained["held_out"]["accuracy"]);
        let loss = [&found, &trained["held_out"]].map(|of| of["loss"].as_f64().unwrap());
        assert!((loss[0] - loss[1]).abs() < 1e-6 * loss[1].max(1e-3), "{loss:?}");
        let text = std::fs::read_to_string(place.path().join("answers.csv")).unwrap();
        let samples: Vec<usize> = text.lines().skip(1).map(|l| l.split(',').next().unwrap().parse().unwrap()).collect();
        assert!(samples.into_iter().eq(70..120), "{weights:?}: {text}");
        // The same options, and a seed that does not affect the last samples, cause no new message.
        let same = ask(&["--held-out", "50", "--split", "last", "--seed", "8"]);
        assert_eq!(same["loss"], found["loss"]);
        for options in [&["--held-out", "60"][..], &["--split", "shuffled"]] {
            let message = place.refused(&[&["predict", "table.json"][..], &weights, options].concat());
            assert!(message.contains("was trained with seed 3, held_out 50 and split \"last\""), "{message}");
        }
    }
}

#[test]
fn drawn_data_with_another_seed_are_other_data() {
    let place = Place::new();
    place.json(&["train", "circles", "--steps", "100", "--seed", "5", "--keep", "--save", "w.safetensors", "--json"]);
    for weights in [["--run", "last"], ["--init", "w.safetensors"]] {
        let found = place.json(&[&["predict", "circles", "--json"][..], &weights].concat());
        assert_eq!((&found["samples"], &found["part"]), (&200.into(), &"held_out".into()));
        let other = place.json(&[&["predict", "circles", "--json", "--seed", "6"][..], &weights].concat());
        assert_eq!((&other["samples"], &other["part"]), (&1000.into(), &"all".into()));
    }
}

#[test]
fn another_file_is_prepared_as_the_training_file_was() {
    let place = Place::new();
    assert_eq!(place.trained()["held_out"]["accuracy"], 1.0);
    let yes = || (120..400usize).filter(|i| i.is_multiple_of(2));
    let one_class = place.other("one-class", &table(yes(), "a,b,c,answer"));
    let moved = place.other("moved", &table(120..180, "note,c,answer,b,a"));
    let bare = table(120..180, "a,b,c,answer");
    let bare = place.other("bare", bare.split_once('\n').unwrap().1);
    let single = place.other("single", &table(121..122, "a,b,c,answer"));
    for weights in WEIGHTS {
        for (preset, rows) in [(&one_class, 140), (&moved, 60), (&bare, 60), (&single, 1)] {
            let found = place.json(&[&["predict", preset, "--json"][..], &weights].concat());
            let read = (&found["samples"], &found["part"], &found["accuracy"]);
            assert_eq!(read, (&rows.into(), &"all".into(), &1.0.into()), "{preset} {weights:?}");
            let names: Vec<&str> =
                found["classes"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
            assert_eq!(names, ["no", "yes"]);
        }
    }
    let message = stderr(&place.run(&["predict", &moved, "--run", "last"]));
    assert!(message.contains("ignored: \"note\"") && message.contains("trained on other data"), "{message}");
    let divided = place.json(&["predict", &moved, "--run", "last", "--held-out", "10", "--split", "last", "--json"]);
    assert_eq!((&divided["samples"], &divided["part"]), (&10.into(), &"held_out".into()));
    // Data that do not fit are named in the message.
    let lacking = place.other("lacking", &table(0..9, "a,c,answer"));
    let message = place.refused(&["predict", &lacking, "--run", "last"]);
    assert!(message.contains("no column \"b\"") && message.contains("lacking.csv"), "{message}");
    let unlabelled = place.other("unlabelled", &table(0..9, "a,b,c"));
    let message = place.refused(&["predict", &unlabelled, "--run", "last"]);
    assert!(message.contains("no column \"answer\""), "{message}");
    let strange = place.other("strange", &table(0..9, "a,b,c,answer").replace("yes", "perhaps"));
    let message = place.refused(&["predict", &strange, "--run", "last"]);
    assert!(
        message.contains("line 2") && message.contains("the class \"perhaps\"") && message.contains("\"no\", \"yes\""),
        "{message}"
    );
    let narrow = place.other("narrow", "1,2,yes\n");
    let message = place.refused(&["predict", &narrow, "--run", "last"]);
    assert!(message.contains("2 features") && message.contains("\"a\", \"b\", \"c\""), "{message}");
}

#[test]
fn weights_of_older_versions_are_evaluated_with_a_note_about_assumptions() {
    let place = Place::new();
    place.json(&["train", "table.json", "--save", "w.safetensors", "--json"]);
    let file = stepgraph::train::read_tensors(&place.path().join("w.safetensors")).unwrap();
    let old = stepgraph::train::TensorFile { tensors: file.tensors, ..Default::default() };
    old.write(&place.path().join("old.safetensors")).unwrap();
    let output = place.run(&["predict", "table.json", "--init", "old.safetensors", "--json"]);
    let found: Value = serde_json::from_str(&succeeded(&["predict"], &output)).unwrap();
    assert_eq!((&found["samples"], &found["accuracy"]), (&24.into(), &1.0.into()));
    assert!(stderr(&output).contains("does not say how its samples were prepared"), "{}", stderr(&output));
    let output = place.run(&["predict", "table.json", "--init", "w.safetensors"]);
    assert!(!stderr(&output).contains("does not say"), "{}", stderr(&output));
    // The same split can be requested, and another one gives another result.
    let last = ["predict", "table.json", "--init", "old.safetensors", "--split", "last", "--held-out", "7", "--json"];
    assert_eq!(place.json(&last)["samples"], 7);
    let output = place.run(&["export", "table.json", "old.onnx", "--weights", "old.safetensors"]);
    assert!(stderr(&output).contains("do not say how their samples were prepared"), "{}", stderr(&output));
}

#[test]
fn predictions_can_be_the_only_standard_output() {
    let place = Place::new();
    place.trained();
    let output = place.run(&["predict", "table.json", "--run", "last", "--out", "-"]);
    let table = succeeded(&["predict"], &output);
    assert!(table.starts_with("sample,target,predicted,p_no,p_yes\n70,") && table.lines().count() == 51, "{table}");
    assert!(stderr(&output).contains("50 held-out samples") && stderr(&output).contains("precision"));
    assert!(!place.path().join("-").exists());
    place.run(&["predict", "table.json", "--run", "last", "--out", "answers.csv"]);
    assert_eq!(std::fs::read_to_string(place.path().join("answers.csv")).unwrap(), table);
    let message = place.refused(&["predict", "table.json", "--run", "last", "--out", "-", "--json"]);
    assert!(message.contains("--out - and --json both write to standard output"), "{message}");
}

/// The lines of a PyTorch script about its samples and outputs.
fn meaning_of(script: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(script).unwrap();
    let says = |line: &&str| ["CLASSES = ", "MEAN = ", "SCALE = "].iter().any(|name| line.starts_with(name));
    text.lines().filter(says).map(str::to_owned).collect()
}

#[test]
fn exports_contain_how_the_weights_were_trained() {
    let place = Place::new();
    place.trained();
    succeeded(&["export"], &place.run(&["export", "last", "before.onnx"]));
    succeeded(&["export"], &place.run(&["export", "last", "before.py"]));
    // Now the file contains other rows.
    place.write("table.csv", &table((0..120usize).filter(|i| i.is_multiple_of(2)), "c,answer,b,a"));
    for (name, what) in [("run", &["last"][..]), ("preset", &["table.json", "--weights", "w.safetensors"])] {
        for kind in ["onnx", "py", "safetensors"] {
            let file = format!("{name}.{kind}");
            succeeded(&["export"], &place.run(&[&["export", what[0], &file][..], &what[1..]].concat()));
        }
        let bytes = |file: &str| std::fs::read(place.path().join(file)).unwrap();
        assert_eq!(bytes(&format!("{name}.onnx")), bytes("before.onnx"), "{name}");
        let meaning = meaning_of(&place.path().join(format!("{name}.py")));
        assert_eq!(meaning, meaning_of(&place.path().join("before.py")));
        assert!(meaning.len() == 3 && meaning.iter().any(|l| l.contains("no") && l.contains("yes")), "{meaning:?}");
        // Exported weights contain it too.
        let args = ["predict", "table.json", "--init", &format!("{name}.safetensors"), "--json"];
        assert_eq!(place.json(&args)["accuracy"], 1.0);
    }
    // A network can be exported without its data.
    std::fs::remove_file(place.path().join("table.csv")).unwrap();
    succeeded(&["export"], &place.run(&["export", "last", "gone.onnx"]));
}

#[test]
fn a_run_that_is_resumed_prepares_its_samples_as_before() {
    let place = Place::new();
    place.json(&["train", "table.json", "--checkpoint", "c.ckpt", "--json"]);
    // The held-out part has only one class; its own mean would hide what determines the class.
    place.write("table.csv", &table((0..240usize).filter(|i| i.is_multiple_of(2)), "a,b,c,answer"));
    let resumed = place.json(&["train", "table.json", "--resume", "c.ckpt", "--steps", "200", "--json"]);
    assert_eq!((&resumed["held_out"], &resumed["maybe_trained"]["accuracy"]), (&Value::Null, &1.0.into()));
    let notes = resumed["notes"].as_array().unwrap();
    assert!(notes.iter().any(|n| n.as_str().unwrap().contains("may have been trained on")), "{notes:?}");
    place.write("table.csv", &table(0..120, "a,b,answer"));
    let message = place.refused(&["train", "table.json", "--resume", "c.ckpt", "--steps", "300"]);
    assert!(message.contains("no column \"c\""), "{message}");
}

/// The table for resuming a run: half of its 120 rows differ.
fn other_rows() -> String {
    table((0..240usize).filter(|i| i % 4 < 2), "a,b,c,answer")
}

#[test]
fn samples_that_may_have_been_trained_on_are_never_called_held_out() {
    let place = Place::new();
    place.json(&["train", "table.json", "--checkpoint", "c.ckpt", "--json"]);
    place.write("table.csv", &other_rows());
    let files = ["--save", "w.safetensors", "--checkpoint", "d.ckpt", "--keep", "--log", "run.jsonl"];
    let args = [&["train", "table.json", "--resume", "c.ckpt", "--steps", "210"][..], &files].concat();
    let output = place.run(&args);
    let message = succeeded(&args, &output);
    assert!(message.contains("may have been trained on: accuracy ") && !message.contains("held out"), "{message}");
    let log = std::fs::read_to_string(place.path().join("run.jsonl")).unwrap();
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert!(last["maybe_trained_loss"].is_f64() && last.get("held_out_loss").is_none(), "{last}");
    let doubtful = |weights: [&str; 2], samples: u64| {
        let args = [&["predict", "table.json"][..], &weights].concat();
        let output = place.run(&args);
        let (message, notes) = (succeeded(&args, &output), stderr(&output));
        assert!(
            message.contains("samples that may have been trained on") && !message.contains("held-out"),
            "{message}"
        );
        assert!(notes.contains("may have been trained on") && !notes.contains(" held out, with"), "{notes}");
        let found = place.json(&[&args[..], &["--json"]].concat());
        assert_eq!((&found["part"], &found["samples"]), (&"maybe_trained".into(), &samples.into()), "{weights:?}");
    };
    WEIGHTS[..2].iter().chain(&[["--init", "d.ckpt"]]).for_each(|weights| doubtful(*weights, 24));
    let run = &place.json(&["runs", "--json"])[0];
    assert!(run["held_out_accuracy"].is_null() && run["maybe_trained_accuracy"].is_f64(), "{run}");
    let shown = succeeded(&["runs"], &place.run(&["runs", "show", "last"]));
    let line = |name: &str| shown.lines().find(|l| l.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("held-out accuracy").ends_with('-') && line("evaluated").contains("no held-out metrics"), "{shown}");
    assert!(stderr(&place.run(&["runs"])).contains("no held-out metrics"));
    succeeded(&["export"], &place.run(&["export", "last", "run.csv"]));
    let csv = std::fs::read_to_string(place.path().join("run.csv")).unwrap();
    assert!(csv.contains(",maybe_trained_loss,") && !csv.contains("held_out"), "{csv}");
    // A second part with the original samples, and a run that starts from the weights, know it too.
    place.json(&["train", "table.json", "--resume", "d.ckpt", "--steps", "220", "--save", "e.safetensors", "--json"]);
    doubtful(["--init", "e.safetensors"], 24);
    place.json(&[
        "train",
        "table.json",
        "--init",
        "e.safetensors",
        "--steps",
        "9",
        "--save",
        "f.safetensors",
        "--json",
    ]);
    doubtful(["--init", "f.safetensors"], 24);
    succeeded(&["export"], &place.run(&["export", "table.json", "g.safetensors", "--weights", "f.safetensors"]));
    doubtful(["--init", "g.safetensors"], 24);
    // The rows of the very first part are not other data.
    place.write("table.csv", &table(0..120, "a,b,c,answer"));
    doubtful(["--init", "w.safetensors"], 120);
}

#[test]
fn a_run_from_other_weights_holds_out_what_these_held_out() {
    let place = Place::new();
    place.json(&["train", "table.json", "--save", "w.safetensors", "--json"]);
    let part = |args: &[&str]| {
        let train = ["train", "table.json", "--init", "w.safetensors", "--steps", "9", "--save", "x.safetensors"];
        place.json(&[&train[..], &["--json"], args].concat());
        place.json(&["predict", "table.json", "--init", "x.safetensors", "--json"])["part"].clone()
    };
    assert_eq!(part(&[]), "held_out");
    // Other samples are held out, and those were trained on before.
    assert_eq!(part(&["--seed", "4"]), "maybe_trained");
    assert_eq!(part(&["--split", "last"]), "maybe_trained");
    assert_eq!(part(&["--held-out", "9"]), "maybe_trained");
}

#[test]
fn a_capsule_finds_its_data_where_they_are_now() {
    let place = Place::new();
    place.trained();
    for (what, file) in [("table.json", "preset.capsule"), ("last", "run.capsule")] {
        succeeded(&["capsule"], &place.run(&["capsule", "make", what, file, "--steps", "20"]));
    }
    let folder = place.path().join("elsewhere");
    std::fs::create_dir(&folder).unwrap();
    std::fs::rename(place.path().join("table.csv"), folder.join("t.csv")).unwrap();
    place.write("wrong.csv", &table(1..121, "a,b,c,answer"));
    for file in ["preset.capsule", "run.capsule"] {
        let message = place.refused(&["capsule", "replay", file]);
        assert!(message.contains("table.csv: cannot be read") && message.contains("--data PATH"), "{message}");
        let report = place.json(&["capsule", "replay", file, "--data", "elsewhere/t.csv", "--json"]);
        assert!(report["is_bit_equal"] == true && report["has_other_data"] == false, "{report}");
        let message = place.refused(&["capsule", "replay", file, "--data", "wrong.csv"]);
        assert!(
            message.contains("wrong.csv") && message.contains("samples that the capsule was made with"),
            "{message}"
        );
        let message = place.refused(&["capsule", "replay", file, "--data", "a", "--data", "b"]);
        assert!(message.contains("2 paths of data are given, and the capsule's preset names 1"), "{message}");
    }
}

/// What a command prints; its runs are kept in the place.
#[cfg(unix)]
fn succeeds(place: &Place, args: &[&std::ffi::OsStr]) -> String {
    let mut command = command(&[]);
    let output = command.args(args).env("STEPGRAPH_RUNS", place.path().join("runs")).output().unwrap();
    let shown: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
    assert!(output.status.success(), "{shown:?}: {}", stderr(&output));
    stdout(&output)
}

#[cfg(unix)]
#[test]
fn paths_need_not_be_unicode() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let folder = place.path().join(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&folder).unwrap();
    for name in ["table.json", "table.csv"] {
        std::fs::copy(place.path().join(name), folder.join(name)).unwrap();
    }
    let inside = |name: &str| folder.join(OsStr::from_bytes(&[name.as_bytes(), b"\xff"].concat())).into_os_string();
    let preset = folder.join("table.json").into_os_string();
    let run = |args: &[&OsStr]| succeeds(&place, args);
    let as_json = |text: String| serde_json::from_str::<Value>(&text).unwrap();
    let [train, json, steps, count] = ["train", "--json", "--steps", "30"].map(OsStr::new);
    let (log, save, checkpoint) = (inside("log"), inside("weights"), inside("checkpoint"));
    let [to_log, to_save, to_checkpoint, keep] = ["--log", "--save", "--checkpoint", "--keep"].map(OsStr::new);
    let summary = as_json(run(&[
        train,
        &preset,
        steps,
        count,
        json,
        keep,
        to_log,
        &log,
        to_save,
        &save,
        to_checkpoint,
        &checkpoint,
    ]));
    assert_eq!(summary["files"].as_array().unwrap().len(), 3);
    assert!(summary["files"][0].as_str().unwrap().contains("caf\u{fffd}"), "{summary}");
    assert!([&log, &save, &checkpoint].iter().all(|path| Path::new(path).is_file()));
    let [predict, init, with_run, last, out] = ["predict", "--init", "--run", "last", "--out"].map(OsStr::new);
    let answers = inside("answers");
    let found = as_json(run(&[predict, &preset, init, &save, out, &answers, json]));
    assert!(found["out"].as_str().unwrap().contains("caf\u{fffd}") && Path::new(&answers).is_file());
    // A kept run finds its folder again.
    assert_eq!(as_json(run(&[predict, &preset, with_run, last, json]))["loss"], found["loss"]);
    let [capsule, make, replay, show] = ["capsule", "make", "replay", "show"].map(OsStr::new);
    let file: OsString = inside("capsule");
    as_json(run(&[capsule, make, last, &file, json]));
    assert_eq!(as_json(run(&[capsule, replay, &file, json]))["is_bit_equal"], true);
    let of_preset = inside("of-preset");
    run(&[capsule, make, &preset, &of_preset, steps, count]);
    assert_eq!(as_json(run(&[capsule, replay, &of_preset, json]))["is_bit_equal"], true);
    assert!(as_json(run(&[OsStr::new("runs"), show, last, json]))["base"].as_str().unwrap().contains("caf\u{fffd}"));
    let [export, format, onnx] = ["export", "--format", "onnx"].map(OsStr::new);
    let exported = as_json(run(&[export, last, &inside("net"), format, onnx, json]));
    assert!(exported["files"][0].as_str().unwrap().contains("net\u{fffd}"), "{exported}");
    run(&[export, &preset, &inside("of-preset-net"), format, onnx]);
    run(&[OsStr::new("plan"), &preset, json]);
    run(&[OsStr::new("verify"), &preset, OsStr::new("--replays"), OsStr::new("10"), init, &save, json]);
    run(&[OsStr::new("bench"), &preset, OsStr::new("--seconds"), OsStr::new("0.05"), json]);
    let resumed = as_json(run(&[train, &preset, steps, OsStr::new("40"), OsStr::new("--resume"), &checkpoint, json]));
    assert_eq!(resumed["steps"], 40);
}
