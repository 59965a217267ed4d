//! What a resumed run uses of its checkpoint, by the fields of its recipe.

use super::*;
use crate::model::{ParamId, Preset, read_preset};
use crate::tensor::HostTensor;
use crate::tensor::temporary::temporary_file;
use crate::train::file_keys::ORIGIN;
use crate::train::{Session, SessionSpec, read_tensors};
use std::path::{Path, PathBuf};

const TEXT: &str = r#"{"version": 1, "name": "n", "input": {"shape": [64], "batch": 16},
    "layers": [{"type": "dense", "units": 8, "activation": "relu"},
    {"type": "residual", "layers": [{"type": "dense", "units": 8}]},
        {"type": "dense", "units": 10}],
    "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "adam", "lr": 0.01}, "data": {"type": "digits"},
    "train": {"steps": 9, "seed": 0}}"#;

fn preset(text: &str) -> Preset {
    read_preset(text).unwrap()
}

fn session(text: &str) -> Session {
    Session::prepare(&SessionSpec { threads: 1, ..SessionSpec::new(preset(text), PathBuf::from(".")) }).unwrap()
}

/// The message of a session of `text` about the checkpoint at `path`.
fn resumed(text: &str, path: &Path) -> Session {
    let mut session = session(text);
    session.load_checkpoint(path).unwrap();
    session
}

fn refused(text: &str, path: &Path) -> String {
    let error = session(text).load_checkpoint(path).unwrap_err();
    assert!(error.is_user() && error.to_string().contains("was made with another recipe"), "{error}");
    error.to_string()
}

