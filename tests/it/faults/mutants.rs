//! Random changes of the text of a GPU's kernels: each that changes what is trained must stop the run with an error or
//! be found by `verify`. It takes minutes, and is run on request:
//!
//! ```text
//! STEPGRAPH_TEST_MUTANTS=300 cargo test --release --test it mutants -- --nocapture
//! ```
//!
//! runs until 300 changes were found that change what is trained. `STEPGRAPH_TEST_SEED` draws other changes, and
//! `STEPGRAPH_TEST_SECONDS` ends it earlier.

use super::child::{Child, Ended, processors, side_by_side};
use super::gpu_networks::{FAMILIES, NETWORKS, may_have};
use super::gpu_run::texts;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use stepgraph::exec::cuda::{self, plant};
use stepgraph::model::{Precision, read_preset};
use stepgraph::select::Target;
use stepgraph::train::{DataChoice, Overrides, Session, SessionSpec, VerifyOptions, verify};

const COUNT: &str = "STEPGRAPH_TEST_MUTANTS";
const SEED: &str = "STEPGRAPH_TEST_SEED";
const SECONDS: &str = "STEPGRAPH_TEST_SECONDS";
/// Names the change for the process, and the file of the correct losses.
const CASE: [&str; 2] = ["STEPGRAPH_TEST_MUTANT", "STEPGRAPH_TEST_LOSSES"];
const CHILD: &str = "faults::mutants::one_mutant_in_a_process_of_its_own";
/// A process that takes longer is considered hung: most take a few seconds.
const PATIENCE: Duration = Duration::from_secs(90);

const STEPS: usize = 30;
/// Losses that differ by more than this share of their size are considered different, and sizes below `LEAST` count as
/// that. For factors of 11 bits or fewer, such as those of TF32, another order of the same sum changes them by up to
/// 2e-3.
const OFF: f32 = 1e-3;
const OFF_HALF: f32 = 1e-2;
const LEAST: f32 = 1e-3;

/// Convolutions in half precision, whose products use matrix instructions.
const HALF: &str = r#"{"version": 1, "name": "half", "precision": "f16", "input": {"shape": [8, 10, 10], "batch": 16},
    "layers": [{"type": "conv2d", "filters": 16, "kernel": 3, "padding": 1, "activation": "relu"},
    {"type": "batch_norm"}, {"type": "conv2d", "filters": 24, "kernel": 3, "stride": 2, "groups": 2},
    {"type": "avg_pool2d", "size": 2, "stride": 1}, {"type": "flatten"}, {"type": "layer_norm"},
    {"type": "dense", "units": 40, "activation": "gelu"}, {"type": "dense", "units": 6}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.003}}"#;

/// Texts and their replacements.
const RULES: [(&str, &str); 27] = [
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " + "),
    (" / ", " * "),
    (" % ", " / "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" == ", " != "),
    (" != ", " == "),
    (" += ", " -= "),
    (" && ", " || "),
    (" || ", " && "),
    (" + 1", " + 0"),
    (" - 1", " - 0"),
    (" << ", " >> "),
    (" >> ", " << "),
    ("0.5f", "0.6f"),
    ("1.0f", "1.1f"),
    ("fmaf(", "fmaf(-"),
    ("max_i(", "min_i("),
    ("min_i(", "max_i("),
    ("fmaxf(", "fminf("),
    ("__syncthreads();", ";"),
    ("__syncwarp();", ";"),
    ("threadIdx.x", "(threadIdx.x ^ 1)"),
];

/// One change: a position in a file, and the new text there.
#[derive(Clone, Copy)]
struct Mutant {
    file: &'static str,
    text: &'static str,
    at: usize,
    before: &'static str,
    after: &'static str,
}

impl Mutant {
    fn line(&self) -> (usize, &'static str) {
        let number = self.text[..self.at].matches('\n').count() + 1;
        (number, self.text.lines().nth(number - 1).unwrap().trim())
    }

    /// The change as a fault: the text before it occurs once in the file.
    fn fault(&self) -> plant::TextFault {
        let end = self.at + self.before.len();
        let after = format!("{}{}", &self.text[..self.at], self.after);
        plant::TextFault { file: self.file, before: &self.text[..end], after: after.leak() }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, line) = self.line();
        write!(f, "{}:{number} {:?} -> {:?} in {line:?}", self.file, self.before, self.after)
    }
}

/// Every change to every file. Comments, preprocessor lines and expressions that only the compiler evaluates are left
/// out.
fn mutants() -> Vec<Mutant> {
    let mut found = Vec::new();
    for (file, text) in texts() {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let code = line.split("//").next().unwrap_or_default();
            let is_code = !["#", "*", "/*", "template", "using"].iter().any(|s| code.trim_start().starts_with(s));
            if is_code && !code.contains("static_assert") {
                for (before, after) in RULES {
                    let places = code.match_indices(before).map(|(at, _)| start + at);
                    found.extend(places.map(|at| Mutant { file, text, at, before, after }));
                }
            }
            start += line.len();
        }
    }
    found
}

