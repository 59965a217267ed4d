//! Edits one after another: how long the window keeps its user waiting, and how much memory remains in use.
//!
//! `STEPGRAPH_EDITS` sets their number on a GPU. The bounds of a release build assume that no other test runs at the
//! same time: `STEPGRAPH_EDITS=100 cargo test --release --test studio edits_in_a_row -- --nocapture`.

use crate::robot::Robot;
use std::time::{Duration, Instant};
use stepgraph::exec::{cuda, resident_bytes};
use stepgraph::studio::commands::{DeviceChoice, UiCommand};
use stepgraph::train::RunState;

/// The time between frames.
const FRAME: Duration = Duration::from_millis(16);
/// The longest wait from Train to the first step, and the longest frame, in milliseconds. In debug builds and beside
/// other tests the bounds are loose.
const WAIT_MS: f64 = if cfg!(debug_assertions) { 2000.0 } else { 100.0 };
const FRAME_MS: f64 = if cfg!(debug_assertions) { 1000.0 } else { 100.0 };
/// The growth of the process after a fifth of the edits.
const GROWTH: u64 = 64 << 20;

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Draws a frame; returns its milliseconds.
fn frame(robot: &mut Robot) -> f64 {
    let started = Instant::now();
    robot.window.step();
    let took = milliseconds(started);
    std::thread::sleep(FRAME.saturating_sub(started.elapsed()));
    took
}

/// The median, the ninth decile and the maximum.
fn spread(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[times.len() * 9 / 10], times[times.len() - 1]]
}

/// The milliseconds that the user waited, and the memory of the process after each edit.
#[derive(Default)]
struct Seen {
    stops: Vec<f64>,
    plans: Vec<f64>,
    waits: Vec<f64>,
    frames: Vec<f64>,
    resident: Vec<u64>,
}

/// Changes a size, and trains the network for a time, again and again.
fn edit_and_train(robot: &mut Robot, edits: usize, trained: Duration) -> Seen {
    let mut seen = Seen::default();
    robot.set("steps", "100000000");
    for edit in 0..edits {
        // Sizes that no other test uses, so that no kernel was compiled for them.
        robot.set("L0 units", &(129 + 2 * edit).to_string());
        seen.plans.push(robot.app().studio.last_edit.took.as_secs_f64() * 1e3);
        if edit > 0 {
            let pressed = Instant::now();
            robot.choose(UiCommand::Stop);
            robot.until("the end of the run", |app| app.studio.training.state == Some(RunState::Stopped));
            seen.stops.push(milliseconds(pressed));
        }
        let pressed = Instant::now();
        robot.choose(UiCommand::Train);
        let is_trained = |robot: &Robot| {
            let run = &robot.app().studio.training;
            run.state == Some(RunState::Running) && !robot.app().studio.is_stale() && run.done() > 0
        };
        while !is_trained(robot) {
            let state = &robot.app().studio.training.state;
            assert!(pressed.elapsed() < Duration::from_secs(20), "edit {edit} is not trained: {state:?}");
            let started = Instant::now();
            robot.window.step();
            seen.frames.push(milliseconds(started));
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.waits.push(milliseconds(pressed));
        while pressed.elapsed() < trained {
            seen.frames.push(frame(robot));
        }
        seen.resident.extend(resident_bytes());
    }
    // A process that ends while it trains may crash in the driver.
    robot.choose(UiCommand::Stop);
    robot.until("the end of the last run", |app| app.studio.training.state == Some(RunState::Stopped));
    seen
}

/// Prints what was seen, and compares it with the bounds.
fn judge(mut seen: Seen) {
    // The first run also starts the device.
    let first = seen.waits.remove(0);
    let [median, _, longest] = spread(seen.waits.clone());
    println!("to the first step: first {first:.0} ms; then {:.1?} ms (median, p90, longest)", spread(seen.waits));
    let [stops, plans, frames] = [seen.stops, seen.plans, seen.frames].map(spread);
    println!("stops {stops:.1?} ms, plans {plans:.1?} ms, frames {frames:.1?} ms");
    let edits = seen.resident.len();
    let mib: Vec<u64> = seen.resident.iter().step_by(edits.div_ceil(10).max(1)).map(|bytes| bytes >> 20).collect();
    println!("resident MiB, ten times: {mib:?}");
    assert!(longest < WAIT_MS, "an edit waited {longest:.0} ms for its first step, half of them {median:.0} ms");
    assert!(frames[2] < FRAME_MS, "a frame took {:.0} ms", frames[2]);
    if let (Some(early), Some(last)) = (seen.resident.get(edits / 5), seen.resident.last()) {
        assert!(*last < early + GROWTH, "the memory grows: {mib:?} MiB");
    }
}

/// A window that trains on this device.
fn window_on(device: DeviceChoice) -> Robot {
    let mut robot = Robot::open(Some("digits-mlp"));
    robot.until("the devices", |app| app.studio.devices.list().iter().any(|found| found.choice == device));
    robot.choose(UiCommand::ChooseDevice(device));
    robot.settle();
    assert_eq!(robot.app().studio.devices.current().choice, device);
    robot
}

#[test]
fn edits_in_a_row_on_the_cpu_keep_nobody_waiting() {
    let mut robot = window_on(DeviceChoice::Cpu);
    judge(edit_and_train(&mut robot, 30, Duration::from_millis(100)));
}

#[test]
fn edits_in_a_row_on_a_gpu_keep_nobody_waiting() {
    if let Err(why) = cuda::usable(0) {
        println!("skipped: no CUDA device ({why})");
        return;
    }
    // As in the program itself, kernels are compiled by other processes.
    let program = std::env::var_os("CARGO_BIN_EXE_stepgraph").unwrap_or(env!("CARGO_BIN_EXE_stepgraph").into());
    cuda::start_compilers_from(program.into());
    let mut robot = window_on(DeviceChoice::Gpu(0));
    let edits = std::env::var("STEPGRAPH_EDITS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    judge(edit_and_train(&mut robot, std::cmp::max(edits, 2), Duration::from_secs(1)));
}
