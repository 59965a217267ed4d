//! Kept runs in the window: trained, listed, compared, exported, deleted, replayed.

use crate::robot::{Memory, Robot, open_runs as open};
use egui::accesskit::Role;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use stepgraph::studio::commands::{Request, RunsCommand, Tab, UiCommand};
use stepgraph::studio::{Startup, StudioApp};
use stepgraph::train::RunState;
use stepgraph::train::runs::{RunEnd, RunStore};

fn perform(robot: &mut Robot, command: RunsCommand) {
    crate::robot::perform(robot, UiCommand::Runs(command));
}

fn request(robot: &mut Robot, request: Request) {
    robot.choose(request);
    robot.window.run_steps(3);
}

fn show(robot: &mut Robot, tab: Tab) {
    robot.choose(UiCommand::ShowTab(tab));
    robot.window.run_steps(2);
}

fn train(robot: &mut Robot, steps: &str) {
    robot.set("steps", steps);
    let before = robot.app().studio.runs.entries.len();
    robot.choose(UiCommand::Reset);
    robot.window.run_steps(2);
    robot.choose(UiCommand::Train);
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    robot.until("its weights", |app| app.studio.training.writer.has_kept(app.studio.training.done()));
    robot.until("the run in the list", |app| {
        let runs = &app.studio.runs.entries;
        runs.len() == before + 1 && runs.iter().all(|e| e.record.state == RunEnd::Finished && e.has_weights)
    });
}

/// A window that made runs of these lengths, and has reset the last one.
fn with_runs(folder: &std::path::Path, steps: &[&str]) -> Robot {
    let mut robot = open(folder);
    steps.iter().for_each(|steps| train(&mut robot, steps));
    robot.choose(UiCommand::Reset);
    robot
}

/// A window whose run has finished, and the id of the run.
fn finished(folder: &std::path::Path, steps: &str) -> (Robot, String) {
    let mut robot = open(folder);
    train(&mut robot, steps);
    let id = ids(robot.app())[0].clone();
    (robot, id)
}

fn ids(app: &StudioApp) -> Vec<String> {
    app.studio.runs.entries.iter().map(|e| e.id.clone()).collect()
}

#[test]
fn a_window_without_runs_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    show(&mut robot, Tab::Runs);
    assert!(robot.sees("No runs yet") && robot.sees("Press Train"));
}

#[test]
fn a_window_that_can_keep_no_runs_says_why() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("letter"), "a letter").unwrap();
    let mut places = vec![folder.path().join("letter"), folder.path().join("letter/runs")];
    // No user can create folders there.
    places.extend(cfg!(target_os = "linux").then(|| "/proc/runs".into()));
    for place in places {
        let mut robot = Robot::start(Startup { runs: Some(RunStore::at(&place)), ..Startup::default() });
        show(&mut robot, Tab::Runs);
        robot.until("the reason", |app| app.studio.runs.problem.is_some());
        robot.window.run_steps(2);
        assert!(robot.sees("No run can be kept") && robot.sees("STEPGRAPH_RUNS"), "{}", place.display());
        assert!(robot.sees(&place.display().to_string()) && !robot.sees("Press Train"));
    }
}

#[test]
fn a_run_that_is_paused_is_listed_as_paused() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    robot.train_beyond(5);
    show(&mut robot, Tab::Runs);
    robot.until("the run", |app| app.studio.runs.entries.len() == 1);
    robot.window.run_steps(2);
    assert!(robot.sees("  running"));
    show(&mut robot, Tab::Train);
    robot.press("Pause");
    robot.until("the pause", |app| app.studio.training.state == Some(RunState::Paused));
    show(&mut robot, Tab::Runs);
    assert!(robot.sees("  paused") && !robot.sees("  running"));
}

