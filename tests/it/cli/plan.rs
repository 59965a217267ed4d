//! Checks `plan --json` and `arena` independently of the code that makes them.

use super::{at, bundled, data_folder, json, listing, refused, run, stderr, stdout, succeed};
use serde_json::Value;

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} of {value}"))
}

/// The properties of the document: fields, sums, bounds, and no two buffers in the same bytes at the same time.
fn check_document(name: &str, doc: &Value) {
    let ops = doc["ops"].as_array().unwrap();
    let buffers = doc["buffers"].as_array().unwrap();
    for op in ops {
        assert!(op["op"].is_string() && op["kernel"].is_string(), "{op}");
        assert!(op["layer"].is_string() || op["layer"].is_null());
        assert!(["forward", "loss", "backward", "optimizer", "metric"].contains(&op["phase"].as_str().unwrap()));
    }
    let roles = ["input", "param", "state", "grad", "activation", "workspace", "metric"];
    let (mut live_bytes, mut unshared) = (vec![0u64; ops.len()], 0);
    let mut spans = Vec::new();
    for b in buffers {
        assert!(roles.contains(&b["role"].as_str().unwrap()) && b["name"].is_string() && b["dtype"].is_string(), "{b}");
        assert!(b["shape"].is_array());
        let (bytes, offset) = (number(b, "bytes"), number(b, "offset"));
        let live = [b["live"][0].as_u64().unwrap() as usize, b["live"][1].as_u64().unwrap() as usize];
        assert!(live[0] < live[1] && live[1] <= ops.len() && number(b, "data_bytes") <= bytes && bytes > 0, "{b}");
        assert!(offset + bytes <= number(doc, "arena_bytes"), "{b}");
        live_bytes[live[0]..live[1]].iter_mut().for_each(|sum| *sum += bytes);
        unshared += bytes;
        spans.push((live, offset, offset + bytes, b["name"].as_str().unwrap()));
    }
    for (i, a) in spans.iter().enumerate() {
        for b in &spans[..i] {
            let together = a.0[0] < b.0[1] && b.0[0] < a.0[1];
            assert!(!(together && a.1 < b.2 && b.1 < a.2), "{name}: {} and {} share bytes", a.3, b.3);
        }
    }
    let (arena, bound) = (number(doc, "arena_bytes"), number(doc, "lower_bound_bytes"));
    assert_eq!(live_bytes.iter().max(), Some(&bound), "{name}: the largest sum of live bytes");
    assert!(bound <= arena, "{name}");
    assert_eq!(unshared, number(doc, "unshared_bytes"), "{name}");
}

#[test]
fn every_bundled_plan_is_consistent() {
    for name in bundled() {
        let doc = json(&["plan", name, "--json"]);
        check_document(name, &doc);
        assert_eq!(doc["preset"], name);
        assert_eq!(doc["arena_bytes"], doc["lower_bound_bytes"], "{name} meets its lower bound");
        let names: Vec<&str> = doc["buffers"].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"layers.0.weight") || names.iter().any(|n| n.ends_with(".weight")), "{names:?}");
        let params: u64 = doc["buffers"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|b| b["role"] == "param")
            .map(|b| number(b, "data_bytes"))
            .sum();
        assert_eq!(params, 4 * number(&doc, "parameters"), "{name}: the parameters' bytes");
        check_document(name, &json(&["plan", name, "--json", "--eval"]));
    }
}

#[test]
fn a_plan_by_one_planner_is_consistent_too() {
    for planner in ["greedy_by_size", "lowest_by_area", "greedy_by_duration"] {
        let doc = json(&["plan", "digits-residual", "--json", "--planner", planner]);
        check_document(planner, &doc);
        assert_eq!(doc["planner"]["chosen"], planner);
    }
}

#[test]
fn every_stage_prints_in_every_form() {
    for stage in ["ir", "lowered", "passes", "selected", "bindings", "arena", "capture", "all"] {
        assert!(!succeed(&["plan", "digits-mlp", "--stage", stage]).is_empty());
        assert!(json(&["plan", "digits-mlp", "--stage", stage, "--json"]).is_object(), "{stage}");
    }
    for stage in ["ir", "lowered", "selected"] {
        assert!(succeed(&["plan", "digits-mlp", "--stage", stage, "--dot"]).starts_with("digraph"));
    }
    let text = succeed(&["plan", "digits-mlp"]);
    for part in ["Linear(", "gemm_tn", "layers.2.bias", "lower bound", "L0:Dense", "frozen:"] {
        assert!(text.contains(part), "{part} is not in the plan");
    }
}