#[test]
fn a_change_is_made_only_at_its_place() {
    let mutants = mutants();
    assert!(mutants.len() > 2_000, "{} changes", mutants.len());
    for mutant in mutants.iter().step_by(37) {
        let fault = mutant.fault();
        assert_eq!(mutant.text.matches(fault.before).count(), 1, "{mutant}");
        let changed = mutant.text.replace(fault.before, fault.after);
        let other: Vec<_> = changed.lines().zip(mutant.text.lines()).filter(|(a, b)| a != b).collect();
        assert_eq!(other.len(), 1, "{mutant}: {other:?}");
    }
}

#[test]
fn only_losses_in_f32_have_the_narrow_limit() {
    let wide: Vec<String> = networks()
        .into_iter()
        .filter(|network| limit(network) > OFF)
        .map(|network| read_preset(network).unwrap().name)
        .collect();
    assert_eq!(wide, ["tensor", "choices", "wide-half", "heads", "half-heads", "warpgroups", "scaled", "half"]);
}

fn networks() -> Vec<&'static str> {
    NETWORKS.into_iter().chain([HALF]).collect()
}

/// The losses of the first steps.
fn losses(network: &str, machine: &Target) -> Result<Vec<f32>, String> {
    let preset = read_preset(network).unwrap();
    // Networks without data are trained on one batch.
    let data = DataChoice::of(&preset);
    let new = SessionSpec { data, ..SessionSpec::new(preset, PathBuf::new()) };
    let spec = SessionSpec {
        machine: Some(machine.clone()),
        overrides: Overrides { steps: Some(STEPS), seed: Some(1) },
        ..new
    };
    let mut losses = Vec::new();
    let mut session = Session::prepare(&spec).map_err(|error| error.to_string())?;
    session
        .steps(STEPS as u64, Duration::from_secs(60), |report| losses.push(report.loss))
        .map_err(|error| error.to_string())?;
    Ok(losses)
}

#[test]
fn a_change_is_tried_on_the_networks_that_may_have_its_kernels() {
    let of = |file: &str| {
        let having = networks().into_iter().filter(|network| may_have(network, file, &Target::h200()));
        having.map(|network| read_preset(network).unwrap().name).collect::<Vec<_>>()
    };
    assert_eq!(of("pool.cu"), ["images", "half"]);
    assert_eq!(of("attention_mma.cu"), ["heads", "half-heads", "warpgroups"]);
    assert_eq!(of("attention_wgmma.cu"), ["warpgroups"]);
    assert_eq!(of("recurrent.cu"), ["recurrent", "pairs", "wide", "wide-half", "streamed"]);
    for file in ["prelude.cuh", "gemm.cu", "feed.cu", "optimizer.cu", "elementwise.cu"] {
        assert_eq!(of(file).len(), networks().len(), "{file}");
    }
    assert!(FAMILIES.iter().all(|family| !of(family.name()).is_empty()));
}

/// The share by which losses of a network may differ and still be considered the same.
fn limit(network: &str) -> f32 {
    if read_preset(network).unwrap().precision == Precision::F32 { OFF } else { OFF_HALF }
}

/// The largest difference between losses, relative to them.
fn difference(found: &[f32], right: &[f32]) -> f32 {
    assert_eq!(found.len(), right.len());
    let share = |(a, b): (&f32, &f32)| (a - b).abs() / b.abs().max(LEAST);
    found.iter().zip(right).map(share).fold(0.0, |worst, s| if s.is_nan() { f32::INFINITY } else { worst.max(s) })
}

#[test]
fn one_mutant_in_a_process_of_its_own() {
    let [Ok(mutant), Ok(right)] = CASE.map(std::env::var) else {
        println!("skipped: the test of random changes starts this for each of them");
        return;
    };
    let mutant = mutant.parse::<usize>().ok().map(|index| mutants()[index]);
    if let Some(mutant) = mutant {
        plant::plant(mutant.fault()).unwrap();
    }
    let right: Vec<f32> = right.split_whitespace().map(|loss| loss.parse().unwrap()).collect();
    let machine = cuda::gpu(0).unwrap().target();
    for (index, network) in networks().into_iter().enumerate() {
        if mutant.is_some_and(|mutant| !may_have(network, mutant.file, &machine)) {
            continue;
        }
        let found = match losses(network, &machine) {
            Ok(found) => found,
            Err(error) => return println!("LOUD\t{}", error.replace('\n', " ")),
        };
        let Some(right) = right.get(index * STEPS..(index + 1) * STEPS) else {
            println!("LOSSES\t{}", found.iter().map(f32::to_string).collect::<Vec<_>>().join(" "));
            continue;
        };
        let off = difference(&found, right);
        if off > limit(network) {
            println!("CHANGED\t{} by {off:.1e}", read_preset(network).unwrap().name);
            return verify_one(network, machine);
        }
    }
    println!("SAME\t");
}

