//! The window shows information only about the network on screen; information about an older one is marked as such, or
//! hidden.

use crate::robot::{Robot, perform};
use egui_kittest::kittest::Queryable as _;
use stepgraph::model::LayerPath;
use stepgraph::studio::commands::Edit;
use stepgraph::studio::commands::Selection;
use stepgraph::studio::commands::{DataField, Request, Tab, UiCommand};
use stepgraph::studio::document::fields::value::{FieldValue, Owner};
use stepgraph::studio::{Startup, StudioApp};
use stepgraph::train::{RunState, StepReport};

fn holds(app: &StudioApp) -> String {
    app.studio.values_shown().map_or_else(String::new, |s| s.holds.clone())
}

/// The operation that writes the value with this name.
fn writer(robot: &Robot, name: &str) -> usize {
    let plan = &robot.app().studio.plan.as_ref().unwrap().compiled.plan;
    let writes = |op: &stepgraph::lower::Op| op.writes().any(|v| plan.program.value(v).name == name);
    plan.program.ops.iter().position(writes).unwrap_or_else(|| panic!("nobody writes {name}"))
}

#[test]
fn values_are_those_that_the_operation_writes() {
    let mut robot = Robot::open(Some("digits-mlp"));
    perform(&mut robot, UiCommand::ShowValues);
    for name in ["L2:Dense.gW", "L0:Dense.gW", "L2:Dense.gB"] {
        let op = writer(&robot, name);
        perform(&mut robot, UiCommand::Select(Selection::Op(op)));
        robot.until(name, |app| holds(app).starts_with(name));
        let shown = robot.app().studio.values_shown().unwrap().clone();
        assert!(shown.summary.is_some() && shown.writer == Some(op), "{name}: {shown:?}");
        // Right before the operation it does not exist, even if its neighbours in the vector do.
        perform(&mut robot, UiCommand::Scrub(Some(op - 1)));
        robot.until("what is not written", |app| holds(app).starts_with("Not written yet"));
        assert_eq!(holds(robot.app()), format!("Not written yet: op {op} is the first to write it."), "{name}");
        robot.window.step();
        assert!(robot.sees("Not written yet"));
        perform(&mut robot, UiCommand::Scrub(None));
    }
    // A part can be selected too, and another one can be chosen.
    let op = writer(&robot, "L2:Dense.gW");
    perform(&mut robot, UiCommand::Select(Selection::Op(op)));
    let place = robot.app().studio.place_looked_at().unwrap();
    perform(&mut robot, UiCommand::Select(Selection::Part(place.buffer, place.part)));
    robot.until("the part", |app| holds(app).starts_with("L2:Dense.gW"));
    assert!(robot.app().studio.inspector.to_string().starts_with("Part of a vector: L2:Dense.gW"));
    perform(&mut robot, UiCommand::ShowPart(0));
    robot.until("the first part, which is written later", |app| holds(app).starts_with("Not written yet"));
}

#[test]
fn a_network_that_does_not_compile_shows_nothing_of_the_previous_one() {
    let mut robot = Robot::open(Some("digits-cnn"));
    let preset = robot.app().studio.document.preset().clone();
    let at = |class: &str| preset.layers.iter().position(|l| l.kind().class == class).expect("a layer");
    let (flatten, conv) = (at("Flatten"), at("Conv2d"));
    perform(&mut robot, UiCommand::Select(Selection::Layer(LayerPath::from([conv]))));
    assert!(robot.app().studio.inspector.to_string().contains("weight"));
    let from = LayerPath::from([flatten]);
    perform(&mut robot, UiCommand::Edit(Edit::Move { from, parent: LayerPath::default().into(), index: conv }));
    robot.settle();
    assert!(robot.app().studio.problems() > 0 && robot.app().studio.is_plan_outdated());
    for layer in 0..preset.layers.len() {
        perform(&mut robot, UiCommand::Select(Selection::Layer(LayerPath::from([layer]))));
        let page = robot.app().studio.inspector.to_string();
        assert!(!page.contains("weight") && !page.contains("FLOPs") && !page.contains("arena"), "{page}");
        assert!(robot.sees("Its numbers come back when the network's problem is fixed"));
    }
    perform(&mut robot, UiCommand::Select(Selection::Nothing));
    assert!(!robot.app().studio.inspector.to_string().contains("arena"));
    // If there is no newer plan, the shown one is marked as older.
    for tab in [Tab::StepGraph, Tab::Arena, Tab::Capture] {
        perform(&mut robot, UiCommand::ShowTab(tab));
        assert!(robot.sees("What is shown here is the step before it"), "{tab:?}");
    }
    perform(&mut robot, UiCommand::Select(Selection::Op(0)));
    perform(&mut robot, UiCommand::ShowValues);
    assert!(robot.sees("Fix the network's problem to look at values"));
    perform(&mut robot, UiCommand::ShowValues);
    perform(&mut robot, UiCommand::Undo);
    robot.settle();
    assert!(!robot.sees("What is shown here is the step before it") && robot.app().studio.problems() == 0);
    perform(&mut robot, UiCommand::Select(Selection::Layer(LayerPath::from([conv]))));
    assert!(robot.app().studio.inspector.to_string().contains("weight"));
}

