//! Injected faults: each is a mistake that a program such as this one might have, and each must be found by the check
//! of `verify` that is named with it.

/// The end of two networks: branches that are multiplied, the outputs, and a loss on points.
macro_rules! product_and_loss {
    () => {
        r#"
    {"type": "parallel", "join": "multiply", "branches": [{"layers": [{"type": "dense", "units": 7}]},
        {"layers": [{"type": "dense", "units": 7, "activation": "sigmoid"}]}]},
    {"type": "dense", "units": 3}], "loss": {"type": "huber", "delta": 0.7},"#
    };
}

mod child;
mod derivatives;
mod gpu_networks;
mod gpu_run;
mod kernel_faults;
mod layers;
mod mutants;
mod products;
mod recordings;
mod runs;
mod sequences;
mod updates;

use std::collections::BTreeMap;
use stepgraph::exec::cpu::plant::{self, Faulty, Runs};
use stepgraph::model::{Preset, read_preset};
use stepgraph::train::plant as run_plant;
use stepgraph::train::{Proof, VerifyOptions, verify_some};

/// Checks that find faults, by the prefixes of their names.
const GRADIENT: &str = "gradient against central differences";
const FAST: &str = "fast kernels against reference";
const EACH: &str = "each kernel against its reference";
const REPLAY: &str = "eager against replay";
const LEDGER: &str = "pointer ledger";
const ENDURANCE: &str = "endurance and determinism";
const LOG: &str = "a run's batches and log";
const EVALUATION: &str = "an evaluation against plain loops";
const RESUMED: &str = "a resumed run";

/// The group that a check belongs to.
fn proof_of(check: &str) -> Proof {
    match check {
        GRADIENT | FAST | EACH => Proof::Gradients,
        REPLAY => Proof::EagerAgainstReplay,
        LEDGER => Proof::PointerLedger,
        ENDURANCE => Proof::Determinism,
        _ => Proof::TrainingRun,
    }
}

/// A classifier with normalisations, dropout and a residual block; AdamW with weight decay.
const CLASSES: &str = r#"{"version": 1, "name": "classes", "input": {"shape": [2], "batch": 8}, "layers": [
    {"type": "dense", "units": 9, "activation": "gelu"}, {"type": "dense", "units": 9}, {"type": "batch_norm"},
    {"type": "activation", "function": "relu"}, {"type": "dropout", "rate": 0.25},
    {"type": "residual", "layers": [{"type": "dense", "units": 9, "activation": "tanh"}]}, {"type": "layer_norm"},
    {"type": "dense", "units": 3}], "loss": {"type": "softmax_cross_entropy", "label_smoothing": 0.1},
    "optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1},
    "data": {"type": "spirals", "samples": 60, "classes": 3, "noise": 0.02, "held_out": 13}, "train": {"steps": 50}}"#;

/// Convolutions with strides, dilation, groups and padding, and every kind of pooling; Nesterov momentum with weight
/// decay.
const IMAGES: &str = r#"{"version": 1, "name": "images", "input": {"shape": [3, 9, 7], "batch": 5}, "layers": [
    {"type": "conv2d", "filters": 6, "kernel": [3, 2], "stride": [2, 1], "padding": 1, "activation": "relu"},
    {"type": "conv2d", "filters": 6, "kernel": 3, "padding": "same", "dilation": 2, "groups": 3, "bias": false},
    {"type": "batch_norm"}, {"type": "max_pool2d", "size": 2, "stride": 1, "padding": 1},
    {"type": "conv2d", "filters": 6, "kernel": 2},
    {"type": "avg_pool2d", "size": [2, 3], "stride": [1, 2], "padding": 1},
    {"type": "residual", "layers": [{"type": "conv2d", "filters": 6, "kernel": 1, "activation": "silu"}]},
    {"type": "global_avg_pool"}, {"type": "dense", "units": 4}],
    "loss": {"type": "softmax_cross_entropy"},
    "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": true, "weight_decay": 0.01}}"#;

/// A regression with shared weights; Adam with weight decay in the gradient.
const VALUES: &str = r#"{"version": 1, "name": "values", "input": {"shape": [3], "batch": 7}, "layers": [
    {"type": "dense", "units": 7, "activation": "silu"},
    {"type": "repeat", "times": 2, "layers": [{"type": "dense", "units": 7, "activation": "sigmoid"}]},
    {"type": "dense", "units": 3}], "loss": {"type": "mse"},
    "optimizer": {"type": "adam", "lr": 0.01, "weight_decay": 0.05},
    "data": {"type": "regression", "samples": 50, "noise": 0.05, "held_out": 11}, "train": {"steps": 50}}"#;

/// Tokens, attention, recurrent layers with both directions, branches, a loss on points, and an update with a schedule,
/// gradient clipping, and parameters without weight decay.
const SEQUENCES: &str = concat!(
    r#"{"version": 1, "name": "sequences",
    "input": {"type": "tokens", "shape": [7], "vocab": 11, "batch": 3}, "layers": [
    {"type": "embedding", "units": 8}, {"type": "position", "kind": "sinusoidal"},
    {"type": "residual", "layers": [{"type": "rms_norm"},
        {"type": "attention", "heads": 4, "kv_heads": 2, "causal": true, "rotary": true, "dropout": 0.2}]},
    {"type": "gru", "units": 5, "bidirectional": true}, {"type": "lstm", "units": 6}, {"type": "take", "at": "last"},
    {"type": "parallel", "join": "concat", "branches": [{"layers": [{"type": "dense", "units": 4}]},
        {"layers": [{"type": "dense", "units": 4, "activation": "tanh"}]}]},"#,
    product_and_loss!(),
    r#"
    "optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1, "decay": "matrices", "clip_norm": 0.05,
        "schedule": {"type": "cosine", "warmup": 5, "final": 0.1}}}"#
);

