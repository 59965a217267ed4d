//! Training from the window.

use crate::robot::Robot;
use egui::Key;
use stepgraph::studio::commands::{Tab, UiCommand};
use stepgraph::train::RunState;

fn state(app: &stepgraph::studio::StudioApp) -> Option<RunState> {
    app.studio.training.state.clone()
}

#[test]
fn a_run_is_trained_paused_stepped_and_stopped() {
    let mut robot = Robot::open(None);
    robot.train_beyond(20);
    assert_eq!(state(robot.app()), Some(RunState::Running));
    robot.press("Pause");
    robot.until("the pause", |app| state(app) == Some(RunState::Paused));
    let done = robot.app().studio.training.done();
    robot.press("Step");
    robot.until("one step", |app| app.studio.training.done() > done);
    robot.until("the pause after it", |app| state(app) == Some(RunState::Paused));
    assert_eq!(robot.app().studio.training.done(), done + 1);
    let lr = robot.app().studio.training.lr;
    robot.press("Halve the learning rate");
    assert_eq!(robot.app().studio.training.lr, lr / 2.0);
    robot.press("Stop");
    robot.until("the end", |app| state(app) == Some(RunState::Stopped));
    let h = &robot.app().studio.training.history;
    assert_eq!(h.curves.loss.raw.len() as u64, done + 1);
    assert!(!h.curves.held_out_accuracy.is_empty());
    assert!(robot.sees("held-out acc.") && robot.sees("Train from scratch"));
    robot.press("Reset");
    assert_eq!(state(robot.app()), None);
}

#[test]
fn a_finished_run_is_made_longer_and_an_edited_one_starts_again() {
    let mut robot = Robot::open(None);
    robot.train_to_the_end(30);
    assert_eq!(robot.app().studio.training.done(), 30);
    let first = robot.app().studio.training.history.curves.loss.raw.values().to_vec();
    // The button says what it does: the run continues for the same number of steps, and so does its curve.
    robot.press("Train on");
    robot.until("the end of more", |app| state(app) == Some(RunState::Finished) && app.studio.training.done() == 60);
    let longer = robot.app().studio.training.history.curves.loss.raw.values().to_vec();
    assert_eq!((robot.app().studio.training.total, &longer[..30]), (60, &first[..]));
    robot.press("Step");
    robot.until("one step more", |app| state(app) == Some(RunState::Finished) && app.studio.training.done() == 61);
    // A larger number of steps is not another network: the run continues to the requested end.
    robot.set("steps", "75");
    assert!(!robot.sees("edited since"));
    robot.press("Train on");
    robot.until("the end asked for", |app| state(app) == Some(RunState::Finished) && app.studio.training.done() == 75);
    robot.set("steps", "30");
    // The network is another one now: the old run cannot train it.
    robot.set("L0 units", "32");
    robot.press("Train from scratch");
    robot.until("the end of the other", |app| {
        state(app) == Some(RunState::Finished) && app.studio.training.done() == 30
    });
    assert_ne!(robot.app().studio.training.history.curves.loss.raw.values(), &first[..]);
}

#[test]
fn a_run_whose_network_was_edited_is_marked() {
    let mut robot = Robot::open(None);
    robot.keys(&[Key::F10]);
    robot.until("one step", |app| state(app) == Some(RunState::Paused));
    robot.set("L0 units", "32");
    assert!(robot.sees("edited since"));
}

#[test]
fn a_run_that_cannot_start_says_why() {
    let mut robot = Robot::open(None);
    robot.set("sample shape", "32");
    robot.press("Train");
    robot.until("the failure", |app| matches!(state(app), Some(RunState::Failed(_))));
    assert!(robot.sees("does not fit the network"));
    assert!(robot.sees("not recorded"));
}

#[test]
fn the_layer_that_does_not_fit_the_data_is_marked() {
    let mut robot = Robot::open(None);
    robot.set("L2 units", "7");
    assert_eq!(robot.app().studio.problems(), 0);
    robot.press("Train");
    robot.until("the failure", |app| matches!(state(app), Some(RunState::Failed(_))));
    robot.window.run_steps(2);
    let network = &robot.app().studio.network;
    let marked: Vec<&str> = network.cards[2].problems.iter().map(|p| p.field.as_str()).collect();
    assert_eq!((marked, network.first_problem.as_ref().map(|p| p.number())), (vec!["units"], Some("2".into())));
    assert!(robot.sees("give the last layer 10 units") && robot.sees("expected 0 to 6"));
    // The mistakes of the old network's data are not known for the new one.
    robot.set("L2 units", "10");
    assert_eq!(robot.app().studio.problems(), 0);
    robot.set("L2 units", "7");
    assert_eq!(robot.app().studio.problems(), 1);
    // A user who views the data sees the same without a run.
    robot.set("L2 units", "8");
    robot.choose(UiCommand::ShowTab(Tab::Data));
    robot.until("the misfit", |app| app.studio.problems() == 1);
    assert_eq!(robot.app().studio.network.cards[2].problems[0].field, "units");
}

#[test]
fn a_run_that_cannot_be_prepared_is_reported_on_every_tab() {
    let mut robot = Robot::open(None);
    robot.choose(UiCommand::ShowTab(Tab::Arena));
    robot.set("L0 units", "4000000000");
    robot.press("Train");
    robot.until("the refusal", |app| matches!(app.studio.training.state, Some(RunState::Failed(_))));
    robot.window.run_steps(2);
    assert!(robot.sees("Training failed:") && robot.sees("of memory"));
    robot.press("Show Train");
    robot.window.run_steps(2);
    assert!(robot.app().studio.shown.contains(&Tab::Train) && robot.sees("change what is named here"));
    // If the tab is shown, it has the message.
    robot.choose(UiCommand::DismissNotice);
    robot.press("Train from scratch");
    robot.until("the refusal", |app| matches!(app.studio.training.state, Some(RunState::Failed(_))));
    robot.window.run_steps(2);
    assert!(robot.app().studio.notice.is_none());
}

#[test]
fn a_run_that_cannot_be_prepared_leaves_the_curves_of_the_one_before() {
    let mut robot = Robot::open(None);
    robot.train_to_the_end(30);
    let first = robot.app().studio.training.history.curves.loss.raw.values().to_vec();
    let own = robot.value("sample shape");
    robot.set("sample shape", "32");
    robot.press("Train from scratch");
    robot.until("the failure", |app| matches!(state(app), Some(RunState::Failed(_))));
    robot.window.run_steps(2);
    assert!(robot.sees("does not fit the network") && robot.sees("The curves below are those of the previous run"));
    assert_eq!((robot.app().studio.training.history.curves.loss.raw.values(), first.len()), (&first[..], 30));
    // A second failure does not remove the curves either, and the next run replaces them.
    robot.press("Train from scratch");
    robot.until("the failure", |app| matches!(state(app), Some(RunState::Failed(_))));
    assert_eq!(robot.app().studio.training.done(), 30);
    robot.set("sample shape", &own);
    robot.press("Train from scratch");
    robot.until("the end", |app| state(app) == Some(RunState::Finished));
    assert!(!robot.app().studio.training.shows_previous && robot.app().studio.training.done() == 30);
}
