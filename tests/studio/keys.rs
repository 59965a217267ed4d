//! Actions by keyboard only, and the list of layers with its folds.

use crate::robot::{Robot, asking_to_save, perform, refusing};
use egui::accesskit::Role;
use egui::{Key, Modifiers};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use stepgraph::model::LayerPath;
use stepgraph::studio::commands::Selection;
use stepgraph::studio::commands::{Request, Tab, UiCommand};
use stepgraph::studio::view_models::network::Row;

fn is_focused(robot: &Robot, role: Role, name: &str) -> bool {
    robot.window.get_by_role_and_label(role, name).accesskit_node().is_focused()
}

/// Opens the list that has the keyboard focus and takes the second choice below.
fn choose_by_keys(robot: &mut Robot) {
    robot.keys(&[Key::Enter]);
    robot.window.run_steps(2);
    robot.keys(&[Key::ArrowDown, Key::ArrowDown, Key::Enter]);
    robot.window.run_steps(4);
}

#[test]
fn a_field_keeps_the_focus_after_its_text_is_entered() {
    let mut robot = Robot::open(None);
    robot.write("sample shape", "64");
    robot.keys(&[Key::Enter]);
    robot.window.run_steps(3);
    assert!(is_focused(&robot, Role::TextInput, "sample shape"));
    robot.keys(&[Key::Tab]);
    assert!(is_focused(&robot, Role::ComboBox, "type"));
    robot.keys(&[Key::Tab]);
    assert!(is_focused(&robot, Role::TextInput, "batch"));
    robot.keys(&[Key::Tab]);
    choose_by_keys(&mut robot);
    assert!(is_focused(&robot, Role::ComboBox, "precision"));
    assert_ne!(robot.app().studio.document.preset().precision, stepgraph::model::Precision::F32);
}

#[test]
fn a_key_moves_the_focus_from_panel_to_panel() {
    let mut robot = Robot::open(None);
    // The inspector of a layer has controls.
    select(&mut robot, &[0]);
    robot.window.get_by_role_and_label(Role::TextInput, "batch").focus();
    robot.window.run_steps(2);
    let at = |robot: &mut Robot, modifiers: Modifiers| {
        robot.key(modifiers, Key::F6);
        robot.window.run_steps(2);
        let ctx = &robot.window.ctx;
        ctx.memory(egui::Memory::focused).and_then(|id| ctx.read_response(id)).expect("a control").rect.center()
    };
    let network = robot.window.get_by_role_and_label(Role::TextInput, "batch").rect();
    let tabs = at(&mut robot, Modifiers::NONE);
    assert!(tabs.x > network.right());
    let inspector = at(&mut robot, Modifiers::NONE);
    assert!(inspector.x > tabs.x && inspector.x > 900.0);
    assert_eq!(at(&mut robot, Modifiers::SHIFT), tabs);
    assert!(at(&mut robot, Modifiers::SHIFT).x < network.right());
    let top = at(&mut robot, Modifiers::SHIFT);
    assert!(top.y < network.top() && is_focused(&robot, Role::Button, "File"));
    robot.keys(&[Key::F1]);
    assert!(robot.sees("F6, Shift+F6"));
}

fn select(robot: &mut Robot, path: &[usize]) {
    perform(robot, UiCommand::Select(Selection::Layer(LayerPath::from(path))));
}

