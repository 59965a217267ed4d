//! The tabs for data, predictions and checks, and what belongs to a run other than its loss.

use crate::robot::Robot;
use egui::accesskit::Role;
use egui_kittest::kittest::Queryable as _;
use stepgraph::plan::BufferId;
use stepgraph::studio::StudioApp;
use stepgraph::studio::commands::Selection;
use stepgraph::studio::commands::{Action, DataField, Request, Tab, UiCommand};
use stepgraph::studio::view_models::proofs::Proved;
use stepgraph::train::{Check, Compared, Culprit, Proof, RunState};

fn state(app: &StudioApp) -> Option<RunState> {
    app.studio.training.state.clone()
}

fn show(robot: &mut Robot, tab: Tab) {
    perform(robot, UiCommand::ShowTab(tab));
}

fn perform(robot: &mut Robot, action: impl Into<Action>) {
    robot.choose(action);
    robot.window.step();
    robot.window.step();
}

#[test]
fn data_is_loaded_and_shown_before_any_run() {
    let mut robot = Robot::open(None);
    assert!(robot.app().studio.samples.view.is_none(), "nothing is loaded while nobody looks");
    show(&mut robot, Tab::Data);
    robot.until("the digits", |app| app.studio.samples.is_current);
    assert!(robot.app().studio.training.state.is_none());
    assert!(robot.sees("sample 0, 0, training") && robot.sees("samples are divided by 16"));
    // Only visible samples are drawn, of all 1,797.
    let drawn = robot.window.query_all_by_label_contains(", training").count();
    assert!((20..200).contains(&drawn), "{drawn}");
    robot.press("Table");
    assert!(robot.window.query_all_by_label("x11").next().is_some());
    robot.press("Features");
    assert!(robot.sees("grey"));
}

#[test]
fn the_split_is_edited_where_it_is_seen() {
    let mut robot = Robot::open(Some("spirals"));
    show(&mut robot, Tab::Data);
    robot.until("the spirals", |app| app.studio.samples.is_current);
    let view = robot.app().studio.samples.view.clone().expect("a view");
    assert_eq!(view.split.held_out.len(), 600);
    assert!(robot.sees("Samples in the plane"));
    // The field is in two panels: the one beside the samples is the second.
    let field = robot.window.query_all_by_role_and_label(Role::TextInput, "held out").last().expect("a field");
    field.focus();
    robot.window.step();
    robot.window.key_press_modifiers(egui::Modifiers::COMMAND, egui::Key::A);
    robot.window.step();
    robot.window.query_all_by_role_and_label(Role::TextInput, "held out").last().expect("a field").type_text("50");
    robot.window.step();
    robot.settle();
    robot
        .until("the other split", |app| app.studio.samples.view.as_ref().is_some_and(|v| v.split.held_out.len() == 50));
    assert!(robot.app().studio.document.is_dirty());
}

#[test]
fn data_that_cannot_be_read_says_what_to_do_and_keeps_the_old_samples() {
    let mut robot = Robot::open(None);
    show(&mut robot, Tab::Data);
    robot.until("the digits", |app| app.studio.samples.is_current);
    let value = stepgraph::studio::document::fields::value::FieldValue::Choice(8);
    let owner = stepgraph::studio::document::fields::value::Owner::Preset;
    let edit = stepgraph::studio::commands::Edit::SetField { owner, name: "data.type", value };
    perform(&mut robot, UiCommand::Edit(edit));
    robot.settle();
    robot.until("the mistake", |app| app.studio.samples.problem.is_some());
    robot.window.step();
    assert!(robot.sees("data.csv: cannot be read"));
    assert!(robot.sees("from before the change"));
    // Data that fits another network is shown nevertheless.
    perform(&mut robot, UiCommand::Undo);
    robot.settle();
    robot.until("the digits again", |app| app.studio.samples.is_current);
    robot.set("L2 units", "4");
    robot.until("the misfit", |app| app.studio.samples.view.as_ref().is_some_and(|v| v.misfit.is_some()));
    robot.window.step();
    assert!(robot.sees("does not fit the network") && robot.sees("sample 0, 0, training"));
}

#[test]
fn a_file_of_the_user_is_chosen_and_fits_after_an_edit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.csv");
    let rows: String = (0..400).map(|i| format!("{},{},{}\n", i % 7, (i * 3) % 5, i % 2)).collect();
    std::fs::write(&path, format!("a,b,kind\n{rows}")).unwrap();
    let mut robot = Robot::open(Some("spirals"));
    show(&mut robot, Tab::Data);
    let value = stepgraph::studio::document::fields::value::FieldValue::Choice(8);
    let owner = stepgraph::studio::document::fields::value::Owner::Preset;
    perform(
        &mut robot,
        UiCommand::Edit(stepgraph::studio::commands::Edit::SetField { owner, name: "data.type", value }),
    );
    robot.settle();
    assert!(robot.window.query_all_by_role_and_label(Role::Button, "Choose file…").next().is_some());
    perform(&mut robot, Request::UseData(DataField::only("data.path"), path));
    robot.settle();
    robot.until("the table", |app| app.studio.samples.is_current);
    let view = robot.app().studio.samples.view.clone().expect("a view");
    assert_eq!((view.set.len(), view.features[1].name.as_str(), view.misfit.is_none()), (400, "b", true), "{view}");
    robot.press("Table");
    assert!(robot.sees("kind") || robot.sees("target"));
}

