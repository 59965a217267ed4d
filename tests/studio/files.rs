//! Saving, opening, closing, and what survives a crash.

use crate::robot::Robot;
use egui::{Key, Modifiers};
use stepgraph::studio::Startup;
use stepgraph::studio::commands::Command;

#[test]
fn a_preset_is_saved_by_a_typed_path_and_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    let mut robot = Robot::open(None);
    robot.write("L0 units", "77");
    robot.settle();
    let ctx = robot.window.ctx.clone();
    robot.window.state_mut().perform(&ctx, Command::SaveByPath);
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
fn a_bundled_preset_is_no_recent_file_and_lost_files_leave_the_list() {
    let mut robot = Robot::open(Some("spirals"));
    assert_eq!(robot.app().studio.document.preset().name, "spirals");
    assert!(robot.app().studio.document.path().is_none() && robot.app().studio.settings.recent.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let lost = folder.path().join("lost.json");
    robot.window.state_mut().studio.settings.recent.push(lost.clone());
    let ctx = robot.window.ctx.clone();
    robot.window.state_mut().perform(&ctx, Command::OpenFile(lost));
    robot.until("the answer", |app| app.studio.notice.is_some());
    assert!(robot.app().studio.settings.recent.is_empty());
}

#[test]
fn a_broken_file_says_what_is_wrong_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.json");
    std::fs::write(&path, "{\"name\": 3}").unwrap();
    let mut robot = Robot::open(path.to_str());
    robot.until("the answer", |app| app.studio.notice.is_some());
    assert!(robot.app().studio.notice.as_ref().unwrap().text.contains("name: found 3"));
    assert_eq!(robot.app().studio.document.preset().name, "digits-mlp");
}

#[test]
fn unsaved_changes_are_asked_about() {
    let mut robot = Robot::open(None);
    robot.write("batch", "32");
    robot.settle();
    robot.key(Modifiers::COMMAND, Key::N);
    assert!(robot.sees("Save the changes to digits-mlp?"));
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
    // A crash runs no clean-up: the lock is freed by the system, the file stays.
    drop(robot);
    let mut next = Robot::start(startup);
    next.settle();
    assert_eq!(next.value("batch"), "48");
    assert!(next.sees("Edits that were not saved last time are back"));
    assert!(next.app().studio.document.is_dirty());
}
