//! The step graph, the arena, the shared selection, values, the changes by an edit, and the tour.

use crate::robot::{Robot, perform};
use egui::accesskit::Role;
use egui::{Key, Modifiers};
use egui_kittest::kittest::Queryable as _;
use stepgraph::studio::commands::DeviceChoice;
use stepgraph::studio::commands::Selection;
use stepgraph::studio::commands::Weights;
use stepgraph::studio::commands::{Tab, UiCommand};
use stepgraph::studio::view_models::levels::Level;
use stepgraph::studio::view_models::tour::TourStep;
use stepgraph::studio::{Startup, StudioApp};
use stepgraph::train::RunState;

fn page(robot: &Robot) -> String {
    robot.app().studio.inspector.to_string()
}

fn is_measured(app: &StudioApp) -> bool {
    app.studio.measurements.measured(app.studio.revision_shown()).is_some()
}

#[test]
fn the_same_item_is_found_at_every_level() {
    let mut robot = Robot::open(None);
    perform(&mut robot, UiCommand::ShowTab(Tab::StepGraph));
    let kernel = robot.app().studio.plan.as_ref().unwrap().ops[0].kernel.clone();
    robot.press(&format!("Op 0 {kernel}"));
    for (level, noun) in [("IR", "nodes"), ("Lowered", "ops"), ("Recorded", "calls")] {
        robot.press(&format!("Level {level}"));
        assert!(robot.sees(&format!(" {noun}")), "{level}");
        assert_eq!(*robot.app().studio.selection.current(), Selection::Op(0));
    }
    robot.press(&format!("Call 0 {kernel}"));
    assert!(page(&robot).starts_with("Recorded call: 0 gemm"), "{}", page(&robot));
    assert!(page(&robot).contains("+0x"));
    robot.press("Level Lowered");
    robot.press("Lowered op 1 fused into op 0");
    assert!(page(&robot).contains("fused into op 0 -> 0 gemm"), "{}", page(&robot));
    robot.press("Level IR");
    let made = robot.app().studio.plan.as_ref().unwrap().compiled.graph.nodes[0].kind.name();
    let plan = robot.app().studio.plan.clone().unwrap();
    robot.press(&format!("Node 0 {}", plan.levels.rows(Level::Ir)[0].kernel));
    assert!(page(&robot).starts_with(&format!("Node of the graph: 0 {made}")), "{}", page(&robot));
    robot.key(Modifiers::ALT, Key::ArrowLeft);
    assert_eq!(*robot.app().studio.selection.current(), Selection::Lowered(1));
}

#[test]
fn rows_are_filtered_sorted_and_navigated_by_keys() {
    let mut robot = Robot::open(Some("digits-cnn"));
    perform(&mut robot, UiCommand::ShowTab(Tab::StepGraph));
    let plan = robot.app().studio.plan.clone().unwrap();
    let ops = plan.ops.len();
    assert!(robot.sees(&format!("{ops} ops")));
    robot.write("Filter operations", "backward conv");
    let left = plan.ops.iter().filter(|o| o.matches("backward conv")).count();
    assert!(left > 0 && left < ops && robot.sees(&format!("{left} ops")));
    robot.write("Filter operations", "no such thing");
    assert!(robot.sees("Nothing matches the filter"));
    robot.write("Filter operations", " ");
    robot.window.get_by_role_and_label(Role::CheckBox, "Show backward").click();
    robot.window.run_steps(3);
    let forward = plan.ops.iter().filter(|o| o.phase != stepgraph::ir::Phase::Backward).count();
    assert!(robot.sees(&format!("{forward} ops")));
    robot.window.get_by_role_and_label(Role::CheckBox, "Show backward").click();
    robot.window.run_steps(3);
    // The largest number of operations comes first. The column is to the right of the visible part.
    robot.window.get_by_role_and_label(Role::Button, "Sort by FLOPs").click_accesskit();
    robot.window.run_steps(3);
    let most = plan.ops.iter().map(|o| o.flops).max().unwrap();
    let heaviest = plan.ops.iter().find(|o| o.flops == most).unwrap();
    robot.press(&format!("Op {} {}", heaviest.index, heaviest.kernel));
    robot.keys(&[Key::ArrowDown]);
    let Selection::Op(second) = *robot.app().studio.selection.current() else { panic!("an operation") };
    assert_ne!(second, heaviest.index);
    let more = plan.ops.iter().filter(|o| o.flops > plan.ops[second].flops).count();
    assert!(more <= 1, "op {second} is the second heaviest");
    robot.keys(&[Key::End]);
    let Selection::Op(last) = *robot.app().studio.selection.current() else { panic!("an operation") };
    assert_eq!(plan.ops[last].flops, plan.ops.iter().map(|o| o.flops).min().unwrap());
    robot.keys(&[Key::Home]);
    assert_eq!(*robot.app().studio.selection.current(), Selection::Op(heaviest.index));
}