#[test]
fn the_files_of_joined_data_are_chosen_input_by_input() {
    use stepgraph::model::DataSource;
    use stepgraph::studio::document::fields::value::{FieldValue, Owner};
    let inputs = |robot: &Robot| match &robot.app().studio.document.preset().data.as_ref().expect("data").source {
        DataSource::Joined { inputs, .. } => inputs.clone(),
        other => panic!("{}", other.name()),
    };
    let mut robot = Robot::open(Some("two-inputs"));
    show(&mut robot, Tab::Data);
    let name = inputs(&robot)[1].0.clone();
    let (owner, value) = (Owner::Source(name.clone()), FieldValue::Choice(8));
    let edit = stepgraph::studio::commands::Edit::SetField { owner, name: "data.type", value };
    perform(&mut robot, UiCommand::Edit(edit));
    robot.settle();
    let label = format!("{name}: Choose file…");
    assert!(robot.window.query_all_by_role_and_label(Role::Button, &label).next().is_some());
    let field = DataField { input: Some(1), name: "data.path" };
    perform(&mut robot, Request::UseData(field, "facts.csv".into()));
    let paths = |robot: &Robot| inputs(robot)[1].1.paths();
    assert_eq!(paths(&robot), [std::path::PathBuf::from("facts.csv")]);
    // A dialog that was opened for another document has no effect.
    let field = DataField { input: Some(9), name: "data.path" };
    perform(&mut robot, Request::UseData(field, "other.csv".into()));
    assert_eq!(paths(&robot), [std::path::PathBuf::from("facts.csv")]);
}

#[test]
fn predictions_follow_the_run_and_a_cell_shows_its_samples() {
    let mut robot = Robot::open(None);
    show(&mut robot, Tab::Predictions);
    assert!(robot.sees("No run yet"));
    robot.press("Step");
    robot.until("answers", |app| app.studio.predictions.view.as_ref().is_some_and(|v| v.step == 1));
    let early = robot.app().studio.predictions.view.clone().expect("answers");
    assert!(robot.sees("360 held-out samples, at step 1") && early.quality.accuracy.is_some_and(|a| a < 0.7));
    robot.press("Train");
    robot.until("the end", |app| state(app) == Some(RunState::Finished));
    robot.until("the last answers", |app| {
        app.studio.predictions.view.as_ref().is_some_and(|v| v.step == app.studio.training.done())
    });
    let last = robot.app().studio.predictions.view.clone().expect("answers");
    assert!(last.quality.accuracy.is_some_and(|a| a > 0.9), "{last}");
    robot.window.step();
    assert!(robot.sees("all samples, wrong ones first"));
    let cell = robot.window.query_all_by_label_contains("true 3, predicted 3: ").next().expect("a cell");
    cell.click_accesskit();
    robot.window.step();
    robot.window.step();
    assert!(robot.sees("is 3, taken for 3") && robot.sees(&last.quality.confusion[3][3].to_string()));
    robot.press("Filters");
    assert!(robot.sees("layers.0.weight") && robot.sees("filter 95"));
    // Another run begins without the old one's predictions.
    robot.press("Reset");
    robot.window.step();
    assert!(robot.app().studio.predictions.view.is_none() && robot.sees("No run yet"));
}

#[test]
fn the_boundary_is_queried_while_the_run_continues() {
    let mut robot = Robot::open(Some("spirals"));
    show(&mut robot, Tab::Predictions);
    robot.set("steps", "100000000");
    robot.press("Train");
    robot.until("a boundary", |app| app.studio.predictions.view.as_ref().is_some_and(|v| v.pages.plane.is_some()));
    let first = robot.app().studio.predictions.view.as_ref().map_or(0, |v| v.step);
    robot.until("a later one", |app| app.studio.predictions.view.as_ref().is_some_and(|v| v.step > first));
    assert_eq!(state(robot.app()), Some(RunState::Running));
    assert!(robot.sees("Decision boundary") && robot.sees("follows the training"));
    robot.press("Pause");
    robot.until("the pause", |app| state(app) == Some(RunState::Paused));
    robot.until("the newest answer", |app| {
        app.studio.predictions.view.as_ref().is_some_and(|v| v.step == app.studio.training.done())
    });
    // Predictions arrive after the end as well.
    robot.press("Stop");
    robot.until("the end", |app| state(app) == Some(RunState::Stopped));
    assert!(robot.app().studio.training.problem.is_none());
}

