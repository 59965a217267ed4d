//! Saving, opening, closing, and recovery after a crash.

use crate::robot::{Memory, Robot, asking_to_save, perform, refusing};
use egui::{Key, Modifiers};
use std::path::{Path, PathBuf};
use stepgraph::studio::Startup;
use stepgraph::studio::commands::{Request, UiCommand};
use stepgraph::train::RunState;
use tempfile::TempDir;

/// Draws until this text appears.
fn wait_for(robot: &mut Robot, text: &str) {
    let started = std::time::Instant::now();
    while !robot.sees(text) {
        assert!(started.elapsed().as_secs() < 60, "waited for: {text}");
        std::thread::sleep(std::time::Duration::from_millis(2));
        robot.window.step();
    }
    // A control that appeared is drawn once more before it is pressed.
    robot.window.step();
}

fn text_of(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A window with a new network, and a folder with an unused path in it.
fn with_place_for(file: &str) -> (Robot, TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    (Robot::open(None), folder, path)
}

#[test]
fn another_file_is_replaced_only_after_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letter.json");
    std::fs::write(&path, "a letter").unwrap();
    let mut robot = Robot::open(None);
    perform(&mut robot, Request::Save { path: path.clone(), replace: false });
    wait_for(&mut robot, "letter.json exists. Replace it?");
    robot.press("Cancel");
    assert!(!robot.sees("Replace it?") && robot.app().studio.document.path().is_none());
    assert_eq!(text_of(&path), "a letter");
    perform(&mut robot, Request::Save { path: path.clone(), replace: false });
    wait_for(&mut robot, "letter.json exists. Replace it?");
    robot.press("Replace");
    robot.until("the file", |app| app.studio.document.path().is_some());
    assert!(text_of(&path).contains("digits-mlp"));
    // Saving the document's own file needs no question.
    robot.set("batch", "32");
    robot.key(Modifiers::COMMAND, Key::S);
    robot.until("the save", |app| !app.studio.document.is_dirty());
    assert!(!robot.sees("changed on disk"));
}

#[test]
fn a_file_that_others_changed_is_not_overwritten_without_a_question() {
    let (mut robot, _folder, path) = with_place_for("shared.json");
    perform(&mut robot, Request::Save { path: path.clone(), replace: false });
    robot.until("the file", |app| app.studio.document.path().is_some());
    robot.set("batch", "32");
    std::fs::write(&path, "written by another program").unwrap();
    robot.key(Modifiers::COMMAND, Key::S);
    wait_for(&mut robot, "shared.json changed on disk. Save anyway?");
    robot.press("Cancel");
    assert!(robot.app().studio.document.is_dirty());
    assert_eq!(text_of(&path), "written by another program");
    robot.key(Modifiers::COMMAND, Key::S);
    wait_for(&mut robot, "shared.json changed on disk. Save anyway?");
    robot.press("Save anyway");
    robot.until("the save", |app| !app.studio.document.is_dirty());
    assert!(text_of(&path).contains("digits-mlp"));
}

#[test]
fn a_missing_folder_is_reported_without_advice_about_space() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = Robot::open(None);
    perform(&mut robot, Request::Save { path: folder.path().join("no/such/mine.json"), replace: false });
    robot.until("the answer", |app| app.studio.notice.is_some());
    let line = robot.app().studio.notice.as_ref().unwrap().line();
    assert!(line.starts_with("mine.json cannot be written: there is no folder"), "{line}");
    assert!(!line.contains("space") && !line.contains(".part"), "{line}");
}

#[test]
fn an_unnamed_network_takes_the_name_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = Robot::open(None);
    perform(&mut robot, UiCommand::New);
    perform(&mut robot, Request::Save { path: folder.path().join("letters.json"), replace: false });
    robot.until("the file", |app| app.studio.document.path().is_some());
    assert!(text_of(&folder.path().join("letters.json")).contains("\"letters\""));
    assert!(!robot.app().studio.document.is_dirty());
    // A network that has a name keeps it.
    perform(&mut robot, Request::Save { path: folder.path().join("other.json"), replace: false });
    robot.until("the other file", |_| folder.path().join("other.json").exists());
    assert_eq!(robot.app().studio.document.preset().name, "letters");
}

