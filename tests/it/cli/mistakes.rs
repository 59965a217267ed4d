//! Mistakes of the user: exit status 2, every mistake with its path, and no file written.

use super::{SMALL, at, listing, refused, refuses_values, save, small, zeros};
use stepgraph::tensor::HostTensor;

/// `SMALL` with one piece of text replaced.
fn changed(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replacen(from, to, 1)
}

/// Runs every command that reads a preset; each must report all of `wanted`, and leave the folder unchanged.
fn check(contents: &[u8], wanted: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "p.json");
    std::fs::write(&path, contents).unwrap();
    let (save, log) = (at(&folder, "out.safetensors"), at(&folder, "out.jsonl"));
    for args in [
        vec!["train", &path, "--save", &save, "--log", &log],
        vec!["plan", &path, "--json"],
        vec!["verify", &path],
        vec!["bench", &path],
    ] {
        let text = refused(&args);
        for part in wanted {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert_eq!(listing(folder.path()), ["p.json"], "{args:?}");
    }
}

#[test]
fn unknown_fields_and_types_name_their_path() {
    check(changed("\"units\": 5", "\"unit\": 5").as_bytes(), &["layers[0].unit: unknown field", "units"]);
    check(
        changed("\"dense\", \"units\": 4", "\"densee\", \"units\": 4").as_bytes(),
        &["layers[1].type: found \"densee\"", "\"conv2d\""],
    );
    check(changed("\"lr\": 0.1", "\"lr\": 0.1, \"beta\": 1").as_bytes(), &["optimizer.beta: unknown field"]);
    check(changed("softmax_cross_entropy", "hinge").as_bytes(), &["loss.type: found \"hinge\"", "\"mse\""]);
}

#[test]
fn wrong_types_and_zero_sizes_say_what_was_found_and_expected() {
    check(
        changed("\"units\": 5", "\"units\": \"five\"").as_bytes(),
        &["layers[0].units: found \"five\"; expected a whole number"],
    );
    check(changed("\"units\": 5", "\"units\": 0").as_bytes(), &["layers[0].units: found 0;"]);
    check(
        changed("\"units\": 5", "\"units\": -3").as_bytes(),
        &["layers[0].units: found -3; expected a whole number, at least 1"],
    );
    check(changed("\"batch\": 8", "\"batch\": 0").as_bytes(), &["input.batch: found 0"]);
    check(changed("\"shape\": [6]", "\"shape\": [0]").as_bytes(), &["input.shape: found [0]"]);
    check(changed("\"shape\": [6]", "\"shape\": []").as_bytes(), &["input.shape"]);
    check(changed("\"lr\": 0.1", "\"lr\": -1").as_bytes(), &["optimizer.lr: found -1"]);
    let data = "\"loss\": { \"type\": \"softmax_cross_entropy\" }, \"data\": { \"type\": \"iris\", \"held_out\": 1.0 }";
    check(
        changed("\"loss\": { \"type\": \"softmax_cross_entropy\" }", data).as_bytes(),
        &["data.held_out: found 1.0; expected a fraction below 1, or 1 without a decimal point"],
    );
}

#[test]
fn several_mistakes_are_reported_at_once_one_on_each_line() {
    let text = changed("\"units\": 5", "\"units\": 0").replace("\"lr\": 0.1", "\"lr\": -1");
    check(text.as_bytes(), &["2 mistakes:", "\nlayers[0].units: found 0", "\noptimizer.lr: found -1"]);
    let text = changed("\"sgd\", \"lr\": 0.1", "\"adam\", \"lr\": 0.1, \"betas\": [1, 1]");
    check(
        text.as_bytes(),
        &["optimizer.betas: found 1; expected the first", "optimizer.betas: found 1; expected the second"],
    );
}

#[test]
fn a_name_that_is_given_twice_is_refused_with_its_path() {
    let text = changed("\"units\": 5", "\"units\": 5, \"units\": 6").replace("\"lr\": 0.1", "\"lr\": 0.1, \"lr\": 0.2");
    let wanted =
        ["2 mistakes:", "\nlayers[0].units: is given more than once", "\noptimizer.lr: is given more than once"];
    check(text.as_bytes(), &wanted);
    let text = changed("\"version\": 1", "\"version\": 1, \"version\": 1").replace("\"units\": 5", "\"unit\": 5");
    check(text.as_bytes(), &["\nversion: is given more than once; keep one", "layers[0].unit: unknown field"]);
}

