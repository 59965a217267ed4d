//! What is done by keyboard alone, and the list of layers with its folds.

use crate::robot::Robot;
use egui::accesskit::Role;
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use stepgraph::model::LayerPath;
use stepgraph::studio::commands::Command;
use stepgraph::studio::selection::Selection;

fn perform(robot: &mut Robot, command: Command) {
    let ctx = robot.window.ctx.clone();
    robot.window.state_mut().perform(&ctx, command);
    robot.window.run_steps(3);
}

fn select(robot: &mut Robot, path: &[usize]) {
    perform(robot, Command::Select(Selection::Layer(LayerPath(path.to_vec()))));
}

#[test]
fn a_large_network_opens_folded_and_shows_what_is_selected() {
    let mut robot = Robot::open(Some("stress-200"));
    assert!(robot.sees("49 × Residual") && robot.sees("196 layers"));
    assert!(!robot.sees("Select L7:Residual"));
    // A layer that is pointed at elsewhere is shown, and no more than it needs.
    select(&mut robot, &[7, 1]);
    assert!(robot.sees("Select L7.1:Dense"));
    assert!(!robot.sees("Select L6.1:Dense") && robot.sees("3 layers"));
    robot.press("Fold L7:Residual");
    robot.window.run_steps(2);
    assert!(!robot.sees("Select L7.1:Dense"));
    robot.key(Modifiers::COMMAND, Key::OpenBracket);
    assert!(!robot.sees("Select L7:Residual"));
    robot.key(Modifiers::COMMAND, Key::CloseBracket);
    assert!(robot.sees("Select L1.0:LayerNorm"));
    robot.press("Fold all layers");
    assert!(!robot.sees("Select L1.0:LayerNorm"));
}

#[test]
fn mistakes_inside_of_folds_are_not_hidden() {
    let mut robot = Robot::open(Some("stress-200"));
    robot.press("Unfold L1 to L49 of 49 × Residual");
    robot.press("Unfold L1:Residual");
    robot.window.run_steps(2);
    robot.write("L1.2 units", "7");
    robot.settle();
    robot.press("Fold L1:Residual");
    robot.window.run_steps(2);
    assert!(robot.sees("1 problem inside"));
}

#[test]
fn the_list_of_layers_is_walked_through_by_keyboard() {
    let mut robot = Robot::open(Some("stress-200"));
    robot.window.get_by_role_and_label(Role::Table, "List of layers, 200 layers").focus();
    robot.window.run_steps(2);
    let selected = |robot: &Robot| robot.app().studio.selection.current().clone();
    let layer = |path: &[usize]| Selection::Layer(LayerPath(path.to_vec()));
    robot.key(Modifiers::NONE, Key::ArrowDown);
    assert_eq!(selected(&robot), layer(&[0]));
    // The folded run is passed over without unfolding it, unless it is asked to.
    robot.key(Modifiers::NONE, Key::ArrowDown);
    robot.key(Modifiers::NONE, Key::ArrowDown);
    assert_eq!(selected(&robot), layer(&[50]));
    robot.key(Modifiers::NONE, Key::ArrowUp);
    robot.key(Modifiers::NONE, Key::ArrowRight);
    robot.key(Modifiers::NONE, Key::ArrowDown);
    assert_eq!(selected(&robot), layer(&[1]));
    robot.key(Modifiers::NONE, Key::ArrowRight);
    robot.key(Modifiers::NONE, Key::ArrowDown);
    assert_eq!(selected(&robot), layer(&[1, 0]));
    robot.key(Modifiers::NONE, Key::End);
    assert_eq!(selected(&robot), layer(&[52]));
    // The keyboard is on the list, not in a field: the key removes the layer.
    robot.key(Modifiers::NONE, Key::Delete);
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().layers.len(), 52);
}

#[test]
fn the_focus_is_seen_once_keys_lead_it() {
    let mut robot = Robot::open(None);
    assert!(!robot.app().panels.ring.is_shown());
    robot.key(Modifiers::NONE, Key::Tab);
    assert!(robot.app().panels.ring.is_shown());
    robot.press("Select L1:Dropout");
    assert!(!robot.app().panels.ring.is_shown());
}

