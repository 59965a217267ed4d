//! Training as a whole: checkpoints, settings that change during a run, guards, evaluation, and checks that can fail.

mod varied;
mod worker;
mod writing;

use std::path::{Path, PathBuf};
use stepgraph::exec::Executor;
use stepgraph::exec::{ExecError, Fault};
use stepgraph::model::{Preset, read_preset};
use stepgraph::tensor::HostTensor;
use stepgraph::train::{
    Overrides, Session, SessionSpec, StepReport, TensorFile, TrainError, VerifyOptions, read_tensors, verify,
};
use tempfile::TempDir;

const MLP_ADAM: &str = r#"{"version": 1, "name": "mlp-adam", "input": {"shape": [64], "batch": 32},
    "layers": [{"type": "dense", "units": 24, "activation": "relu"}, {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adamw", "lr": 0.002, "weight_decay": 0.001},
    "data": {"type": "digits", "held_out": 360, "split": "last"}, "train": {"steps": 400, "seed": 5}}"#;

const CNN_MOMENTUM: &str = r#"{"version": 1, "name": "cnn-momentum", "input": {"shape": [1, 8, 8], "batch": 16},
    "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "bias": false}, {"type": "batch_norm"},
    {"type": "activation", "function": "relu"},
        {"type": "flatten"}, {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.02, "momentum": 0.9,
    "nesterov": true},
    "data": {"type": "digits"}, "train": {"steps": 400, "seed": 1}}"#;

const DROPOUT: &str = r#"{"version": 1, "name": "dropout", "input": {"shape": [64], "batch": 32},
    "layers": [{"type": "dense", "units": 32, "activation": "gelu"}, {"type": "dropout", "rate": 0.25},
    {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.002},
    "data": {"type": "digits"}, "train": {"steps": 400, "seed": 2}}"#;

/// Trains with a learning rate at which no network stays finite.
const BLOW_UP: &str = r#"{"version": 1, "name": "blow-up", "input": {"shape": [64], "batch": 32},
    "layers": [{"type": "dense", "units": 32, "activation": "leaky_relu"},
    {"type": "dense", "units": 32, "activation": "leaky_relu"}, {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 1000.0, "momentum": 0.9},
    "data": {"type": "digits"}, "train": {"steps": 500, "seed": 0}}"#;

fn preset(text: &str) -> Preset {
    read_preset(text).unwrap()
}

fn spec(text: &str) -> SessionSpec {
    SessionSpec { threads: 2, ..SessionSpec::new(preset(text), PathBuf::from(".")) }
}

fn session(text: &str) -> Session {
    Session::prepare(&spec(text)).unwrap()
}

fn steps(session: &mut Session, count: usize) -> Vec<StepReport> {
    (0..count).map(|_| session.step().unwrap().expect("the run is not over")).collect()
}

/// Loss and update of each step as bits, which must be the same in two runs; times may differ.
fn bits(reports: &[StepReport]) -> Vec<(u64, u32, u32, u32)> {
    reports.iter().map(|r| (r.step, r.loss.to_bits(), r.update_max.to_bits(), r.grad_norm.to_bits())).collect()
}

fn weights(session: &Session) -> Vec<(String, HostTensor)> {
    session.weights().unwrap()
}

fn snapshot(session: &mut Session) -> Vec<u8> {
    session.step_mut().0.snapshot().unwrap()
}

#[test]
fn a_resumed_run_equals_one_that_never_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for text in [MLP_ADAM, CNN_MOMENTUM, DROPOUT] {
        let path = folder.path().join("run.ckpt");
        let mut whole = session(text);
        // 100 steps of 16 to 32 samples go past the end of an epoch, before and after the pause.
        steps(&mut whole, 100);
        whole.set_lr(0.0005).unwrap();
        whole.save_checkpoint(&path, &preset(text)).unwrap();
        let expected = bits(&steps(&mut whole, 120));
        let mut resumed = session(text);
        steps(&mut resumed, 7);
        resumed.load_checkpoint(&path).unwrap();
        assert_eq!((resumed.done(), resumed.lr().unwrap()), (100, 0.0005));
        assert_eq!(bits(&steps(&mut resumed, 120)), expected, "{text}");
        assert_eq!(weights(&resumed), weights(&whole));
        assert!(snapshot(&mut resumed) == snapshot(&mut whole), "every byte that survives a step is the same");
    }
}

/// A run that made steps after its good checkpoint, and a path for bad ones.
struct Checkpointed {
    folder: TempDir,
    run: Session,
}