#[test]
fn invalid_numbers_are_refused() {
    check(changed("\"lr\": 0.1", "\"lr\": NaN").as_bytes(), &["not JSON", "line"]);
    check(changed("\"lr\": 0.1", "\"lr\": 1e999").as_bytes(), &["JSON"]);
    check(changed("\"lr\": 0.1", "\"lr\": Infinity").as_bytes(), &["not JSON"]);
    check(changed("\"batch\": 8", "\"batch\": 1e300").as_bytes(), &["input.batch", "from 1 to 2^53"]);
    check(changed("\"units\": 5", "\"units\": 9000000000000000").as_bytes(), &["layers[0]", "too large"]);
}

#[test]
fn shapes_that_do_not_fit_name_the_layer() {
    let conv =
        changed("\"dense\", \"units\": 5, \"activation\": \"relu\"", "\"conv2d\", \"filters\": 2, \"kernel\": 3");
    check(conv.as_bytes(), &["layers[0]", "[C, H, W]"]);
    let block = "{ \"type\": \"residual\", \"layers\": [{ \"type\": \"dense\", \"units\": 7 }] }, { \"type\": \
        \"dense\", \"units\": 5 }";
    let block = changed("{ \"type\": \"dense\", \"units\": 5, \"activation\": \"relu\" }", block);
    check(block.as_bytes(), &["layers[0].layers: the block turns [6] into [7]"]);
}

#[test]
fn files_that_are_not_presets_are_refused() {
    check(b"", &["the file is empty"]);
    check(b"\x00\xff\xfe\x80binary", &["is not text", "save it as UTF-8"]);
    // Redirection in PowerShell writes UTF-16 with a byte order mark; half a character at its end is invalid.
    let wide: Vec<u8> = format!("\u{feff}{}", changed("\"units\": 5", "\"units\": 0"))
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    check(&wide, &["layers[0].units: found 0"]);
    check(&wide[..wide.len() - 1], &["is not text"]);
    check(&SMALL.as_bytes()[..SMALL.len() / 2], &["not JSON"]);
    check(b"[1, 2]", &["not an object"]);
    let weights = b"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    let weights = [&(weights.len() as u64).to_le_bytes()[..], weights, &[0; 4]].concat();
    check(&weights, &["p.json: this is not a preset, it is a file of weights (safetensors)", "--init FILE"]);
    check(b"\x08\x08\x12\x07pytorch", &["it is an ONNX model", "Stepgraph opens presets"]);
    check(b"\x89PNG\r\n\x1a\n\0", &["it is a PNG picture", "name in its data a folder"]);
    check("[".repeat(100_000).as_bytes(), &["not JSON"]);
    let nested = "{\"type\":\"residual\",\"layers\":[".repeat(40) + "{\"type\":\"flatten\"}" + &"]}".repeat(40);
    let nested = format!(
        "{{\"name\":\"n\",\"input\":{{\"shape\":[6],\"batch\":8}},\"layers\":[{nested}],\"loss\":{{\"type\":\"mse\"}},\
         \"optimizer\":{{\"type\":\"sgd\",\"lr\":1}}}}"
    );
    check(nested.as_bytes(), &["layers"]);
}

#[test]
fn a_missing_preset_lists_the_bundled_ones() {
    let text = refused(&["train", "no-such-preset"]);
    assert!(text.contains("no such file") && text.contains("digits-mlp") && text.contains("spirals"), "{text}");
    let folder = tempfile::tempdir().unwrap();
    assert!(refused(&["plan", folder.path().to_str().unwrap()]).contains("is a folder"));
}

#[test]
fn invalid_options_are_usage_errors() {
    for args in [
        &["train", "xor", "--steps", "0"][..],
        &["train", "xor", "--steps", "-1"],
        &["train", "xor", "--steps", "many"],
        &["train", "xor", "--device", "tpu"],
        &["train", "xor", "--device", "cuda:x"],
        &["train", "xor", "--executor", "compiled"],
        &["train", "xor", "--threads", "0"],
        &["train", "xor", "--checkpoint-every", "5"],
        &["train", "xor", "--init", "a.safetensors", "--resume", "b.ckpt"],
        &["train", "xor", "--no-such-option"],
        &["train"],
        &["plan", "xor", "--stage", "nowhere"],
        &["plan", "xor", "--planner", "magic"],
        &["plan", "xor", "--stage", "arena", "--dot"],
        &["plan", "xor", "--time-budget", "-1"],
        &["bench", "xor", "--seconds", "0"],
        &["bench", "xor", "--seconds", "NaN"],
        &["verify"],
        &["arena", "x.csv", "--time", "inf"],
        &["train", "xor", "--held-out", "-1"],
        &["train", "xor", "--held-out", "5000"],
    ] {
        assert!(!refused(args).is_empty(), "{args:?}");
    }
}