#[test]
fn predicted_values_are_drawn_against_true_ones() {
    let mut robot = Robot::open(Some("regression"));
    show(&mut robot, Tab::Predictions);
    robot.press("Step");
    robot.until("answers", |app| app.studio.predictions.view.is_some());
    robot.window.step();
    assert!(robot.sees("RMSE") && robot.sees("Predicted against true"));
}

#[test]
fn a_check_names_what_it_verified_and_becomes_outdated() {
    let mut robot = Robot::open(Some("xor"));
    show(&mut robot, Tab::Verify);
    assert!(robot.sees("Nothing verified yet"));
    // The estimated cost is shown before it begins.
    let estimate = |app: &StudioApp| app.studio.proofs.estimate(app.studio.document.revision(), None);
    assert!(robot.sees("estimating what everything takes…") || estimate(robot.app()).is_some());
    robot.until("the estimate", |app| estimate(app).is_some());
    assert!(estimate(robot.app()).is_some_and(|e| e.price.bytes > 0) && robot.sees("everything takes up to about"));
    robot.press("Pointer ledger");
    robot.until("both checks", |app| !app.studio.proofs.is_running() && app.studio.proofs.proved.len() == 2);
    robot.window.step();
    assert!(robot.sees("an injected fault is caught") && robot.sees("moved addresses named with op and layer"));
    assert!(robot.sees("2 passed, 0 failed, 0 skipped") && robot.sees("of xor, revision"));
    // The numbers end at the edge of the tab, regardless of the lines above them.
    let figures = robot.window.query_all_by_label_contains("moved addresses named").next().expect("figures");
    assert!(figures.rect().right() < 1280.0 - 256.0, "{:?}", figures.rect());
    robot.press("Eager against replay");
    robot.until("four checks", |app| !app.studio.proofs.is_running() && app.studio.proofs.proved.len() == 4);
    robot.window.step();
    assert!(robot.sees("buffers compared"));
    robot.set("L0 units", "32");
    assert!(robot.sees("edited since") && robot.sees("stale, of revision"));
}

#[test]
fn a_failure_leads_to_its_operation_and_its_buffer() {
    let mut robot = Robot::open(Some("xor"));
    let revision = robot.app().studio.document.revision();
    let check = Check {
        name: "eager against replay".into(),
        passed: Some(false),
        figures: "3 steps, 1 buffers bit-equal: false".into(),
        ratio: None,
        detail: vec!["params differs in 4 of 256 bytes; first written by op 3 gemm".into()],
        culprits: vec![Some(Culprit::Op(3))],
        compared: vec![Compared { buffer: BufferId(1), name: "the buffer".into(), bytes: 256, different: 4 }],
    };
    let (proof, document) = (Proof::EagerAgainstReplay, "xor".to_owned());
    let proved = Proved { proof, check, revision: Some(revision), document, seconds: 0.5 };
    robot.window.state_mut().studio.proofs.proved.push(proved);
    show(&mut robot, Tab::Verify);
    // The line with the cost of all checks is above the results.
    robot.until("the estimate", |app| app.studio.proofs.estimate(app.studio.document.revision(), None).is_some());
    assert!(robot.sees("0 passed, 1 failed, 0 skipped") && robot.sees("failed"));
    robot.press("params differs in 4 of 256 bytes; first written by op 3 gemm");
    assert_eq!(robot.app().studio.selection.current(), &Selection::Op(3));
    robot.window.get_by_label("1 buffer compared").click();
    robot.window.run_steps(20);
    assert!(robot.sees("4 bytes differ"));
    robot.press("the buffer");
    assert_eq!(robot.app().studio.selection.current(), &Selection::Buffer(BufferId(1)));
}

#[test]
fn the_cost_of_metrics_is_measured_before_a_run() {
    let mut robot = Robot::open(None);
    robot.press("Measure what they cost");
    robot.until("prices", |app| app.studio.prices.prices.is_some());
    robot.window.step();
    assert!(
        (robot.sees("% of a step") || robot.sees("no measurable cost")) && robot.app().studio.training.state.is_none()
    );
    robot.set("L0 units", "32");
    assert!(robot.sees("Measure what they cost"), "prices of another network are not shown");
}