#[test]
fn trained_weights_are_saved_and_not_lost_without_a_question() {
    let (mut robot, folder, path) = with_place_for("trained.safetensors");
    assert!(!robot.app().studio.is_enabled(&UiCommand::SaveWeights));
    robot.set("steps", "30");
    perform(&mut robot, Request::Save { path: folder.path().join("mine.json"), replace: false });
    robot.until("the file", |app| app.studio.document.path().is_some());
    robot.press("Train this network");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    perform(&mut robot, UiCommand::NewFromPreset(0));
    assert!(robot.sees("Save the trained weights first?") && robot.sees("30 steps"));
    robot.press("Cancel");
    assert_eq!(robot.app().studio.training.done(), 30);
    // A stopped run keeps its weights until another one begins.
    robot.window.state_mut().studio.training.send(stepgraph::train::Command::Stop);
    robot.until("the stop", |app| app.studio.training.state == Some(RunState::Stopped));
    perform(&mut robot, UiCommand::SaveWeightsByPath);
    robot.write("Path", &path.display().to_string());
    robot.press("Save");
    wait_for(&mut robot, "Weights saved to");
    assert!(path.exists() && !robot.app().studio.training.has_unsaved_weights());
    perform(&mut robot, Request::SaveWeights { path: path.clone(), replace: false });
    wait_for(&mut robot, "trained.safetensors exists. Replace it?");
    robot.press("Cancel");
    perform(&mut robot, Request::SaveWeights { path: folder.path().join("no/such/w"), replace: false });
    wait_for(&mut robot, "The weights were not saved");
    perform(&mut robot, UiCommand::New);
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().name, "untitled");
}

#[test]
fn weights_can_be_discarded() {
    let mut robot = Robot::open(None);
    robot.keys(&[Key::F10]);
    robot.until("one step", |app| app.studio.training.state == Some(RunState::Paused));
    perform(&mut robot, UiCommand::New);
    robot.press("Continue without");
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().name, "untitled");
}

#[test]
fn a_preset_is_saved_by_a_typed_path_and_opened_again() {
    let (mut robot, _folder, path) = with_place_for("mine.json");
    robot.set("L0 units", "77");
    robot.choose(UiCommand::SaveByPath);
    robot.window.run_steps(3);
    robot.write("Path", &path.display().to_string());
    robot.press("Save");
    robot.until("the file", |app| !app.studio.document.is_dirty());
    assert!(path.exists() && robot.sees("Saved to"));
    let other = Robot::open(path.to_str());
    let mut other = other;
    other.until("the file", |app| app.studio.document.path().is_some());
    other.settle();
    assert_eq!(other.value("L0 units"), "77");
    assert_eq!(other.app().studio.settings.recent, [path]);
}

#[test]
fn a_bundled_preset_is_not_a_recent_file_and_missing_files_leave_the_list() {
    let mut robot = Robot::open(Some("spirals"));
    assert_eq!(robot.app().studio.document.preset().name, "spirals");
    assert!(robot.app().studio.document.path().is_none() && robot.app().studio.settings.recent.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let lost = folder.path().join("lost.json");
    robot.window.state_mut().studio.settings.recent.push(lost.clone());
    robot.choose(Request::Open(lost));
    robot.until("the answer", |app| app.studio.notice.is_some());
    assert!(robot.app().studio.settings.recent.is_empty());
}

#[test]
fn a_broken_file_says_what_is_wrong_and_changes_nothing() {
    let (_folder, robot) = refusing("{\"name\": 3}");
    assert!(robot.app().studio.notice.as_ref().unwrap().text.contains("name: found 3"));
    assert_eq!(robot.app().studio.document.preset().name, "digits-mlp");
}

#[test]
fn unsaved_changes_are_asked_about() {
    let mut robot = asking_to_save();
    robot.press("Cancel");
    assert_eq!(robot.value("batch"), "32");
    robot.key(Modifiers::COMMAND, Key::N);
    robot.press("Discard changes");
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().name, "untitled");
}

#[test]
fn edits_survive_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let startup = Startup { preset: None, recovery: Some(folder.path().to_owned()), ..Startup::default() };
    let mut robot = Robot::start(startup.clone());
    robot.write("batch", "48");
    robot.until("the recovery file", |_| folder.path().join("unsaved-0.json").exists());
    // After a crash no code cleans up: the system releases the lock, and the file stays.
    drop(robot);
    let mut next = Robot::start(startup);
    next.settle();
    assert_eq!(next.value("batch"), "48");
    assert!(next.sees("Unsaved edits of the last session were restored"));
    assert!(next.app().studio.document.is_dirty());
}