#[test]
fn a_requested_gpu_that_cannot_be_used_is_an_error() {
    for device in ["cuda", "cuda:1"] {
        let message = refused(&["train", "xor", "--device", device]);
        assert!(
            message.contains("cannot be used: STEPGRAPH_NO_CUDA is set") && message.contains("stepgraph doctor"),
            "{message}"
        );
    }
}

#[test]
fn results_that_cannot_be_written_are_found_before_training() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "kept").unwrap();
    let inside_file = at(&folder, "file/w.safetensors");
    let no_folder = at(&folder, "no/such/w.safetensors");
    let is_folder = folder.path().to_str().unwrap().to_owned();
    for option in ["--save", "--log", "--checkpoint"] {
        for path in [&inside_file, &no_folder, &is_folder] {
            let text = refused(&["train", "xor", "--steps", "1000000000", option, path]);
            assert!(text.contains(path.as_str()) && text.contains("cannot be written"), "{text}");
        }
    }
    let same = at(&folder, "same");
    let dotted = at(&folder, "./same");
    for other in [&same, &dotted] {
        let message = refused(&["train", "xor", "--save", &same, "--log", other]);
        assert!(message.contains("two different results") && message.contains("the log"), "{message}");
    }
    let part = at(&folder, "run.part");
    let message = refused(&["train", "xor", "--log", &at(&folder, "run"), "--save", &part]);
    assert!(message.contains("two different results"), "{message}");
    assert_eq!(listing(folder.path()), ["file"]);
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"kept");
    if cfg!(unix) {
        assert!(refused(&["train", "xor", "--save", "/dev/null"]).contains("device"));
    }
}

#[test]
fn results_never_replace_what_the_command_reads() {
    let folder = small(2, &[0, 1, 2, 3]);
    let (preset, batches) = (at(&folder, "small.json"), at(&folder, "batches.safetensors"));
    let (table, tabled) = (at(&folder, "t.csv"), at(&folder, "tabled.json"));
    let rows = "a,b,c,d,e,f,y\n".to_owned() + &"1,2,3,4,5,6,0\n6,5,4,3,2,1,1\n".repeat(20);
    std::fs::write(&table, rows).unwrap();
    let data = "\"lr\": 0.1 }, \"data\": { \"type\": \"csv\", \"path\": \"t.csv\" }";
    std::fs::write(&tabled, changed("\"lr\": 0.1 }", data)).unwrap();
    let [start, checkpoint] = ["start.safetensors", "c.ckpt"].map(|n| at(&folder, n));
    let given = ["train", &tabled, "--steps", "3", "--save", &start, "--checkpoint", &checkpoint];
    super::succeed(&given);
    let boxes = at(&folder, "boxes.csv");
    std::fs::write(&boxes, "id,lower,upper,size\na,0,2,10\n").unwrap();
    let other_name = |path: &str| path.replace(folder.path().to_str().unwrap(), &at(&folder, "."));
    let contents = || listing(folder.path()).into_iter().map(|n| (std::fs::read(at(&folder, &n)).unwrap(), n));
    let before: Vec<(Vec<u8>, String)> = contents().collect();
    let fails = |args: &[&str], what: &str, input: &str| {
        let message = refused(args);
        assert!(message.contains(&format!("would replace {what} ")) && message.contains(input), "{args:?}: {message}");
        assert_eq!(contents().collect::<Vec<_>>(), before, "{args:?}");
    };
    for option in ["--save", "--log", "--checkpoint"] {
        for (path, what) in [(&tabled, "the preset"), (&table, "the preset's data")] {
            fails(&["train", &tabled, option, path], what, path);
            fails(&["train", &tabled, option, &other_name(path)], what, path);
        }
        fails(&["train", &tabled, "--init", &start, option, &start], "the initial parameters", &start);
        fails(&["train", &preset, "--batches", &batches, option, &batches], "the batches", &batches);
    }
    for option in ["--save", "--log"] {
        let args = ["train", &tabled, "--resume", &checkpoint, option, &checkpoint];
        fails(&args, "the checkpoint to resume from", &checkpoint);
    }
    fails(&["plan", &tabled, "--svg", &tabled], "the preset", &tabled);
    fails(&["plan", &tabled, "--svg", &table], "the preset's data", &table);
    fails(&["bench", &preset, &tabled, "--graph", &preset], "the preset", &preset);
    fails(&["arena", &boxes, "--svg", &boxes], "the table", &boxes);
    // The log is written beside its name, and must not replace a file there either.
    let part = at(&folder, "x.part");
    std::fs::copy(&tabled, &part).unwrap();
    let message = refused(&["train", &part, "--log", &at(&folder, "x")]);
    assert!(message.contains("would replace the preset"), "{message}");
    // A run that continues may replace its own checkpoint.
    super::succeed(&["train", &tabled, "--steps", "6", "--resume", &checkpoint, "--checkpoint", &checkpoint]);
}