#[test]
fn a_long_endurance_check_is_cancelled() {
    let mut robot = Robot::open(Some("xor"));
    show(&mut robot, Tab::Verify);
    robot.write("Replays of the stress", "1000000000");
    assert_eq!(robot.app().studio.settings.replays, Some(1_000_000_000));
    perform(&mut robot, UiCommand::Prove(Some(Proof::Determinism)));
    robot.until("the stress", |app| app.studio.proofs.current.is_some_and(|(_, name)| name.starts_with("endurance")));
    robot.press("Cancel verification");
    assert!(!robot.app().studio.proofs.is_running());
    robot.write("Replays of the stress", "few");
    assert!(robot.sees("expected a whole number, at least 1"));
}

#[test]
fn an_invalid_network_is_not_verified() {
    let mut robot = Robot::open(None);
    show(&mut robot, Tab::Verify);
    robot.set("L1 rate", "1.5");
    assert!(robot.sees("Fix the network to verify its step"));
    perform(&mut robot, UiCommand::Prove(None));
    assert!(!robot.app().studio.proofs.is_running());
}

#[test]
fn an_empty_network_offers_to_add_a_layer() {
    let mut robot = Robot::open(None);
    perform(&mut robot, UiCommand::New);
    robot.settle();
    assert!(robot.sees("Add a layer to train it"));
    let views = [(Tab::Arena, "see its arena"), (Tab::StepGraph, "see its step"), (Tab::Capture, "see its buffers")];
    for (tab, to) in views {
        show(&mut robot, tab);
        assert!(robot.sees(&format!("Add a layer to {to}")), "{tab:?}");
    }
}

#[test]
fn eager_and_replay_are_measured_without_changing_the_run() {
    let mut robot = Robot::open(None);
    robot.train_to_the_end(40);
    let loss = robot.app().studio.training.history.curves.loss.raw.values().to_vec();
    perform(&mut robot, UiCommand::TimeBothWays);
    robot.until("both ways", |app| app.studio.training.both_ways.is_some());
    let two = robot.app().studio.training.both_ways.clone().expect("times");
    assert!((two.eager.count, two.replay.count, two.step) == (400, 400, 40) || two.replay.count >= 3, "{two:?}");
    assert!(two.eager.median_us > 0.0 && two.replay.median_us > 0.0);
    assert_eq!((robot.app().studio.training.done(), state(robot.app())), (40, Some(RunState::Finished)));
    robot.window.step();
    assert!(robot.sees("as long") && robot.sees("Step times"));
    // The run continues as if nothing had been measured.
    robot.press("Train on");
    robot.until("the end of more", |app| app.studio.training.done() == 80);
    let mut other = Robot::open(None);
    other.write("steps", "80");
    other.settle();
    other.press("Train this network");
    other.until("its end", |app| app.studio.training.done() == 80);
    let (a, b) =
        (&robot.app().studio.training.history.curves.loss.raw, &other.app().studio.training.history.curves.loss.raw);
    assert_eq!(a.values(), b.values());
    assert_eq!(&a.values()[..40], &loss[..]);
}

#[test]
fn layers_have_curves_and_plots_are_hidden_and_freed() {
    let mut robot = Robot::open(None);
    robot.train_to_the_end(30);
    let h = &robot.app().studio.training.history;
    assert_eq!(h.layers.names, ["L0:Dense", "L2:Dense"]);
    assert_eq!((h.lr.len(), h.layers.is_empty()), (30, false));
    robot.window.step();
    assert!(robot.sees("Update by layer against step") && robot.sees("Loss against step"));
    perform(&mut robot, UiCommand::ShowPlot("Loss", false));
    assert!(!robot.sees("Loss against step"));
    robot.press("Update: logarithmic axis");
    assert_eq!(robot.app().studio.settings.plot_log.get("Update"), Some(&true));
    robot.press("Freeze");
    assert!(robot.app().panels.train.view.frozen);
    robot.press("Follow");
    assert!(!robot.app().panels.train.view.frozen);
}

#[test]
fn a_run_without_update_metrics_shows_no_updates() {
    let mut robot = Robot::open(None);
    robot.set("steps", "20");
    robot.window.get_by_label("Updates and gradient norm").click();
    robot.window.step();
    robot.window.step();
    assert!(robot.app().studio.settings.without_updates);
    robot.press("Train this network");
    robot.until("the end", |app| state(app) == Some(RunState::Finished));
    robot.window.step();
    assert!(robot.app().studio.training.history.layers.is_empty());
    assert!(robot.sees("Loss against step") && !robot.sees("Update against step"));
}

#[test]
fn the_layout_is_reset() {
    let mut robot = Robot::open(None);
    robot.window.state_mut().panels.tabs =
        egui_tiles::Tree::new_tabs(egui::Id::unique("few"), vec![Tab::Arena, Tab::Capture]);
    robot.window.step();
    assert!(robot.window.query_all_by_label("Predictions").next().is_none());
    perform(&mut robot, UiCommand::ResetLayout);
    for tab in Tab::ALL {
        assert!(robot.sees(tab.title()), "{}", tab.title());
    }
}
