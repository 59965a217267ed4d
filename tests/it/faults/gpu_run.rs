//! Runs the tables of faults in a GPU's kernels. Each fault has a separate process, because it may hang or break the
//! device's context, and because it exists as long as its process.

use super::child::{Child, processors, side_by_side};
use super::gpu_networks::{
    CHOICES, HALF_HEADS, HEADS, MANY, NETWORKS, PAIRS, RECURRENT, SCALED, SEGMENTS, STREAMED, TALL, TENSOR, WARPGROUPS,
    WIDE, WIDE_HALF, WORDS, may_have,
};
use super::kernel_faults::{KernelFault, table};
use super::{CLASSES, FAST, VALUES, proof_of};
use std::path::Path;
use std::time::{Duration, Instant};
use stepgraph::compile::{Options, compile};
use stepgraph::exec::cuda::{self, plant};
use stepgraph::model::{check, read_preset};
use stepgraph::select::{Kernels, Target};
use stepgraph::train::{Proof, VerifyOptions, verify_some};

/// Names the fault for the process; only the test below reads it.
const FAULT: &str = "STEPGRAPH_TEST_FAULT";
const NETWORK: &str = "STEPGRAPH_TEST_NETWORK";
const CHECK: &str = "STEPGRAPH_TEST_CHECK";
const KERNELS: &str = "STEPGRAPH_TEST_KERNELS";
/// Limits the faults to those in this file, such as `attention_wgmma.cu`, and the networks to theirs.
const ONLY: &str = "STEPGRAPH_FAULTS_IN";
/// The test that such a process runs.
const CHILD: &str = "faults::gpu_run::one_fault_in_a_process_of_its_own";
/// The check that compares kernels one by one.
const REFERENCES: &str = "kernels against their references";
/// A fault that takes longer is considered hung.
const PATIENCE: Duration = Duration::from_secs(150);

fn proof(check: &str) -> Proof {
    if [REFERENCES, FAST].contains(&check) { Proof::Gradients } else { proof_of(check) }
}

/// The kernels' files and the shared file, by name.
pub fn texts() -> Vec<(&'static str, &'static str)> {
    let prelude = ("prelude.cuh", include_str!("../../../kernels/prelude.cuh"));
    cuda::sources().into_iter().chain([prelude]).collect()
}

#[test]
fn every_fault_of_a_kernel_has_its_text() {
    let table = table();
    assert!(table.len() >= 90, "{} faults", table.len());
    let mut names: Vec<&str> = table.iter().map(|fault| fault.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), table.len(), "every name occurs once");
    let sources = texts();
    for KernelFault { name, text, .. } in &table {
        let source = sources.iter().find(|(n, _)| *n == text.file).unwrap().1;
        assert!(source.contains(text.before), "{name}: {} lacks {:?}", text.file, text.before);
        assert_ne!(source.replace(text.before, text.after), source, "{name} changes nothing");
    }
}

/// The kernels of a network on an H200, chosen by estimate as in a process with a fault.
fn kernels(network: &str) -> Vec<String> {
    let model = check(&read_preset(network).unwrap()).model.unwrap();
    let compiled = compile(&model, &Options::train(Target::h200())).unwrap();
    compiled.selection.choices.into_iter().map(|choice| choice.kernel).collect()
}