#[test]
fn every_broken_preset_is_refused_with_each_of_its_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, missing] = ["a.json", "b.json", "missing.json"].map(|n| at(&folder, n));
    std::fs::write(&a, changed("\"units\": 5", "\"units\": 0").replace("\"lr\": 0.1", "\"lr\": -1")).unwrap();
    std::fs::write(&b, changed("\"batch\": 8", "\"batch\": 0")).unwrap();
    for command in ["verify", "bench"] {
        let message = refused(&[command, &a, "xor", &b, &missing]);
        for part in
            ["a.json has 2 mistakes:", "layers[0].units", "optimizer.lr", "b.json has a mistake:", "input.batch"]
        {
            assert!(message.contains(part), "{part} is not in\n{message}");
        }
        assert!(message.contains("missing.json: no such file"), "{message}");
    }
}

#[test]
fn a_table_with_names_for_a_loss_on_numbers_says_which_loss_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let (preset, table) = (at(&folder, "p.json"), at(&folder, "t.csv"));
    std::fs::write(&table, "a,kind\n".to_owned() + &"1,cat\n2,dog\n".repeat(20)).unwrap();
    let data = "\"lr\": 0.1 }, \"data\": { \"type\": \"csv\", \"path\": \"t.csv\" }";
    let text = changed("\"lr\": 0.1 }", data).replace("[6]", "[1]").replace("softmax_cross_entropy", "mse");
    std::fs::write(&preset, text).unwrap();
    let message = refused(&["train", &preset, "--steps", "1"]);
    assert!(message.contains("t.csv, line 2, column 2 (kind): found \"cat\""), "{message}");
    assert!(message.contains("mse needs numbers") && message.contains("softmax_cross_entropy"), "{message}");
}

#[test]
fn initial_parameters_must_fit() {
    let folder = small(2, &[0, 1, 2, 3]);
    let (preset, batches, init) =
        (at(&folder, "small.json"), at(&folder, "batches.safetensors"), at(&folder, "init.safetensors"));
    let out = at(&folder, "out.safetensors");
    let names = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"];
    let shapes: [&[usize]; 4] = [&[6, 5], &[5], &[5, 4], &[4]];
    let good = || -> Vec<(&str, HostTensor)> { names.iter().copied().zip(shapes.map(zeros)).collect() };
    let fails = |tensors: &[(&str, HostTensor)], wanted: &str| {
        save(folder.path().join("init.safetensors").as_path(), tensors);
        let text = refused(&["train", &preset, "--batches", &batches, "--init", &init, "--save", &out]);
        assert!(text.contains(wanted), "{text}");
        assert!(!listing(folder.path()).contains(&"out.safetensors".to_owned()));
    };
    fails(&good()[1..], "layers.0.weight is missing (expected [6, 5])");
    let mut wrong = good();
    wrong[2].1 = zeros(&[4, 5]);
    fails(&wrong, "layers.1.weight has shape [4, 5], the network needs [5, 4]");
    let mut more = good();
    more.push(("layers.7.weight", zeros(&[1])));
    fails(&more, "layers.7.weight belongs to no layer");
    let mut broken = good();
    broken[1].1 = HostTensor::from_slice([5], &[0.0, f32::NAN, 0.0, 0.0, 0.0]).unwrap();
    fails(&broken, "layers.0.bias holds NaN");
    std::fs::write(folder.path().join("init.safetensors"), b"not tensors").unwrap();
    assert!(refused(&["train", &preset, "--batches", &batches, "--init", &init]).contains("init.safetensors"));
}