#[test]
fn runs_are_kept_compared_named_and_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    train(&mut robot, "40");
    // A kept run is not lost: no question about weights appears.
    assert!(!robot.app().studio.training.has_unsaved_weights());
    robot.set("L0 units", "32");
    train(&mut robot, "25");
    show(&mut robot, Tab::Runs);
    let newest = ids(robot.app())[0].clone();
    // An edited network has a distinct name.
    robot.press("Run digits-mlp (layers[0].units 32)");
    robot.window.run_steps(3);
    robot.until("the curves", |app| app.studio.runs.loaded.contains_key(&newest));
    assert_eq!(robot.app().studio.runs.loaded[&newest].curves.loss.raw.len(), 25);
    robot.write("Run name", "narrow");
    robot.keys(&[egui::Key::Enter]);
    robot.until("the name", |app| app.studio.runs.entries.iter().any(|e| e.name() == "narrow"));
    let other = ids(robot.app())[1].clone();
    // A click anywhere in a row selects its run.
    robot.window.get_all_by_label("40").next().expect("a cell").click();
    robot.window.run_steps(3);
    assert_eq!(robot.app().studio.runs.selected, std::slice::from_ref(&other));
    perform(&mut robot, RunsCommand::Select(newest.clone()));
    robot.window.get_by_role_and_label(Role::CheckBox, "Compare digits-mlp").click();
    robot.window.run_steps(3);
    robot.until("both curves", |app| app.studio.runs.loaded.len() == 2);
    assert_eq!(robot.app().studio.runs.letter(&other), Some('B'));
    let found: Vec<String> = robot.app().studio.runs.differences.iter().map(|d| d.field.clone()).collect();
    assert_eq!(found, ["layers[0].units", "train.steps"]);
    assert!(robot.sees("Differences of the presets") && robot.sees("Loss of the selected runs"));
    assert!(robot.sees("Update by layer of the selected runs"));
    robot.window.get_by_role_and_label(Role::ComboBox, "Layer to compare");
    let place = |robot: &Robot| {
        let found = robot.window.query_all_by_role_and_label(Role::Button, "Delete run…").next();
        found.map(|button| button.rect())
    };
    let before = place(&robot);
    robot.press("Pin run as baseline");
    robot.window.run_steps(2);
    // The button that replaces it has the same width.
    assert!(before.is_some() && place(&robot) == before && robot.sees("Unpin the baseline"));
    show(&mut robot, Tab::Train);
    assert!(robot.sees("baseline narrow"));
    perform(&mut robot, RunsCommand::Unpin);
    assert!(!robot.sees("baseline narrow"));
}

#[test]
fn a_run_of_another_program_appears_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    show(&mut robot, Tab::Runs);
    assert!(robot.sees("No runs yet"));
    let mut other = open(folder.path());
    train(&mut other, "10");
    robot.until("the run of the other window", |app| app.studio.runs.entries.len() == 1);
    // A list that was read while another tab was shown is read again when the table is shown.
    show(&mut robot, Tab::Arena);
    train(&mut other, "12");
    assert_eq!(robot.app().studio.runs.entries.len(), 1);
    show(&mut robot, Tab::Runs);
    robot.until("both runs", |app| app.studio.runs.entries.len() == 2);
}

#[test]
fn a_run_is_hidden_deleted_after_a_question_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = with_runs(folder.path(), &["10"]);
    show(&mut robot, Tab::Runs);
    let id = ids(robot.app())[0].clone();
    perform(&mut robot, RunsCommand::Select(id.clone()));
    robot.press("Hide run");
    robot.until("the hidden run", |app| app.studio.runs.view.hidden == 1);
    assert!(robot.sees("Every run is hidden"));
    perform(&mut robot, RunsCommand::ShowHidden);
    perform(&mut robot, RunsCommand::Select(id.clone()));
    // The recorder releases the run shortly after the reset.
    let store = RunStore::at(folder.path().join("runs"));
    robot.until("the recorder's end", |_| !store.is_busy(&id));
    perform(&mut robot, RunsCommand::Delete);
    assert!(robot.sees("Delete digits-mlp?"));
    robot.press("Cancel");
    assert_eq!(ids(robot.app()).len(), 1);
    perform(&mut robot, RunsCommand::Delete);
    robot.press("Delete");
    robot.until("the deletion", |app| app.studio.runs.entries.is_empty());
    robot.press("Bring back deleted runs");
    robot.until("the run", |app| app.studio.runs.entries.len() == 1);
}