#[test]
fn operations_are_measured_on_request_and_another_plan_does_not_show_their_times() {
    let mut robot = Robot::open(None);
    perform(&mut robot, UiCommand::ShowTab(Tab::StepGraph));
    robot.press("Measure operations");
    robot.until("the times", is_measured);
    let studio = &robot.app().studio;
    let measured = studio.measurements.measured(studio.revision_shown()).unwrap();
    assert_eq!(measured.times.op_us.len(), studio.plan.as_ref().unwrap().ops.len());
    assert!(measured.edges_us.is_sorted() && measured.roofline(0).unwrap() > 0.0);
    assert!(robot.sees("a step, measured"));
    perform(&mut robot, UiCommand::Select(Selection::Op(0)));
    assert!(robot.sees("roofline efficiency"));
    robot.set("L0 units", "96");
    assert!(!is_measured(robot.app()));
    assert!(robot.sees("a step, estimated"));
    // The machine's rates are valid for every plan: the least time is part of the difference from now on. A GPU's least
    // time for such a small step is that of its launches.
    let difference = robot.app().studio.last_edit.difference.clone().unwrap();
    let on_gpu = robot.app().studio.devices.current().choice != DeviceChoice::Cpu;
    assert!(difference.contains("least time −") || on_gpu, "{difference}");
}

#[test]
fn the_largest_buffer_and_its_layer_are_three_clicks_away() {
    let mut robot = Robot::open(Some("digits-cnn"));
    robot.window.query_all_by_label("Arena").last().expect("the tab").click();
    robot.window.run_steps(4);
    let plan = robot.app().studio.plan.clone().unwrap();
    let layered = plan.arena.largest.iter().position(|id| plan.arena.rect(*id).unwrap().layer.is_some()).unwrap();
    let largest = plan.arena.rect(plan.arena.largest[layered]).unwrap().clone();
    robot.press(&format!("Largest buffer {}: {}", layered + 1, largest.name));
    assert_eq!(*robot.app().studio.selection.current(), Selection::Buffer(largest.id));
    let path = largest.layer.unwrap();
    let label = plan.compiled.model.layers.iter().find(|l| l.path == path).unwrap().label();
    let link = robot.window.query_all_by_role_and_label(Role::Button, &label).last().expect("the layer's link");
    link.click();
    robot.window.run_steps(3);
    assert_eq!(*robot.app().studio.selection.current(), Selection::Layer(path));
}

#[test]
fn a_byte_is_typed_and_its_owners_are_listed() {
    let mut robot = Robot::open(Some("digits-cnn"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Arena));
    robot.write("Byte or range of the arena", "0x0..0x100");
    robot.keys(&[Key::Enter]);
    assert_eq!(*robot.app().studio.selection.current(), Selection::Bytes([0, 256]));
    let related = &robot.app().studio.related;
    assert!(!related.buffers.is_empty() && !related.ops.is_empty() && related.bytes == Some([0, 256]));
    assert!(page(&robot).starts_with("Bytes of the arena: bytes 0x0 to 0xff"), "{}", page(&robot));
    robot.write("Byte or range of the arena", "12 apples");
    robot.keys(&[Key::Enter]);
    assert!(robot.sees("Not a byte of the arena"));
}

#[test]
fn a_range_of_bytes_is_drawn_and_the_axis_may_be_time() {
    let mut robot = Robot::open(Some("digits-cnn"));
    perform(&mut robot, UiCommand::ShowTab(Tab::Arena));
    let buffers = robot.app().studio.plan.as_ref().unwrap().arena.rects.len();
    let map = robot.window.get_by_label(&format!("Arena map, {buffers} buffers")).rect();
    let pointer = |robot: &mut Robot, x: f32, y: f32, pressed: Option<bool>| {
        let pos = map.min + egui::Vec2::new(map.width() * x, map.height() * y);
        let modifiers = Modifiers::SHIFT;
        robot.window.event(egui::Event::ModifiersChanged(modifiers));
        robot.window.event(egui::Event::PointerMoved(pos));
        if let Some(pressed) = pressed {
            let button = egui::PointerButton::Primary;
            robot.window.event(egui::Event::PointerButton { pos, button, pressed, modifiers });
        }
        robot.window.step();
    };
    pointer(&mut robot, 0.4, 0.8, None);
    pointer(&mut robot, 0.4, 0.8, Some(true));
    pointer(&mut robot, 0.5, 0.7, None);
    pointer(&mut robot, 0.6, 0.6, None);
    pointer(&mut robot, 0.6, 0.6, Some(false));
    robot.window.event(egui::Event::ModifiersChanged(Modifiers::NONE));
    robot.window.run_steps(3);
    let Selection::Bytes([from, to]) = *robot.app().studio.selection.current() else { panic!("bytes are selected") };
    let arena = robot.app().studio.plan.as_ref().unwrap().arena.arena_bytes;
    // From four fifths down to three fifths down: about a fifth of the arena.
    let share = (to - from) as f64 / arena as f64;
    assert!((0.15..0.28).contains(&share), "{from}..{to} is {share:.2} of the arena");
    robot.press("Time");
    robot.until("the times", is_measured);
    robot.window.run_steps(4);
    assert!(robot.sees("Arena map"));
}