#[test]
fn batches_must_fit() {
    let folder = small(3, &[0, 1, 2, 4]);
    let (preset, batches) = (at(&folder, "small.json"), at(&folder, "batches.safetensors"));
    let fails = |wanted: &str| {
        let log = at(&folder, "log.jsonl");
        let text = refused(&["train", &preset, "--batches", &batches, "--log", &log]);
        assert!(text.contains(wanted), "{text}");
        assert_eq!(listing(folder.path()), ["batches.safetensors", "small.json"]);
    };
    fails("class 4 in batch 0, sample 3; classes must be in 0..4");
    let path = folder.path().join("batches.safetensors");
    let labels = HostTensor::from_slice([3, 8], &[0i32; 24]).unwrap();
    save(&path, &[("batch.x", zeros(&[3, 8, 7])), ("batch.y", labels.clone())]);
    fails("batch.x has shape [3, 8, 7], the network needs [S, 8, 6]");
    save(&path, &[("batch.x", zeros(&[2, 8, 6])), ("batch.y", labels.clone())]);
    fails("batch.x holds 2 batches and batch.y 3");
    save(&path, &[("batch.x", zeros(&[3, 8, 6]))]);
    fails("no tensor batch.y");
    let mut x = vec![0.0f32; 144];
    x[100] = f32::INFINITY;
    save(&path, &[("batch.x", HostTensor::from_slice([3, 8, 6], &x).unwrap()), ("batch.y", labels)]);
    fails("batch.x holds inf at element 100");
    let said = refused(&["train", &preset]);
    assert!(said.contains("names no data") && !said.contains("device:"), "{said}");
}

#[test]
fn a_number_that_an_option_does_not_accept_is_explained() {
    let cases: [(&str, &[&str], &str); 4] = [
        ("--steps", &["ten", "-1"], "expected a whole number, at least 1"),
        ("--seed", &["1.5"], "expected a whole number, at least 0"),
        ("--threads", &["99"], "expected a whole number from 1 to 64"),
        ("--held-out", &["half"], "expected a fraction below 1"),
    ];
    refuses_values(&cases, |option, value| refused(&["train", "xor", option, value]));
}

/// Two mistakes or more in each kind of layer and in each part of a preset: of type, of range, and fields that do not
/// exist.
const FULL_OF_MISTAKES: &str = r#"{
  "version": 2, "name": 3,
  "input": { "shape": [1, 8, "x"], "batch": 0, "channels": 1 },
  "layers": [
    { "type": "conv2d", "filters": "many", "kernel": 3, "stride": 0, "colour": 1 },
    { "type": "conv2d", "filters": 0, "kernel": 4, "groups": 0, "padding": "same", "dilation": 70000, "bias": 1 },
    { "type": "conv2d", "filters": 4, "kernel": [3], "groups": 3, "padding": 70000 },
    { "type": "batch_norm", "eps": "small", "momentum": 2 },
    { "type": "layer_norm", "eps": 0, "momentum": 1 },
    { "type": "activation", "function": "step", "slope": 1 },
    { "type": "max_pool2d", "size": 0, "stride": "x" },
    { "type": "avg_pool2d", "size": 2, "stride": 0, "padding": 5 },
    { "type": "global_avg_pool", "size": 1, "stride": 2 },
    { "type": "flatten", "a": 1, "b": 2 },
    { "type": "dropout", "rate": 1.5, "seed": 3 },
    { "type": "residual", "layers": [{ "type": "dense", "units": 0, "bias": "yes" }], "scale": 1 },
    { "type": "repeat", "times": 0, "layers": [], "x": 1 },
    { "type": "dens", "units": 0 },
    "relu",
    { "type": "dense", "units": 0, "activation": "step", "unit": 3 }
  ],
  "loss": { "type": "softmax_cross_entropy", "label_smoothing": 2, "margin": 1 },
  "optimizer": { "type": "adam", "lr": -1, "betas": [2, 3], "eps": "tiny", "weight_decay": -1, "momentum": 0.9 },
  "precision": "f8",
  "data": { "type": "spirals", "classes": 1, "noise": -1, "samples": "all",
    "held_out": -1, "split": "random", "x": 1 },
  "train": { "steps": 0, "seed": -1, "epoch": 3 },
  "trains": {}
}"#;