#[test]
fn the_trash_lists_deleted_runs_and_can_restore_or_delete_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = with_runs(folder.path(), &["10", "12"]);
    let (store, all) = (RunStore::at(folder.path().join("runs")), ids(robot.app()));
    robot.until("the recorder's end", |_| all.iter().all(|id| !store.is_busy(id)));
    perform(&mut robot, RunsCommand::ShowTrash);
    robot.until("the trash", |app| app.studio.runs.trash.runs.is_some());
    assert!(robot.sees("The trash is empty"));
    request(&mut robot, Request::DeleteRuns(all.clone()));
    let count = |app: &StudioApp| app.studio.runs.trash.runs.as_ref().map_or(0, |t| t.rows.len());
    robot.until("both in the trash", |app| count(app) == 2 && app.studio.runs.entries.is_empty());
    robot.window.get_all_by_label("Restore digits-mlp").next().expect("a way back").click();
    robot.until("one of them back", |app| count(app) == 1 && app.studio.runs.entries.len() == 1);
    let [back, gone] = if ids(robot.app())[0] == all[0] { [&all[0], &all[1]] } else { [&all[1], &all[0]] };
    robot.press("Delete permanently… digits-mlp");
    robot.window.run_steps(2);
    // Enter chooses the answer that destroys nothing.
    assert!(robot.sees("Delete digits-mlp permanently?"));
    robot.keys(&[egui::Key::Enter]);
    robot.window.run_steps(2);
    assert!(!robot.sees("Delete digits-mlp permanently?"));
    assert!(store.trash().path(gone).is_dir());
    robot.press("Empty the trash…");
    robot.window.run_steps(2);
    robot.press("Delete permanently");
    robot.until("the empty trash", |app| count(app) == 0);
    assert!(!store.trash().path(gone).exists() && store.path(back).is_dir());
    // The undo of the deletion has nothing left to restore.
    robot.press("Trash");
    robot.until("the runs", |app| !app.studio.runs.trash.is_shown);
    assert!(robot.sees("Run digits-mlp"));
}

#[test]
fn a_run_is_exported_and_its_network_opened() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    robot.write("L0 units", "48");
    train(&mut robot, "12");
    let id = ids(robot.app())[0].clone();
    perform(&mut robot, RunsCommand::Select(id));
    use stepgraph::train::export::Format;
    for (format, name) in [(Format::Csv, "a.csv"), (Format::Onnx, "a.onnx"), (Format::Svg, "a")] {
        let path = folder.path().join(name);
        request(&mut robot, Request::ExportRuns { format, path: path.clone(), replace: false });
        let written = path.with_extension(format.extension());
        robot.until("the file", |_| written.exists());
    }
    let rows = std::fs::read_to_string(folder.path().join("a.csv")).unwrap().lines().count();
    assert_eq!(rows, 13);
    // For an existing file a question appears.
    std::fs::write(folder.path().join("a.csv"), "a letter").unwrap();
    request(&mut robot, Request::ExportRuns { format: Format::Csv, path: folder.path().join("a.csv"), replace: false });
    let started = std::time::Instant::now();
    while !robot.sees("a.csv exists. Replace it?") {
        assert!(started.elapsed().as_secs() < 60);
        robot.window.step();
    }
    robot.press("Cancel");
    assert_eq!(std::fs::read_to_string(folder.path().join("a.csv")).unwrap(), "a letter");
    perform(&mut robot, RunsCommand::OpenPreset);
    assert!(robot.sees("Save the changes to digits-mlp?"));
    robot.press("Discard changes");
    robot.settle();
    assert_eq!(robot.value("L0 units"), "48");
}

/// A window that makes a capsule of this many steps, and its path.
fn making_a_capsule(folder: &Path, steps: &str) -> (Robot, PathBuf) {
    let path = folder.join("net.capsule");
    let mut robot = open(folder);
    robot.set("steps", steps);
    request(&mut robot, Request::MakeCapsule { path: path.clone(), replace: false });
    (robot, path)
}

#[test]
fn a_capsule_is_made_and_replayed_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (mut robot, path) = making_a_capsule(folder.path(), "15");
    robot.until("the capsule", |_| path.exists());
    robot.until("the end of the making", |app| app.studio.runs.service.as_ref().is_some_and(|d| !d.is_busy()));
    request(&mut robot, Request::ReplayCapsule(path));
    robot.until("the report", |app| app.studio.runs.replayed.is_some());
    assert!(robot.app().studio.runs.replayed.as_ref().unwrap().1.bits.is_bit_equal);
    show(&mut robot, Tab::Runs);
    assert!(robot.sees("bit-equal over 15 steps") && robot.sees("Replay of net.capsule"));
    std::fs::write(folder.path().join("letter"), "x").unwrap();
    request(&mut robot, Request::ReplayCapsule(folder.path().join("letter")));
    robot.until("the refusal", |app| app.studio.notice.as_ref().is_some_and(|n| n.is_error));
    assert!(robot.app().studio.notice.as_ref().unwrap().text.contains("was not replayed"));
}