impl Checkpointed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut run = session(CNN_MOMENTUM);
        steps(&mut run, 30);
        run.save_checkpoint(&folder.path().join("good.ckpt"), &preset(CNN_MOMENTUM)).unwrap();
        steps(&mut run, 5);
        Self { folder, run }
    }

    fn good(&self) -> PathBuf {
        self.folder.path().join("good.ckpt")
    }

    fn bad(&self) -> PathBuf {
        self.folder.path().join("bad.ckpt")
    }

    /// The bad checkpoint is refused with these words, and the run is unchanged.
    fn refuses(&mut self, what: &str, wanted: &str) {
        let (path, run) = (self.bad(), &mut self.run);
        let (before, done, lr) = (snapshot(run), run.done(), run.lr().unwrap());
        let error = run.load_checkpoint(&path).err().unwrap_or_else(|| panic!("{what} is accepted"));
        let text = error.to_string();
        assert!(error.is_user() && text.contains(wanted), "{what}: {text}");
        assert!(snapshot(run) == before && (run.done(), run.lr().unwrap()) == (done, lr), "{what} changed the run");
    }

    /// The good file can still be loaded, and the run continues.
    fn continues(mut self) {
        let good = self.good();
        self.run.load_checkpoint(&good).unwrap();
        assert_eq!(steps(&mut self.run, 1)[0].step, 31);
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_and_changes_nothing() {
    let mut tried = Checkpointed::new();
    let path = tried.bad();
    let bytes = std::fs::read(tried.good()).unwrap();
    for cut in [0, 7, 200, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        tried.refuses(&format!("a file of {cut} bytes"), "bad.ckpt: is not a complete safetensors file");
    }
    std::fs::write(&path, b"{\"not\": \"a checkpoint\"}").unwrap();
    tried.refuses("another file", "is not a safetensors file");
    std::fs::remove_file(&path).unwrap();
    tried.refuses("a missing file", "cannot be read");
    // One flipped bit inside the tensors: the lengths are right, so that only a checksum of the content can detect it.
    for at in [bytes.len() - 3, bytes.len() / 2] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        std::fs::write(&path, &flipped).unwrap();
        tried.refuses("a flipped bit", "bad.ckpt");
    }
    session(&MLP_ADAM.replace("\"seed\": 5", "\"seed\": 1")).save_checkpoint(&path, &preset(MLP_ADAM)).unwrap();
    tried.refuses("a checkpoint of another network and optimizer", "input.shape is [64] there");
    session(&CNN_MOMENTUM.replace("\"units\": 10", "\"units\": 12"))
        .save_checkpoint(&path, &preset(CNN_MOMENTUM))
        .unwrap();
    tried.refuses("a checkpoint of a wider network", "layers[4].units is 12 there and 10 here");
    // After all of this the run continues, and the good file can still be loaded.
    tried.continues();
}

#[test]
fn a_checkpoint_with_changed_contents_is_refused_and_changes_nothing() {
    let mut tried = Checkpointed::new();
    let path = tried.bad();
    let file = read_tensors(&tried.good()).unwrap();
    let changed = |change: &dyn Fn(&mut TensorFile)| {
        let mut copy = file.clone();
        change(&mut copy);
        copy.write(&path).unwrap();
    };
    changed(&|f| f.metadata.clear());
    tried.refuses("weights without a header", "is not a checkpoint");
    changed(&|f| f.metadata.values_mut().for_each(|v| v.truncate(40)));
    tried.refuses("half a header", "do not match its checksum");
    changed(&|f| f.tensors.retain(|(n, _)| n != "layers.4.bias"));
    tried.refuses("a lost parameter", "do not match its checksum");
    changed(&|f| f.tensors.retain(|(n, _)| n != "state.momentum.layers.0.weight"));
    tried.refuses("a lost moment", "do not match its checksum");
    changed(&|f| {
        f.tensors
            .iter_mut()
            .filter(|(n, _)| n == "layers.4.bias")
            .for_each(|(_, t)| *t = HostTensor::zeros(t.dtype, [9].into()))
    });
    tried.refuses("a parameter of another shape", "do not match its checksum");
    changed(&|f| {
        let nan = HostTensor::from_slice([10], &[f32::NAN; 10]).unwrap();
        f.tensors.iter_mut().filter(|(n, _)| n == "layers.4.bias").for_each(|(_, t)| *t = nan.clone());
    });
    tried.refuses("a parameter that was changed", "do not match its checksum");
    tried.continues();
}

