//! The window's views of networks that read sequences.

use crate::robot::Robot;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable as _;
use stepgraph::model::LayerPath;
use stepgraph::studio::StudioApp;
use stepgraph::studio::commands::{AnswersPage, PredictionsCommand, Selection, Tab, UiCommand};
use stepgraph::studio::view_models::sequences::inside::Found;
use stepgraph::studio::view_models::sequences::writing::WritingState;
use stepgraph::train::{GenerationEnd, RunState};

fn perform(robot: &mut Robot, command: UiCommand) {
    robot.choose(command);
    robot.window.run_steps(2);
}

/// Makes some steps of a run, and pauses it.
fn train(robot: &mut Robot) {
    robot.train(100_000);
    robot.until("some steps", |app| app.studio.training.done() > 2);
    robot.press("Pause");
    robot.until("the pause", |app| app.studio.training.state == Some(RunState::Paused));
}

/// A window in which a preset has made some steps, with the Predictions tab shown.
fn trained(preset: &str) -> Robot {
    let mut robot = Robot::open(Some(preset));
    train(&mut robot);
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot
}

fn found(app: &StudioApp) -> Option<&Found> {
    app.studio.predictions.inside.as_ref().map(|view| &view.found)
}

#[test]
fn the_tokens_of_a_sample_show_their_losses() {
    let mut robot = Robot::open(Some("gpt-sums"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    assert!(robot.sees("No run yet"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    train(&mut robot);
    assert!(robot.sees("perplexity"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the losses", |app| matches!(found(app), Some(Found::Tokens(_))));
    robot.window.run_steps(2);
    assert!(robot.sees("Loss of each token: perplexity") && robot.sees("of 1\u{2009}000 held-out samples"));
    let first = robot.app().studio.predictions.inside.as_ref().unwrap().asked.sample;
    robot.press("Next sample");
    robot.until("the next sample", |app| {
        app.studio.predictions.inside.as_ref().is_some_and(|view| view.asked.sample != first)
    });
    // The predictions for many samples are on another page, and arrive when it is shown.
    robot.press("Confusion matrix");
    robot.until("the answers", |app| app.studio.predictions.view.is_some());
    robot.window.run_steps(2);
    assert!(robot.sees("% right"));
}

#[test]
fn a_text_is_written_while_the_run_trains_and_after_it() {
    let mut robot = Robot::open(Some("gpt-sums"));
    robot.train(1_000_000);
    robot.until("some steps", |app| app.studio.training.done() > 2);
    perform(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    robot.until("the pages", |app| app.studio.predictions.facts.writes);
    robot.press("Writing");
    assert!(robot.sees("Nothing is written yet"));
    robot.write("prompt", "37+85=");
    robot.press("Write");
    let ended = |end| move |app: &StudioApp| app.studio.training.writing.state == WritingState::Ended(end);
    robot.until("the text", ended(GenerationEnd::Line));
    assert_eq!(robot.app().studio.training.state, Some(RunState::Running));
    assert_eq!(robot.app().studio.training.writing.prompt, " 37+ 85=");
    assert!(robot.sees("Written:  37+ 85=") && robot.sees("padded with blanks"));
    robot.write("prompt", "a+b=");
    robot.press("Write");
    robot.until("the refusal", |app| matches!(app.studio.training.writing.state, WritingState::Failed(_)));
    robot.window.run_steps(2);
    assert!(robot.sees("the characters 'a', 'b', which the network does not know"));
    robot.press("Stop");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Stopped));
    robot.write("prompt", "1+2=");
    robot.press("Write");
    robot.until("a text of a run that is paused", ended(GenerationEnd::Line));
}

#[test]
fn selecting_a_layer_shows_its_attention_map() {
    let mut robot = trained("gpt-sums");
    robot.until("the pages", |app| app.studio.predictions.facts.writes);
    robot.press("Attention");
    let layer = |app: &StudioApp| app.studio.predictions.inside.as_ref().and_then(|view| view.asked.layer.clone());
    let is_map = |app: &StudioApp| matches!(found(app), Some(Found::Attention(_)));
    robot.until("the first map", is_map);
    robot.window.run_steps(2);
    assert_eq!(layer(robot.app()), Some(LayerPath::from([2, 1])));
    assert!(robot.sees("Attention of head 1") && robot.sees("grey: masked"));
    perform(&mut robot, UiCommand::Select(Selection::Layer(LayerPath::from([4, 1]))));
    robot.until("the map of the selected layer", |app| layer(app) == Some(LayerPath::from([4, 1])));
    robot.press("Next head");
    robot.until("the next head", |app| app.studio.predictions.inside.as_ref().is_some_and(|v| v.asked.head == 1));
    robot.window.run_steps(2);
    // The keys move from cell to cell, and the information about a cell can be read.
    let map = robot.window.get_by_role_and_label(Role::Image, "Attention of head 2");
    map.focus();
    robot.window.run_steps(2);
    robot.keys(&[egui::Key::ArrowDown]);
    assert!(robot.sees("Attention of head 2: query"), "the chosen cell is described");
    robot.keys(&[egui::Key::ArrowRight, egui::Key::ArrowRight]);
    assert!(robot.sees("masked, as it comes later"));
}

#[test]
fn states_and_forecasts_are_shown_and_what_is_missing_is_named() {
    let mut robot = trained("lstm-waves");
    robot.until("the pages", |app| app.studio.predictions.facts.forecasts);
    robot.press("States");
    robot.until("the states", |app| matches!(found(app), Some(Found::States(_))));
    robot.window.run_steps(2);
    assert!(robot.sees("Hidden states") && robot.sees("units down, positions across"));
    robot.press("Forecasts");
    robot
        .until("the forecasts", |app| app.studio.predictions.view.as_ref().is_some_and(|v| v.pages.forecast.is_some()));
    robot.window.run_steps(2);
    assert!(
        robot.sees("Forecast of sample")
            && robot.sees("repeating the last value")
            && robot.sees("of 1\u{2009}000 held-out")
    );
    for (page, message) in [
        (AnswersPage::Attention, "This network has no attention"),
        (AnswersPage::Writing, "This network predicts no tokens"),
        (AnswersPage::Tokens, "This network does not predict a class at each position"),
        (AnswersPage::Confusion, "This network has nothing to show here"),
    ] {
        perform(&mut robot, UiCommand::Predictions(PredictionsCommand::Show(page)));
        assert!(robot.sees(message), "{message}");
    }
}

#[test]
fn samples_of_text_are_shown_as_text() {
    let mut robot = Robot::open(Some("gpt-sums"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Data));
    robot.until("the sums", |app| app.studio.samples.is_current);
    robot.window.run_steps(2);
    assert!(robot.sees("sample 0, training: ") && robot.sees("=, target "));
    let drawn = robot.window.query_all_by_label_contains(", training: ").count();
    assert!((3..40).contains(&drawn), "{drawn}");
}
