//! Edits one after another on a GPU: how long the window keeps its user waiting, and how much memory remains in use.

use crate::robot::Robot;
use std::time::{Duration, Instant};
use stepgraph::exec::{cuda, resident_bytes};
use stepgraph::studio::commands::{DeviceChoice, UiCommand};
use stepgraph::train::RunState;

const EDITS: usize = 100;
/// The training time after each edit.
const TRAINED: Duration = Duration::from_secs(1);
/// The time between frames.
const FRAME: Duration = Duration::from_millis(16);
/// The longest wait from Train to the first step, and the longest frame, in milliseconds. A frame of a debug build
/// takes several times as long.
const WAIT_MS: f64 = 100.0;
const FRAME_MS: f64 = if cfg!(debug_assertions) { 400.0 } else { 100.0 };
/// The growth of the process between its 20th edit and its last one.
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

#[test]
#[ignore = "trains for two minutes on a GPU"]
fn a_hundred_edits_keep_nobody_waiting() {
    if let Err(why) = cuda::usable(0) {
        println!("skipped: no CUDA device ({why})");
        return;
    }
    let mut robot = Robot::open(Some("digits-mlp"));
    robot.until("the GPU", |app| matches!(app.studio.devices.current().choice, DeviceChoice::Gpu(0)));
    robot.set("steps", "100000000");
    let [mut plans, mut stops, mut waits, mut frames] = [const { Vec::new() }; 4];
    let mut memory = Vec::new();
    for edit in 0..EDITS {
        // Sizes that no other test uses, so that no kernel was compiled for them.
        robot.set("L0 units", &(129 + 2 * edit).to_string());
        plans.push(robot.app().studio.last_edit.took.as_secs_f64() * 1e3);
        if edit > 0 {
            let pressed = Instant::now();
            robot.choose(UiCommand::Stop);
            robot.until("the end of the run", |app| app.studio.training.state == Some(RunState::Stopped));
            stops.push(milliseconds(pressed));
        }
        let pressed = Instant::now();
        robot.choose(UiCommand::Train);
        let is_trained = |robot: &Robot| {
            let run = &robot.app().studio.training;
            run.state == Some(RunState::Running) && !robot.app().studio.is_stale() && run.done() > 0
        };
        while !is_trained(&robot) {
            let state = &robot.app().studio.training.state;
            assert!(pressed.elapsed() < Duration::from_secs(20), "edit {edit} is not trained: {state:?}");
            let started = Instant::now();
            robot.window.step();
            frames.push(milliseconds(started));
            std::thread::sleep(Duration::from_millis(1));
        }
        waits.push(milliseconds(pressed));
        while pressed.elapsed() < TRAINED {
            frames.push(frame(&mut robot));
        }
        memory.push(resident_bytes().unwrap_or(0));
    }
    // The first run also starts the device.
    let first = waits.remove(0);
    let [wait, _, longest] = spread(waits.clone());
    println!("to the first step: first {first:.0} ms; then {:.1?} ms (median, p90, longest)", spread(waits));
    println!(
        "stops {:.1?} ms, plans {:.1?} ms, frames {:.1?} ms",
        spread(stops),
        spread(plans),
        spread(frames.clone())
    );
    let mib: Vec<u64> = memory.iter().step_by(10).map(|bytes| bytes >> 20).collect();
    println!("resident MiB after every tenth edit: {mib:?}");
    assert!(longest < WAIT_MS, "an edit waited {longest:.0} ms for its first step, half of them {wait:.0} ms");
    let [.., longest] = spread(frames);
    assert!(longest < FRAME_MS, "a frame took {longest:.0} ms");
    let [early, last] = [memory[20], memory[EDITS - 1]];
    assert!(last < early + GROWTH, "the memory grows: {mib:?} MiB");
}