#[test]
fn a_checkpoint_of_another_seed_continues_with_its_own_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.ckpt");
    let mut first = session(MLP_ADAM);
    steps(&mut first, 50);
    first.save_checkpoint(&path, &preset(MLP_ADAM)).unwrap();
    let expected = bits(&steps(&mut first, 60));
    let mut second = Session::prepare(&SessionSpec { overrides: Overrides::seed(77), ..spec(MLP_ADAM) }).unwrap();
    // Either the run continues exactly, or it is refused: continuing with other batches without a message would be
    // wrong.
    match second.load_checkpoint(&path) {
        Ok(()) => assert_eq!(bits(&steps(&mut second, 60)), expected),
        Err(error) => assert!(error.to_string().contains("seed"), "{error}"),
    }
}

#[test]
fn the_learning_rate_takes_effect_at_the_next_step_without_a_new_recording() {
    let mut run = session(
        r#"{"version": 1, "name": "sgd", "input": {"shape": [64], "batch": 32}, "layers": [{"type": "dense",
            "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}, "data": {"type": "digits"},
        "train": {"steps": 50, "seed": 0}}"#,
    );
    let compiled = std::sync::Arc::as_ptr(run.compiled());
    let base = run.step_mut().0.arena().unwrap().as_ptr();
    assert!(steps(&mut run, 3).iter().all(|r| r.lr == 0.1 && r.update_max > 0.0));
    run.set_lr(0.0).unwrap();
    let before = weights(&run);
    let still = steps(&mut run, 2);
    assert!(still.iter().all(|r| r.lr == 0.0 && r.update_max == 0.0), "{still:?}");
    assert_eq!(weights(&run), before);
    // The same step from the same state moves ten times as far with ten times the rate.
    let mut far = Vec::new();
    for lr in [0.01f32, 0.1] {
        let state = snapshot(&mut run);
        run.set_lr(lr).unwrap();
        let (step, pool) = run.step_mut();
        step.replay(pool).unwrap();
        let update = step.find("update_max").unwrap();
        far.push(step.stored::<f32>(update).unwrap()[0]);
        step.restore(&state).unwrap();
    }
    assert!((far[1] / far[0] - 10.0).abs() < 1e-2, "{far:?}");
    assert_eq!(
        (std::sync::Arc::as_ptr(run.compiled()), run.step_mut().0.arena().unwrap().as_ptr()),
        (compiled, base),
        "nothing was recorded again"
    );
}

#[test]
fn dropout_draws_a_new_mask_of_the_right_rate_each_step() {
    let mut run = session(DROPOUT);
    let (mut masks, mut kept, mut total) = (Vec::new(), 0u64, 0u64);
    let name = {
        let program = &run.compiled().plan.program;
        program.values.iter().find(|v| v.name.contains("mask")).expect("dropout keeps its mask").name.clone()
    };
    for _ in 0..40 {
        run.step().unwrap();
        let (step, _) = run.step_mut();
        let id = step.find(&name).unwrap();
        // The mask is in shared memory, so it is read immediately after the operation that draws it.
        let ops = step.compiled().plan.program.ops.clone();
        let drawn = ops.iter().position(|o| o.kind.name() == "dropout").unwrap() + 1;
        let state = snapshot(&mut run);
        let (step, pool) = run.step_mut();
        step.run_ops(0, drawn, pool).unwrap();
        let mask = step.stored::<u8>(id).unwrap().to_vec();
        step.restore(&state).unwrap();
        kept += mask.iter().map(|b| u64::from(b.count_ones())).sum::<u64>();
        total += 8 * mask.len() as u64;
        masks.push(mask);
    }
    let share = kept as f64 / total as f64;
    // 40 masks of 1,024 bits: the standard deviation of the share is 0.002.
    assert_eq!(total, 40 * 32 * 32);
    assert!((share - 0.75).abs() < 0.01, "{share}");
    masks.sort();
    masks.dedup();
    assert_eq!(masks.len(), 40, "no mask comes twice");
}

#[test]
fn an_absurd_learning_rate_is_an_error_and_leaves_the_run_unchanged() {
    for executor in [Executor::Replay, Executor::Eager] {
        let mut run = Session::prepare(&SessionSpec { executor, ..spec(BLOW_UP) }).unwrap();
        let mut states = Vec::new();
        let error = loop {
            states.push(snapshot(&mut run));
            match run.step() {
                Ok(report) => assert!(report.expect("it must fail before its end").loss.is_finite()),
                Err(error) => break error,
            }
        };
        let failed = run.done() + 1;
        let text = error.to_string();
        assert!(matches!(&error, TrainError::Exec(ExecError::NonFinite { step, .. }) if *step == failed), "{text}");
        // It names the step, an operation with its kernel, and a layer of the network.
        assert!(
            text.contains(&format!("step {failed}:")) && text.contains("made by op ") && text.contains(":Dense"),
            "{text}"
        );
        for (name, tensor) in weights(&run) {
            assert!(tensor.to_f64().unwrap().iter().all(|v| v.is_finite()), "{name} is finite");
        }
        assert!(snapshot(&mut run) == *states.last().unwrap(), "the run is where it was before the step");
        // With a suitable rate the same run continues from there, or fails at the same step again; it never continues
        // with NaN.
        match run.step() {
            Ok(_) => panic!("the same step cannot succeed the second time"),
            Err(again) => assert_eq!(again.to_string(), text),
        }
    }
}