#[test]
fn networks_use_the_kernels_that_they_are_meant_to_cover() {
    let has = |network: &str, start: &str, part: &str| {
        let kernels = kernels(network);
        assert!(kernels.iter().any(|k| k.starts_with(start) && k.contains(part)), "{start} {part}: {kernels:?}");
    };
    has(MANY, "softmax_ce_fused", "");
    has(CHOICES, "softmax_ce_fused_bf16", "lanes256");
    has(CHOICES, "gelu_bwd_bf16", "");
    has(SEGMENTS, "adam_step", "cluster7x128");
    has(SCALED, "scale_update_f16", "");
    has(SCALED, "step_inc", "");
    has(CLASSES, "adam_step", "cluster1x");
    has(VALUES, "adam_step", "cluster1x");
    has(TENSOR, "dense_ce", "");
    for cell in ["gru", "lstm", "rnn", "rnn_relu"] {
        has(RECURRENT, &format!("{cell}_f32"), "held");
        has(RECURRENT, &format!("{cell}_bwd_f32"), "held");
    }
    has(PAIRS, "gru_bwd_f32", "held2x");
    for op in ["lstm", "lstm_bwd", "gru", "gru_bwd"] {
        has(WIDE, &format!("{op}_f32"), "grid_simt");
        has(WIDE_HALF, &format!("{op}_bf16"), "grid_mma");
    }
    has(STREAMED, "rnn_f32", "stream");
    has(STREAMED, "rnn_bwd_f32", "stream");
    has(WORDS, "embedding_bwd", "_rows16");
    for op in ["attention_f32", "attention_bwd_f32"] {
        has(TALL, op, "tiles16");
    }
    for network in [HEADS, HALF_HEADS] {
        has(network, "attention_", "_mma");
        has(network, "attention_bwd", "_mma");
    }
    for op in ["attention_bf16", "attention_bwd_bf16"] {
        has(WARPGROUPS, op, "_wgmma");
    }
}

/// The results of a process: checks with their outcome, or how it ended.
struct Outcome {
    checks: Vec<(String, String)>,
    ended: String,
    seconds: f64,
}

impl Outcome {
    fn failed(&self) -> Vec<&str> {
        self.checks.iter().filter(|(outcome, _)| outcome == "fail").map(|(_, name)| name.as_str()).collect()
    }

    fn of(&self, check: &str) -> Option<&str> {
        self.checks.iter().find(|(_, name)| name.starts_with(check)).map(|(outcome, _)| outcome.as_str())
    }
}

/// Verifies a network in a separate process, with a fault by its name in the table or none, by the check whose name
/// starts with this, or by all.
fn in_process(fault: Option<&str>, network: &str, kernels: Kernels, check: Option<&str>, cache: &Path) -> Outcome {
    let variables = [
        (FAULT, fault.unwrap_or_default().to_owned()),
        (NETWORK, network.to_owned()),
        (CHECK, check.unwrap_or_default().to_owned()),
        (KERNELS, kernels.name().to_owned()),
    ];
    let ended = Child { test: CHILD, variables: &variables, cache, patience: PATIENCE }.run();
    let checks: Vec<(String, String)> = ended
        .after("CHECK")
        .filter_map(|line| line.split_once('\t'))
        .map(|(outcome, name)| (outcome.to_owned(), name.to_owned()))
        .collect();
    let error = ended.after("ERROR").next().map(str::to_owned);
    let how = error.unwrap_or(if checks.is_empty() && ended.how.is_empty() { ended.text } else { ended.how });
    Outcome { checks, ended: how, seconds: ended.seconds }
}

#[test]
fn one_fault_in_a_process_of_its_own() {
    let [Ok(fault), Ok(network), Ok(only), Ok(kernels)] = [FAULT, NETWORK, CHECK, KERNELS].map(std::env::var) else {
        println!("skipped: the table of faults starts this for each of them");
        return;
    };
    if !fault.is_empty() {
        plant::plant(table().into_iter().find(|f| f.name == fault).unwrap().text).unwrap();
    }
    let gpu = cuda::gpu(0).unwrap();
    let preset = read_preset(&network).unwrap();
    let machine = gpu.target().with_kernels(Kernels::named(&kernels).unwrap());
    let proofs = if only.is_empty() { Proof::ALL.to_vec() } else { vec![proof(&only)] };
    let only = Some(only).filter(|only| !only.is_empty());
    let options = VerifyOptions { machine: Some(machine), replays: Some(30), threads: 1, only, ..Default::default() };
    match verify_some(&preset, &options, &proofs, &std::sync::Arc::default(), |_| {}) {
        Ok(report) => {
            for check in report.checks {
                let outcome = check.passed.map_or("skip", |passed| if passed { "pass" } else { "fail" });
                println!("CHECK\t{outcome}\t{}", check.name);
                check.detail.iter().take(2).for_each(|line| println!("    {line}"));
            }
        }
        Err(error) => println!("ERROR\t{error}"),
    }
}