#[test]
fn planners_and_precisions_are_compared_on_request() {
    let mut robot = Robot::open(None);
    perform(&mut robot, UiCommand::ShowTab(Tab::Arena));
    perform(&mut robot, UiCommand::ComparePlans);
    robot.until("the comparison", |app| app.studio.measurements.comparison(app.studio.revision_shown()).is_some());
    robot.window.run_steps(3);
    assert!(robot.sees("Planners side by side") && robot.sees("greedy by size") && robot.sees("bf16"));
}

#[test]
fn values_are_shown_along_the_step() {
    let mut robot = Robot::open(None);
    perform(&mut robot, UiCommand::ShowTab(Tab::Arena));
    let plan = robot.app().studio.plan.clone().unwrap();
    let y = plan.compiled.plan.buffers.iter().position(|b| b.name == "L0:Dense.y").expect("an activation");
    let buffer = stepgraph::plan::BufferId(y as u32);
    perform(&mut robot, UiCommand::Select(Selection::Buffer(buffer)));
    perform(&mut robot, UiCommand::ShowValues);
    robot.until("the values", |app| app.studio.measurements.values.shown.as_ref().is_some_and(|s| s.summary.is_some()));
    let shown = robot.app().studio.measurements.values.shown.clone().unwrap();
    let s = shown.summary.as_ref().unwrap().statistics;
    // ReLU of real digits: nothing below zero, many zeros, something above.
    assert!(s.min == 0.0 && s.zeros > 0 && s.max > 0.0 && s.nans == 0, "{s:?}");
    assert!(robot.sees("mean ± std"));
    // Before its writer it does not exist.
    perform(&mut robot, UiCommand::Scrub(None));
    let first = plan.compiled.plan.buffers[y].writers[0];
    if first > 0 {
        perform(&mut robot, UiCommand::Scrub(Some(first - 1)));
        robot.until("emptiness", |app| {
            app.studio.measurements.values.shown.as_ref().is_some_and(|s| s.summary.is_none())
        });
    }
    // The weights of a run differ from the initial ones.
    perform(&mut robot, UiCommand::Scrub(Some(first)));
    robot.until("the values again", |app| {
        app.studio.measurements.values.shown.as_ref().is_some_and(|s| s.summary.is_some())
    });
    robot.set("steps", "40");
    robot.press("Train");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Finished));
    perform(&mut robot, UiCommand::UseWeights(Weights::Run));
    robot.until("the run's values", |app| app.studio.measurements.values.shown.as_ref().is_some_and(|s| s.step == 40));
    let trained = robot.app().studio.measurements.values.shown.as_ref().unwrap().summary.as_ref().unwrap().statistics;
    assert_ne!(trained.mean, s.mean);
    robot.until("rest", |app| !app.studio.measurements.is_looking());
    perform(&mut robot, UiCommand::FindFirstBad);
    robot.until("the search", |app| app.studio.measurements.values.first_bad.is_some());
    robot.window.run_steps(3);
    assert!(robot.sees("Every value of the step is finite."));
}

#[test]
fn a_run_that_failed_shows_the_operation_that_made_the_first_nan() {
    let wild = r#"{"version": 1, "name": "wild", "input": {"shape": [64], "batch": 32},
        "layers": [{"type": "dense", "units": 32, "activation": "leaky_relu"},
        {"type": "dense", "units": 32, "activation": "leaky_relu"},
            {"type": "dense", "units": 10}],
        "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 100.0, "momentum": 0.9},
        "data": {"type": "digits"}, "train": {"steps": 500, "seed": 0}}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wild.json");
    std::fs::write(&path, wild).unwrap();
    let mut robot = Robot::open(path.to_str());
    robot.until("the file", |app| app.studio.document.path().is_some());
    robot.settle();
    robot.press("Train");
    robot.until("the failure", |app| matches!(app.studio.training.state, Some(RunState::Failed(_))));
    assert!(robot.app().studio.training.snapshot.is_some());
    perform(&mut robot, UiCommand::UseWeights(Weights::Run));
    perform(&mut robot, UiCommand::ShowValues);
    perform(&mut robot, UiCommand::Select(Selection::Op(0)));
    robot.until("the values", |app| {
        app.studio.measurements.values.shown.is_some() && !app.studio.measurements.is_looking()
    });
    perform(&mut robot, UiCommand::FindFirstBad);
    robot.until("the search", |app| app.studio.measurements.values.first_bad.is_some());
    let (_, found) = robot.app().studio.measurements.values.first_bad.clone().unwrap();
    let op = found.expect("a value that is not finite").op.expect("an operation made it");
    robot.window.run_steps(3);
    let kernel = robot.app().studio.plan.as_ref().unwrap().ops[op].kernel.clone();
    assert!(robot.sees(&format!("{op} {kernel}")));
}

