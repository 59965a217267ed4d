//! Everything stays readable: values under the pointer, jobs, notices, tabs in a narrow row, tables that are scrolled
//! horizontally, and the tour's card.

use crate::robot::Robot;
use egui::accesskit::Role;
use egui::{Modifiers, Rect, Vec2};
use egui_kittest::kittest::{By, NodeT as _, Queryable as _};
use stepgraph::studio::Startup;
use stepgraph::studio::commands::JobKind;
use stepgraph::studio::commands::RunsCommand;
use stepgraph::studio::commands::TourMove;
use stepgraph::studio::commands::{Tab, UiCommand};
use stepgraph::studio::view_models::format;
use stepgraph::train::RunState;
use stepgraph::train::runs::RunStore;

const SIZES: [Vec2; 3] = [Vec2::new(1280.0, 800.0), Vec2::new(1024.0, 700.0), Vec2::new(900.0, 600.0)];

fn perform(robot: &mut Robot, command: UiCommand) {
    robot.choose(command);
    robot.window.run_steps(6);
}

fn resize(robot: &mut Robot, size: Vec2) {
    robot.window.set_size(size);
    robot.window.run_steps(6);
}

/// The first element whose name starts with this.
fn rect(robot: &Robot, begins: &str) -> Option<Rect> {
    robot.window.query_all_by_label_contains(begins).find(|n| label(n).starts_with(begins)).map(|n| n.rect())
}

/// The name of an element; for a label it is the value.
fn label(node: &egui_kittest::Node<'_>) -> String {
    let node = node.accesskit_node();
    let name = if node.role() == Role::Label { node.value() } else { node.label() };
    name.unwrap_or_default()
}

#[test]
fn the_plots_of_runs_show_the_values_at_the_pointer() {
    let folder = tempfile::tempdir().unwrap();
    let mut robot = Robot::start(Startup { runs: Some(RunStore::at(folder.path())), ..Startup::default() });
    robot.train_to_the_end(60);
    robot.until("the run", |app| app.studio.runs.entries.first().is_some_and(|e| e.has_weights));
    let id = robot.app().studio.runs.entries[0].id.clone();
    perform(&mut robot, UiCommand::Runs(RunsCommand::Show(id.clone())));
    robot.until("its curves", |app| app.studio.runs.loaded.contains_key(&id));
    robot.window.run_steps(4);
    let plot = robot.window.get_by_role_and_label(Role::Image, "Loss of the selected runs").rect();
    robot.window.event(egui::Event::PointerMoved(plot.center() + Vec2::new(20.0, 0.0)));
    robot.window.run_steps(4);
    let shown = robot.window.query_all_by_label_contains("smoothed ").next().map(|n| label(&n)).expect("the values");
    let step: usize = shown.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a step");
    let loaded = &robot.app().studio.runs.loaded[&id];
    let of = |series: &stepgraph::studio::view_models::series::values::Series| {
        format::number(f64::from(series.at(step).expect("a value at the step")))
    };
    assert!((2..60).contains(&step), "{shown}");
    for wanted in
        [format!("smoothed {}", of(&loaded.curves.loss.smooth)), format!("raw {}", of(&loaded.curves.loss.raw))]
    {
        assert!(shown.contains(&wanted), "{shown}: {wanted}");
    }
    // The other plots show theirs at the same step.
    let times = format!("smoothed {}", format::micros(f64::from(loaded.curves.step_us.smooth.at(step).unwrap())));
    assert!(robot.sees(&times), "{times}");
}

#[test]
fn a_job_is_shown_on_every_tab_and_can_be_cancelled() {
    let mut robot = Robot::open(Some("stress-200"));
    for tab in [Tab::Train, Tab::Data, Tab::Verify] {
        perform(&mut robot, UiCommand::ShowTab(tab));
        robot.choose(UiCommand::ComparePlans);
        robot.window.step();
        assert!(robot.sees("Job: Compare planners"), "{tab:?}");
        let cancel = robot.window.get_by_role_and_label(Role::Button, "Cancel: Compare planners").rect();
        assert!(cancel.right() <= 1280.0 && cancel.bottom() > 760.0, "{cancel:?}");
        robot.press("Cancel: Compare planners");
        assert!(!robot.sees("Job: Compare planners") && !robot.app().studio.measurements.is_comparing());
    }
    // A job that ends says where its result is.
    perform(&mut robot, UiCommand::MeasureOps);
    robot.until("the times", |app| !app.studio.measurements.is_measuring());
    robot.window.run_steps(2);
    let notice = robot.app().studio.notice.clone().expect("a notice");
    assert_eq!(notice.actions, [UiCommand::ShowTab(Tab::StepGraph)]);
    let shown = |robot: &Robot, kind| robot.app().studio.jobs.shown.iter().any(|j| j.kind == kind);
    assert!(!shown(&robot, JobKind::Measure));
    perform(&mut robot, UiCommand::Prove(None));
    assert!(shown(&robot, JobKind::Verify));
    perform(&mut robot, UiCommand::CancelJob(JobKind::Verify));
    assert!(!shown(&robot, JobKind::Verify) && !robot.app().studio.proofs.is_running());
}

#[test]
fn a_notice_and_what_an_edit_changed_are_both_shown() {
    let mut robot = Robot::open(None);
    robot.press("Train this network");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    robot.set("L0 units", "96");
    robot.until("the difference", |app| app.studio.last_edit.difference.is_some());
    robot.window.state_mut().studio.say("The run digits-mlp is kept, and this is a notice of a usual length.");
    for size in SIZES {
        resize(&mut robot, size);
        let places = ["What the last edit changed", "The run digits-mlp is kept"].map(|text| rect(&robot, text));
        let [Some(difference), Some(notice)] = places else { panic!("{size}: {places:?}") };
        assert!(difference.width() > 80.0 && notice.width() > 200.0, "{size}: {difference} {notice}");
        for r in [difference, notice] {
            assert!(r.right() <= size.x && r.bottom() <= size.y, "{size}: {r}");
        }
        let over = difference.intersect(notice);
        assert!(!over.is_positive() || over.width() < 1.0, "{size}: {difference} {notice}");
    }
}

