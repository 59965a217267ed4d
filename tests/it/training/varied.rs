//! Runs whose steps differ in the samples and positions that they use, each with its own recording.

use std::path::{Path, PathBuf};
use stepgraph::exec::Executor;
use stepgraph::model::read_preset;
use stepgraph::tensor::{HostTensor, Shape};
use stepgraph::train::{
    DataChoice, Overrides, Proof, RecordingRules, Session, SessionSpec, Start, StepReport, TensorFile, TrainError,
    VerifyOptions, verify_some,
};
use tempfile::TempDir;

/// A preset for a sequence of `length`, with `batch` samples.
fn text(batch: usize, length: usize, layers: &str, loss: &str) -> String {
    format!(
        r#"{{"version": 1, "name": "t",
        "input": {{"type": "tokens", "shape": [{length}], "vocab": 9, "batch": {batch}}},
        "layers": [{{"type": "embedding", "units": 4}}, {layers}], "loss": {loss},
        "optimizer": {{"type": "adamw", "lr": 0.01, "weight_decay": 0.01}}, "train": {{"steps": 1000, "seed": 3}}}}"#
    )
}

const CLASSES: &str = r#"{"type": "softmax_cross_entropy"}"#;
const MSE: &str = r#"{"type": "mse"}"#;

/// Batches `[steps, batch, length]` of a file, of which a run of other shapes uses only the samples and positions in
/// `used`.
struct Batches {
    steps: usize,
    batch: usize,
    length: usize,
}

impl Batches {
    fn token(&self, step: usize, row: usize, position: usize) -> i32 {
        ((step * 31 + row * 17 + position * 7 + row * position) % 9) as i32
    }