/// Runs every check and prints the results.
fn verify_one(network: &str, machine: Target) {
    let preset = read_preset(network).unwrap();
    let options = VerifyOptions { machine: Some(machine), replays: Some(100), threads: 1, ..Default::default() };
    match verify(&preset, &options, |_| {}) {
        Ok(report) => {
            report.checks.iter().filter(|c| c.passed == Some(false)).for_each(|c| println!("FAIL\t{}", c.name));
            println!("VERIFIED\t{}", report.checks.len());
        }
        Err(error) => println!("FAIL\t{}", error.to_string().replace('\n', " ")),
    }
}

/// The result of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    DoesNotCompile,
    SameTraining,
    EndsLoudly,
    Hangs,
    Found,
    Unseen,
}

impl Outcome {
    fn of(ended: &Ended) -> Self {
        if ended.after("LOUD").any(|why| why.contains("nvrtcCompileProgram")) {
            Self::DoesNotCompile
        } else if ended.after("LOUD").next().is_some() {
            Self::EndsLoudly
        } else if ended.after("SAME").next().is_some() {
            Self::SameTraining
        } else if ended.after("FAIL").next().is_some() {
            Self::Found
        } else if ended.after("VERIFIED").next().is_some() {
            Self::Unseen
        } else if ended.how == "hangs" {
            Self::Hangs
        } else {
            // A process that is killed or panics.
            Self::EndsLoudly
        }
    }

    const fn changes_training(self) -> bool {
        !matches!(self, Self::DoesNotCompile | Self::SameTraining)
    }
}

/// The numbers below `count` in an order that depends on `seed` alone.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    // A linear generator with the constants of Knuth's MMIX.
    let mut state = seed;
    for last in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (state >> 33) as usize % (last + 1));
    }
    order
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

#[test]
fn random_changes_of_kernels_are_found_if_they_change_training() {
    let Some(wanted) = number(COUNT).map(|count| count as usize) else {
        println!("skipped: {COUNT} says how many changes are wanted");
        return;
    };
    if let Err(why) = cuda::gpu(0) {
        println!("skipped: no CUDA device: {why}");
        return;
    }
    let (started, seed) = (Instant::now(), number(SEED).unwrap_or(1));
    let limit = Duration::from_secs(number(SECONDS).unwrap_or(3_600));
    let cache = tempfile::tempdir().unwrap();
    let run = |mutant: String, losses: String| {
        let variables = [(CASE[0], mutant), (CASE[1], losses)];
        Child { test: CHILD, variables: &variables, cache: cache.path(), patience: PATIENCE }.run()
    };
    // Unchanged kernels first, so that everything that a change does not affect is compiled once for all.
    let right = run("none".to_owned(), String::new());
    let losses = right.after("LOSSES").collect::<Vec<_>>().join(" ");
    assert_eq!(losses.split_whitespace().count(), STEPS * networks().len(), "{}", right.text);
    let mutants = mutants();
    let order = shuffled(mutants.len(), seed);
    println!("{} possible changes, seed {seed}; right kernels in {:.1} s", mutants.len(), right.seconds);
    let changed = AtomicUsize::new(0);
    let goes_on = || changed.load(Ordering::Relaxed) < wanted && started.elapsed() < limit;
    let found = side_by_side(order.len(), (processors() - 1).max(1), goes_on, |index| {
        let ended = run(order[index].to_string(), losses.clone());
        let outcome = Outcome::of(&ended);
        changed.fetch_add(usize::from(outcome.changes_training()), Ordering::Relaxed);
        let why = [ended.after("CHANGED").next(), ended.after("LOUD").next(), Some(ended.how.as_str())];
        let why: Vec<&str> = why.into_iter().flatten().chain(ended.after("FAIL")).filter(|w| !w.is_empty()).collect();
        println!("{outcome:?} {:.1} s | {} | {:.200}", ended.seconds, mutants[order[index]], why.join("; "));
        (outcome, mutants[order[index]].to_string())
    });
    let mut counts = BTreeMap::new();
    found.iter().for_each(|(outcome, _)| *counts.entry(*outcome).or_insert(0) += 1);
    let changed = changed.into_inner();
    println!("{} changes in {:.0} s: {counts:?}", found.len(), started.elapsed().as_secs_f64());
    println!("{changed} of {wanted} change what is trained");
    let unseen: Vec<&str> = found.iter().filter(|(o, _)| *o == Outcome::Unseen).map(|(_, m)| m.as_str()).collect();
    assert!(unseen.is_empty(), "{} of {changed} are not seen:\n{}", unseen.len(), unseen.join("\n"));
}