#[test]
fn the_program_after_any_pass_is_shown_with_what_the_pass_changed() {
    let gpu = ["plan", "digits-mlp", "--device", "cuda", "--stage", "passes"];
    let with = |more: &[&'static str]| [&gpu[..], more].concat();
    let list = json(&with(&["--json"]));
    let passes = list["passes"].as_array().unwrap();
    let runs: Vec<&Value> = passes.iter().filter(|pass| pass["runs"] == true).collect();
    assert!(runs.len() > 8 && passes.iter().any(|pass| pass["runs"] == false && pass.get("did").is_none()));
    // Each pass starts with the program that the preceding one ended with.
    for pair in runs.windows(2) {
        assert_eq!(pair[0]["did"]["after"], pair[1]["did"]["before"], "{}", pair[1]["name"]);
    }
    for pass in &runs {
        let name = pass["name"].as_str().unwrap().to_owned();
        let after = json(&["plan", "digits-mlp", "--device", "cuda", "--stage", "passes", "--pass", &name, "--json"]);
        assert_eq!(after["program"]["ops"].as_array().unwrap().len() as u64, number(&pass["did"], "after"), "{name}");
        assert_eq!(after["changes"].as_array().unwrap().len(), pass["did"]["changes"].as_array().unwrap().len());
    }
    let text = succeed(&with(&[]));
    assert!(
        text.contains("fused_classifier") && text.contains("loss_scaling               does not run here"),
        "{text}"
    );
    let text = succeed(&with(&["--pass", "fused_classifier"]));
    assert!(text.contains("fused    ") && text.contains("dense_ce") && text.contains("-- forward"), "{text}");
    assert!(succeed(&with(&["--pass", "fuse_bias", "--dot"])).starts_with("digraph"));
    assert!(refused(&with(&["--dot"])).contains("--pass"));
    assert!(refused(&with(&["--pass", "loss_scaling"])).contains("it runs on a GPU in f16"));
    let elsewhere = ["plan", "digits-mlp", "--stage", "arena", "--pass", "fuse_bias"];
    assert!(refused(&elsewhere).contains("--pass can be used only with --stage passes"));
}

#[test]
fn pictures_are_complete_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "arena.svg");
    succeed(&["plan", "iris", "--stage", "arena", "--svg", &path]);
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains("layers") | svg.contains("params"));
    assert_eq!(listing(folder.path()), ["arena.svg"]);
}

/// Reads `id,lower,upper,size,offset`, checks that no two rows overlap, and returns the height.
fn check_rows(text: &str, source: &str) -> u64 {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("id,lower,upper,size,offset"));
    let rows: Vec<Vec<u64>> = lines.map(|l| l.split(',').map(|n| n.parse().unwrap()).collect()).collect();
    let given: Vec<&str> = source.lines().skip(1).filter(|l| !l.is_empty()).collect();
    assert_eq!(rows.len(), given.len());
    for (row, line) in rows.iter().zip(given) {
        assert_eq!(line.split(',').map(|n| n.trim().parse().unwrap()).collect::<Vec<u64>>(), row[..4]);
    }
    let mut sorted: Vec<&Vec<u64>> = rows.iter().collect();
    sorted.sort_by_key(|r| r[1]);
    for (i, a) in sorted.iter().enumerate() {
        for b in sorted[i + 1..].iter().take_while(|b| b[1] < a[2]) {
            assert!(a[4] + a[3] <= b[4] || b[4] + b[3] <= a[4], "{a:?} and {b:?} overlap");
        }
    }
    rows.iter().map(|r| r[4] + r[3]).max().unwrap_or(0)
}

#[test]
fn published_problems_are_placed_without_overlap() {
    for (name, bound) in [("somas-resnet50", 1_515_472_556), ("minimalloc-C", 1_039_360)] {
        let path = data_folder().join(format!("arena/{name}.csv"));
        let output = run(&["arena", path.to_str().unwrap(), "--time", "1"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let height = check_rows(&stdout(&output), &std::fs::read_to_string(&path).unwrap());
        assert!(height >= bound, "{name}: {height} is below the bound");
        assert!(stderr(&output).contains(&format!("({height} bytes)")), "{}", stderr(&output));
        if name == "somas-resnet50" {
            assert_eq!(height, bound);
        }
    }
}

#[test]
fn arena_reads_standard_input_and_writes_json_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let text = "id,lower,upper,size\na,0,2,10\nb,1,3,20\nc,2,4,10\n";
    let path = at(&folder, "t.csv");
    std::fs::write(&path, text).unwrap();
    let doc = json(&["arena", &path, "--json", "--svg", &at(&folder, "t.svg")]);
    assert_eq!((number(&doc, "arena_bytes"), number(&doc, "lower_bound_bytes")), (30, 30));
    assert!(doc["proved_optimal"] == true && doc["placement"].as_array().unwrap().len() == 3);
    assert_eq!(listing(folder.path()), ["t.csv", "t.svg"]);
    let mut child = super::command(&["arena", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && stdout(&output).starts_with("id,lower,upper,size,offset\na,0,2,10,"));
}

#[test]
fn arena_names_the_line_of_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "t.csv");
    let fails = |text: &str, wanted: &str| {
        std::fs::write(&path, text).unwrap();
        let found = refused(&["arena", &path]);
        assert!(found.contains(wanted), "{found}");
    };
    fails("", "empty");
    fails("id,lower,upper\n", "lacks the column `size`");
    fails("id,lower,upper,size\na,3,3,1\n", "line 2: the live range [3, 3) is empty");
    fails("id,lower,upper,size\na,0,1,-4\n", "line 2: `size` is negative");
    fails("id,lower,upper,size\na,0,1,4\na,0,1,4\n", "line 3: the id `a` was used on line 2");
    assert!(refused(&["arena", &at(&folder, "none.csv")]).contains("cannot be read"));
}