#[test]
fn the_shown_tab_is_visible_in_its_row() {
    let mut robot = Robot::open(None);
    for size in SIZES {
        resize(&mut robot, size);
        // The panels beside the tabs have at least this width.
        let (network, inspector) = (264.0, if size.x >= 1000.0 { 200.0 } else { 0.0 });
        for tab in [Tab::Verify, Tab::StepGraph, Tab::Runs, Tab::Predictions] {
            perform(&mut robot, UiCommand::ShowTab(tab));
            robot.window.run_steps(6);
            let button = robot.window.query_all_by_role_and_label(Role::Button, tab.title()).next();
            let button = button.unwrap_or_else(|| panic!("no tab {tab:?}")).rect();
            // Less than a point is lost to rounding.
            let is_inside = button.left() >= network && button.right() <= size.x - inspector + 1.0;
            assert!(is_inside, "{tab:?} at {button} in {size}");
        }
    }
}

#[test]
fn a_table_scrolled_horizontally_keeps_the_names_of_its_rows() {
    let mut robot = Robot::open(Some("stress-200"));
    resize(&mut robot, Vec2::new(1024.0, 700.0));
    for (tab, name) in [(Tab::StepGraph, "Rows of the step graph"), (Tab::Capture, "Buffers by layer,")] {
        perform(&mut robot, UiCommand::ShowTab(tab));
        let table = rect(&robot, name).expect("the table");
        let shown = |robot: &Robot| -> Vec<(String, Rect)> {
            let all = robot.window.query_all(By::new()).filter(|n| n.accesskit_node().raw_bounds().is_some());
            all.map(|n| (label(&n), n.rect())).filter(|(_, r)| table.contains(r.left_center())).collect()
        };
        let place = |of: &[(String, Rect)]| of.iter().find(|(text, _)| text == "L0:Dense").map(|(_, r)| r.left());
        let before = shown(&robot);
        robot.window.event(egui::Event::PointerMoved(table.center()));
        robot.window.event(egui::Event::MouseWheel {
            unit: egui::MouseWheelUnit::Point,
            delta: Vec2::new(-300.0, 0.0),
            phase: egui::TouchPhase::Move,
            source: egui::MouseWheelSource::Unknown,
            modifiers: Modifiers::NONE,
        });
        robot.window.run_steps(40);
        let after = shown(&robot);
        assert!(before != after, "{tab:?} was not moved");
        let (Some(was), Some(is)) = (place(&before), place(&after)) else { panic!("{tab:?}: {before:?} {after:?}") };
        assert!((was - is).abs() < 2.0, "{tab:?}: from {was} to {is}");
    }
}

#[test]
fn the_card_of_the_tour_covers_nothing_that_it_explains() {
    for size in SIZES {
        let mut robot = Robot::start(Startup { tour: true, ..Startup::default() });
        resize(&mut robot, size);
        // The card extends from its first line to its last button, with a margin around them.
        let card = |robot: &Robot, title: &str| {
            let head = rect(robot, "Tour, ").expect("the card").union(rect(robot, title).expect("its title"));
            let dismiss = rect(robot, "Dismiss the tour").expect("its end");
            let buttons = robot.window.query_all_by_label_contains("this step of the tour").next().map(|n| n.rect());
            head.union(dismiss).union(buttons.expect("its button")).expand(10.0)
        };
        let free = |card: Rect, of: Rect, what: &str| {
            assert!(!card.intersects(of), "{what} at {of} under the card at {card} in {size}");
        };
        let train = card(&robot, "Train it");
        let button = robot.window.query_all_by_role_and_label(Role::Button, "Train").next().expect("Train").rect();
        free(train, button, "the button");
        if size.x >= 1000.0 {
            let head = Rect::from_min_max(egui::pos2(size.x - 200.0, 40.0), egui::pos2(size.x, 240.0));
            free(train, head, "the head of the inspector");
        }
        robot.press("Train now");
        robot.until("steps", |app| app.studio.training.done() > 0);
        robot.window.run_steps(3);
        let plot = robot.window.get_by_role_and_label(Role::Image, "Loss against step").rect();
        free(card(&robot, "Train it"), plot, "the plot");
        perform(&mut robot, UiCommand::Tour(TourMove::Next));
        perform(&mut robot, UiCommand::ShowTab(Tab::Arena));
        perform(&mut robot, UiCommand::SelectLargestBuffer);
        let memory = card(&robot, "See where the memory went");
        free(memory, rect(&robot, "Arena map").unwrap_or(Rect::NOTHING), "the map");
        if size.x >= 1000.0 {
            let inspector =
                Rect::from_min_max(egui::pos2(size.x - 200.0, 40.0), (size - Vec2::new(0.0, 30.0)).to_pos2());
            free(memory, inspector, "the inspector");
        }
        perform(&mut robot, UiCommand::Tour(TourMove::Next));
        let edit = card(&robot, "Change it and watch the plan");
        let units = robot.window.get_by_role_and_label(Role::TextInput, "L0 units").rect();
        free(edit, units, "the field");
        free(edit, Rect::from_min_max(egui::pos2(0.0, size.y - 22.0), size.to_pos2()), "the status line");
    }
}
