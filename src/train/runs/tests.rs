//! The store and the recorder, on a real disk.

use super::record::started_of;
use super::*;
use crate::train::{Evaluation, Overrides, Session, SessionSpec, StepReport, checkpoint_step};
use std::time::{Duration, Instant};

fn report(step: u64) -> StepReport {
    let (loss, step_us) = (2.0 / step as f32, 10.0);
    StepReport {
        step,
        loss,
        update_max: 1e-3,
        grad_norm: 0.5,
        accuracy: 0.5,
        lr: 1e-3,
        loss_scale: f32::NAN,
        step_us,
        feed_us: 1.0,
        ..StepReport::default()
    }
}

fn record() -> RunRecord {
    let preset = crate::model::read_preset(crate::model::BUNDLED[0].text).unwrap();
    let mut record = RunRecord { seed: 3, device: "CPU".into(), total: 100, ..RunRecord::default() };
    record.set_preset(&preset);
    record
}

/// Those of the record's network.
fn layers() -> LayerCurves {
    LayerCurves::of(&crate::model::check(&record().read_preset().unwrap()).model.unwrap())
}

fn begin(store: &RunStore) -> Recorder {
    Recorder::begin(store, record(), &PlanDigest { arena_bytes: 7, ..PlanDigest::default() }, layers()).unwrap()
}

fn train(recorder: &mut Recorder, steps: std::ops::RangeInclusive<u64>) {
    recorder.set_running(true);
    for step in steps {
        recorder.steps(&[report(step)]);
    }
    recorder.set_running(false);
}

/// A run that is being written in a new store, which exists as long as its folder.
fn begun() -> (tempfile::TempDir, RunStore, Recorder, String) {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let recorder = begin(&store);
    let id = recorder.id().unwrap().to_owned();
    (folder, store, recorder, id)
}

#[test]
fn a_run_is_kept_listed_renamed_deleted_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path().join("runs"));
    assert_eq!(store.list().unwrap(), []);
    let mut recorder = begin(&store);
    let id = recorder.id().unwrap().to_owned();
    train(&mut recorder, 1..=100);
    let found = Evaluation { samples: 8, loss: 0.5, accuracy: Some(0.75), exact: None, confusion: Vec::new() };
    recorder.evaluated(100, &found);
    assert!(matches!(store.delete(&id), Err(RunsError::Busy(_))));
    // A window also holds its run after the end.
    recorder.set_state(RunEnd::Stopped, None);
    while store.record(&id).unwrap().state != RunEnd::Stopped {
        recorder.push_out();
        std::thread::yield_now();
    }
    assert!(matches!(store.delete(&id), Err(RunsError::Held(_))));
    recorder.set_state(RunEnd::Running, None);
    recorder.set_state(RunEnd::Finished, None);
    recorder.finish().unwrap();
    let entry = store.find(&id[..12]).unwrap();
    let r = &entry.record;
    assert_eq!((r.steps, r.state, r.seed, r.held_out_accuracy), (100, RunEnd::Finished, 3, Some(0.75)));
    assert!(r.span.ended_ms.unwrap() >= r.span.started_ms && r.step_us == Some(10.0) && r.read_preset().is_some());
    assert_eq!(r.plan_hash, store.plan(&id).unwrap().sum());
    let curves = store.curves(&id).unwrap();
    assert_eq!((curves.len(), curves.evaluations.len(), curves.is_torn), (100, 1, false));
    assert_eq!((curves.report(99).step, curves.report(99).loss), (100, report(100).loss));
    store.set_label(&id, &Label { name: Some("first".into()), hidden: false }).unwrap();
    assert_eq!(store.find("first").unwrap().id, id);
    assert_eq!(store.find("last").unwrap().name(), "first");
    store.delete(&id).unwrap();
    assert!(store.list().unwrap().is_empty() && store.find(&id).is_err());
    store.restore(&id).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    store.delete(&id).unwrap();
    assert_eq!((store.empty_trash().unwrap(), store.empty_trash().unwrap()), (1, 0));
    assert!(store.restore(&id).is_err());
}