#[test]
fn parameters_beyond_a_gpus_memory_are_reported_once_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = at(&folder, "p.json");
    let text = r#"{"version": 1, "name": "huge", "input": {"shape": [64], "batch": 8},
        "layers": [{"type": "dense", "units": 4000000000}, {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.001}}"#;
    std::fs::write(&path, text).unwrap();
    let out = run(&["plan", &path, "--device", "cuda"]);
    let message = stderr(&out);
    assert_eq!(out.status.code(), Some(1), "{message}");
    assert!(message.matches("of memory; use fewer units").count() == 1, "{message}");
}

#[test]
fn the_steps_of_two_paths_are_compared() {
    let args = ["plan", "early-exit", "--device", "cpu", "--path", "L1=0", "--against", "L1=1"];
    let doc = json(&[&args[..], &["--json"]].concat());
    assert_eq!(doc["paths"], serde_json::json!(["L1=0", "L1=1"]));
    let count = |side: usize| {
        let operations = doc["operations"][side].as_array().unwrap();
        operations.iter().map(|operation| number(operation, "count")).sum::<u64>()
    };
    let figures = |side: usize, name: &str| number(&doc["figures"][side], name);
    // Numbers that both contain are equal.
    assert_eq!(figures(0, "operations") - count(0), figures(1, "operations") - count(1));
    for (side, path) in ["L1=0", "L1=1"].into_iter().enumerate() {
        let alone = json(&["plan", "early-exit", "--device", "cpu", "--path", path, "--json"]);
        assert_eq!(alone["ops"].as_array().unwrap().len() as u64, figures(side, "operations"));
    }
    let text = succeed(&args);
    assert!(
        text.contains("only in L1=0: ") && text.contains("only in L1=1: ") && text.contains("Bytes moved"),
        "{text}"
    );
    let same = succeed(&["plan", "early-exit", "--device", "cpu", "--path", "L1=1", "--against", "L1=1"]);
    assert!(same.contains("Both steps have the same operations."), "{same}");
    assert!(refused(&["plan", "early-exit", "--against", "L9=1"]).contains("--against"));
    assert!(refused(&["plan", "early-exit", "--against", "L1=1", "--dot"]).contains("--dot"));
}

#[test]
fn a_plan_for_a_missing_gpu_follows_the_kind_of_kernels_in_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let preset = folder.path().join("small.json");
    let text = r#"{"version": 1, "name": "small", "input": {"shape": [784], "batch": 128}, "precision": "tf32",
        "layers": [{"type": "dense", "units": 512, "activation": "relu"}, {"type": "dense", "units": 512},
        {"type": "dense", "units": 10}], "loss": {"type": "softmax_cross_entropy"},
        "optimizer": {"type": "sgd", "lr": 0.1}}"#;
    std::fs::write(&preset, text).unwrap();
    let plan = |kernels: &str| {
        let args = ["plan", preset.to_str().unwrap(), "--device", "cuda", "--json"];
        let mut command = super::command(&args);
        let output = command.env("STEPGRAPH_NO_CUDA", "1").env("STEPGRAPH_KERNELS", kernels).output().unwrap();
        let document: Value = serde_json::from_str(&super::succeeded(&args, &output)).unwrap();
        let kernels = document["ops"].as_array().unwrap().iter().map(|op| op["kernel"].as_str().unwrap());
        (stderr(&output), kernels.filter(|kernel| kernel.contains("_direct_16x")).count())
    };
    // Kernels that load factors directly into registers have no general members.
    let (note, direct) = plan("");
    assert!(note.contains("NVIDIA H200 with all libraries\n") && direct > 0, "{direct} {note}");
    let (note, direct) = plan("general");
    assert!(note.contains("NVIDIA H200 with all libraries and general kernels\n") && direct == 0, "{direct} {note}");
}