/// The paths of the mistakes that a command reports, in order.
fn paths(folder: &tempfile::TempDir, text: &str) -> Vec<String> {
    let path = at(folder, "p.json");
    std::fs::write(&path, text).unwrap();
    let message = refused(&["plan", &path]);
    let lines = message.lines().skip(1);
    lines.map(|l| l.split(": ").next().unwrap().to_owned()).collect()
}

#[test]
fn all_mistakes_of_a_preset_are_reported_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut found = paths(&folder, FULL_OF_MISTAKES);
    let fields: [(&str, &[&str]); 22] = [
        ("", &["version", "name", "precision", "trains"]),
        ("input.", &["shape", "batch", "channels"]),
        ("loss.", &["label_smoothing", "margin"]),
        ("optimizer.", &["lr", "betas", "betas", "eps", "weight_decay", "momentum"]),
        ("data.", &["classes", "noise", "samples", "held_out", "split", "x"]),
        ("train.", &["steps", "seed", "epoch"]),
        ("layers[0].", &["filters", "stride", "colour"]),
        ("layers[1].", &["filters", "groups", "padding", "dilation", "bias"]),
        ("layers[2].", &["kernel", "groups", "padding"]),
        ("layers[3].", &["eps", "momentum"]),
        ("layers[4].", &["eps", "momentum"]),
        ("layers[5].", &["function", "slope"]),
        ("layers[6].", &["size", "stride"]),
        ("layers[7].", &["stride", "padding"]),
        ("layers[8].", &["size", "stride"]),
        ("layers[9].", &["a", "b"]),
        ("layers[10].", &["rate", "seed"]),
        ("layers[11].", &["layers[0].units", "layers[0].bias", "scale"]),
        ("layers[12].", &["times", "layers", "x"]),
        ("layers[13].", &["type"]),
        ("layers[14]", &[""]),
        ("layers[15].", &["units", "activation", "unit"]),
    ];
    let mut wanted: Vec<String> =
        fields.iter().flat_map(|(at, names)| names.iter().map(move |n| format!("{at}{n}"))).collect();
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
}

#[test]
fn mistakes_of_shape_are_reported_together_with_those_of_fields() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{ "version": 1, "name": "n", "input": { "shape": [3, 8, 8], "batch": 4 },
      "layers": [
        { "type": "conv2d", "filters": 4, "kernel": 9, "groups": 2, "stride": 0 },
        { "type": "dense", "units": 5, "units": 6 }
      ],
      "loss": { "type": "mse" }, "optimizer": { "type": "adm", "lr": -1 } }"#;
    let mut found = paths(&folder, text);
    found.sort();
    let wanted = [
        "layers[0].groups",
        "layers[0].kernel",
        "layers[0].stride",
        "layers[1].units",
        "optimizer.lr",
        "optimizer.type",
    ];
    assert_eq!(found, wanted);
    // The output of a network without weights is compared with the loss, even if there are other mistakes.
    let text = r#"{ "version": 1, "name": "n", "input": { "shape": [3, 8, 8], "batch": 4 },
      "layers": [{ "type": "dropout", "rate": "half" }, { "type": "dropout", "rate": 1 }],
      "loss": { "type": "softmax_cross_entropy" }, "optimizer": { "type": "adam", "lr": 0.1 } }"#;
    let mut found = paths(&folder, text);
    found.sort();
    assert_eq!(found, ["layers", "layers[0].rate", "layers[1].rate", "loss"]);
}

#[test]
fn an_unreadable_field_causes_no_further_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{ "version": 1, "name": "n", "input": { "shape": [4, 8, 8], "batch": 4 },
      "layers": [
        { "type": "residual",
          "layers": [{ "type": "conv2d", "filters": "four", "kernel": 3, "padding": "same", "groups": 4 }] },
        { "type": "residual", "layers": [{ "type": "conv2d", "filters": 4, "kernel": 3, "strides": 1 }] },
        { "type": "avg_pool2d", "size": "two", "padding": 1 },
        { "type": "softmax" }
      ],
      "loss": { "type": "softmax_cross_entropy" },
      "optimizer": { "type": "sgd", "lr": 0.1, "momentum": "much", "nesterov": true } }"#;
    let found = paths(&folder, text);
    let wanted = [
        "optimizer.momentum",
        "layers[0].layers[0].filters",
        "layers[1].layers[0].strides",
        "layers[2].size",
        "layers[3].type",
    ];
    assert_eq!(found, wanted);
}