#[test]
fn how_far_layers_moved_is_kept_and_continues_from_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let compiled = || {
        let model = crate::model::check(&record().read_preset().unwrap()).model.unwrap();
        let target = crate::select::Target::cpu(crate::select::Isa::Avx2, 1);
        std::sync::Arc::new(crate::compile::compile(&model, &crate::compile::Options::train(target)).unwrap())
    };
    // In the order in which a run reports it: first how far parameters moved, then the steps.
    let make = |recorder: &mut Recorder, steps: std::ops::RangeInclusive<u64>, size: f32| {
        for first in steps.clone().step_by(10) {
            let mut moved = crate::train::Stretches::default();
            (first..first + 10).for_each(|step| moved.add(step, &[size, 0.1, 0.2, 0.3]));
            recorder.moved(&moved.take());
            train(recorder, first..=first + 9);
        }
    };
    let mut recorder = begin(&store);
    let id = recorder.id().unwrap().to_owned();
    make(&mut recorder, 1..=400, 1.0);
    recorder.finish().unwrap();
    let curves = store.curves(&id).unwrap();
    let steps = curves.layers.steps();
    assert!((130..350).contains(&steps.len()) && steps[steps.len() - 1][1] == 400, "{steps:?}");
    assert!(steps.windows(2).all(|w| w[0][1] + 1 == w[1][0]), "{steps:?}");
    assert_eq!(
        (curves.len(), curves.layers.names.clone(), curves.layers.at(0, 400.0)),
        (400, layers().names, Some(1.0))
    );
    // Rows of repeated steps are removed, and those before them stay.
    let from = ResumePoint { id: id.clone(), step: 300, ms: 10.0 };
    let mut recorder = Recorder::resume_unseen(&store, &from, record(), compiled()).unwrap();
    make(&mut recorder, 301..=350, 2.0);
    recorder.finish().unwrap();
    let curves = store.curves(&id).unwrap();
    assert_eq!((curves.len(), curves.layers.steps().last().map(|s| s[1]), curves.is_torn), (350, Some(350), false));
    assert_eq!((curves.layers.at(0, 299.0), curves.layers.at(0, 340.0)), (Some(1.0), Some(2.0)));
    assert!(curves.layers.steps().windows(2).all(|w| w[0][1] < w[1][0]));
}

#[test]
fn a_run_whose_program_was_killed_is_interrupted_and_keeps_its_curve() {
    let (_folder, store, mut recorder, id) = begun();
    train(&mut recorder, 1..=50);
    let path = store.path(&id);
    let started = Instant::now();
    // The thread is not asked to write: it does so on its own within a second.
    while store.curves(&id).unwrap().len() < 50 {
        assert!(started.elapsed() < Duration::from_secs(20), "the curve is written in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(store.entry(&id).unwrap().record.state, RunEnd::Running);
    // The state that a killed program leaves: the files as they are now, half a chunk more, and no lock held.
    let copy = store.path("20200101-000000-copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["run.json", "plan.json", "curve.bin", "lock"] {
        std::fs::copy(path.join(name), copy.join(name)).unwrap();
    }
    let mut torn = std::fs::read(copy.join("curve.bin")).unwrap();
    torn.extend_from_slice(&[1, 0, 0, 0, 99, 0]);
    std::fs::write(copy.join("curve.bin"), torn).unwrap();
    let entry = store.entry("20200101-000000-copy").unwrap();
    assert_eq!((entry.record.state, entry.record.steps), (RunEnd::Interrupted, 50));
    assert!(store.curves("20200101-000000-copy").unwrap().is_torn);
    recorder.finish().unwrap();
    assert_eq!(store.entry(&id).unwrap().record.state, RunEnd::Stopped);
}

#[test]
fn a_run_without_steps_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    begin(&store).finish().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn two_runs_started_in_one_second_have_different_ids() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let (mut a, mut b) = (begin(&store), begin(&store));
    assert_ne!(a.id(), b.id());
    train(&mut a, 1..=2);
    train(&mut b, 1..=2);
    a.finish().unwrap();
    b.finish().unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
    let stem = "2"; // Every id of this millennium begins with it.
    assert!(matches!(store.find(stem), Err(RunsError::Ambiguous(..))));
}

#[test]
fn a_million_steps_are_recorded_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let mut recorder = begin(&store);
    let mut slowest = Duration::ZERO;
    for batch in 0..1000u64 {
        let reports: Vec<StepReport> = (batch * 1000 + 1..=batch * 1000 + 1000).map(report).collect();
        let started = Instant::now();
        recorder.steps(&reports);
        slowest = slowest.max(started.elapsed());
    }
    let id = recorder.id().unwrap().to_owned();
    recorder.finish().unwrap();
    assert_eq!(store.curves(&id).unwrap().len(), 1_000_000);
    // Far above the time for passing messages on, far below the time for waiting for the disk.
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
}

