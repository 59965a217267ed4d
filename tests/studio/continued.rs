//! Kept runs that continue: after a stop, after a restart, after the program was killed.

use crate::robot::{Memory, Robot, open_runs as open, perform};
use std::path::Path;
use std::time::{Duration, Instant};
use stepgraph::studio::Startup;
use stepgraph::studio::commands::RunsCommand;
use stepgraph::studio::commands::{Tab, UiCommand};
use stepgraph::train::RunState;
use stepgraph::train::runs::{Quantity, RunEnd, RunStore};

/// Selects the only run.
fn select(robot: &mut Robot) -> String {
    robot.until("the run", |app| app.studio.runs.entries.len() == 1);
    let id = robot.app().studio.runs.entries[0].id.clone();
    perform(robot, UiCommand::ShowTab(Tab::Runs));
    perform(robot, UiCommand::Runs(RunsCommand::Select(id.clone())));
    id
}

/// Trains for some time, stops, and closes the window.
fn train_a_while(folder: &Path) -> u64 {
    let mut robot = open(folder);
    robot.train_beyond(50);
    robot.press("Halve the learning rate");
    let now = robot.app().studio.training.done();
    robot.until("steps with that", |app| app.studio.training.done() > now + 50);
    robot.press("Stop");
    robot.until("the stop", |app| app.studio.training.state == Some(RunState::Stopped));
    robot.until("its checkpoint", |app| app.studio.training.writer.has_kept(app.studio.training.done()));
    robot.app().studio.training.done()
}

#[test]
fn a_stopped_run_continues_in_the_same_curves_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let done = train_a_while(folder.path());
    let store = RunStore::at(folder.path().join("runs"));
    let before = store.find("last").unwrap();
    assert_eq!((before.record.state, before.record.steps, before.can_continue), (RunEnd::Stopped, done, true));
    let first = store.curves(&before.id).unwrap();
    let mut robot = open(folder.path());
    let id = select(&mut robot);
    robot.press("Continue the selected run");
    robot.until("more steps", |app| app.studio.training.done() > done + 20);
    assert!(robot.app().studio.notice.as_ref().is_some_and(|n| n.text.contains("continues from step")));
    // The changes of each layer continue where they were, too.
    robot.until("changes by layer", |app| {
        app.studio.training.history.layers.steps().last().is_some_and(|s| s[1] > done)
    });
    let layers = &robot.app().studio.training.history.layers;
    assert_eq!((layers.first_step(), &layers.names), (Some(1), &first.layers.names));
    assert!(!robot.sees("those before it were not kept"));
    let training = &robot.app().studio.training;
    assert_eq!((training.writer.id(), training.total > done), (Some(id.as_str()), true));
    assert_eq!(&training.history.curves.loss.raw.values()[..done as usize], first.values(Quantity::Loss));
    // The learning rate is that of the run, and not the preset's.
    assert_eq!(Some(&training.lr), first.values(Quantity::Lr).last());
    drop(robot);
    let after = store.entry(&id).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    assert!(after.record.steps > done + 20 && after.record.span.started_ms == before.record.span.started_ms);
    let curves = store.curves(&id).unwrap();
    assert_eq!((curves.before, curves.last_step()), (0, after.record.steps));
    assert!(curves.values(Quantity::Loss).iter().all(|v| v.is_finite()) && !curves.is_torn);
    let steps = curves.layers.steps();
    assert!(steps[0][0] == 1 && steps[steps.len() - 1][1] == curves.last_step(), "{steps:?}");
    assert!(steps.windows(2).all(|w| w[0][1] + 1 == w[1][0]), "{steps:?}");
    assert!((1..curves.len()).all(|i| curves.ms(i) >= curves.ms(i - 1)));
    assert_eq!(stepgraph::train::checkpoint_step(&store.checkpoint(&id)).unwrap(), after.record.steps);
}

