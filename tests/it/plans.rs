//! Properties of plans on random networks: every stage accepts them, the arena is as small as possible, damaged plans
//! are refused, artefacts and presets can be written and read back, and every document, however broken, only causes
//! diagnostics.

use super::nets::model;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use stepgraph::compile::{Compiled, Options, compile};
use stepgraph::ir::Role;
use stepgraph::model::random::{Size, random_preset};
use stepgraph::model::{BUNDLED, Preset, Rng, check, read_preset, read_value, write_preset};
use stepgraph::plan::arena::{self, Budget, Placement, Problem};
use stepgraph::plan::{BindingPlan, Buffer, BufferId, CapturePlan, referee};
use stepgraph::select::{Isa, Target};

const NETWORKS: u64 = 300;

fn target() -> Target {
    Target::cpu(Isa::Avx2, 2)
}

fn presets(count: u64) -> impl Iterator<Item = Preset> {
    (0..count).map(|seed| random_preset(seed, if seed % 4 == 0 { Size::LARGE } else { Size::SMALL }))
}

fn compiled(preset: &Preset, options: &Options) -> Compiled {
    compile(&model(preset), options).unwrap_or_else(|e| panic!("{}: {e}\n{}", preset.name, write_preset(preset)))
}

/// The offset of each buffer that shares memory.
fn placement(plan: &BindingPlan) -> (Problem, Vec<BufferId>, Placement) {
    let (problem, ids) = plan.problem().unwrap();
    let offsets = ids.iter().map(|id| plan.buffer(*id).offset - plan.persistent_bytes).collect();
    let placement = Placement::new(&problem, offsets);
    (problem, ids, placement)
}

