//! What the window shows of steps that change: their recordings, and the fields that make them differ.

use crate::robot::Robot;
use stepgraph::studio::commands::{AnswersPage, PredictionsCommand, Tab, UiCommand};
use stepgraph::studio::document::presets;

fn perform(robot: &mut Robot, command: UiCommand) {
    robot.choose(command);
    robot.window.run_steps(2);
}

#[test]
fn recordings_are_told_apart_by_their_paths() {
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
        "path L3=1 L9=1, training",
        "path L3=0 L9=1, training",
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
    // A network of other data has no lengths to choose.
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
    // A blank has a name that can be seen.
    let view = robot.app().studio.predictions.view.clone().unwrap();
    assert!(view.quality.scores.iter().any(|score| score.name == "·") && view.rows.positions == 11);
}

#[test]
fn a_page_that_was_chosen_for_one_network_is_replaced_in_another() {
    let mut robot = Robot::open(Some("gru-digits"));
    robot.train_to_the_end(4);
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the pages", |app| !app.studio.predictions.facts.recurrent.is_empty());
    perform(&mut robot, UiCommand::Predictions(PredictionsCommand::Show(AnswersPage::States)));
    perform(&mut robot, UiCommand::NewFromPreset(presets::index("digits-mlp").unwrap()));
    robot.settle();
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    robot.train_to_the_end(4);
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the answers", |app| app.studio.predictions.view.is_some());
    robot.window.run_steps(2);
    assert!(!robot.sees("This network has no recurrent layer") && robot.sees("% right"));
}