#[test]
fn dates_follow_the_calendar() {
    assert_eq!(calendar(0), [1970, 1, 1, 0, 0, 0]);
    assert_eq!(calendar(951_782_400_000), [2000, 2, 29, 0, 0, 0]);
    assert_eq!(calendar(1_735_689_599_000), [2024, 12, 31, 23, 59, 59]);
    assert_eq!(calendar(4_107_542_400_000), [2100, 3, 1, 0, 0, 0]);
    // An id starts with the start time of its run.
    for ms in [0, 951_782_400_000, 1_735_689_599_000, 4_107_542_400_000] {
        let [y, mo, d, h, mi, s] = calendar(ms);
        assert_eq!(started_of(&format!("{y:04}{mo:02}{d:02}-{h:02}{mi:02}{s:02}-xor")), Some(ms));
    }
    for id in ["", "notes", "20261301-000000-a", "20260101-250000-a", "2026010a-000000", "20260101-0000"] {
        assert_eq!(started_of(id), None, "{id}");
    }
}

#[test]
fn a_damaged_run_is_listed_with_what_is_wrong_and_what_can_be_read() {
    let (_folder, store, mut recorder, id) = begun();
    train(&mut recorder, 1..=20);
    recorder.set_state(RunEnd::Finished, None);
    recorder.finish().unwrap();
    std::fs::create_dir_all(store.path("notes")).unwrap();
    let (path, whole) =
        (store.path(&id).join("run.json"), std::fs::read_to_string(store.path(&id).join("run.json")).unwrap());
    // Only its first letters, a field of another type, and an empty file.
    for (text, preset) in [(&whole[..40], false), (&whole.replace("\"seed\": 3", "\"seed\": \"x\""), true), ("", false)]
    {
        std::fs::write(&path, text).unwrap();
        let list = store.list().unwrap();
        assert_eq!((list.len(), list[0].record.state, list[0].record.steps), (1, RunEnd::Damaged, 20));
        assert!(list[0].record.error.as_ref().is_some_and(|e| e.contains("run.json is damaged")), "{list:?}");
        assert_eq!((list[0].name(), list[0].record.read_preset().is_some()), ("digits-mlp", preset));
        assert!(list[0].record.span.started_ms > 0 && store.curves(&id).unwrap().len() == 20);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(store.find(&id).unwrap().record.error.unwrap().contains("does not exist"));
    std::fs::write(&path, &whole).unwrap();
    let curve = store.path(&id).join("curve.bin");
    std::fs::write(&curve, "a letter").unwrap();
    let entry = store.entry(&id).unwrap();
    assert_eq!((entry.record.state, entry.record.steps, entry.can_continue), (RunEnd::Damaged, 20, false));
    assert!(entry.record.error.unwrap().contains("curve.bin is damaged"));
    store.delete(&id).unwrap();
    assert!(store.list().unwrap().is_empty() && store.trash().list().unwrap().len() == 1);
    for odd in ["..", "", "../x", "."] {
        assert!(store.entry(odd).is_err() && store.restore(odd).is_err(), "{odd}");
    }
}

#[test]
fn runs_of_edited_presets_have_distinct_names() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let keep = |change: &dyn Fn(&mut crate::model::Preset)| {
        let mut preset = crate::model::read_preset(crate::model::BUNDLED[0].text).unwrap();
        change(&mut preset);
        let mut record = record();
        record.set_preset(&preset);
        let plan = PlanDigest::default();
        let mut recorder = Recorder::begin(&store, record, &plan, LayerCurves::default()).unwrap();
        train(&mut recorder, 1..=2);
        let id = recorder.id().unwrap().to_owned();
        recorder.finish().unwrap();
        id
    };
    let name = |id: &str| store.find(id).unwrap().name().to_owned();
    let plain = keep(&|p| p.about = "mine".into());
    assert_eq!(name(&plain), "digits-mlp");
    let edited = keep(&|p| p.input.batch = 32);
    assert_eq!((name(&edited), name(&plain)), ("digits-mlp (input.batch 32)".into(), "digits-mlp".into()));
    assert_eq!(store.find("digits-mlp (input.batch 32)").unwrap().id, edited);
    // For a network that is not bundled, the oldest run has the plain name.
    let own = keep(&|p| p.name = "mine".into());
    let other = keep(&|p| (p.name, p.input.batch) = ("mine".into(), 16));
    assert_eq!((name(&own), name(&other)), ("mine".into(), "mine (input.batch 16)".into()));
    store.set_label(&other, &Label { name: Some("small".into()), hidden: false }).unwrap();
    assert_eq!(name(&other), "small");
}