#[test]
fn every_network_compiles_in_every_mode_and_both_referees_agree() {
    let mut ratios = Vec::new();
    for preset in presets(NETWORKS) {
        for options in [Options::train(target()), Options::eval(target()), Options::reference_f64(target())] {
            let compiled = compiled(&preset, &options);
            let plan = &compiled.plan;
            assert_eq!(referee::check(plan), Ok(()), "{}", preset.name);
            let (problem, _, placement) = placement(plan);
            assert_eq!(arena::referee::check(&problem, &placement), Ok(()), "{}", preset.name);
            assert!(
                plan.lower_bound_bytes <= plan.arena_bytes && plan.arena_bytes <= plan.unshared_bytes,
                "{}",
                preset.name
            );
            let peak = plan.live_bytes().into_iter().max().unwrap_or(0);
            assert_eq!(peak, plan.lower_bound_bytes, "{}: the most that is alive is the bound", preset.name);
            assert!(
                plan.buffers.iter().all(|b| b.offset.is_multiple_of(256) && b.live[0] < b.live[1]),
                "{}",
                preset.name
            );
            ratios.push((plan.report.ratio, preset.name.clone()));
        }
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let met = ratios.iter().filter(|(r, _)| *r == 1.0).count();
    let (worst, name) = ratios.last().unwrap();
    println!("{} plans: {met} at the lower bound, the largest ratio {worst:.4} ({name})", ratios.len());
    assert!(*worst <= 1.01, "{name} takes {worst:.4} of the lower bound");
}

/// A third of the networks with their plans, each with separate random numbers.
fn plans_with_numbers(stream: u64) -> impl Iterator<Item = (Compiled, Rng)> {
    let options = Options::train(target());
    let numbered = (0..).zip(presets(NETWORKS / 3));
    numbered.map(move |(seed, preset)| (compiled(&preset, &options), Rng::new(seed, stream)))
}

/// Moves a buffer together with its contents.
fn moved(plan: &BindingPlan, id: BufferId, offset: u64) -> BindingPlan {
    let mut plan = plan.clone();
    let old = plan.buffers[id.0 as usize].offset;
    plan.buffers[id.0 as usize].offset = offset;
    for place in plan.places.iter_mut().flatten().filter(|p| p.buffer == id) {
        place.offset = place.offset - old + offset;
    }
    plan
}

#[test]
fn a_buffer_in_the_wrong_place_is_refused() {
    let (mut tried, mut by_dataflow) = (0, 0);
    for (compiled, mut rng) in plans_with_numbers(1) {
        let plan = &compiled.plan;
        let transient: Vec<u32> =
            (0..plan.buffers.len() as u32).filter(|i| !plan.buffers[*i as usize].persistent).collect();
        for _ in 0..20 {
            let (a, b) = (transient[rng.below(transient.len())], transient[rng.below(transient.len())]);
            let [x, y] = [a, b].map(|i| &plan.buffers[i as usize]);
            if a == b || x.live[0] >= y.live[1] || y.live[0] >= x.live[1] {
                continue;
            }
            tried += 1;
            let spoiled = moved(plan, BufferId(a), y.offset);
            let (problem, _, placement) = placement(&spoiled);
            let by_arena = arena::referee::check(&problem, &placement).is_err();
            let dataflow = referee::check(&spoiled);
            by_dataflow += usize::from(dataflow.is_err());
            assert!(by_arena, "{}: {} on {} passes the arena's referee", compiled.model.name, x.name, y.name);
            // A value that is written, overwritten and then read is lost: this must be found from the addresses alone.
            let reads = |r: &[usize], from: usize, to: usize| r.iter().any(|&op| from < op && op >= to);
            let overlaps = x
                .writers
                .iter()
                .any(|&w| y.writers.first().is_some_and(|&f| f < w) && reads(&y.readers, w, w + 1))
                || y.writers.iter().any(|&w| x.writers.first().is_some_and(|&f| f < w) && reads(&x.readers, w, w + 1));
            let flat = |b: &stepgraph::plan::Buffer| !b.parts.is_empty();
            if overlaps && !flat(x) && !flat(y) {
                assert!(
                    dataflow.is_err(),
                    "{}: {} on {} passes the plan's referee",
                    compiled.model.name,
                    x.name,
                    y.name
                );
            }
        }
    }
    println!("{tried} buffers moved onto another: all refused by the arena's referee, {by_dataflow} by the plan's");
    assert!(tried > 300 && by_dataflow * 2 > tried);
}

/// Whether a buffer is written once and read much later, so that its live range can be shortened.
fn lives_long(b: &Buffer) -> bool {
    b.live[1] - b.live[0] >= 4
        && b.parts.is_empty()
        && b.role != Role::Workspace
        && b.writers.len() == 1
        && b.readers.len() > 1
}

/// Whether another buffer is written into `victim` before its last reader.
fn overwrites(b: &Buffer, victim: &Buffer) -> bool {
    let used = |b: &Buffer| b.shape.len() as u64 * b.dtype.size() as u64;
    let last_read = victim.readers.iter().copied().max().unwrap_or(0);
    let bytes = if b.role == Role::Workspace { b.bytes } else { used(b) };
    let over = b.offset < victim.offset + used(victim) && victim.offset < b.offset + bytes;
    over && b.parts.is_empty() && b.writers.iter().any(|&w| victim.live[0] < w && w < last_read)
}

#[test]
fn a_live_range_cut_short_is_refused() {
    let (mut tried, mut spoiled_count) = (0, 0);
    for (compiled, mut rng) in plans_with_numbers(2) {
        let plan = &compiled.plan;
        let (problem, ids, _) = placement(plan);
        let long: Vec<usize> = (0..ids.len()).filter(|&i| lives_long(plan.buffer(ids[i]))).collect();
        if long.is_empty() {
            continue;
        }
        let cut = long[rng.below(long.len())];
        let mut items = problem.items().to_vec();
        items[cut].upper = items[cut].lower + 1;
        let wrong = Problem::new(items).unwrap();
        let report = arena::plan_best(&wrong, Budget::default());
        // The arena's referee trusts the live ranges; with the true ones it finds the overlap, and so does the plan's
        // referee.
        assert_eq!(arena::referee::check(&wrong, &report.placement), Ok(()));
        tried += 1;
        let mut spoiled = plan.clone();
        for (id, offset) in ids.iter().zip(&report.placement.offsets) {
            spoiled = moved(&spoiled, *id, plan.persistent_bytes + offset);
        }
        let truly = arena::referee::check(&problem, &Placement::new(&problem, report.placement.offsets.clone()));
        let dataflow = referee::check(&spoiled);
        assert!(
            truly.is_err() || dataflow.is_ok(),
            "{}: the plan's referee refuses a sound plan: {dataflow:?}",
            compiled.model.name
        );
        let victim = spoiled.buffer(ids[cut]);
        let overwritten = ids.iter().any(|id| *id != ids[cut] && overwrites(spoiled.buffer(*id), victim));
        if overwritten {
            spoiled_count += 1;
            assert!(
                dataflow.is_err(),
                "{}: {} is overwritten before its last reader, and the plan's referee accepts",
                compiled.model.name,
                victim.name
            );
        }
    }
    println!(
        "{tried} live ranges cut short, {spoiled_count} of them led to an overwritten value: all of these refused"
    );
    assert!(spoiled_count > 20, "{spoiled_count}");
}

/// Writes an artefact as JSON, reads it back and compares.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq>(what: &str, name: &str, value: &T) {
    let text = serde_json::to_string(value).unwrap_or_else(|e| panic!("{name}: {what} cannot be written: {e}"));
    let back: T = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {what} cannot be read back: {e}"));
    assert!(back == *value, "{name}: {what} changes when written and read");
}