    /// The tensors of a file with these samples and positions of each batch. `targets` is the size of a sample's
    /// target: a class for each position, a class, or values.
    fn tensors(&self, rows: usize, length: usize, target: Targets) -> Vec<(String, HostTensor)> {
        let (mut x, mut classes, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..self.steps {
            for row in 0..rows {
                for position in 0..length {
                    x.push(self.token(step, row, position));
                    classes.push(self.token(step + 5, row, position));
                    values.extend((0..2).map(|k| self.token(step, row, position + k) as f32 / 4.0 - 1.0));
                }
            }
        }
        let one: Vec<i32> = classes.chunks(length).map(|sample| sample[0] % 3).collect();
        let y = match target {
            Targets::EachPosition => HostTensor::from_slice([self.steps, rows, length], &classes),
            Targets::One => HostTensor::from_slice([self.steps, rows], &one),
            Targets::Values => HostTensor::from_slice(Shape::from([self.steps, rows, length, 2]), &values),
        };
        let x = HostTensor::from_slice([self.steps, rows, length], &x).unwrap();
        vec![("batch.x".into(), x), ("batch.y".into(), y.unwrap())]
    }

    fn file(&self, folder: &TempDir, name: &str, rows: usize, length: usize, target: Targets) -> PathBuf {
        save(folder.path().join(name), self.tensors(rows, length, target))
    }

    /// The file of whole batches with what each step uses.
    fn used(&self, folder: &TempDir, target: Targets, used: &[(usize, usize)]) -> PathBuf {
        let mut tensors = self.tensors(self.batch, self.length, target);
        let of = |pick: fn(&(usize, usize)) -> usize| {
            let values: Vec<i32> = (0..self.steps).map(|step| pick(&used[step % used.len()]) as i32).collect();
            HostTensor::from_slice([self.steps], &values).unwrap()
        };
        tensors.push(("batch.rows".into(), of(|used| used.0)));
        tensors.push(("batch.length".into(), of(|used| used.1)));
        save(folder.path().join("used.st"), tensors)
    }
}

#[derive(Clone, Copy)]
enum Targets {
    EachPosition,
    One,
    Values,
}

fn save(path: PathBuf, tensors: Vec<(String, HostTensor)>) -> PathBuf {
    TensorFile { tensors, ..TensorFile::default() }.write(&path).unwrap();
    path
}

fn spec(text: &str, batches: &Path) -> SessionSpec {
    let preset = read_preset(text).unwrap_or_else(|e| panic!("{e:?}"));
    let data = DataChoice::Batches(batches.to_owned());
    SessionSpec { threads: 1, data, overrides: Overrides::steps(usize::MAX), ..SessionSpec::new(preset, ".".into()) }
}

fn session(spec: &SessionSpec) -> Session {
    Session::prepare(spec).unwrap_or_else(|e| panic!("{e}"))
}

/// Everything in a report except its times.
fn bits(report: &StepReport) -> (u64, [u32; 6]) {
    let StepReport { step, loss, accuracy, update_max, grad_norm, rows, length, .. } = *report;
    (step, [loss.to_bits(), accuracy.to_bits(), update_max.to_bits(), grad_norm.to_bits(), rows, length])
}

fn whole_run(session: &mut Session) -> Vec<StepReport> {
    std::iter::from_fn(|| session.step().unwrap_or_else(|e| panic!("{e}"))).collect()
}

/// Networks with all kinds of layers that support a varying length, and their targets.
fn networks() -> Vec<(&'static str, String, Targets, &'static str)> {
    let dense = |units: usize| format!(r#"{{"type": "dense", "units": {units}}}"#);
    let residual = r#"{"type": "residual", "layers": [{"type": "layer_norm"}, {"type": "attention", "heads": 2,
        "causal": true, "rotary": true, "dropout": 0.1}]}"#;
    let of = |layers: &str| format!("{layers}, {}", dense(9));
    let one = |layers: &str| format!("{layers}, {}", dense(3));
    vec![
        ("attention", of(residual), Targets::EachPosition, CLASSES),
        ("sinusoids", of(r#"{"type": "position", "kind": "sinusoidal"}"#), Targets::EachPosition, CLASSES),
        ("gru", of(r#"{"type": "gru", "units": 5, "bidirectional": true}"#), Targets::EachPosition, CLASSES),
        ("lstm last", one(r#"{"type": "lstm", "units": 5, "return": "last"}"#), Targets::One, CLASSES),
        ("rnn values", format!(r#"{{"type": "rnn", "units": 5}}, {}"#, dense(2)), Targets::Values, MSE),
        ("take last", one(r#"{"type": "rms_norm"}, {"type": "take", "at": "last"}"#), Targets::One, CLASSES),
        ("mean", one(r#"{"type": "dropout", "rate": 0.2}, {"type": "global_avg_pool"}"#), Targets::One, CLASSES),
        (
            "convolution",
            one(r#"{"type": "conv1d", "filters": 6, "kernel": 3, "padding": "causal"},
                {"type": "conv1d", "filters": 5, "kernel": 3, "padding": "same"}, {"type": "max_pool1d", "size": 2},
                {"type": "global_avg_pool"}, {"type": "batch_norm"}"#),
            Targets::One,
            CLASSES,
        ),
    ]
}

/// A step that uses a part of its batch equals the step of a network of that size, bit for bit.
#[test]
fn a_step_on_a_part_of_a_batch_equals_a_network_of_that_size() {
    let batches = Batches { steps: 6, batch: 5, length: 8 };
    for (name, layers, target, loss) in networks() {
        let folder = tempfile::tempdir().unwrap();
        for (rows, length) in [(3, 5), (5, 4), (1, 8), (2, 7)] {
            // Batch statistics need more than one value.
            let rows = if name == "convolution" { rows.max(2) } else { rows };
            let used = batches.used(&folder, target, &[(rows, length)]);
            let cut = batches.file(&folder, "cut.st", rows, length, target);
            let mut varied = session(&spec(&text(5, 8, &layers, loss), &used));
            let mut small = session(&spec(&text(rows, length, &layers, loss), &cut));
            for (found, expected) in whole_run(&mut varied).iter().zip(&whole_run(&mut small)) {
                let rows = if rows == 5 { 0 } else { rows as u32 };
                let length = if length == 8 { 0 } else { length as u32 };
                assert_eq!(bits(found), bits(&StepReport { rows, length, ..*expected }), "{name} {rows} {length}");
            }
            assert_eq!(varied.done(), 6, "{name}");
            assert!(varied.weights().unwrap() == small.weights().unwrap(), "{name} {rows} {length}");
        }
    }
}

/// Eager, replayed, and replayed on more threads.
#[test]
fn replay_equals_eager_if_steps_differ() {
    let used = [(5, 8), (2, 8), (5, 3), (1, 1), (4, 6), (5, 7)];
    let batches = Batches { steps: 40, batch: 5, length: 8 };
    for (name, layers, target, loss) in networks() {
        // Its pooling needs two positions, and its batch statistics two samples.
        let least = if name == "convolution" { 2 } else { 1 };
        let used: Vec<_> = used.iter().map(|u| (u.0.max(least), u.1.max(least))).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = batches.used(&folder, target, &used);
        let spec = spec(&text(5, 8, &layers, loss), &file);
        let run = |executor, threads| {
            let mut session = session(&SessionSpec { executor, threads, ..spec.clone() });
            let reports: Vec<_> = whole_run(&mut session).iter().map(bits).collect();
            let report = session.recordings();
            assert_eq!((report.counts.eager_steps, report.counts.waits), (0, 0), "{name}");
            (reports, session.step_mut().0.snapshot().unwrap())
        };
        let replayed = run(Executor::Replay, 1);
        assert_eq!(replayed.0.len(), 40);
        assert!(run(Executor::Eager, 1) == replayed, "{name}");
        assert!(run(Executor::Replay, 3) == replayed, "{name}");
    }
}

/// For learned positions the first rows are used; the others have a gradient of zero, as in PyTorch.
#[test]
fn rows_of_positions_that_are_not_used_only_decay() {
    let layers = r#"{"type": "position"}, {"type": "dense", "units": 9}"#;
    let (steps, length) = (7, 5);
    let batches = Batches { steps, batch: 5, length: 8 };
    let folder = tempfile::tempdir().unwrap();
    for accumulate in [1, 2] {
        let with = |text: String| text.replace(r#""seed": 3"#, &format!(r#""seed": 3, "accumulate": {accumulate}"#));
        let used = batches.used(&folder, Targets::EachPosition, &[(5, length)]);
        let mut varied = session(&spec(&with(text(5, 8, layers, CLASSES)), &used));
        let before = weight(&varied, "layers.1.weight");
        let mut small = session(&spec(&with(text(5, length, layers, CLASSES)), &{
            batches.file(&folder, "cut.st", 5, length, Targets::EachPosition)
        }));
        // The tables are of different sizes and are drawn differently.
        give(&mut small, "layers.1.weight", &before[..length * 4]);
        let (found, expected) = (whole_run(&mut varied), whole_run(&mut small));
        assert_eq!(found.len(), steps / accumulate);
        for (found, expected) in found.iter().zip(&expected) {
            let near = |a: f32, b: f32| (a - b).abs() <= 2e-6 * b.abs();
            assert!(near(found.loss, expected.loss) && near(found.grad_norm, expected.grad_norm), "{found:?}");
            assert!(near(found.update_max, expected.update_max));
        }
        let after = weight(&varied, "layers.1.weight");
        let kept = (1.0f64 - 0.01 * 0.01).powi((steps / accumulate) as i32);
        for (at, (before, after)) in before.iter().zip(&after).enumerate() {
            let expected = f64::from(*before) * kept;
            let has_decayed = (f64::from(*after) - expected).abs() <= 1e-6 * expected.abs();
            assert_eq!(has_decayed, at >= length * 4, "{at}: {before} {after}");
        }
        let small = weight(&small, "layers.1.weight");
        for (found, expected) in after.iter().zip(&small) {
            assert!((found - expected).abs() <= 1e-5 * expected.abs().max(0.1), "{found} {expected}");
        }
    }
}

fn weight(session: &Session, name: &str) -> Vec<f32> {
    session.weights().unwrap().iter().find(|(n, _)| n == name).unwrap().1.to_vec().unwrap()
}

fn give(session: &mut Session, name: &str, values: &[f32]) {
    let index = session.model().params.iter().position(|p| p.name == name).unwrap();
    let (step, _) = session.step_mut();
    step.set_param(stepgraph::model::ParamId(index as u32), values).unwrap();
}

/// Updates of rows in a table that longer steps also update: moments continue for all rows.
#[test]
fn moments_continue_for_rows_that_a_step_does_not_use() {
    let layers = r#"{"type": "position"}, {"type": "dense", "units": 9}"#;
    let batches = Batches { steps: 8, batch: 5, length: 8 };
    let folder = tempfile::tempdir().unwrap();
    let used = batches.used(&folder, Targets::EachPosition, &[(5, 8), (5, 4)]);
    let mut session = session(&spec(&text(5, 8, layers, CLASSES), &used));
    let mut before = weight(&session, "layers.1.weight");
    while session.step().unwrap().is_some() {
        let after = weight(&session, "layers.1.weight");
        // The last row moves in every step, by its moments if it was not used.
        let moved = before.iter().zip(&after).skip(7 * 4).all(|(a, b)| (a - b).abs() > 1e-5);
        assert!(moved, "step {}", session.done());
        before = after;
    }
}

/// 10,000 steps with 64 keys, 8 of which fit the pool: the bits equal those of eager steps, and the memory does not
/// grow.
#[test]
fn a_pool_that_is_too_small_gives_the_same_bits_within_its_budget() {
    let steps = 10_000;
    let batches = Batches { steps, batch: 8, length: 8 };
    let used: Vec<(usize, usize)> = (0..64).map(|k| (k / 8 + 1, (k * 5 + k / 8) % 8 + 1)).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = batches.used(&folder, Targets::EachPosition, &used);
    let spec = spec(&text(8, 8, r#"{"type": "dense", "units": 9}"#, CLASSES), &file);
    let all = session(&spec).recordings();
    assert_eq!(all.counts.recordings, 64, "{:?}", all.counts);
    let one = all.keys.iter().map(|known| known.facts.bytes).max().unwrap();
    let budget = all.counts.arena_bytes + 8 * one;
    let eager = {
        let mut session = session(&SessionSpec { executor: Executor::Eager, ..spec.clone() });
        let reports: Vec<_> = whole_run(&mut session).iter().map(bits).collect();
        (reports, session.step_mut().0.snapshot().unwrap())
    };
    let mut session =
        session(&SessionSpec { recordings: RecordingRules { bytes: Some(budget), is_strict: false }, ..spec });
    let (mut reports, mut resident) = (Vec::new(), Vec::new());
    while let Some(report) = session.step().unwrap() {
        reports.push(bits(&report));
        if report.step % 1000 == 0 {
            let counts = session.recordings().counts;
            assert!(counts.bytes <= budget && counts.recordings <= 8, "{counts:?}");
            resident.extend(resident_bytes());
        }
    }
    assert_eq!(reports.len(), steps);
    assert!((reports, session.step_mut().0.snapshot().unwrap()) == eager, "the bits are those of eager steps");
    let report = session.recordings();
    let counts = &report.counts;
    println!("{counts:?}");
    assert!(counts.evictions > 1000 && counts.failures == 0, "{counts:?}");
    assert_eq!(counts.eager_steps, report.eager.iter().map(|eager| eager.steps).sum::<u64>());
    // Each step found its recording, perhaps after a wait, or ran op by op. The choice before the first one counts too.
    let made = counts.hits + counts.eager_steps;
    assert!(made == steps as u64 || made == steps as u64 + 1, "{counts:?}");
    assert_eq!(counts.arena_growths, 0);
    if let [_, second, .., last] = resident[..] {
        assert!(last < second + (24 << 20), "the memory grows: {resident:?}");
    }
}

/// The current memory of this process, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * 4096)
}

#[test]
fn a_step_that_would_run_op_by_op_ends_a_strict_run_with_its_reason() {
    let batches = Batches { steps: 30, batch: 4, length: 6 };
    let folder = tempfile::tempdir().unwrap();
    let used: Vec<_> = (1..=4).flat_map(|rows| (1..=6).map(move |length| (rows, length))).collect();
    let file = batches.used(&folder, Targets::EachPosition, &used);
    let layers = r#"{"type": "dense", "units": 9}"#;
    let strict = RecordingRules { bytes: None, is_strict: true };
    let spec = SessionSpec { recordings: strict, ..spec(&text(4, 6, layers, CLASSES), &file) };
    // If all of them fit, all are made in advance.
    let mut wide = session(&spec);
    assert_eq!(whole_run(&mut wide).len(), 30);
    assert_eq!(wide.recordings().counts.eager_steps, 0);
    let tight = SessionSpec { recordings: RecordingRules { bytes: Some(1), ..strict }, ..spec.clone() };
    let error = Session::prepare(&tight).map(|_| ()).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, TrainError::OpByOp { step: 1, .. }) && !error.is_user(), "{message}");
    for part in ["step 1 would run op by op", "x i32[1, 1], y i32[1, 1], f32, path whole, training", "no room"] {
        assert!(message.contains(part), "{message}");
    }
    // Otherwise the steps are made, counted and explained.
    let recordings = RecordingRules { bytes: Some(1), is_strict: false };
    let mut loose = session(&SessionSpec { recordings, ..spec.clone() });
    let reports = whole_run(&mut loose);
    let report = loose.recordings();
    assert_eq!(report.counts.eager_steps, 29, "all but the whole one");
    assert_eq!(reports.iter().filter(|r| r.eager > 0).count(), 29);
    let why = loose.names().name(reports[0].eager).unwrap();
    assert!(why.contains("no room in the budget of 1 B"), "{why}");
    assert_eq!(report.eager.iter().map(|eager| eager.steps).sum::<u64>(), 29);
    let expected: Vec<_> = whole_run(&mut session(&spec)).iter().map(bits).collect();
    assert_eq!(reports.iter().map(bits).collect::<Vec<_>>(), expected);
}

#[test]
fn a_short_last_batch_makes_a_step() {
    let text = r#"{"version": 1, "name": "t", "input": {"shape": [4], "batch": 32},
        "layers": [{"type": "dense", "units": 5}, {"type": "batch_norm"}, {"type": "dense", "units": 3}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01},
        "data": {"type": "iris", "held_out": 30, "last_batch": "short"}, "train": {"steps": 12, "seed": 5}}"#;
    let spec = |text: &str| SessionSpec { threads: 1, ..SessionSpec::new(read_preset(text).unwrap(), ".".into()) };
    let mut short = session(&spec(text));
    let reports = whole_run(&mut short);
    let rows: Vec<u32> = reports.iter().map(|r| r.rows).collect();
    assert_eq!(rows, [32, 32, 32, 24].repeat(3));
    let report = short.recordings();
    assert_eq!((report.counts.hits, report.counts.eager_steps, report.counts.evictions), (12, 0, 0));
    // The first batches are those of a run that leaves the rest out.
    let dropped = whole_run(&mut session(&spec(&text.replace("short", "drop"))));
    assert_eq!(dropped[2].loss.to_bits(), reports[2].loss.to_bits());
    assert_eq!(dropped[3].rows, 0);
    // A run that was interrupted during a pass, or at its end, continues with the same bits.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.ckpt");
    for stop in [3, 4, 6] {
        let mut first = session(&spec(text));
        for _ in 0..stop {
            first.step().unwrap();
        }
        first.save_checkpoint(&path, &read_preset(text).unwrap()).unwrap();
        let mut resumed = session(&SessionSpec { start: Start::from_checkpoint(path.clone()), ..spec(text) });
        let rest: Vec<_> = whole_run(&mut resumed).iter().map(bits).collect();
        assert_eq!(rest, reports[stop..].iter().map(bits).collect::<Vec<_>>(), "{stop}");
    }
}

#[test]
fn texts_are_assigned_to_buckets_by_length() {
    let text = |buckets: &str| {
        format!(
            r#"{{"version": 1, "name": "t", "input": {{"type": "tokens", "shape": [16], "vocab": 128, "batch": 8}},
            "layers": [{{"type": "embedding", "units": 8}}, {{"type": "position"}}, {{"type": "dense", "units": 128}}],
            "loss": {{"type": "softmax_cross_entropy"}}, "optimizer": {{"type": "adam", "lr": 0.01}},
            "data": {{"type": "source", "held_out": 0.1, "buckets": {buckets}}}, "train": {{"steps": 30, "seed": 5}}}}"#
        )
    };
    let spec = |text: &str| SessionSpec { threads: 1, ..SessionSpec::new(read_preset(text).unwrap(), ".".into()) };
    let mut bucketed = session(&spec(&text("[4, 8, 16]")));
    let reports = whole_run(&mut bucketed);
    let mut lengths: Vec<u32> = reports.iter().map(|r| r.length).collect();
    let again = whole_run(&mut session(&spec(&text("[4, 8, 16]"))));
    assert_eq!(again.iter().map(bits).collect::<Vec<_>>(), reports.iter().map(bits).collect::<Vec<_>>());
    lengths.sort_unstable();
    lengths.dedup();
    assert_eq!(lengths, [4, 8, 16]);
    assert!(reports.iter().all(|r| r.rows == 0 && r.loss.is_finite()));
    let refused = |buckets: &str| Session::prepare(&spec(&text(buckets))).err().unwrap().to_string();
    assert!(
        refused("[4, 17]").contains("data.buckets: found 17; expected lengths from 1 to 16"),
        "{}",
        refused("[4, 17]")
    );
    assert!(read_preset(&text("[8, 4]")).is_err());
    // All of a text in each bucket: the same run as without the field, with additional reports.
    let whole = whole_run(&mut session(&spec(&text("[16]"))));
    let plain = whole_run(&mut session(&spec(&text("[]"))));
    assert_eq!(
        whole.iter().map(|r| r.loss.to_bits()).collect::<Vec<_>>(),
        plain.iter().map(|r| r.loss.to_bits()).collect::<Vec<_>>()
    );
}

#[test]
fn batches_of_a_step_may_differ_too() {
    let batches = Batches { steps: 24, batch: 5, length: 8 };
    let folder = tempfile::tempdir().unwrap();
    let file = batches.used(&folder, Targets::EachPosition, &[(5, 8), (2, 8), (5, 3), (1, 6)]);
    let text = text(5, 8, r#"{"type": "gru", "units": 5}, {"type": "dense", "units": 9}"#, CLASSES)
        .replace(r#""seed": 3"#, r#""seed": 3, "accumulate": 3"#);
    let run = |executor| {
        let mut session = session(&SessionSpec { executor, ..spec(&text, &file) });
        let reports: Vec<_> = whole_run(&mut session).iter().map(bits).collect();
        assert_eq!((reports.len(), session.recordings().counts.eager_steps), (8, 0));
        (reports, session.step_mut().0.snapshot().unwrap())
    };
    assert!(run(Executor::Replay) == run(Executor::Eager));
}

#[test]
fn the_rows_and_lengths_in_a_file_of_batches_are_checked() {
    let batches = Batches { steps: 3, batch: 5, length: 8 };
    let folder = tempfile::tempdir().unwrap();
    let text = text(5, 8, r#"{"type": "dense", "units": 9}"#, CLASSES);
    let refused = |name: &str, shape: &[usize], values: &[i32]| {
        let mut tensors = batches.tensors(5, 8, Targets::EachPosition);
        tensors.push((name.into(), HostTensor::from_slice(Shape(shape.to_vec()), values).unwrap()));
        let file = save(folder.path().join("bad.st"), tensors);
        let error = Session::prepare(&spec(&text, &file)).err().unwrap();
        assert!(error.is_user());
        error.to_string()
    };
    let message = refused("batch.rows", &[3], &[5, 0, 5]);
    assert!(message.contains("batch.rows holds 0 in batch 1; expected 1 to 5, the samples of a batch"), "{message}");
    let message = refused("batch.length", &[3], &[9, 1, 5]);
    assert!(message.contains("batch.length holds 9 in batch 0; expected 1 to 8"), "{message}");
    let message = refused("batch.rows", &[2], &[5, 5]);
    assert!(message.contains("batch.rows has shape [2]; there are 3 batches, so give [3]"), "{message}");
}

/// The gradients of all repetitions are added; rows that no step uses have none.
#[test]
fn a_repeated_table_of_positions_adds_the_gradients_of_its_first_rows() {
    let layers = r#"{"type": "repeat", "times": 3, "layers": [{"type": "position"}]}, {"type": "dense", "units": 9}"#;
    let text = text(5, 8, layers, CLASSES).replace("adamw", "sgd").replace(r#", "weight_decay": 0.01"#, "");
    let (folder, batches) = (tempfile::tempdir().unwrap(), Batches { steps: 6, batch: 5, length: 8 });
    let used = batches.used(&folder, Targets::EachPosition, &[(5, 3), (2, 5), (5, 1)]);
    let run = |executor| {
        let mut session = session(&SessionSpec { executor, ..spec(&text, &used) });
        let before = weight(&session, "layers.1.layers.0.weight");
        let losses: Vec<f32> = whole_run(&mut session).iter().map(|report| report.loss).collect();
        let after = weight(&session, "layers.1.layers.0.weight");
        let is_moved: Vec<bool> = before.chunks(4).zip(after.chunks(4)).map(|(a, b)| a != b).collect();
        assert_eq!((is_moved, losses.len()), ([[true; 5].as_slice(), &[false; 3]].concat(), 6));
        (losses, after)
    };
    assert!(run(Executor::Eager) == run(Executor::Replay));
}

/// The message of the check of a run's batches and log for a correct run; `options` give the location of its data.
fn logged(text: &str, options: VerifyOptions) -> String {
    let options = VerifyOptions { threads: 1, seed: 3, ..options };
    let preset = read_preset(text).unwrap_or_else(|e| panic!("{e:?}"));
    let report = verify_some(&preset, &options, &[Proof::TrainingRun], &std::sync::Arc::default(), |_| {}).unwrap();
    assert!(report.passed, "{:#?}", report.checks);
    report.checks.into_iter().find(|check| check.name == "a run's batches and log").unwrap().figures
}

#[test]
fn the_check_of_a_run_follows_what_its_batches_use() {
    let folder = tempfile::tempdir().unwrap();
    let batches = Batches { steps: 24, batch: 5, length: 8 };
    for (target, loss, layers) in [
        (Targets::EachPosition, CLASSES, r#"{"type": "gru", "units": 5}, {"type": "dense", "units": 9}"#),
        (Targets::Values, MSE, r#"{"type": "dense", "units": 2}"#),
    ] {
        let file = batches.used(&folder, target, &[(5, 8), (2, 8), (5, 3), (1, 6)]);
        let text = text(5, 8, layers, loss).replace(r#""seed": 3"#, r#""seed": 3, "accumulate": 2"#);
        let found = logged(&text, VerifyOptions { batches: Some(file), ..VerifyOptions::default() });
        assert!(found.contains(" recordings dropped and made again, 0 reports differ"), "{found}");
    }
    // Texts of a table with different lengths, and a short batch at the end.
    let lines: Vec<String> =
        (0..37).map(|row| format!("{},{}", "abcdefghij".repeat(2)[..row % 13 + 1].to_owned(), row % 3)).collect();
    std::fs::write(folder.path().join("t.csv"), format!("text,kind\n{}\n", lines.join("\n"))).unwrap();
    let text = r#"{"version": 1, "name": "t", "input": {"type": "tokens", "shape": [12], "vocab": 128, "batch": 4},
        "layers": [{"type": "embedding", "units": 4}, {"type": "global_avg_pool"}, {"type": "dense", "units": 3}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01},
        "data": {"type": "csv", "path": "t.csv", "columns": ["text"], "target": "kind", "held_out": 6,
            "last_batch": "short", "buckets": [3, 7, 9]}, "train": {"steps": 30}}"#;
    // In the larger one, the second batch of the first step is short.
    let larger = text.replace(r#""batch": 4"#, r#""batch": 20"#).replace(r#""steps""#, r#""accumulate": 2, "steps""#);
    for text in [text, &larger] {
        let found = logged(text, VerifyOptions { base: folder.path().to_owned(), ..VerifyOptions::default() });
        assert!(found.contains(" recordings dropped and made again, 0 reports differ"), "{found}");
    }
}
