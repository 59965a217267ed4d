//! Small windows, plots under the pointer, and when a run is evaluated.

use crate::robot::Robot;
use egui::accesskit::Role;
use egui::{Key, Modifiers, PointerButton, Pos2, Vec2};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use stepgraph::studio::commands::{Tab, UiCommand};
use stepgraph::train::RunState;

fn show(robot: &mut Robot, tab: Tab) {
    robot.choose(UiCommand::ShowTab(tab));
    robot.window.run_steps(4);
}

#[test]
fn in_a_small_window_the_panels_are_hidden_and_everything_fits() {
    for [width, height] in [[900.0, 600.0], [720.0, 480.0]] {
        let mut robot = Robot::open(Some("stress-200"));
        robot.window.set_size(Vec2::new(width, height));
        robot.window.run_steps(4);
        assert!(!robot.sees("Back to the previous selection"));
        for tab in Tab::ALL {
            show(&mut robot, tab);
            for name in ["Stop", "Step", "Reset", "Undo", "Inspector"] {
                let button = robot.window.query_all_by_role_and_label(Role::Button, name).next();
                let rect = button.unwrap_or_else(|| panic!("no {name}")).rect();
                assert!(rect.right() <= width && rect.left() >= 0.0, "{name} at {rect:?} in {width}");
            }
        }
        robot.key(Modifiers::COMMAND, Key::I);
        robot.window.run_steps(3);
        let parameters = robot.window.query_all_by_label("parameters").next().map(|n| n.rect().right());
        assert!(parameters.is_some_and(|x| x <= width), "{parameters:?}");
    }
}

#[test]
fn a_flat_drag_zooms_the_steps_and_a_steep_one_the_values() {
    let mut robot = Robot::open(None);
    robot.press("Train this network");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    robot.window.run_steps(3);
    let drag = |robot: &mut Robot, by: Vec2| {
        let rect = robot.window.get_by_role_and_label(Role::Image, "Loss against step").rect();
        let from = rect.center() - by / 2.0;
        let button = |pos: Pos2, pressed| egui::Event::PointerButton {
            pos,
            button: PointerButton::Primary,
            pressed,
            modifiers: Modifiers::NONE,
        };
        robot.window.event(egui::Event::PointerMoved(from));
        robot.window.step();
        robot.window.event(button(from, true));
        robot.window.step();
        for part in [0.5, 1.0] {
            robot.window.event(egui::Event::PointerMoved(from + by * part));
            robot.window.step();
        }
        robot.window.event(button(from + by, false));
        robot.window.run_steps(3);
    };
    assert!(!robot.app().panels.train.view.frozen);
    drag(&mut robot, Vec2::new(60.0, 6.0));
    assert!(robot.app().panels.train.view.frozen && !robot.app().panels.train.view.has_own_y("Loss"));
    drag(&mut robot, Vec2::new(4.0, 30.0));
    assert!(robot.app().panels.train.view.has_own_y("Loss"));
}

#[test]
fn held_out_points_are_at_multiples_of_a_round_number() {
    let mut robot = Robot::open(None);
    robot.press("Train this network");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    let training = &robot.app().studio.training;
    let every = training.evaluated_every.expect("chosen");
    let digits = every.to_string();
    assert!(["1", "2", "5"].contains(&digits.trim_end_matches('0')), "{every}");
    let points = &training.history.curves.held_out_loss;
    let (last, before) = points.split_last().expect("a point at the end");
    assert_eq!(last[0] as u64, training.total);
    assert!(before.iter().all(|p| (p[0] as u64).is_multiple_of(every)), "{points:?}");
}

#[test]
fn nothing_in_the_top_bar_overlaps() {
    let mut robot = Robot::open(None);
    robot.set("steps", "100000000");
    let check = |robot: &Robot, when: &str| {
        let mut found: Vec<(String, egui::Rect)> = Vec::new();
        for node in robot.window.query_all(egui_kittest::kittest::By::new()) {
            if node.accesskit_node().raw_bounds().is_none() {
                continue;
            }
            let (rect, label) = (node.rect(), node.accesskit_node().label().unwrap_or_default());
            let leaf = matches!(node.accesskit_node().role(), Role::Button | Role::Label);
            if leaf && !label.is_empty() && rect.bottom() <= 44.0 && rect.is_positive() {
                found.push((label, rect));
            }
        }
        assert!(found.len() > 10, "{when}: {found:?}");
        for (at, (name, rect)) in found.iter().enumerate() {
            assert!(rect.left() >= 0.0 && rect.right() <= 1280.0, "{when}: {name} at {rect:?}");
            for (other, second) in &found[at + 1..] {
                let over = rect.intersect(*second);
                assert!(!(over.width() > 0.5 && over.height() > 0.5), "{when}: {name} {rect:?} and {other} {second:?}");
            }
        }
    };
    check(&robot, "before a run");
    robot.press("Train this network");
    robot.until("some steps", |app| app.studio.training.done() > 20);
    check(&robot, "while it runs");
    robot.press("Stop");
    robot.until("the stop", |app| app.studio.training.is_stopped());
    robot.window.run_steps(2);
    check(&robot, "after a stop");
    // The line of the Runs tab also stays within its width; items that do not fit are in its menu.
    for width in [1280.0, 900.0, 720.0] {
        robot.window.set_size(Vec2::new(width, 800.0));
        show(&mut robot, Tab::Runs);
        let rect = |name: &str| robot.window.query_all_by_role_and_label(Role::Button, name).next().map(|n| n.rect());
        let [more, trash] = ["More with runs", "Trash"].map(|n| rect(n).unwrap_or_else(|| panic!("{n} in {width}")));
        assert!(more.right() <= trash.left() && trash.right() <= width, "{more:?} {trash:?} {width}");
        assert!((more.center().y - trash.center().y).abs() < 4.0);
    }
}
