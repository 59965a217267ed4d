//! Building a network, breaking it, and correcting it.

use crate::robot::Robot;
use egui::{Key, Modifiers};
use stepgraph::model::LayerPath;
use stepgraph::studio::commands::Edit;
use stepgraph::studio::commands::UiCommand;
use stepgraph::studio::document::fields::value::{FieldValue, Owner};

#[test]
fn a_mistake_appears_on_its_card_and_disappears_when_it_is_fixed() {
    let mut robot = Robot::open(None);
    assert_eq!(robot.app().studio.problems(), 0);
    robot.set("L1 rate", "1.5");
    assert!(robot.sees("found 1.5") && robot.sees("expected a number from 0 up to"));
    assert!(robot.sees("1 problem"));
    assert!(!robot.app().studio.is_ready() && robot.app().studio.plan.is_some());
    robot.set("L1 rate", "0.3");
    assert!(!robot.sees("found 1.5"));
    assert!(robot.app().studio.is_ready());
}

#[test]
fn a_wrong_text_stays_as_it_was_typed_until_it_is_undone() {
    let mut robot = Robot::open(None);
    robot.set("L0 units", "many");
    assert_eq!(robot.value("L0 units"), "many");
    assert!(robot.sees("expected a whole number, at least 1") && robot.sees("1 problem"));
    assert!(!robot.app().studio.is_ready() && !robot.app().studio.document.is_dirty());
    robot.command_key(Key::Z);
    assert_eq!(robot.value("L0 units"), "128");
    assert!(robot.app().studio.is_ready());
}

#[test]
fn an_edit_says_what_it_changed_and_is_undone_as_one() {
    let mut robot = Robot::open(None);
    robot.set("L0 units", "256");
    let difference = robot.app().studio.last_edit.difference.clone().expect("a difference");
    assert!(difference.starts_with("arena +"), "{difference}");
    // Plans made while a number is typed are not compared: the difference of the whole edit is shown.
    robot.press("Undo");
    robot.settle();
    let whole = |robot: &Robot| robot.app().studio.last_edit.difference.clone();
    robot.set("L0 units", "96");
    let once = whole(&robot).expect("a difference");
    robot.press("Undo");
    robot.settle();
    let typed = |units| {
        UiCommand::Edit(Edit::SetField {
            owner: Owner::Layer(LayerPath::from([0])),
            name: "units",
            value: FieldValue::Count(units),
        })
    };
    for units in [9, 96] {
        robot.choose(typed(units));
        robot.settle();
    }
    assert!(once.starts_with("arena −") && whole(&robot) == Some(once));
    robot.press("Undo");
    robot.settle();
    robot.set("L0 units", "256");
    robot.press("Undo");
    robot.settle();
    assert_eq!(robot.value("L0 units"), "128");
    assert!(!robot.app().studio.document.is_dirty());
    robot.press("Redo");
    assert_eq!(robot.value("L0 units"), "256");
}

#[test]
fn a_network_is_built_from_nothing_by_keyboard() {
    let mut robot = Robot::open(None);
    robot.command_key(Key::N);
    assert!(robot.sees("the network has no layers"));
    for layer in ["dense", "residual", "dense"] {
        robot.key(Modifiers::COMMAND, Key::L);
        for letter in layer.chars() {
            robot.window.event(egui::Event::Text(letter.to_string()));
        }
        robot.window.step();
        robot.keys(&[Key::Enter]);
        robot.settle();
    }
    let text = robot.app().studio.network.to_string();
    assert!(text.contains("1 Residual") && text.contains("2 Dense units=64"), "{text}");
    assert!(robot.sees("the block is empty"));
    robot.press("Add inside L1:Residual");
    robot.press("LayerNorm");
    robot.settle();
    robot.set("L2 units", "10");
    let text = robot.app().studio.network.to_string();
    assert!(text.contains("  1.0 LayerNorm eps=1e-5 -> [64]"), "{text}");
    assert!(robot.app().studio.is_ready(), "{text}");
}

