//! The choice of a device: a plan for a card that does not exist here, and a run on one that does.

use crate::robot::{Robot, perform};
use egui::accesskit::{Role, Toggled};
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use stepgraph::exec::cuda;
use stepgraph::studio::StudioApp;
use stepgraph::studio::commands::DeviceChoice;
use stepgraph::studio::commands::{Tab, UiCommand};
use stepgraph::train::{Proof, RunState};

fn choose(robot: &mut Robot, name: &str) {
    let menu = robot.window.query_all_by_role(Role::Button).find(|b| {
        let label = b.accesskit_node().label().unwrap_or_default();
        label.starts_with("Device: ")
    });
    menu.expect("the menu of devices").click();
    robot.window.step();
    robot.window.step();
    robot.press(name);
    robot.settle();
}

fn target(app: &StudioApp) -> String {
    app.studio.plan.as_ref().map(|p| p.compiled.selection.target.name.clone()).unwrap_or_default()
}

#[test]
fn a_plan_for_an_absent_gpu_is_shown_and_not_trained() {
    let mut robot = Robot::open(None);
    choose(&mut robot, "NVIDIA H200, plan only");
    assert_eq!(target(robot.app()), "NVIDIA H200");
    assert!(!robot.app().studio.is_enabled(&UiCommand::Train) && robot.sees("plan only: choose a device"));
    // The menu marks the kernels that runs start with.
    robot.press("Run");
    robot.window.run_steps(2);
    let marked = robot.window.query_all_by_role(Role::RadioButton).map(|item| item.accesskit_node());
    let marked: Vec<_> = marked.map(|node| (node.label().unwrap(), node.toggled())).collect();
    let expected = [("Start runs at once", Toggled::True), ("Wait for the fastest kernels", Toggled::False)];
    assert_eq!(marked, expected.map(|(label, toggled)| (label.to_owned(), Some(toggled))));
    robot.key(egui::Modifiers::NONE, egui::Key::Escape);
    robot.window.run_steps(2);
    // Edits are planned for it too.
    robot.set("batch", "32");
    assert_eq!(target(robot.app()), "NVIDIA H200");
    let cpu = robot.app().studio.devices.list()[0].name.clone();
    choose(&mut robot, &cpu);
    assert!(target(robot.app()).starts_with("CPU") && robot.app().studio.is_enabled(&UiCommand::Train));
}

#[test]
fn every_view_follows_the_device() {
    let kernel = |robot: &Robot| robot.app().studio.plan.as_ref().unwrap().compiled.selection.choices[0].kernel.clone();
    let mut robot = Robot::open(None);
    let cpu = robot.app().studio.devices.list()[0].name.clone();
    choose(&mut robot, &cpu);
    for tab in [Tab::Capture, Tab::StepGraph] {
        perform(&mut robot, UiCommand::ShowTab(tab));
        robot.window.run_steps(2);
    }
    let on_cpu = kernel(&robot);
    assert!(robot.sees(&on_cpu));
    let page = robot.app().studio.inspector.to_string();
    assert!(page.contains(&target(robot.app())), "{page}");
    // The tab with the operations is hidden while the device is changed.
    perform(&mut robot, UiCommand::ShowTab(Tab::Train));
    robot.window.run_steps(2);
    choose(&mut robot, "NVIDIA H200, plan only");
    let page = robot.app().studio.inspector.to_string();
    assert!(page.contains("NVIDIA H200") && !page.contains("CPU"), "{page}");
    perform(&mut robot, UiCommand::ShowTab(Tab::StepGraph));
    robot.window.run_steps(2);
    assert!(kernel(&robot) != on_cpu && robot.sees(&kernel(&robot)) && !robot.sees(&on_cpu));
}

#[test]
fn results_of_checks_are_not_those_of_another_device() {
    let mut robot = Robot::open(None);
    let cpu = robot.app().studio.devices.list()[0].name.clone();
    choose(&mut robot, &cpu);
    perform(&mut robot, UiCommand::ShowTab(Tab::Verify));
    perform(&mut robot, UiCommand::Prove(Some(Proof::PointerLedger)));
    robot.until("the check", |app| !app.studio.proofs.is_running() && !app.studio.proofs.proved.is_empty());
    robot.window.run_steps(2);
    assert!(robot.sees("passed, 0 failed") && !robot.sees("stale"));
    robot.until("the estimate", |app| app.studio.verify_view().estimate.is_some());
    choose(&mut robot, "NVIDIA H200, plan only");
    assert!(robot.app().studio.verify_view().estimate.is_none());
    assert!(robot.sees("another device was chosen since") && robot.sees("stale, of another device"));
}

#[test]
fn a_run_on_another_device_than_the_chosen_one_starts_again() {
    let mut robot = Robot::open(None);
    let cpu = robot.app().studio.devices.list()[0].name.clone();
    choose(&mut robot, &cpu);
    robot.train_to_the_end(20);
    assert_eq!(robot.app().studio.training.device, Some(DeviceChoice::Cpu));
    assert!(!robot.app().studio.is_stale());
    choose(&mut robot, "NVIDIA H200, plan only");
    assert!(robot.app().studio.is_stale(), "the run belongs to the CPU");
}

#[test]
fn a_run_that_goes_on_says_on_which_device() {
    let mut robot = Robot::open(None);
    let cpu = robot.app().studio.devices.list()[0].name.clone();
    choose(&mut robot, &cpu);
    robot.train(1_000_000);
    robot.until("a step", |app| app.studio.training.done() > 0);
    robot.press("Pause");
    robot.until("the pause", |app| app.studio.training.state == Some(RunState::Paused));
    robot.settle();
    assert!(robot.sees("Paused") && !robot.sees("Paused on CPU"));
    choose(&mut robot, "NVIDIA H200, plan only");
    assert!(robot.sees("Paused on CPU") && robot.sees("recorded, ") && !robot.sees("plan only: choose a device"));
    choose(&mut robot, &cpu);
    assert!(!robot.sees("Paused on CPU"));
}

#[test]
fn a_gpu_trains_from_the_window() {
    if let Err(why) = cuda::usable(0) {
        println!("skipped: no CUDA device ({why})");
        return;
    }
    let mut robot = Robot::open(None);
    robot.until("the GPU", |app| matches!(app.studio.devices.current().choice, DeviceChoice::Gpu(0)));
    robot.settle();
    robot.train(1_000_000);
    robot.until("many steps and an evaluation", |app| {
        let run = &app.studio.training;
        run.done() > 20_000 && !run.history.curves.held_out_accuracy.is_empty()
    });
    robot.press("Pause");
    robot.until("the pause", |app| app.studio.training.state == Some(RunState::Paused));
    let run = &robot.app().studio.training;
    let recording = run.recording.clone().expect("a recording");
    assert!(recording.nodes > 0 && recording.steps_a_launch > 1 && recording.why_eager.is_none(), "{recording:?}");
    assert!(
        run.history.curves.held_out_accuracy.last().is_some_and(|p| p[1] > 0.9),
        "{:?}",
        run.history.curves.held_out_accuracy
    );
    println!("{:.0} steps/s, median {} us", run.rates.statistics.steps_per_s, run.rates.statistics.median_us);
    let done = run.done();
    robot.press("Step");
    robot.until("one step", |app| app.studio.training.done() == done + 1);
    robot.press("Stop");
    robot.until("the end", |app| app.studio.training.state == Some(RunState::Stopped));
}