#[test]
fn evaluation_uses_the_trained_parameters_and_does_not_change_the_run() {
    let mut run = session(CNN_MOMENTUM);
    let first = run.evaluate().unwrap().unwrap();
    let before = snapshot(&mut run);
    assert_eq!(run.evaluate().unwrap().unwrap(), first, "an evaluation repeats itself");
    assert!(snapshot(&mut run) == before, "parameters, moments, counters and running statistics stay");
    steps(&mut run, 300);
    let later = run.evaluate().unwrap().unwrap();
    assert!(
        first.accuracy.unwrap() < 0.35 && later.accuracy.unwrap() > 0.75,
        "{:?} to {:?}",
        first.accuracy,
        later.accuracy
    );
    let seen: u32 = later.confusion.iter().flatten().sum();
    assert_eq!((seen as usize, later.samples), (360, 360), "every held-out sample is counted once");
    // Dropout is off: two evaluations of one state agree. And training continues as if there had been no evaluation.
    let mut looked = session(DROPOUT);
    let mut plain = session(DROPOUT);
    for _ in 0..20 {
        assert_eq!(looked.evaluate().unwrap(), looked.evaluate().unwrap());
        assert_eq!(bits(&steps(&mut looked, 1)), bits(&steps(&mut plain, 1)));
    }
    assert_eq!(run.predict(&[1, 2, 5]).unwrap().len(), 30);
}

#[test]
fn every_golden_preset_is_verified() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    names.sort();
    for path in names {
        let preset = read_preset(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let batches = Some(path.with_extension("safetensors"));
        let options = VerifyOptions {
            replays: Some(300),
            threads: 2,
            base: folder.clone(),
            init: batches.clone(),
            batches,
            ..VerifyOptions::default()
        };
        let report = verify(&preset, &options, |_| {}).unwrap();
        assert!(
            report.passed && report.checks.len() >= 10,
            "{}: {:#?}",
            preset.name,
            report.checks.iter().filter(|c| c.passed == Some(false)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn a_moved_address_stops_the_run_before_anything_is_run() {
    let mut run = session(CNN_MOMENTUM);
    let mut untouched = session(CNN_MOMENTUM);
    steps(&mut run, 3);
    steps(&mut untouched, 3);
    let before = weights(&run);
    let (step, _) = run.step_mut();
    let ops = step.compiled().plan.program.ops.clone();
    for (op, bound) in ops.iter().enumerate() {
        let Some(slot) = bound.args.iter().position(Option::is_some) else { continue };
        let fault = Fault::Argument { graph: 0, op, slot };
        let undo = run.step_mut().0.inject(fault).unwrap().unwrap();
        let error = run.step().err().unwrap_or_else(|| panic!("op {op} ran with a moved argument"));
        let text = error.to_string();
        let expected = run.compiled().selection.choices[op].kernel.clone();
        assert!(matches!(error, TrainError::Exec(ExecError::Ledger { op: named, .. }) if named == op), "{text}");
        assert!(text.contains(&expected) && text.contains("nothing was run"), "{text}");
        run.step_mut().0.undo(undo).unwrap();
        assert!(weights(&run) == before && run.done() == 3, "op {op}");
    }
    // No batch was used up.
    assert_eq!(bits(&steps(&mut run, 30)), bits(&steps(&mut untouched, 30)));
    assert!(snapshot(&mut run) == snapshot(&mut untouched));
}

#[test]
fn verification_fails_for_a_diverging_run() {
    // At this rate the run soon stops being finite, which the endurance check must find.
    let wild = preset(BLOW_UP);
    let report =
        verify(&wild, &VerifyOptions { replays: Some(500), threads: 2, ..VerifyOptions::default() }, |_| {}).unwrap();
    let failed: Vec<&str> = report.checks.iter().filter(|c| c.passed == Some(false)).map(|c| c.name.as_str()).collect();
    assert!(!report.passed && failed == ["endurance and determinism"], "{failed:?}");
    // A mistake of the user is an error, and not a failed check.
    let missing = VerifyOptions { batches: Some(PathBuf::from("none.safetensors")), ..VerifyOptions::default() };
    assert!(verify(&preset(MLP_ADAM), &missing, |_| {}).err().unwrap().is_user());
}
