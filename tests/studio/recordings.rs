//! The window's views of steps that change: their recordings, and the fields that make them differ.

use crate::robot::Robot;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable as _;
use stepgraph::exec::GraphKey;
use stepgraph::studio::commands::{AnswersPage, PredictionsCommand, Selection, Tab, UiCommand};
use stepgraph::studio::document::presets;

fn perform(robot: &mut Robot, command: UiCommand) {
    robot.choose(command);
    robot.window.run_steps(2);
}

#[test]
fn recordings_are_distinguished_by_their_paths() {
    let mut robot = Robot::open(Some("stochastic-depth"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Recordings));
    assert!(robot.sees("No recordings yet") && robot.sees("Press Train"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    robot.train_to_the_end(60);
    perform(&mut robot, UiCommand::ShowTab(Tab::Recordings));
    robot.until("the recordings", |app| {
        app.studio.training.recordings.seen.as_ref().is_some_and(|seen| seen.recordings.len() > 3)
    });
    robot.window.run_steps(2);
    for text in [
        "L3=1 L9=1, training",
        "L3=0 L9=1, training",
        "a coming step needs it",
        "In all of them: x f32[64, 1, 8, 8], y i32[64], f32",
        "Recording of each of 60 steps",
        "What happened, the newest first",
        " of a budget of ",
    ] {
        assert!(robot.sees(text), "{text}");
    }
    // The other views say whose plan they show.
    perform(&mut robot, UiCommand::ShowTab(Tab::StepGraph));
    assert!(robot.sees("path L3=1 L9=1"));
}

/// A run of a network whose steps take several paths, with its recordings on screen.
fn with_recordings() -> Robot {
    let mut robot = Robot::open(Some("early-exit"));
    robot.train_to_the_end(40);
    perform(&mut robot, UiCommand::ShowTab(Tab::Recordings));
    robot.until("the recordings", |app| app.studio.training.recordings.list().len() > 2);
    robot.window.run_steps(2);
    robot
}

/// The path of the plan that the views show.
fn shown_path(robot: &Robot) -> String {
    robot.app().studio.plan_shown().unwrap().compiled.model.path().to_string()
}

fn shown_ops(robot: &Robot) -> usize {
    robot.app().studio.plan_on_screen().plan.unwrap().ops.len()
}

#[test]
fn a_chosen_recording_is_shown_in_every_view_until_it_is_left() {
    let mut robot = with_recordings();
    assert!(robot.sees("Choose one to look at its step graph, arena and capture plan"));
    let (own, own_revision) = (shown_ops(&robot), robot.app().studio.revision_shown());
    assert_eq!(shown_path(&robot), "L1=0");
    robot.press("Show recording L1=1, training");
    robot.until("the plan", |app| app.studio.shows_recording());
    robot.window.run_steps(2);
    assert_eq!(shown_path(&robot), "L1=1");
    assert!(shown_ops(&robot) < own && robot.app().studio.revision_shown() != own_revision);
    // The plan is the run's own: it has as many calls as were recorded.
    let recordings = &robot.app().studio.training.recordings;
    let seen = recordings.list().iter().find(|seen| seen.key.contains("L1=1")).unwrap();
    assert_eq!(seen.facts.calls, shown_ops(&robot));
    for tab in [Tab::StepGraph, Tab::Arena, Tab::Capture, Tab::Recordings] {
        perform(&mut robot, UiCommand::ShowTab(tab));
        assert!(robot.sees("Recording: L1=1, training"), "{tab:?}");
        assert!(robot.sees("Show the network's own plan"), "{tab:?}");
    }
    // Functions that only run the network's own plan say so.
    perform(&mut robot, UiCommand::MeasureOps);
    assert!(
        !robot.app().studio.measurements.is_measuring() && robot.sees("This works only with the network's own plan")
    );
    robot.press("Show the network's own plan");
    assert_eq!((shown_path(&robot), shown_ops(&robot)), ("L1=0".to_owned(), own));
    assert_eq!(robot.app().studio.revision_shown(), own_revision);
    assert!(!robot.sees("Recording: L1=1, training"));
}

#[test]
fn a_selection_remains_the_same_item_in_the_plan_of_a_recording() {
    let mut robot = with_recordings();
    let plan = robot.app().studio.plan_shown().cloned().unwrap();
    let last = plan.ops.iter().rposition(|op| op.layer.starts_with("L0:")).unwrap();
    let kernel = plan.ops[last].kernel.clone();
    perform(&mut robot, UiCommand::Select(Selection::Op(last)));
    robot.press("Show recording L1=1, training");
    robot.until("the plan", |app| app.studio.shows_recording());
    let Selection::Op(now) = *robot.app().studio.selection.current() else { panic!("an operation") };
    let shown = robot.app().studio.plan_shown().cloned().unwrap();
    assert!(now < last && shown.ops[now].layer == plan.ops[last].layer && shown.ops[now].kernel == kernel);
    // An item that the recording does not have is deselected.
    perform(&mut robot, UiCommand::ShowRecording(None));
    let of_end = plan.ops.iter().position(|op| op.layer.starts_with("L3:")).unwrap();
    perform(&mut robot, UiCommand::Select(Selection::Op(of_end)));
    robot.press("Show recording L1=1, training");
    robot.until("the plan", |app| app.studio.shows_recording());
    assert_eq!(*robot.app().studio.selection.current(), Selection::Nothing);
}

#[test]
fn every_row_can_be_shown_and_an_edit_shows_the_network_again() {
    let mut robot = with_recordings();
    let all = robot.app().studio.training.recordings.list().to_vec();
    for seen in &all {
        perform(&mut robot, UiCommand::ShowRecording(Some(seen.key.clone())));
        robot.until("the plan", |app| app.studio.recording.plan().is_some() && !app.studio.recording.is_planning());
        let compiled = &robot.app().studio.plan_shown().unwrap().compiled;
        assert_eq!(GraphKey::of(compiled).to_string(), seen.key);
    }
    robot.write("batch", "32");
    robot.settle();
    assert!(!robot.app().studio.shows_recording() && robot.app().studio.recording.key().is_none());
    assert_eq!(robot.app().studio.plan_shown().unwrap().compiled.model.batch, 32);
    perform(&mut robot, UiCommand::ShowRecording(Some(all[0].key.clone())));
    assert!(robot.app().studio.recording.key().is_none());
    assert!(robot.sees("The run trains another network than the one on screen"));
}

#[test]
fn all_tabs_fit_a_small_window() {
    for width in [1240.0, 1280.0] {
        let mut robot = Robot::open(Some("early-exit"));
        robot.window.set_size(egui::vec2(width, 720.0));
        robot.window.run_steps(6);
        let heads = robot.window.query_all_by_label("Inspector").map(|head| head.rect().left());
        let end = heads.fold(0.0, f32::max);
        for tab in Tab::ALL {
            let mut tabs = robot.window.query_all_by_role_and_label(Role::Button, tab.title()).map(|tab| tab.rect());
            let is_whole = |rect: egui::Rect| rect.right() <= end && rect.width() > 20.0 && rect.top() < 120.0;
            assert!(tabs.any(is_whole), "{} at a width of {width}", tab.title());
        }
    }
}

#[test]
fn the_last_batch_and_the_lengths_of_a_step_are_edited() {
    let mut robot = Robot::open(Some("bucketed-text"));
    let buckets = |robot: &Robot| robot.app().studio.document.preset().data.as_ref().unwrap().buckets.clone();
    let before = buckets(&robot);
    let text = before.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    assert_eq!(robot.value("buckets"), text);
    robot.write("buckets", "64, 16");
    assert!(robot.sees("expected lengths from the shortest on") && buckets(&robot) == before);
    robot.write("buckets", "16, 32, 64");
    assert_eq!(buckets(&robot), [16, 32, 64]);
    perform(&mut robot, UiCommand::Undo);
    assert_eq!((buckets(&robot), robot.value("buckets")), (before, text));
    assert!(robot.sees("last batch"));
    // A network with other data has no lengths to choose.
    let robot = Robot::open(Some("short-batches"));
    assert!(robot.sees("last batch") && !robot.sees("buckets"));
}

#[test]
fn positions_are_counted_and_named_apart_from_samples() {
    let mut robot = Robot::open(Some("gpt-sums"));
    robot.train(100_000);
    robot.until("some steps", |app| app.studio.training.done() > 2);
    robot.press("Pause");
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the pages", |app| app.studio.predictions.facts.has_positions);
    robot.press("Samples");
    robot.until("the answers", |app| app.studio.predictions.view.is_some());
    robot.window.run_steps(2);
    assert!(robot.sees("11\u{2009}000 positions of 1\u{2009}000 held-out samples"));
    assert!(robot.sees(" at position "));
    // A blank has a visible name.
    let view = robot.app().studio.predictions.view.clone().unwrap();
    assert!(view.quality.scores.iter().any(|score| score.name == "·") && view.rows.positions == 11);
}

#[test]
fn a_page_that_was_chosen_for_one_network_is_replaced_in_another() {
    let mut robot = Robot::open(Some("gru-digits"));
    robot.train_to_the_end(4);
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the pages", |app| !app.studio.predictions.facts.layers.recurrent.is_empty());
    perform(&mut robot, UiCommand::Predictions(PredictionsCommand::Show(AnswersPage::States)));
    perform(&mut robot, UiCommand::NewFromPreset(presets::index("digits-mlp").unwrap()));
    // Neither the number of steps of the first run nor its network is saved.
    robot.press("Discard changes");
    robot.press("Continue without");
    robot.settle();
    assert!(robot.app().studio.training.state.is_none());
    // The button is on the Train tab, and another network does not change the tab.
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    robot.train_to_the_end(5);
    assert_eq!(robot.app().studio.training.history.curves.loss.raw.len(), 5);
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the answers", |app| app.studio.predictions.view.is_some());
    robot.window.run_steps(2);
    assert!(!robot.sees("This network has no recurrent layer") && robot.sees("% right"));
}