#[test]
fn a_checkpoint_gets_its_final_name_when_the_curve_reaches_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let preset = record().read_preset().unwrap();
    let spec = SessionSpec { threads: 1, ..SessionSpec::new(preset.clone(), ".".into()) };
    let mut session = Session::prepare(&spec).unwrap();
    let mut recorder = begin(&store);
    let id = recorder.id().unwrap().to_owned();
    let step_of = || checkpoint_step(&store.checkpoint(&id)).ok();
    session.steps(5, Duration::from_secs(60), |_| {}).unwrap();
    session.save_checkpoint(&recorder.next_checkpoint().unwrap(), &preset).unwrap();
    train(&mut recorder, 1..=4);
    recorder.take_checkpoint();
    recorder.set_state(RunEnd::Stopped, None);
    while store.record(&id).unwrap().state != RunEnd::Stopped {
        recorder.push_out();
        std::thread::yield_now();
    }
    assert_eq!(step_of(), None, "the curve ends with step 4");
    recorder.set_state(RunEnd::Running, None);
    train(&mut recorder, 5..=5);
    recorder.take_checkpoint();
    let started = Instant::now();
    while step_of().is_none() {
        assert!(started.elapsed() < Duration::from_secs(20));
        recorder.push_out();
        std::thread::yield_now();
    }
    // As a killed program leaves it now: nothing follows the checkpoint.
    assert_eq!((step_of(), store.curves(&id).unwrap().last_step(), store.record(&id).unwrap().steps), (Some(5), 5, 5));
    recorder.finish().unwrap();
}

#[test]
fn a_run_continues_only_from_its_own_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path());
    let preset = record().read_preset().unwrap();
    let trained = |seed: u64, steps: u64| {
        let spec = SessionSpec {
            threads: 1,
            overrides: Overrides::seed(seed),
            ..SessionSpec::new(preset.clone(), ".".into())
        };
        let (mut session, mut reports) = (Session::prepare(&spec).unwrap(), Vec::new());
        session.steps(steps, Duration::from_secs(60), |report| reports.push(*report)).unwrap();
        (session, reports)
    };
    let (session, reports) = trained(3, 5);
    let mut recorder = begin(&store);
    let id = recorder.id().unwrap().to_owned();
    assert!(missing_checkpoint(&store.checkpoint(&id)).unwrap().contains("has no checkpoint"));
    recorder.set_running(true);
    recorder.steps(&reports);
    session.save_checkpoint(&recorder.next_checkpoint().unwrap(), &preset).unwrap();
    recorder.take_checkpoint();
    recorder.finish().unwrap();
    assert_eq!(missing_checkpoint(&store.checkpoint(&id)), None);
    assert_eq!(missing_checkpoint(&folder.path().join("none.ckpt")), None);
    let (point, curves) = store.resume_point(&id).unwrap();
    assert_eq!((point.step, curves.last_step()), (5, 5));
    // For another run's checkpoint in its place, the curve would be cut.
    trained(4, 4).0.save_checkpoint(&store.checkpoint(&id), &preset).unwrap();
    let message = store.resume_point(&id).unwrap_err().to_string();
    assert!(message.contains("is not a checkpoint of this run: its loss at step 4 is "), "{message}");
    assert_eq!(store.curves(&id).unwrap().last_step(), 5);
}

#[test]
fn a_run_whose_samples_were_trained_on_before_has_no_held_out_metric() {
    let mut curves = Curves::default();
    curves.append(&[report(1)], 0.0, 1.0);
    curves.evaluations.push(EvaluationPoint { step: 1, ms: 1.0, loss: 0.5, accuracy: 0.75 });
    let mut record = record();
    record.sum_up(&curves);
    assert_eq!((record.held_out_loss, record.maybe_trained_loss), (Some(0.5), None));
    record.maybe_trained = true;
    record.sum_up(&curves);
    assert_eq!((record.held_out_loss, record.held_out_accuracy), (None, None));
    assert_eq!((record.maybe_trained_loss, record.maybe_trained_accuracy), (Some(0.5), Some(0.75)));
}