#[test]
fn the_selection_survives_an_edit() {
    let mut robot = Robot::open(None);
    let name = |robot: &Robot| match robot.app().studio.selection.current() {
        Selection::Buffer(id) => robot.app().studio.plan.as_ref().unwrap().compiled.plan.buffer(*id).name.clone(),
        other => panic!("{other:?}"),
    };
    let buffers = &robot.app().studio.plan.as_ref().unwrap().compiled.plan.buffers;
    let last = buffers.iter().rposition(|b| b.name.starts_with("L0:")).expect("a buffer of the first layer");
    perform(&mut robot, UiCommand::Select(Selection::Buffer(stepgraph::plan::BufferId(last as u32))));
    let before = name(&robot);
    let layer = stepgraph::model::LayerPath::from([2]);
    let copy = UiCommand::OnLayer(layer, Box::new(UiCommand::Duplicate));
    robot.choose(copy);
    robot.settle();
    // The copy is selected; the way back leads to the buffer, at its new place.
    while !matches!(robot.app().studio.selection.current(), Selection::Buffer(_)) {
        perform(&mut robot, UiCommand::Back);
    }
    assert_eq!(name(&robot), before);
}

#[test]
fn the_status_line_lists_added_and_removed_items() {
    let mut robot = Robot::open(None);
    robot.copy_layer("L0:Dense");
    let changes = robot.app().studio.last_edit.changes.clone().expect("changes");
    assert!(!changes.ops.came.is_empty() && !changes.buffers.came.is_empty(), "{changes}");
    let difference = robot.app().studio.last_edit.difference.clone().unwrap();
    robot.press(&format!("What the last edit changed: {difference}"));
    robot.window.run_steps(3);
    assert!(robot.sees("Planned in ") && robot.sees("New operations"));
    let op = &changes.ops.came[0];
    robot.press(&format!("+ {} {}  {}", op.index, op.kernel, op.layer));
    assert_eq!(*robot.app().studio.selection.current(), Selection::Op(op.index));
}

#[test]
fn the_tour_leads_through_three_steps_and_is_remembered() {
    let mut robot = Robot::start(Startup { tour: true, ..Startup::default() });
    assert!(robot.sees("Train it"));
    robot.press("Train now");
    robot.until("steps", |app| app.studio.training.done() > 0);
    assert_eq!(robot.app().studio.tour.shown(), Some((TourStep::Train, true)));
    robot.press("Next this step of the tour");
    assert!(robot.sees("See where the memory went"));
    robot.press("Open the arena");
    perform(&mut robot, UiCommand::SelectLargestBuffer);
    assert_eq!(robot.app().studio.tour.shown(), Some((TourStep::Memory, true)));
    robot.press("Next this step of the tour");
    robot.set("L0 units", "64");
    assert_eq!(robot.app().studio.tour.shown(), Some((TourStep::Edit, true)));
    robot.press("Finish this step of the tour");
    assert_eq!(robot.app().studio.tour.shown(), None);
    assert!(robot.app().studio.settings.tour_done);
    perform(&mut robot, UiCommand::Tour(stepgraph::studio::commands::TourMove::Start));
    assert!(robot.sees("Train it"));
    robot.press("Dismiss the tour");
    assert!(!robot.sees("Train it"));
    let kept = serde_json::to_string(&robot.app().studio.settings).unwrap();
    assert!(kept.contains("\"tour_done\":true"), "{kept}");
}

#[test]
fn help_lists_the_keys_and_describes_the_program() {
    let mut robot = Robot::open(None);
    robot.keys(&[Key::F1]);
    assert!(robot.sees("Keyboard shortcuts") && robot.sees("Single step") | robot.sees("Makes a single step"));
    robot.write("Find a key or a command", "measure");
    assert!(robot.sees("Measure operations") && !robot.sees("Makes a single step"));
    robot.press("Close");
    perform(&mut robot, UiCommand::ShowAbout);
    assert!(robot.sees(env!("CARGO_PKG_VERSION")));
    robot.press("Close");
}