/// Where a fault is injected.
#[derive(Clone, Copy)]
enum Place {
    Step(plant::Plant),
    Run(run_plant::Plant),
}

/// A fault and the check that must find it.
struct Fault {
    name: &'static str,
    network: &'static str,
    place: Place,
    check: &'static str,
}

/// A fault in the kernels of an operation, found by the check of that operation.
fn kernel(name: &'static str, network: &'static str, op: &'static str, spoil: fn(&Faulty<'_>)) -> Fault {
    Fault { name, network, place: Place::Step(plant::Plant::Kernel(op, Runs::All, spoil)), check: EACH }
}

impl Fault {
    /// The same fault, found by another check.
    fn found_by(self, check: &'static str) -> Self {
        Self { check, ..self }
    }
}

/// The checks of a group by name, and whether each passed; `None` for those that do not apply.
fn checks(network: &str, proof: Proof, place: Option<Place>) -> Result<Vec<(String, Option<bool>)>, String> {
    let preset: Preset = read_preset(network).unwrap();
    let options = VerifyOptions { replays: Some(20), threads: 2, ..VerifyOptions::default() };
    let (mut in_step, mut in_run) = (None, None);
    match place {
        Some(Place::Step(fault)) => in_step = Some(fault.planted()),
        Some(Place::Run(fault)) => in_run = Some(fault.planted()),
        None => {}
    }
    let report = verify_some(&preset, &options, &[proof], &std::sync::Arc::default(), |_| {});
    drop((in_step, in_run));
    let report = report.map_err(|error| error.to_string())?;
    Ok(report.checks.into_iter().map(|check| (check.name, check.passed)).collect())
}

/// Injects each fault of a table: the named check must fail with it, and pass without it.
fn each_is_found(table: &[Fault]) {
    let mut right: BTreeMap<(&str, &str), bool> = BTreeMap::new();
    let mut missed = Vec::new();
    for fault in table {
        let of = |checks: Vec<(String, Option<bool>)>| {
            checks.into_iter().find(|(name, _)| name.starts_with(fault.check)).and_then(|(_, passed)| passed)
        };
        let passes = *right
            .entry((fault.network, fault.check))
            .or_insert_with(|| of(checks(fault.network, proof_of(fault.check), None).unwrap()) == Some(true));
        let found = checks(fault.network, proof_of(fault.check), Some(fault.place));
        let others = format!("{found:?}");
        if !passes {
            missed.push(format!("{}: {} does not pass without the fault", fault.name, fault.check));
        } else if found.ok().and_then(of) != Some(false) {
            missed.push(format!("{}: {} does not find it; {others}", fault.name, fault.check));
        }
    }
    assert!(missed.is_empty(), "{} of {} faults:\n{}", missed.len(), table.len(), missed.join("\n"));
}

/// Multiplies the contents of a slot, after the kernel has run.
fn scaled(f: &Faulty<'_>, slot: &str, factor: f32) {
    f.run();
    f.edit(slot, |values| values.iter_mut().for_each(|v| *v *= factor));
}

/// Moves the contents of a slot by this many elements, after the kernel has run.
fn moved(f: &Faulty<'_>, slot: &str, by: usize) {
    f.run();
    f.edit(slot, |values| {
        let by = by % values.len().max(1);
        values.rotate_right(by);
    });
}

/// Exchanges the contents of two slots of the same size, after the kernel has run.
fn swapped(f: &Faulty<'_>, a: &str, b: &str) {
    f.run();
    let (of_a, of_b) = (f.bytes(a), f.bytes(b));
    f.set_bytes(a, &of_b);
    f.set_bytes(b, &of_a);
}

/// Runs the kernel with another step in the counter.
fn with_step(f: &Faulty<'_>, step: impl FnOnce(i64) -> i64) {
    let before = f.bytes("counter");
    let mut counter: Vec<i64> = words(&before);
    counter[1] = step(counter[1]);
    f.set_bytes("counter", &counter.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>());
    f.run();
    f.set_bytes("counter", &before);
}

fn words(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
}

/// A test for each table of faults, and the list of all tables.
macro_rules! tables {
    ($($test:ident: $table:ident,)*) => {
        $(#[test]
        fn $test() {
            each_is_found(&$table::table());
        })*

        fn tables() -> Vec<Vec<Fault>> {
            vec![$($table::table()),*]
        }
    };
}

tables! {
    faults_in_products_are_found: products,
    faults_in_layers_are_found: layers,
    faults_in_losses_and_updates_are_found: updates,
    faults_in_runs_are_found: runs,
    faults_in_sequences_and_recipes_are_found: sequences,
    faults_in_other_recordings_are_found: recordings,
    wrong_rules_of_differentiation_are_found: derivatives,
}

#[test]
fn the_tables_are_as_long_as_they_should_be() {
    let tables = tables();
    let mut names: Vec<&str> = tables.iter().flatten().map(|fault| fault.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(count >= 128 && names.len() == count, "{count} faults, {} names", names.len());
}