/// Sets the document's data to a table in a file, at `path`.
fn use_table(robot: &mut Robot, path: &std::path::Path) {
    let edit = Edit::SetField { owner: Owner::Preset, name: "data.type", value: FieldValue::Choice(8) };
    perform(robot, UiCommand::Edit(edit));
    robot.settle();
    perform(robot, Request::UseData(DataField::only("data.path"), path.to_owned()));
    robot.settle();
}

fn times(robot: &Robot, text: &str) -> usize {
    robot.window.query_all_by_label_contains(text).count()
}

#[test]
fn a_mistake_in_the_data_is_reported_once_and_disappears_when_its_file_is_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.csv");
    let mut robot = Robot::open(Some("spirals"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Data));
    robot.until("the spirals", |app| app.studio.samples.is_current);
    use_table(&mut robot, &path);
    robot.until("the mistake", |app| app.studio.problems() == 1);
    robot.window.run_steps(3);
    assert_eq!(times(&robot, "own.csv: cannot be read"), 1);
    assert!(robot.sees("1 problem") && robot.sees("from before the change"));
    // A run that fails because of it is reported only in the status line.
    robot.press("Train");
    robot.until("the failure", |app| matches!(app.studio.training.state, Some(RunState::Failed(_))));
    robot.window.run_steps(3);
    assert_eq!(times(&robot, "own.csv: cannot be read"), 2);
    assert!(robot.sees("Training failed:"));
    let rows: String = (0..400).map(|i| format!("{},{},{}\n", i % 7, (i * 3) % 5, i % 2)).collect();
    std::fs::write(&path, format!("a,b,kind\n{rows}")).unwrap();
    robot.until("the table", |app| app.studio.samples.is_current);
    robot.window.run_steps(3);
    assert_eq!((times(&robot, "cannot be read"), robot.app().studio.problems()), (0, 0));
    assert!(!robot.sees("Training failed:") && !robot.sees("from before the change"));
    assert!(robot.app().studio.training.state.is_none());
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    assert!(!robot.sees("cannot be read"));
}

#[test]
fn a_failure_to_prepare_a_run_is_not_reported_for_another_network() {
    let mut robot = Robot::open(None);
    let own = robot.value("sample shape");
    robot.set("sample shape", "32");
    perform(&mut robot, UiCommand::ShowTab(Tab::Arena));
    robot.press("Train");
    robot.until("the failure", |app| app.studio.notice.is_some());
    robot.window.run_steps(2);
    assert!(robot.sees("Training failed:"));
    robot.set("sample shape", &own);
    assert!(robot.app().studio.notice.is_none() && robot.app().studio.problems() == 0);
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    assert!(!robot.sees("does not fit the network") && robot.sees("Train this network"));
}

#[test]
fn a_long_run_takes_no_more_memory_than_a_short_one() {
    let mut robot = Robot::start(Startup::default());
    let report = StepReport { step: 1, loss: 1.0, accuracy: 0.5, step_us: 8.0, ..StepReport::default() };
    let training = &mut robot.window.state_mut().studio.training;
    let mut grow = |to: u64| {
        while training.done() < to {
            let reports: Vec<_> =
                (0..10_000).map(|i| stepgraph::train::StepReport { loss: i as f32, ..report }).collect();
            training.steps(&reports);
            for i in 0..100 {
                let point = [(training.done() + i) as f64, 1.0];
                training.history.curves.held_out_loss.push(point);
                training.history.curves.held_out_accuracy.push(point);
            }
        }
        training.history.bytes_held()
    };
    let (early, late) = (grow(600_000), grow(4_000_000));
    assert!(early == late && late < 20 << 20, "{early} {late}");
}