#[test]
fn every_artefact_can_be_printed_written_and_read() {
    for preset in presets(NETWORKS / 3) {
        for options in [Options::train(target()), Options::eval(target())] {
            let c = compiled(&preset, &options);
            round_trip("the graph", &preset.name, &c.graph);
            round_trip("the program", &preset.name, &c.program);
            round_trip("the selection", &preset.name, &c.selection);
            round_trip("the plan", &preset.name, &c.plan);
            let capture = CapturePlan::new(&c.plan, &c.model);
            round_trip("the capture plan", &preset.name, &capture);
            for text in [c.graph.to_string(), c.program.to_string(), c.selection.to_string(), capture.to_string()] {
                assert!(text.lines().count() > 1 && !text.contains("NaN"), "{}: {text}", preset.name);
            }
            let dot = [c.graph.to_dot(), c.program.to_dot(|_, op| op.kind.name().to_owned())];
            assert!(dot.iter().all(|d| d.starts_with("digraph")
                && d.ends_with("}\n")
                && d.matches('{').count() == d.matches('}').count()));
            let svg = stepgraph::plan::arena_svg(&c.plan, "a <title> & more");
            assert!(svg.contains("&lt;title&gt; &amp; more") && svg.trim_end().ends_with("</svg>"));
        }
    }
}

#[test]
fn a_preset_is_unchanged_after_writing_and_reading() {
    for preset in presets(NETWORKS) {
        let text = write_preset(&preset);
        let back = read_preset(&text).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
        assert_eq!(back, preset);
        assert_eq!(write_preset(&back), text);
    }
    for bundled in BUNDLED {
        let preset = read_preset(bundled.text).unwrap();
        assert_eq!(read_preset(&write_preset(&preset)).unwrap(), preset, "{}", bundled.name);
    }
}

/// A path in a document: the JSON pointer's keys, and the path in diagnostics.
#[derive(Clone, Debug)]
struct Place {
    keys: Vec<String>,
    path: String,
}

fn places(value: &Value, at: &Place, out: &mut Vec<Place>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let path = if at.path.is_empty() { key.clone() } else { format!("{}.{key}", at.path) };
                let place = Place { keys: [at.keys.clone(), vec![key.clone()]].concat(), path };
                out.push(place.clone());
                places(inner, &place, out);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                let place =
                    Place { keys: [at.keys.clone(), vec![i.to_string()]].concat(), path: format!("{}[{i}]", at.path) };
                out.push(place.clone());
                places(inner, &place, out);
            }
        }
        _ => {}
    }
}

fn at<'v>(value: &'v mut Value, keys: &[String]) -> &'v mut Value {
    keys.iter().fold(value, |v, key| match v {
        Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
        other => &mut other[key.as_str()],
    })
}

/// Whether a diagnostic's path is that path, or contains it.
fn names(path: &str, place: &str) -> bool {
    path == place || (!path.is_empty() && place.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '['])))
}

/// The document of a random network, with data and training length.
fn document(seed: u64) -> Value {
    let mut value: Value = serde_json::from_str(&write_preset(&random_preset(seed, Size::SMALL))).unwrap();
    let sources = [
        json!({"type": "digits", "held_out": 0.2}),
        json!({"type": "csv", "path": "a.csv", "target": "y", "standardize": true, "delimiter": ",", "header": "auto"}),
        json!({"type": "moons", "samples": 100, "noise": 0.1, "held_out": 10, "split": "last"}),
    ];
    value["data"] = sources[seed as usize % sources.len()].clone();
    value["train"] = json!({"steps": 10, "seed": 1});
    value
}