#[test]
fn a_capsule_that_is_cancelled_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (mut robot, path) = making_a_capsule(folder.path(), "100000000");
    let capsule =
        |app: &StudioApp| app.studio.runs.service.as_ref().map(|d| (d.is_busy(), d.progress.load(Ordering::Relaxed)));
    robot.until("some steps", |app| capsule(app).is_some_and(|(_, steps)| steps > 5));
    perform(&mut robot, RunsCommand::CancelCapsule);
    robot.until("the end of the making", |app| capsule(app).is_some_and(|(is_busy, _)| !is_busy));
    robot.until("the notice", |app| app.studio.notice.is_some());
    let notice = robot.app().studio.notice.as_ref().unwrap();
    assert!(!notice.is_error && notice.text.contains("No capsule was written to"), "{}", notice.text);
    assert!(!path.exists());
    // The next one is made as if there had been none before.
    robot.set("steps", "15");
    request(&mut robot, Request::MakeCapsule { path: path.clone(), replace: false });
    robot.until("the capsule", |_| path.exists());
}

#[test]
fn a_run_that_is_discarded_keeps_its_weights_and_its_curve() {
    let folder = tempfile::tempdir().unwrap();
    let store = RunStore::at(folder.path().join("runs"));
    let mut robot = open(folder.path());
    robot.train_beyond(50);
    // The window closes while the run continues.
    drop(robot);
    let entry = store.find("last").unwrap();
    assert_eq!(entry.record.state, RunEnd::Stopped);
    assert!(entry.has_weights, "{entry:?}");
    assert!(entry.record.steps > 50 && !store.is_busy(&entry.id));
    assert_eq!(store.curves(&entry.id).unwrap().last_step(), entry.record.steps);
}

#[test]
fn a_run_that_another_network_replaces_is_reported_as_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (mut robot, id) = finished(folder.path(), "20");
    robot.choose(UiCommand::NewFromPreset(1));
    robot.window.run_steps(2);
    robot.press("Discard changes");
    robot.settle();
    assert!(robot.app().studio.training.state.is_none() && robot.sees("The run digits-mlp is kept."));
    // Its curves are behind those of the next run, if that is wanted.
    robot.press("Pin run as baseline");
    assert_eq!(robot.app().studio.runs.baseline.id.as_ref(), Some(&id));
    robot.choose(UiCommand::Train);
    robot.until("some steps", |app| app.studio.training.done() > 10);
    assert!(robot.sees("baseline digits-mlp"));
    robot.until("its place", |app| app.studio.training.writer.id().is_some());
    robot.choose(UiCommand::New);
    robot.until("the notice", |app| app.studio.notice.as_ref().is_some_and(|n| n.actions.len() == 2));
    assert!(robot.sees("was stopped at step") && robot.sees("the run is kept."));
    assert!(matches!(
        robot.app().studio.notice.as_ref().unwrap().actions[1],
        UiCommand::Runs(RunsCommand::ContinueRun(_))
    ));
    // The number of mistakes comes before the notice, and moves it.
    robot.settle();
    robot.window.run_steps(2);
    robot.press("Show in Runs");
    robot.until("the table", |app| app.studio.shown.contains(&Tab::Runs));
    assert!(robot.app().studio.runs.selected.len() == 1 && robot.app().studio.runs.selected[0] != id);
    // Without a run there is nothing to report.
    robot.choose(UiCommand::New);
    robot.until("no notice", |app| app.studio.notice.is_none());
}