#[test]
fn fields_that_must_not_change_are_refused_with_both_values() {
    let (folder, path) = temporary_file("run.ckpt");
    session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
    assert_eq!(checkpoint_step(&path).unwrap(), 0);
    session(TEXT).save_weights(&folder.path().join("weights")).unwrap();
    assert!(checkpoint_step(&folder.path().join("weights")).unwrap_err().to_string().contains("not a checkpoint"));
    for (from, to, wanted) in [
        ("\"relu\"", "\"tanh\"", "layers[0].activation is relu there and tanh here"),
        ("\"units\": 8}]", "\"units\": 8, \"activation\": \"silu\"}]", "layers[1].layers[0].activation is "),
        (
            "cross_entropy\"",
            "cross_entropy\", \"label_smoothing\": 0.1",
            "loss.label_smoothing is – there and 0.1 here",
        ),
        ("\"adam\"", "\"adamw\"", "optimizer.type is adam there and adamw here"),
        ("\"batch\": 16", "\"batch\": 8", "input.batch is 16 there and 8 here"),
        ("\"seed\": 0", "\"seed\": 1", "train.seed is 0 there and 1 here"),
        ("\"digits\"", "\"digits\", \"held_out\": 0.1", "data.held_out is 0.2 there and 0.1 here"),
        ("\"digits\"", "\"digits\", \"split\": \"last\"", "data.split is shuffled there and last here"),
    ] {
        let text = TEXT.replace(from, to);
        assert_ne!(text, TEXT);
        let message = refused(&text, &path);
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn fields_that_may_change_are_applied_and_reported() {
    let (_folder, path) = temporary_file("run.ckpt");
    let mut first = session(TEXT);
    first.step().unwrap();
    first.save_checkpoint(&path, &preset(TEXT)).unwrap();
    let of_optimizer = [
        ("0.5", "optimizer.lr"),
        ("0.01, \"weight_decay\": 0.25", "optimizer.weight_decay"),
        ("0.01, \"betas\": [0.8, 0.9]", "optimizer.betas"),
        ("0.01, \"eps\": 1e-6", "optimizer.eps"),
    ];
    let of_run = [
        (TEXT.replace("\"steps\": 9", "\"steps\": 90"), "train.steps"),
        (TEXT.replace("\"data\"", "\"precision\": \"bf16\", \"data\""), "precision"),
    ];
    for (text, field) in of_optimizer.map(|(rate, field)| (TEXT.replace("0.01", rate), field)).into_iter().chain(of_run)
    {
        let run = resumed(&text, &path);
        let found = run.resumed().unwrap();
        assert!(found.changes.len() == 1 && found.changes[0].field == field, "{:?}", found.changes);
        assert!(found.notes.len() == 1 && found.notes[0].starts_with(field), "{:?}", found.notes);
        assert_eq!(run.lr().unwrap(), if field == "optimizer.lr" { 0.5 } else { 0.01 });
        let decay = run.train.stored::<f32>(run.watched.hyper).unwrap()[1];
        assert_eq!(decay, if field == "optimizer.weight_decay" { 0.25 } else { 0.0 });
    }
    let same = resumed(&TEXT.replace("\"relu\"", "\"relu\", \"bias\": true"), &path);
    assert_eq!((&same.resumed().unwrap().notes, same.done()), (&Vec::new(), 1));
}

#[test]
fn a_rate_that_was_set_during_the_run_is_kept_until_the_preset_changes() {
    let (_folder, path) = temporary_file("run.ckpt");
    let mut first = session(TEXT);
    first.set_lr(0.002).unwrap();
    first.save_checkpoint(&path, &preset(TEXT)).unwrap();
    let run = resumed(TEXT, &path);
    let found = run.resumed().unwrap();
    assert_eq!((run.lr().unwrap(), found.changes.len()), (0.002, 0));
    assert!(found.notes[0].contains("continues with 0.002") && found.notes[0].contains("preset has 0.01"));
    assert_eq!(resumed(&TEXT.replace("0.01", "0.03"), &path).lr().unwrap(), 0.03);
}

#[test]
fn momentum_that_the_checkpoint_lacks_starts_at_zero() {
    let (_folder, path) = temporary_file("run.ckpt");
    let plain = TEXT.replace("adam", "sgd");
    let with = plain.replace("0.01", "0.01, \"momentum\": 0.9");
    session(&plain).save_checkpoint(&path, &preset(&plain)).unwrap();
    let mut run = session(&with);
    for _ in 0..3 {
        run.step().unwrap();
    }
    run.load_checkpoint(&path).unwrap();
    assert_eq!(run.resumed().unwrap().changes[0].field, "optimizer.momentum");
    let moments = run.state_names().into_iter().filter(|n| n.starts_with("momentum."));
    let moments: Vec<HostTensor> = moments.map(|n| run.train.tensor(run.train.find(&n).unwrap()).unwrap()).collect();
    assert!(!moments.is_empty() && moments.iter().all(|m| m.to_f64().unwrap().iter().all(|v| *v == 0.0)));
    run.save_checkpoint(&path, &preset(&with)).unwrap();
    resumed(&plain, &path);
}

#[test]
fn a_checkpoint_of_an_earlier_version_is_compared_by_its_preset() {
    let (_folder, path) = temporary_file("old.ckpt");
    session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
    let rewrite = |change: &dyn Fn(&mut Header)| {
        let mut file = read_tensors(&path).unwrap();
        let mut header: Header = serde_json::from_str(&file.metadata[CHECKPOINT]).unwrap();
        change(&mut header);
        let text = serde_json::to_string(&header).unwrap();
        file.metadata.insert(CHECKSUM.into(), checksum(&text, &file.tensors));
        file.metadata.insert(CHECKPOINT.into(), text);
        file.metadata.remove(ORIGIN);
        file.write(&path).unwrap();
    };
    rewrite(&|header| (header.recipe, header.loss) = (None, None));
    let run = resumed(&TEXT.replace("0.01", "0.5").replace("\"steps\": 9", "\"steps\": 90"), &path);
    let notes = &run.resumed().unwrap().notes;
    assert!(run.lr().unwrap() == 0.5 && notes.len() == 2 && notes[0].starts_with("an earlier version"), "{notes:?}");
    refused(&TEXT.replace("\"relu\"", "\"tanh\""), &path);
    rewrite(&|header| header.preset = "{\"version\": 99}".to_owned());
    let run = resumed(TEXT, &path);
    assert!(run.resumed().unwrap().notes[0].starts_with("this version cannot read"));
}

#[test]
fn a_checkpoint_contains_the_loss_of_its_last_step() {
    let (_folder, path) = temporary_file("run.ckpt");
    let mut first = session(TEXT);
    first.save_checkpoint(&path, &preset(TEXT)).unwrap();
    assert_eq!(checkpoint_end(&path).unwrap(), (0, None));
    let loss = (0..3).map(|_| first.step().unwrap().unwrap().loss).last();
    first.save_checkpoint(&path, &preset(TEXT)).unwrap();
    let (step, found) = checkpoint_end(&path).unwrap();
    assert_eq!((step, found.map(f32::to_bits)), (3, loss.map(f32::to_bits)));
    assert_eq!(resumed(TEXT, &path).last_loss().map(f32::to_bits), loss.map(f32::to_bits));
}

#[test]
fn a_recipe_that_was_compared_before_is_compared_again_only_for_another_file() {
    let (_folder, path) = temporary_file("run.ckpt");
    session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
    let mut run = session(TEXT);
    let own = run.recipe.clone().of_steps(run.total);
    let ahead = Compared::ahead(&path, &own).unwrap();
    assert!(ahead.is_some());
    // Another checkpoint replaces the file before its tensors are read.
    let other = TEXT.replace("\"relu\"", "\"tanh\"");
    session(&other).save_checkpoint(&path, &preset(&other)).unwrap();
    let message = run.load_compared(&path, ahead).unwrap_err().to_string();
    assert!(message.contains("layers[0].activation is tanh there and relu here"), "{message}");
}

#[test]
fn a_run_that_has_diverged_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, weights) = (folder.path().join("run.ckpt"), folder.path().join("run.safetensors"));
    let mut run = session(TEXT);
    run.save_checkpoint(&checkpoint, &preset(TEXT)).unwrap();
    let before = std::fs::read(&checkpoint).unwrap();
    let mut values = run.train.param::<f32>(ParamId(0)).unwrap();
    values[1] = f32::INFINITY;
    run.train.set_param(ParamId(0), &values).unwrap();
    for error in [run.save_checkpoint(&checkpoint, &preset(TEXT)), run.save_weights(&weights)] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains("layers.0.weight holds NaN or infinite values"), "{message}");
    }
    assert_eq!(std::fs::read(&checkpoint).unwrap(), before);
    assert!(!weights.exists());
}

#[test]
fn samples_are_hashed_only_if_the_checkpoint_has_a_checksum() {
    let (_folder, path) = temporary_file("run.ckpt");
    session(TEXT).save_checkpoint(&path, &preset(TEXT)).unwrap();
    assert!(resumed(TEXT, &path).data_digest.get().is_some());
    let mut file = read_tensors(&path).unwrap();
    file.metadata.remove(ORIGIN);
    file.metadata.insert(CHECKSUM.into(), checksum(&file.metadata[CHECKPOINT], &file.tensors));
    file.write(&path).unwrap();
    let run = resumed(TEXT, &path);
    assert!(run.data_digest.get().is_none() && !run.is_maybe_trained());
}