#[test]
fn a_wrong_type_is_reported_at_its_path() {
    let (mut mutations, mut missed) = (0, Vec::new());
    for seed in 0..120 {
        let good = document(seed);
        assert!(read_value(&good).is_ok(), "{good}");
        let mut all = Vec::new();
        places(&good, &Place { keys: Vec::new(), path: String::new() }, &mut all);
        for place in &all {
            // No field of a preset takes an object with this field, and no list holds one.
            let mut bad = good.clone();
            *at(&mut bad, &place.keys) =
                if at(&mut good.clone(), &place.keys).is_object() { json!(7) } else { json!({"zzz": 1}) };
            mutations += 1;
            match read_value(&bad) {
                Err(found)
                    if found
                        .iter()
                        .any(|d| names(&d.path, &place.path) && !d.message.is_empty() && !d.help.is_empty()) => {}
                other => missed.push(format!("{}: {:?}", place.path, other.err())),
            }
        }
    }
    missed.truncate(12);
    println!("{mutations} wrong types");
    assert!(missed.is_empty() && mutations > 3_000, "{}", missed.join("\n"));
}

#[test]
fn a_missing_or_unknown_field_is_reported() {
    let (mut lost, mut unknown) = (0, 0);
    // Fields that a preset may leave out: all that have a default.
    const REQUIRED: &str = "name input layers loss optimizer shape batch type units filters kernel size function lr";
    for seed in 0..120 {
        let good = document(seed);
        let mut all = Vec::new();
        places(&good, &Place { keys: Vec::new(), path: String::new() }, &mut all);
        for place in &all {
            let (last, parent) = place.keys.split_last().unwrap();
            // Inputs have arbitrary names, and a document without them has an unnamed input.
            if place.keys[0] == "inputs" {
                continue;
            }
            let mut bad = good.clone();
            let Value::Object(map) = at(&mut bad, parent) else { continue };
            map.remove(last);
            let has_default = last == "lr" && good["optimizer"]["type"] == "lion";
            // A branch without an input takes its block's input.
            let is_branch = last == "input" && !parent.is_empty();
            let is_listed = REQUIRED.split(' ').any(|field| field == last) && !is_branch
                || matches!(last.as_str(), "times" | "rate" | "path");
            let required = is_listed && !has_default;
            match read_value(&bad) {
                Ok(_) => assert!(!required, "{} may not be missing", place.path),
                Err(found) => {
                    lost += 1;
                    // An input without a type has no vocabulary, and without `inputs` there is one input.
                    let named = match place.path.as_str() {
                        "input.type" => "input.vocab",
                        "inputs" => "input.shape",
                        path => path,
                    };
                    assert!(found.iter().any(|d| names(&d.path, named)), "{}: {found:?}", place.path);
                }
            }
            let mut bad = good.clone();
            let Value::Object(map) = at(&mut bad, parent) else { continue };
            map.insert("zzz".into(), json!(1));
            let path = place.path.rsplit_once('.').map_or_else(|| "zzz".to_owned(), |(p, _)| format!("{p}.zzz"));
            unknown += 1;
            let found = read_value(&bad).expect_err("an unknown field");
            assert!(found.iter().any(|d| d.path == path && d.message == "unknown field"), "{path}: {found:?}");
        }
    }
    println!("{lost} lost fields, {unknown} unknown ones");
    assert!(lost > 500 && unknown > 500);
}