#[test]
fn the_run_on_the_train_tab_is_deleted_once_it_is_stopped_and_restored_with_its_pin() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    robot.train(100_000_000);
    robot.until("a checkpoint", |app| app.studio.runs.entries.iter().any(|e| e.can_continue));
    let id = ids(robot.app())[0].clone();
    perform(&mut robot, RunsCommand::Select(id.clone()));
    show(&mut robot, Tab::Runs);
    // While it is trained, the button says why it is disabled, and so does the key.
    let delete = |robot: &Robot| {
        let button = robot.window.query_all_by_role_and_label(Role::Button, "Delete run…").next().expect("a button");
        (button.accesskit_node().is_disabled(), button.rect().center())
    };
    let (disabled, at) = delete(&robot);
    assert!(disabled);
    robot.window.event(egui::Event::PointerMoved(at));
    robot.window.run_steps(60);
    assert!(robot.sees("is being trained. Stop it on the Train tab, then delete it."));
    robot.press("Run digits-mlp");
    robot.keys(&[egui::Key::Delete]);
    assert!(robot.app().studio.notice.as_ref().is_some_and(|n| n.is_error && n.text.contains("is being trained")));
    robot.press("Pin run as baseline");
    robot.press("Stop");
    robot.until("the stop", |app| app.studio.training.is_stopped());
    robot.window.run_steps(3);
    // The question says what happens to the tab.
    robot.press("Run digits-mlp");
    robot.keys(&[egui::Key::Delete]);
    robot.window.run_steps(2);
    assert!(robot.sees("Delete digits-mlp?") && robot.sees("The Train tab, which shows this run, is reset."));
    robot.press("Delete");
    robot.until("the deletion", |app| app.studio.runs.entries.is_empty());
    let studio = &robot.app().studio;
    assert!(studio.training.state.is_none() && studio.runs.baseline.id.is_none());
    assert!(RunStore::at(folder.path().join("runs")).trash().path(&id).is_dir());
    robot.press("Bring back deleted runs");
    robot.until("the baseline", |app| app.studio.runs.baseline.run.is_some());
    assert_eq!(robot.app().studio.runs.baseline.id.as_ref(), Some(&id));
    assert!(robot.app().studio.runs.entries[0].can_continue);
}

#[test]
fn the_table_of_runs_is_navigated_and_runs_are_deleted_by_keyboard() {
    use egui::Key;
    let folder = tempfile::tempdir().unwrap();
    let mut robot = open(folder.path());
    for steps in ["10", "12", "14"] {
        train(&mut robot, steps);
    }
    let layers = robot.app().studio.document.preset().layers.len();
    robot.press("Select L1:Dropout");
    show(&mut robot, Tab::Runs);
    robot.window.get_by_role_and_label(Role::Table, "Kept runs, 3 rows").focus();
    robot.window.run_steps(2);
    let newest = ids(robot.app());
    for index in [0, 1, 2, 2] {
        robot.keys(&[Key::ArrowDown]);
        assert_eq!(robot.app().studio.runs.selected, std::slice::from_ref(&newest[index]));
    }
    for left in [2, 1] {
        robot.keys(&[Key::Delete]);
        robot.window.run_steps(2);
        assert!(robot.sees("Delete digits-mlp?"));
        // Enter confirms; the focus is back on the table, and on the run that takes the deleted one's place.
        robot.keys(&[Key::Enter]);
        robot.until("the deletion", |app| app.studio.runs.entries.len() == left);
        robot.until("the neighbour", |app| app.studio.runs.selected == [newest[left - 1].clone()]);
    }
    // A click on a check box in the table moves the focus there, too.
    robot.press("Undo");
    robot.window.get_by_role_and_label(Role::CheckBox, "Compare digits-mlp").click();
    robot.window.run_steps(3);
    robot.keys(&[Key::Delete]);
    assert_eq!(robot.app().studio.document.preset().layers.len(), layers);
    assert!(robot.app().studio.runs.selected.is_empty() && robot.app().studio.runs.entries.len() == 1);
}

#[test]
fn a_pinned_baseline_is_remembered_at_once_and_a_loss_is_one_number() {
    let folder = tempfile::tempdir().unwrap();
    let (mut robot, id) = finished(folder.path(), "40");
    // The Train tab shows the same loss as the table of runs.
    let loss = robot.app().studio.runs.entries[0].record.loss.expect("a loss");
    assert!(robot.sees(&stepgraph::studio::view_models::format::number(loss)), "{loss}");
    let stats = robot.app().studio.training.rates.statistics;
    assert_eq!(f64::from(stats.p99_us), robot.app().studio.training.rates.times.p99_us);
    let mut memory = Memory::default();
    let pinned = |memory: &Memory| {
        let settings: Option<stepgraph::studio::shell::settings::Settings> = eframe::get_value(memory, eframe::APP_KEY);
        settings.map(|s| s.baseline)
    };
    robot.window.state_mut().remember(Some(&mut memory));
    assert_eq!(pinned(&memory), Some(None));
    perform(&mut robot, RunsCommand::PinRun(id.clone()));
    robot.window.state_mut().remember(Some(&mut memory));
    assert_eq!(pinned(&memory), Some(Some(id)));
    // Unchanged data are not written again.
    let mut other = Memory::default();
    robot.window.state_mut().remember(Some(&mut other));
    assert_eq!(pinned(&other), None);
}