#[test]
fn dialogs_are_confirmed_by_enter_and_cancelled_by_escape() {
    let mut robot = Robot::open(None);
    robot.write("batch", "32");
    robot.settle();
    robot.key(Modifiers::COMMAND, Key::N);
    robot.window.run_steps(2);
    robot.key(Modifiers::NONE, Key::Escape);
    assert!(!robot.sees("Save the changes to") && robot.value("batch") == "32");
    robot.key(Modifiers::COMMAND, Key::N);
    robot.window.run_steps(2);
    // The safe way on has the keyboard; the next one is a Tab away.
    robot.key(Modifiers::NONE, Key::Tab);
    robot.key(Modifiers::NONE, Key::Enter);
    assert!(!robot.sees("Save the changes to") && robot.value("batch") == "32");
    perform(&mut robot, Command::OpenByPath);
    assert!(robot.sees("Open a preset by its path"));
    robot.key(Modifiers::NONE, Key::Escape);
    assert!(!robot.sees("Open a preset by its path"));
    for page in [Command::ShowShortcuts, Command::ShowAbout] {
        perform(&mut robot, page);
        assert!(robot.sees("Close"));
        robot.key(Modifiers::NONE, Key::Escape);
        assert!(!robot.sees("Close"));
    }
}

#[test]
fn a_refused_file_is_told_whole_and_told_again_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.json");
    std::fs::write(&path, "{\"name\": 3, \"loss\": 4}").unwrap();
    let mut robot = Robot::open(path.to_str());
    robot.until("the answer", |app| app.studio.notice.is_some());
    robot.window.run_steps(3);
    assert!(robot.sees("What went wrong"));
    let text = robot.app().studio.notice.clone().unwrap().text;
    assert!(text.lines().count() > 2 && robot.sees(text.lines().nth(2).unwrap()), "{text}");
    // Enter closes it; the status line opens it again.
    robot.key(Modifiers::NONE, Key::Enter);
    robot.window.run_steps(2);
    assert!(!robot.sees("What went wrong"));
    let line = robot.app().studio.notice.as_ref().unwrap().line();
    robot.press(&line);
    robot.window.run_steps(2);
    assert!(robot.sees("What went wrong"));
    robot.key(Modifiers::NONE, Key::Escape);
    assert!(!robot.sees("What went wrong"));
    perform(&mut robot, Command::OpenFile(folder.path().join("none.json")));
    let told =
        |app: &stepgraph::studio::StudioApp| app.studio.notice.as_ref().is_some_and(|n| n.text.contains("none.json"));
    robot.until("the answer", told);
    robot.window.run_steps(2);
    assert!(robot.sees("Check the path"));
}

#[test]
fn shortcuts_rest_behind_an_open_dialog() {
    let mut robot = Robot::open(None);
    robot.write("batch", "32");
    robot.settle();
    robot.key(Modifiers::COMMAND, Key::N);
    assert!(robot.sees("Save the changes to"));
    robot.key(Modifiers::NONE, Key::F5);
    robot.key(Modifiers::COMMAND, Key::Z);
    robot.key(Modifiers::COMMAND, Key::Num3);
    assert!(robot.app().studio.training.state.is_none() && robot.value("batch") == "32");
    assert!(robot.app().studio.shown.contains(&stepgraph::studio::commands::Tab::Train));
    robot.key(Modifiers::NONE, Key::Escape);
    robot.key(Modifiers::COMMAND, Key::Z);
    assert_eq!(robot.value("batch"), "64");
    // The list of keys is searched at once, and names the keys by their signs.
    robot.key(Modifiers::NONE, Key::F1);
    assert!(robot.sees("Ctrl+[") && !robot.sees("OpenBracket"));
    robot.window.event(egui::Event::Text("fold".into()));
    robot.window.run_steps(2);
    assert!(!robot.sees("Zooms around the pointer"));
}

#[test]
fn a_click_on_a_card_gives_the_keyboard_to_the_list() {
    let mut robot = Robot::open(Some("stress-200"));
    let selected = |robot: &Robot| robot.app().studio.selection.current().clone();
    robot.press("Select L0:Dense");
    robot.key(Modifiers::NONE, Key::ArrowDown);
    robot.key(Modifiers::NONE, Key::ArrowRight);
    assert!(robot.sees("Select L1:Residual"));
    robot.key(Modifiers::NONE, Key::ArrowDown);
    assert_eq!(selected(&robot), Selection::Layer(LayerPath(vec![1])));
    robot.press("Fold all layers");
    robot.window.get_by_label("49 × Residual").click();
    robot.window.run_steps(3);
    assert!(robot.sees("Select L1:Residual"));
}