#[test]
fn extreme_values_never_panic_and_every_diagnostic_has_a_path() {
    let wild = [
        json!(0),
        json!(-1),
        json!(1),
        json!(2),
        json!(1e18),
        json!(u64::MAX),
        json!(0.5),
        json!(1e308),
        json!(-0.0),
        json!(null),
        json!(""),
        json!("none"),
        json!([]),
        json!([0, 0]),
        json!([3, 4294967296u64]),
        json!({}),
        json!(true),
        json!("same"),
        json!([1, 1, 1]),
    ];
    let (mut sound, mut refused, mut compiled_count) = (0, 0, 0);
    for seed in 0..2_000u64 {
        let mut rng = Rng::new(seed, 9);
        let mut value = document(seed % 150);
        for _ in 0..1 + rng.below(2) {
            let mut all = Vec::new();
            places(&value, &Place { keys: Vec::new(), path: String::new() }, &mut all);
            let place = &all[rng.below(all.len())];
            *at(&mut value, &place.keys) = wild[rng.below(wild.len())].clone();
        }
        let diagnostics = match read_value(&value) {
            Err(found) => found,
            Ok(preset) => {
                let checked = check(&preset);
                assert_eq!(checked.model.is_none(), !checked.diagnostics.is_empty(), "{value}");
                // A checked model can be compiled, unless it is larger than any machine.
                if let Some(model) = checked.model
                    && model.batch * model.layers.iter().map(|l| l.output.len()).max().unwrap_or(0) < 1 << 26
                {
                    compiled_count += 1;
                    compile(&model, &Options::train(target())).unwrap_or_else(|e| panic!("{e}: {value}"));
                }
                sound += usize::from(checked.diagnostics.is_empty());
                checked.diagnostics
            }
        };
        refused += usize::from(!diagnostics.is_empty());
        for d in &diagnostics {
            assert!(!d.path.is_empty() && !d.message.is_empty() && !d.help.is_empty(), "{d:?} for {value}");
            let first = d.path.split(['.', '[']).next().unwrap();
            const KNOWN: [&str; 11] = [
                "version",
                "name",
                "about",
                "input",
                "inputs",
                "layers",
                "loss",
                "optimizer",
                "precision",
                "data",
                "train",
            ];
            assert!(KNOWN.contains(&first), "{d:?} names no place of {value}");
        }
    }
    println!("{refused} wild documents refused, {sound} sound, {compiled_count} of these compiled");
    assert!(refused > 800);
}

#[test]
fn an_invalid_value_is_reported_at_its_path() {
    let base = r#"{"version": 1, "name": "t", "input": {"shape": [2, 8, 8], "batch": 4}, "layers": [
        {"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "batch_norm"},
        {"type": "residual", "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same"}]},
        {"type": "max_pool2d", "size": 2}, {"type": "flatten"}, {"type": "dropout", "rate": 0.5},
        {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 36}]}, {"type": "dense", "units": 3}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}}"#;
    let cases = [
        ("layers.0.filters", json!(0), "layers[0].filters"),
        ("layers.0.kernel", json!(12), "layers[0].kernel"),
        ("layers.0.groups", json!(3), "layers[0].groups"),
        ("layers.0.stride", json!([0, 1]), "layers[0].stride"),
        ("layers.0.padding", json!("same"), ""),
        ("layers.0.filters", json!(1u64 << 50), "layers[0]"),
        ("layers.1.eps", json!(0), "layers[1].eps"),
        ("layers.1.momentum", json!(2), "layers[1].momentum"),
        ("layers.2.layers.0.filters", json!(5), "layers[2].layers"),
        ("layers.2.layers", json!([]), "layers[2].layers"),
        ("layers.3.padding", json!(2), "layers[3].padding"),
        ("layers.3.size", json!(9), "layers[3].size"),
        ("layers.5.rate", json!(1), "layers[5].rate"),
        ("layers.6.times", json!(0), "layers[6].times"),
        ("layers.6.layers.0.units", json!(35), "layers[6].layers"),
        ("layers.7.units", json!(0), "layers[7].units"),
        ("input.batch", json!(0), "input.batch"),
        ("input.shape", json!([2, 8, 1, 1]), "input.shape"),
        ("loss.label_smoothing", json!(1.5), "loss.label_smoothing"),
        ("optimizer.lr", json!(-1), "optimizer.lr"),
        ("optimizer.betas", json!([0.9, 1.0]), "optimizer.betas"),
    ];
    for (keys, value, expected) in cases {
        let mut doc: Value = serde_json::from_str(base).unwrap();
        let keys: Vec<String> = keys.split('.').map(str::to_owned).collect();
        let (last, parent) = keys.split_last().unwrap();
        at(&mut doc, parent)[last.as_str()] = value.clone();
        let found = match read_value(&doc) {
            Ok(preset) => check(&preset).diagnostics,
            Err(found) => found,
        };
        if expected.is_empty() {
            // A larger image after the first layer changes only shapes.
            assert!(found.iter().all(|d| d.path.starts_with("layers")), "{found:?}");
        } else {
            assert!(
                found.iter().any(|d| d.path == expected),
                "{keys:?} = {value}: expected {expected}, found {found:?}"
            );
        }
    }
}