#[test]
fn layers_move_and_go_by_shortcut() {
    let mut robot = Robot::open(None);
    robot.press("Select L1:Dropout");
    robot.key(Modifiers::ALT, Key::ArrowUp);
    robot.settle();
    assert!(robot.app().studio.network.to_string().starts_with("0 Dropout"));
    robot.command_key(Key::D);
    assert_eq!(robot.app().studio.network.cards.len(), 4);
    robot.command_key(Key::Backspace);
    assert_eq!(robot.app().studio.network.cards.len(), 3);
}

#[test]
fn one_selection_is_shown_in_every_view_and_goes_back() {
    let mut robot = Robot::open(None);
    robot.press("Select L0:Dense");
    let related = &robot.app().studio.related;
    assert!(!related.ops.is_empty() && !related.buffers.is_empty());
    assert!(robot.sees("L0:Dense"));
    robot.press("Step graph");
    let op = robot.app().studio.plan.as_ref().expect("a plan").ops[0].kernel.clone();
    robot.press(&format!("Op 0 {op}"));
    assert!(robot.app().studio.inspector.to_string().contains("[Rejected candidates]"));
    robot.key(Modifiers::ALT, Key::ArrowLeft);
    assert!(robot.app().studio.inspector.to_string().starts_with("Layer: L0:Dense"));
    robot.key(Modifiers::ALT, Key::ArrowRight);
    assert!(robot.app().studio.inspector.to_string().starts_with("Operation: 0 gemm"));
}

#[test]
fn the_palette_finds_any_command() {
    let mut robot = Robot::open(None);
    robot.key(Modifiers::COMMAND, Key::K);
    for letter in "spirals".chars() {
        robot.window.event(egui::Event::Text(letter.to_string()));
    }
    robot.window.step();
    robot.keys(&[Key::Enter]);
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().name, "spirals");
}

#[test]
fn undoing_an_added_layer_selects_the_network() {
    let mut robot = Robot::open(None);
    robot.copy_layer("L2:Dense");
    assert!(robot.app().studio.inspector.to_string().starts_with("Layer: L3:Dense"));
    robot.press("Undo");
    robot.settle();
    let page = robot.app().studio.inspector.to_string();
    assert!(page.starts_with("Network: digits-mlp"), "{page}");
}

#[test]
fn an_idle_window_draws_no_frames() {
    let mut robot = Robot::open(None);
    let rested = (0..64).any(|_| {
        robot.window.step();
        !robot.window.ctx.has_requested_repaint()
    });
    assert!(rested, "{:?}", robot.window.ctx.repaint_causes());
}

#[test]
fn the_delete_key_removes_the_selected_layer_and_in_a_field_a_letter() {
    use stepgraph::studio::commands::Selection;
    let mut robot = Robot::open(None);
    let select = |robot: &mut Robot| {
        robot.choose(UiCommand::Select(Selection::Layer(LayerPath::from([1]))));
        robot.window.step();
    };
    select(&mut robot);
    robot.write("L1 rate", "0.25");
    robot.keys(&[Key::Delete]);
    assert_eq!(robot.app().studio.document.preset().layers.len(), 3, "the key belongs to the field");
    robot.keys(&[Key::Enter]);
    robot.settle();
    select(&mut robot);
    robot.keys(&[Key::Delete]);
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().layers.len(), 2);
    robot.command_key(Key::Z);
    assert_eq!(robot.app().studio.document.preset().layers.len(), 3);
}

#[test]
fn unusual_scores_are_reported_on_the_layer_and_can_be_trained() {
    let mut robot = Robot::open(None);
    assert!(!robot.sees("the data has 10 classes"));
    robot.set("L2 units", "64");
    assert!(robot.sees("the data has 10 classes: give this layer 10 units") && robot.app().studio.is_ready());
    robot.set("L2 units", "10");
    assert!(!robot.sees("the data has 10 classes"));
}