#[test]
fn a_run_whose_program_was_killed_continues_from_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path().join("runs"));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_stepgraph"))
        .args(["train", "digits-mlp", "--steps", "1000000000", "--keep"])
        .envs([("STEPGRAPH_NO_TUNING", "1"), ("STEPGRAPH_NO_CUDA", "1")])
        .env("STEPGRAPH_RUNS", store.folder())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !store.list().unwrap().first().is_some_and(|e| e.can_continue) {
        assert!(started.elapsed() < Duration::from_secs(60), "a checkpoint is kept while the run lasts");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The window shows a notice at its start, and does not repeat it to a user who ignores it.
    let memory: &'static mut Memory = Box::leak(Box::default());
    let mut robot = open(folder.path());
    robot.until("the notice", |app| app.studio.notice.is_some());
    assert!(robot.sees("digits-mlp was interrupted at step"));
    // Both steps are shown: the last one, and the one from which it continues.
    let entry = robot.app().studio.runs.entries[0].clone();
    let from = stepgraph::train::checkpoint_step(&store.checkpoint(&entry.id)).unwrap();
    let exact = stepgraph::studio::view_models::format::exact;
    let way = if from < entry.record.steps {
        format!(
            "at step {}; it can continue from step {}, its last checkpoint.",
            exact(entry.record.steps),
            exact(from)
        )
    } else {
        format!("at step {}; it can continue from its last checkpoint", exact(from))
    };
    assert!(robot.sees(&way), "{way}: {:?}", robot.app().studio.notice);
    perform(&mut robot, UiCommand::DismissNotice);
    eframe::App::save(robot.window.state_mut(), memory);
    drop(robot);
    let startup = Startup { runs: Some(RunStore::at(folder.path().join("runs"))), ..Startup::default() };
    let mut robot = Robot::start_with(startup, Some(&*memory));
    robot.until("the list", |app| app.studio.runs.is_known);
    assert!(robot.app().studio.notice.is_none());
    drop(robot);
    // The run's own network replaces another one that is open.
    let mut robot = open(folder.path());
    robot.until("the notice", |app| app.studio.notice.is_some());
    perform(&mut robot, UiCommand::NewFromPreset(1));
    robot.settle();
    assert_eq!(robot.app().studio.runs.entries[0].record.state, RunEnd::Interrupted);
    let id = robot.app().studio.runs.entries[0].id.clone();
    let step = stepgraph::train::checkpoint_step(&store.checkpoint(&id)).unwrap();
    robot.press("Continue");
    robot.until("more steps", |app| app.studio.training.done() > step + 20);
    drop(robot);
    let (entry, curves) = (store.entry(&id).unwrap(), store.curves(&id).unwrap());
    assert_eq!((entry.record.state, curves.last_step()), (RunEnd::Stopped, entry.record.steps));
    assert!(!curves.is_torn && curves.before == 0);
}

#[test]
fn a_run_that_was_deleted_meanwhile_is_no_longer_offered() {
    let folder = tempfile::tempdir().unwrap();
    train_a_while(folder.path());
    let store = RunStore::at(folder.path().join("runs"));
    let id = store.find("last").unwrap().id;
    // The state that a killed program leaves.
    let cut_off = || {
        let record = store.path(&id).join("run.json");
        let text = std::fs::read_to_string(&record).unwrap();
        std::fs::write(&record, text.replace("\"stopped\"", "\"running\"")).unwrap();
    };
    cut_off();
    let mut robot = open(folder.path());
    robot.until("the notice", |app| app.studio.notice.is_some());
    assert!(robot.sees("was interrupted at step"));
    store.delete(&id).unwrap();
    robot.press("Continue");
    robot.until("what became of it", |app| app.studio.notice.as_ref().is_some_and(|n| n.text.contains("deleted")));
    assert!(robot.app().studio.notice.as_ref().is_some_and(|n| n.actions.is_empty()) && !robot.sees("interrupted"));
    robot.until("the list", |app| app.studio.runs.entries.is_empty());
    assert!(robot.app().studio.training.state.is_none());
    drop(robot);
    // A list without it removes the offer before anyone presses it.
    store.restore(&id).unwrap();
    let mut robot = open(folder.path());
    robot.until("the notice", |app| app.studio.notice.is_some());
    store.delete(&id).unwrap();
    perform(&mut robot, UiCommand::ShowTab(Tab::Runs));
    robot.until("that it is gone", |app| {
        app.studio
            .notice
            .as_ref()
            .is_some_and(|n| n.text.ends_with("was deleted and cannot be continued.") && n.actions.is_empty())
    });
}

/// A window in which a run was selected and requested to continue while a field of the document differs from the run's;
/// with the number of the run's steps, and its id.
fn continued_with(folder: &Path, field: &str, text: &str) -> (Robot, u64, String) {
    let done = train_a_while(folder);
    let mut robot = open(folder);
    robot.set(field, text);
    let id = select(&mut robot);
    robot.press("Continue the selected run");
    (robot, done, id)
}

#[test]
fn a_run_of_another_network_than_the_open_one_asks_first() {
    let folder = tempfile::tempdir().unwrap();
    let (mut robot, done, id) = continued_with(folder.path(), "L0 units", "32");
    robot.window.run_steps(2);
    assert!(robot.sees("Open the network of digits-mlp to continue it?") && robot.sees("layers[0].units 32"));
    robot.press("Cancel");
    assert!(robot.app().studio.training.state.is_none());
    for button in ["Continue the selected run", "Open and continue", "Discard changes"] {
        robot.press(button);
        robot.window.run_steps(2);
    }
    robot.until("more steps", |app| app.studio.training.done() > done + 5);
    assert_eq!((robot.value("L0 units"), robot.app().studio.training.writer.id()), ("128".into(), Some(id.as_str())));
    // Another notice does not replace it.
    perform(&mut robot, UiCommand::Runs(RunsCommand::Continue));
    assert_eq!(robot.app().studio.runs.entries.len(), 1);
}