/// The faults to try, and the networks that are verified without one, with the kernels that they use.
fn subjects() -> (Vec<KernelFault>, Vec<(&'static str, Kernels)>) {
    let mut table = table();
    let mut unchanged: Vec<(&str, Kernels)> = NETWORKS.map(|network| (network, Kernels::Specialised)).to_vec();
    if let Ok(file) = std::env::var(ONLY) {
        table.retain(|fault| fault.text.file == file);
        assert!(!table.is_empty(), "{ONLY}: the table has no faults in {file}");
        unchanged.clear();
    }
    for pair in table.iter().flat_map(|fault| fault.networks.iter().map(|network| (*network, fault.kernels))) {
        if !unchanged.contains(&pair) {
            unchanged.push(pair);
        }
    }
    (table, unchanged)
}

/// Whether the check of a fault finds it in one of its networks; `None` if the GPU lacks the kernels. Prints what each
/// network showed.
fn is_found(fault: &KernelFault, machine: &Target, cache: &Path) -> Option<bool> {
    if !fault.networks.iter().any(|network| may_have(network, fault.text.file, machine)) {
        println!("skipped | {}: this GPU has no such kernels", fault.name);
        return None;
    }
    let run = |network: &str, check| in_process(Some(fault.name), network, fault.kernels, check, cache);
    let mut lines = Vec::new();
    for network in &fault.networks {
        let outcome = run(network, Some(fault.check));
        let name = read_preset(network).unwrap().name;
        let seen = if outcome.ended.is_empty() { String::new() } else { format!(" ended: {}", outcome.ended.trim()) };
        lines.push(format!("{} {name} {:.1} s {:?}{seen}", fault.name, outcome.seconds, outcome.failed()));
        if outcome.of(fault.check) == Some("fail") {
            println!("found  | {}", lines.join("\n       | "));
            return Some(true);
        }
    }
    // The other checks that find it do not matter for the test; they are printed for readers of the table.
    let others = run(fault.networks[0], None);
    lines.push(format!("  of all checks in the first network: {:?} {}", others.failed(), others.ended.trim()));
    println!("MISSED | {}", lines.join("\n       | "));
    Some(false)
}

#[test]
fn faults_in_the_kernels_of_a_gpu_are_found() {
    let machine = match cuda::gpu(0) {
        Ok(gpu) => gpu.target(),
        Err(why) => return println!("skipped: no CUDA device: {why}"),
    };
    let started = Instant::now();
    let cache = tempfile::tempdir().unwrap();
    let (table, unchanged) = subjects();
    let workers = (processors() / 2).clamp(1, 8);
    // Unchanged kernels first: what they need is compiled and timed once for all.
    let right = side_by_side(
        unchanged.len(),
        workers,
        || true,
        |index| {
            let (network, kernels) = unchanged[index];
            let outcome = in_process(None, network, kernels, None, cache.path());
            let (name, failed) = (read_preset(network).unwrap().name, outcome.failed());
            let (kernels, seconds) = (kernels.name(), outcome.seconds);
            println!("{name} ({kernels}) without a fault: {failed:?} fail, {seconds:.1} s {}", outcome.ended);
            outcome
        },
    );
    let found = side_by_side(table.len(), workers, || true, |index| is_found(&table[index], &machine, cache.path()));
    let with = |wanted| table.iter().zip(&found).filter(move |(_, is_found)| **is_found == wanted);
    let missed: Vec<&str> = with(Some(false)).map(|(fault, _)| fault.name).collect();
    let (seen, skipped, seconds) = (with(Some(true)).count(), with(None).count(), started.elapsed().as_secs_f64());
    println!("{seen} of {} found, {skipped} skipped, in {seconds:.0} s", table.len());
    for ((network, kernels), outcome) in unchanged.iter().zip(&right) {
        let name = format!("{} ({})", read_preset(network).unwrap().name, kernels.name());
        assert!(
            outcome.failed().is_empty() && outcome.ended.is_empty(),
            "{name} fails without a fault: {:?} {}",
            outcome.failed(),
            outcome.ended
        );
        for fault in table.iter().filter(|f| f.kernels == *kernels && f.networks.contains(network)) {
            let outcome = outcome.of(fault.check);
            assert!(outcome.is_some(), "{}: {} is no check of {name}", fault.name, fault.check);
        }
    }
    assert!(missed.is_empty(), "{} faults are not found: {missed:#?}", missed.len());
}