#[test]
fn the_next_start_opens_what_was_open_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    let again = |memory| Robot::start_with(Startup::default(), Some(memory));
    // A bundled preset, unchanged: discarded edits do not return.
    let mut robot = Robot::open(Some("spirals"));
    robot.set("batch", "32");
    let robot = &mut again(Memory::of(&mut robot));
    let document = &robot.app().studio.document;
    assert_eq!((document.preset().name.as_str(), document.is_dirty()), ("spirals", false));
    assert_ne!(robot.value("batch"), "32");
    // A file, as it is on the disk at that time.
    robot.set("batch", "48");
    perform(robot, Request::Save { path: path.clone(), replace: false });
    robot.until("the file", |app| app.studio.document.path().is_some());
    let memory = Memory::of(robot);
    std::fs::write(&path, text_of(&path).replace("48", "24")).unwrap();
    let mut robot = again(memory);
    assert_eq!((robot.value("batch").as_str(), robot.app().studio.document.path()), ("24", Some(path.as_path())));
    // Saving over it is not a change by another program.
    robot.set("batch", "16");
    robot.key(Modifiers::COMMAND, Key::S);
    robot.until("the save", |app| !app.studio.document.is_dirty());
    // A requested file comes first.
    let asked = Startup { preset: Some("xor".into()), ..Startup::default() };
    let mut robot = Robot::start_with(asked, Some(memory));
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().name, "xor");
    // A file that does not exist any more is reported, and the first preset is open.
    std::fs::remove_file(&path).unwrap();
    let robot = again(memory);
    assert_eq!(robot.app().studio.document.preset().name, "digits-mlp");
    let notice = robot.app().studio.notice.clone().unwrap();
    let line = "mine.json that was open last cannot be opened; digits-mlp is open in its place.";
    assert_eq!(notice.line(), line);
    assert!(notice.text.contains("mine.json") && notice.text.contains("Check the path"), "{}", notice.text);
    assert!(robot.app().studio.settings.recent.is_empty());
}

#[test]
fn edits_that_a_crash_left_come_before_what_was_open_last() {
    let folder = tempfile::tempdir().unwrap();
    let startup = Startup { recovery: Some(folder.path().to_owned()), ..Startup::default() };
    let mut robot = Robot::start(Startup { preset: Some("spirals".into()), ..startup.clone() });
    robot.write("batch", "48");
    robot.until("the recovery file", |_| folder.path().join("unsaved-0.json").exists());
    let memory = Memory::of(&mut robot);
    drop(robot);
    let mut robot = Robot::start_with(startup, Some(memory));
    robot.settle();
    assert!(robot.value("batch") == "48" && robot.app().studio.document.is_dirty());
    assert!(robot.sees("Unsaved edits of the last session were restored"));
}

#[test]
fn edits_of_a_file_that_a_crash_left_stay_if_the_file_is_requested_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    let recovery = Some(folder.path().join("unsaved"));
    let mut robot =
        Robot::start(Startup { preset: Some("spirals".into()), recovery: recovery.clone(), ..Startup::default() });
    perform(&mut robot, Request::Save { path: path.clone(), replace: false });
    robot.until("the file", |app| app.studio.document.path().is_some());
    robot.write("batch", "48");
    robot.until("the recovery file", |_| folder.path().join("unsaved/unsaved-0.json").exists());
    drop(robot);
    let other = folder.path().join("./mine.json");
    let mut robot = Robot::start(Startup { preset: Some(other), recovery: recovery.clone(), ..Startup::default() });
    robot.settle();
    assert!(robot.value("batch") == "48" && robot.app().studio.document.is_dirty());
    assert!(!robot.sees("Save the changes to") && robot.sees("Unsaved edits of the last session were restored"));
    drop(robot);
    // Another network asks first.
    let mut robot = Robot::start(Startup { preset: Some("xor".into()), recovery, ..Startup::default() });
    wait_for(&mut robot, "Save the changes to");
}

#[test]
fn another_programs_file_is_reported_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, b"\x08\x08\x12\x07pytorch\x3a\xff\x01\x0a\x80").unwrap();
    let mut robot = Robot::open(None);
    perform(&mut robot, Request::Open(path));
    wait_for(&mut robot, "What went wrong");
    assert!(robot.sees("it is an ONNX model") && robot.sees("Stepgraph opens presets"));
    assert_eq!(robot.app().studio.document.preset().name, "digits-mlp");
}