#[test]
fn a_large_network_opens_folded_and_shows_what_is_selected() {
    let mut robot = Robot::open(Some("stress-200"));
    assert!(robot.sees("49 × Residual") && robot.sees("196 layers"));
    assert!(!robot.sees("Select L7:Residual"));
    // A layer that is selected elsewhere is shown, without unfolding more than necessary.
    select(&mut robot, &[7, 1]);
    assert!(robot.sees("Select L7.1:Dense"));
    assert!(!robot.sees("Select L6.1:Dense") && robot.sees("3 layers"));
    // The list scrolls to the selected layer.
    robot.window.run_steps(20);
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
fn mistakes_inside_folds_are_not_hidden() {
    let mut robot = Robot::open(Some("stress-200"));
    robot.press("Unfold L1 to L49 of 49 × Residual");
    robot.press("Unfold L1:Residual");
    robot.window.run_steps(2);
    robot.set("L1.2 units", "7");
    robot.press("Fold L1:Residual");
    robot.window.run_steps(2);
    assert!(robot.sees("1 problem inside"));
}

#[test]
fn the_list_of_layers_is_navigated_by_keyboard() {
    let mut robot = Robot::open(Some("stress-200"));
    robot.window.get_by_role_and_label(Role::Table, "List of layers, 200 layers").focus();
    robot.window.run_steps(2);
    let selected = |robot: &Robot| robot.app().studio.selection.current().clone();
    let layer = |path: &[usize]| Selection::Layer(LayerPath::from(path));
    robot.keys(&[Key::ArrowDown]);
    assert_eq!(selected(&robot), layer(&[0]));
    // The folded sequence is passed without unfolding it, unless the user unfolds it.
    robot.keys(&[Key::ArrowDown, Key::ArrowDown]);
    assert_eq!(selected(&robot), layer(&[50]));
    robot.keys(&[Key::ArrowUp, Key::ArrowRight, Key::ArrowDown]);
    assert_eq!(selected(&robot), layer(&[1]));
    robot.keys(&[Key::ArrowRight, Key::ArrowDown]);
    assert_eq!(selected(&robot), layer(&[1, 0]));
    robot.keys(&[Key::End]);
    assert_eq!(selected(&robot), layer(&[52]));
    // The list has the focus, not a field: the key removes the layer.
    robot.keys(&[Key::Delete]);
    robot.settle();
    assert_eq!(robot.app().studio.document.preset().layers.len(), 52);
}

#[test]
fn the_focus_is_visible_once_keys_move_it() {
    let mut robot = Robot::open(None);
    assert!(!robot.app().panels.ring.is_shown());
    robot.keys(&[Key::Tab]);
    assert!(robot.app().panels.ring.is_shown());
    robot.press("Select L1:Dropout");
    assert!(!robot.app().panels.ring.is_shown());
}

#[test]
fn dialogs_are_confirmed_by_enter_and_cancelled_by_escape() {
    let mut robot = asking_to_save();
    robot.window.run_steps(2);
    robot.keys(&[Key::Escape]);
    assert!(!robot.sees("Save the changes to") && robot.value("batch") == "32");
    robot.key(Modifiers::COMMAND, Key::N);
    robot.window.run_steps(2);
    // The safe answer has the focus, and the keys move through the answers in their order.
    let answers = ["Discard changes", "Cancel", "Save changes"];
    let left = |name: &str| robot.window.get_by_role_and_label(Role::Button, name).rect().left();
    assert!(answers.map(left).is_sorted() && is_focused(&robot, Role::Button, "Save changes"));
    robot.key(Modifiers::SHIFT, Key::Tab);
    assert!(is_focused(&robot, Role::Button, "Cancel"));
    robot.keys(&[Key::Enter]);
    assert!(!robot.sees("Save the changes to") && robot.value("batch") == "32");
    perform(&mut robot, UiCommand::OpenByPath);
    assert!(robot.sees("Open a preset by its path"));
    robot.keys(&[Key::Escape]);
    assert!(!robot.sees("Open a preset by its path"));
    for page in [UiCommand::ShowShortcuts, UiCommand::ShowAbout] {
        perform(&mut robot, page);
        assert!(robot.sees("Close"));
        robot.keys(&[Key::Escape]);
        assert!(!robot.sees("Close"));
    }
}

#[test]
fn a_refused_file_is_reported_in_full_and_again_on_request() {
    let (folder, mut robot) = refusing("{\"name\": 3, \"loss\": 4}");
    robot.window.run_steps(3);
    assert!(robot.sees("What went wrong"));
    let text = robot.app().studio.notice.clone().unwrap().text;
    assert!(text.lines().count() > 2 && robot.sees(text.lines().nth(2).unwrap()), "{text}");
    // Enter closes it; the status line opens it again.
    robot.keys(&[Key::Enter]);
    robot.window.run_steps(2);
    assert!(!robot.sees("What went wrong"));
    let line = robot.app().studio.notice.as_ref().unwrap().line();
    robot.press(&line);
    robot.window.run_steps(2);
    assert!(robot.sees("What went wrong"));
    robot.keys(&[Key::Escape]);
    assert!(!robot.sees("What went wrong"));
    perform(&mut robot, Request::Open(folder.path().join("none.json")));
    let message =
        |app: &stepgraph::studio::StudioApp| app.studio.notice.as_ref().is_some_and(|n| n.text.contains("none.json"));
    robot.until("the answer", message);
    robot.window.run_steps(2);
    assert!(robot.sees("Check the path"));
}

#[test]
fn shortcuts_are_ignored_while_a_dialog_is_open() {
    let mut robot = asking_to_save();
    robot.keys(&[Key::F5]);
    robot.key(Modifiers::COMMAND, Key::Z);
    robot.key(Modifiers::COMMAND, Key::Num3);
    assert!(robot.app().studio.training.state.is_none() && robot.value("batch") == "32");
    assert!(robot.app().studio.shown.contains(&stepgraph::studio::commands::Tab::Train));
    robot.keys(&[Key::Escape]);
    robot.key(Modifiers::COMMAND, Key::Z);
    assert_eq!(robot.value("batch"), "64");
    // The list of keys can be searched immediately, and names the keys by their symbols.
    robot.keys(&[Key::F1]);
    assert!(robot.sees("Ctrl+[") && !robot.sees("OpenBracket"));
    robot.window.event(egui::Event::Text("fold".into()));
    robot.window.run_steps(2);
    assert!(!robot.sees("Zooms around the pointer"));
}

#[test]
fn a_click_on_a_card_gives_the_focus_to_the_list() {
    let mut robot = Robot::open(Some("stress-200"));
    let selected = |robot: &Robot| robot.app().studio.selection.current().clone();
    robot.press("Select L0:Dense");
    robot.keys(&[Key::ArrowDown, Key::ArrowRight]);
    assert!(robot.sees("Select L1:Residual"));
    robot.keys(&[Key::ArrowDown]);
    assert_eq!(selected(&robot), Selection::Layer(LayerPath::from([1])));
    robot.press("Fold all layers");
    robot.window.get_by_label("49 × Residual").click();
    robot.window.run_steps(3);
    assert!(robot.sees("Select L1:Residual"));
}

#[test]
fn the_capture_plan_folds_like_the_list_of_layers_and_is_navigated_by_keyboard() {
    let mut robot = Robot::open(Some("stress-200"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Capture));
    let unfold = "Unfold the buffers of 49 × Residual";
    assert!(robot.window.query_all_by_role_and_label(Role::Button, unfold).next().is_some());
    let rows = |robot: &Robot| {
        let name = robot.window.query_all_by_label_contains("Buffers by layer, ").next().expect("the table");
        let label = name.accesskit_node().label().unwrap_or_default();
        label.chars().filter(char::is_ascii_digit).collect::<String>().parse::<usize>().unwrap()
    };
    let folded = rows(&robot);
    assert!(folded < 12, "{folded}");
    let table = format!("Buffers by layer, {folded} rows");
    robot.window.get_by_role_and_label(Role::Table, &table).focus();
    robot.window.run_steps(2);
    // Down to the first layer, and to the sequence after it.
    robot.keys(&[Key::Home]);
    assert!(matches!(robot.app().studio.selection.current(), Selection::Layer(_)));
    let run = robot.app().studio.rows.iter().position(|r| matches!(r, Row::Run { .. })).expect("a run");
    for _ in 0..run {
        robot.keys(&[Key::ArrowDown]);
    }
    robot.keys(&[Key::ArrowRight]);
    robot.window.run_steps(2);
    assert!(rows(&robot) > folded + 40, "{}", rows(&robot));
    robot.keys(&[Key::ArrowLeft]);
    robot.window.run_steps(2);
    assert_eq!(rows(&robot), folded);
    // The total of a folded row is shown; a layer that is selected elsewhere is unfolded here too.
    robot.press("Show sizes in bytes");
    robot.window.run_steps(2);
    select(&mut robot, &[7, 1]);
    robot.window.run_steps(2);
    assert!(rows(&robot) > folded);
}

#[test]
fn a_run_that_was_stopped_continues_by_its_own_key() {
    let mut robot = Robot::open(None);
    robot.set("steps", "100000000");
    robot.keys(&[Key::F5]);
    robot.until("some steps", |app| app.studio.training.done() > 20);
    robot.key(Modifiers::SHIFT, Key::F5);
    robot.until("the stop", |app| app.studio.training.is_stopped());
    let (run, done) = (robot.app().studio.training.run, robot.app().studio.training.done());
    robot.key(Modifiers::COMMAND, Key::F5);
    robot.until("more steps", |app| app.studio.training.done() > done);
    assert_eq!(robot.app().studio.training.run, run);
}

#[test]
fn a_dialog_hides_tooltips_and_opens_at_its_top() {
    let mut robot = Robot::open(None);
    robot.window.get_by_role_and_label(Role::Button, "Undo").hover();
    robot.window.run_steps(60);
    let tooltip = UiCommand::AddLayer.info().about;
    robot.window.get_by_role_and_label(Role::Button, "Add layer…").hover();
    robot.window.run_steps(60);
    assert!(robot.sees(tooltip));
    robot.keys(&[Key::F1]);
    robot.window.run_steps(4);
    assert!(robot.sees("Keyboard shortcuts") && robot.sees("Find a key or a command"));
    let tooltips = |robot: &Robot| robot.window.query_all_by_role_and_label(Role::Tooltip, tooltip).count();
    assert_eq!(tooltips(&robot), 0);
    // After scrolling down, closing, and opening again, the list starts with its first key.
    let top = |robot: &Robot| robot.window.get_by_label("Command palette…").rect().top();
    let at_first = top(&robot);
    let middle = robot.window.get_by_label("Command palette…").rect().center();
    robot.window.event(egui::Event::PointerMoved(middle));
    robot.window.run_steps(2);
    robot.window.event(egui::Event::MouseWheel {
        unit: egui::MouseWheelUnit::Point,
        delta: egui::Vec2::new(0.0, -300.0),
        phase: egui::TouchPhase::Move,
        source: egui::MouseWheelSource::Unknown,
        modifiers: Modifiers::NONE,
    });
    robot.window.run_steps(30);
    assert!(top(&robot) < at_first - 100.0, "{} {at_first}", top(&robot));
    robot.keys(&[Key::Escape]);
    robot.window.run_steps(4);
    robot.keys(&[Key::F1]);
    robot.window.run_steps(4);
    assert!((top(&robot) - at_first).abs() < 1.0, "{} {at_first}", top(&robot));
}

#[test]
fn horizontal_arrows_move_out_of_a_block_and_into_it() {
    let mut robot = Robot::open(Some("stress-200"));
    let selected = |robot: &Robot| robot.app().studio.selection.current().clone();
    let layer = |path: &[usize]| Selection::Layer(LayerPath::from(path));
    select(&mut robot, &[7, 1]);
    robot.window.get_by_role_and_label(Role::Table, "List of layers, 200 layers").focus();
    robot.window.run_steps(2);
    // Out of the block to its head, which folds next.
    robot.keys(&[Key::ArrowLeft]);
    assert_eq!(selected(&robot), layer(&[7]));
    assert!(robot.sees("Select L7.1:Dense"));
    robot.keys(&[Key::ArrowLeft]);
    assert!(!robot.sees("Select L7.1:Dense") && selected(&robot) == layer(&[7]));
    // Out of the sequence of equal blocks to its head, which folds next, and to the neighbour above.
    robot.keys(&[Key::ArrowLeft]);
    assert!(robot.sees("Select L7:Residual"));
    robot.keys(&[Key::ArrowLeft]);
    assert!(!robot.sees("Select L7:Residual"));
    robot.keys(&[Key::ArrowLeft]);
    assert_eq!(selected(&robot), layer(&[0]));
    robot.keys(&[Key::ArrowLeft]);
    assert_eq!(selected(&robot), layer(&[0]));
    // Back in: unfold, and move to what is inside.
    robot.keys(&[Key::ArrowDown]);
    for _ in 0..4 {
        robot.keys(&[Key::ArrowRight]);
    }
    assert_eq!(selected(&robot), layer(&[1, 0]));
    robot.keys(&[Key::ArrowRight]);
    assert_eq!(selected(&robot), layer(&[1, 0]));
}

#[test]
fn the_palette_puts_names_first_and_knows_what_commands_do() {
    let mut robot = Robot::open(None);
    for (typed, title) in [("residual", "Add layer: Residual"), ("light", "Switch theme"), ("theme", "Switch theme")] {
        robot.key(Modifiers::COMMAND, Key::K);
        robot.window.event(egui::Event::Text(typed.into()));
        robot.window.run_steps(3);
        let top = |name: &str| {
            let found = robot.window.query_all_by_role_and_label(Role::Button, name).next();
            found.unwrap_or_else(|| panic!("{name}")).rect().top()
        };
        let first = top(title);
        if typed == "residual" {
            assert!(first < top("New from preset: digits-residual"));
        }
        robot.keys(&[Key::Escape]);
    }
    let dark = robot.window.ctx.theme();
    robot.key(Modifiers::COMMAND, Key::K);
    robot.window.event(egui::Event::Text("light".into()));
    robot.window.run_steps(3);
    robot.keys(&[Key::Enter]);
    robot.window.run_steps(3);
    assert_ne!(robot.window.ctx.theme(), dark);
}

#[test]
fn a_network_is_built_from_nothing_by_keyboard_alone() {
    let mut robot = Robot::open(None);
    let type_text = |robot: &mut Robot, text: &str| {
        robot.window.event(egui::Event::Text(text.into()));
        robot.window.run_steps(3);
    };
    robot.command_key(Key::N);
    for layer in ["conv", "maxpool", "flatten", "dense"] {
        robot.key(Modifiers::COMMAND, Key::L);
        type_text(&mut robot, layer);
        robot.keys(&[Key::Enter]);
        robot.settle();
    }
    // The list has the focus: Enter moves to the fields of the layer, where typing replaces a value, and back out.
    robot.keys(&[Key::Enter]);
    robot.window.run_steps(2);
    type_text(&mut robot, "10");
    assert_eq!(robot.value("L3 units"), "10");
    robot.keys(&[Key::Enter]);
    robot.window.run_steps(2);
    robot.keys(&[Key::ArrowUp]);
    assert_eq!(*robot.app().studio.selection.current(), Selection::Layer(LayerPath::from([2])));
    // The mistake can be reached with one key, and its cause with a few keys from the list.
    robot.keys(&[Key::F8]);
    assert_eq!(*robot.app().studio.selection.current(), Selection::Layer(LayerPath::from([0])));
    for _ in 0..4 {
        robot.key(Modifiers::SHIFT, Key::Tab);
    }
    type_text(&mut robot, "1, 8, 8");
    robot.settle();
    assert!(robot.app().studio.is_ready(), "{:?}", robot.app().studio.document.preset().input);
    // An invalid text is a mistake like any other: the key leads to its layer, and Enter to the field.
    perform(&mut robot, UiCommand::Select(Selection::Layer(LayerPath::from([3]))));
    robot.write("L0 kernel", "x");
    robot.keys(&[Key::Escape]);
    perform(&mut robot, UiCommand::Select(Selection::Layer(LayerPath::from([3]))));
    robot.keys(&[Key::F8, Key::Enter]);
    robot.window.run_steps(2);
    type_text(&mut robot, "3");
    assert!(robot.value("L0 kernel") == "3" && robot.app().studio.problems() == 0);
    robot.window.get_by_role_and_label(Role::TextInput, "batch").focus();
    robot.window.run_steps(2);
    // A choice can also be made by keys, and its list then closes.
    robot.keys(&[Key::Tab]);
    choose_by_keys(&mut robot);
    let listed = |robot: &Robot| robot.window.query_all_by_role_and_label(Role::Button, "bf16").count();
    assert_eq!(listed(&robot), 0);
    assert_ne!(robot.app().studio.document.preset().precision, stepgraph::model::Precision::F32);
}