#[test]
fn a_changed_learning_rate_is_applied_and_reported_when_a_run_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (mut robot, done, id) = continued_with(folder.path(), "learning rate", "0.0625");
    robot.until("more steps", |app| app.studio.training.done() > done + 20);
    let training = &robot.app().studio.training;
    assert_eq!((training.writer.id(), training.lr), (Some(id.as_str()), 0.0625));
    let message = robot.app().studio.notice.as_ref().unwrap().text.clone();
    assert!(
        message.contains("continues from step") && message.contains("optimizer.lr: the checkpoint has "),
        "{message}"
    );
    assert!(message.contains("continues with 0.0625"), "{message}");
    drop(robot);
    let store = RunStore::at(folder.path().join("runs"));
    assert_eq!(store.curves(&id).unwrap().values(Quantity::Lr).last(), Some(&0.0625));
    assert!(store.entry(&id).unwrap().record.preset.contains("0.0625"));
}

#[test]
fn a_stopped_run_continues_from_the_train_tab() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    robot.train_beyond(20);
    robot.press("Stop");
    robot.until("the stop", |app| app.studio.training.state == Some(RunState::Stopped));
    let done = robot.app().studio.training.done();
    robot.set("L0 units", "32");
    robot.press("Continue");
    assert!(
        robot.app().studio.notice.as_ref().is_some_and(|n| n.text.contains("the network and the device that it began"))
    );
    robot.until("more steps", |app| app.studio.training.done() > done + 20);
    drop(robot);
    let store = RunStore::at(folder.path().join("runs"));
    let entry = store.find("last").unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    assert!(entry.record.steps > done + 20 && entry.record.preset.contains("128"));
}

#[test]
fn the_baseline_is_remembered_through_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    train_a_while(folder.path());
    let mut robot = open(folder.path());
    let id = select(&mut robot);
    robot.press("Pin run as baseline");
    let memory: &'static mut Memory = Box::leak(Box::default());
    eframe::App::save(robot.window.state_mut(), memory);
    drop(robot);
    let memory: &'static Memory = memory;
    let startup = Startup { runs: Some(RunStore::at(folder.path().join("runs"))), ..Startup::default() };
    let mut robot = Robot::start_with(startup.clone(), Some(memory));
    robot.until("the baseline", |app| app.studio.runs.baseline.run.is_some());
    assert_eq!(robot.app().studio.runs.baseline.id.as_deref(), Some(id.as_str()));
    drop(robot);
    // A run that does not exist any more is forgotten without a message, until it is restored.
    let store = RunStore::at(folder.path().join("runs"));
    store.delete(&id).unwrap();
    let mut robot = Robot::start_with(startup, Some(memory));
    robot.until("the list", |app| app.studio.runs.baseline.id.is_none());
    assert!(robot.app().studio.notice.is_none());
    perform(&mut robot, UiCommand::ShowTab(Tab::Runs));
    store.restore(&id).unwrap();
    robot.until("the baseline", |app| app.studio.runs.baseline.run.is_some());
}

#[test]
fn a_run_that_another_network_replaced_continues_from_its_notice() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    perform(&mut robot, UiCommand::NewFromPreset(stepgraph::studio::document::presets::index("spirals").unwrap()));
    robot.settle();
    robot.train(100_000_000);
    robot.until("some steps", |app| app.studio.training.done() > 50 && app.studio.training.writer.id().is_some());
    let id = robot.app().studio.training.writer.id().unwrap().to_owned();
    perform(&mut robot, UiCommand::NewFromPreset(stepgraph::studio::document::presets::index("digits-mlp").unwrap()));
    robot.press("Discard changes");
    robot.settle();
    assert!(robot.sees("Training of spirals was stopped at step") && robot.sees("the run is kept."));
    let done = {
        let store = RunStore::at(folder.path().join("runs"));
        robot.until("the recorder's end", |_| !store.is_busy(&id));
        store.entry(&id).unwrap().record.steps
    };
    robot.press("Continue");
    robot.until("more steps", |app| app.studio.training.done() > done + 20);
    let studio = &robot.app().studio;
    assert_eq!((studio.document.preset().name.as_str(), studio.training.writer.id()), ("spirals", Some(id.as_str())));
    // Nothing of it is lost: it continues from its last step.
    assert!(studio.training.history.curves.loss.raw.len() as u64 > done + 20);
    drop(robot);
    let store = RunStore::at(folder.path().join("runs"));
    assert_eq!(store.list().unwrap().len(), 1);
    let curves = store.curves(&id).unwrap();
    assert!(!curves.is_torn && curves.last_step() > done + 20 && curves.before == 0);
}
