//! What a frame costs with a large network. The bound is loose: tests run unoptimised and beside others.

use crate::robot::Robot;
use egui_kittest::kittest::Queryable as _;
use std::time::Instant;
use stepgraph::studio::curves::LayerCurves;
use stepgraph::train::{Spans, StepReport};

#[test]
fn a_frame_stays_cheap_with_200_layers_and_long_curves() {
    let mut robot = Robot::open(Some("stress-200"));
    robot.until("the preset", |app| app.studio.network.cards.len() >= 200);
    robot.settle();
    let report = |i: u32| StepReport {
        step: u64::from(i) + 1,
        loss: 2.0 + (i as f32 * 0.01).sin(),
        update_max: 1e-3,
        grad_norm: 1.0,
        accuracy: 0.5,
        lr: 1e-3,
        loss_scale: f32::NAN,
        step_us: 20.0 + (i % 7) as f32,
        feed_us: 1.0,
    };
    let reports: Vec<StepReport> = (0..1_000_000).map(report).collect();
    let app = robot.window.state_mut();
    app.studio.training.state = Some(stepgraph::train::RunState::Stopped);
    app.studio.training.steps(&reports);
    // A curve for every layer, full to its bound.
    let plan = app.studio.plan.clone().expect("a plan");
    let mut layers = LayerCurves::of(&plan.compiled.model);
    let trained = plan.compiled.model.params.iter().filter(|p| p.kind.is_trained()).count();
    for step in 1..=5000u64 {
        let mut spans = Spans::default();
        let value = |i: usize| 1e-4 * (2.0 + ((step as f32 * 0.01) + i as f32).sin());
        spans.add(step * 200, &(0..trained).map(value).collect::<Vec<_>>());
        layers.push(&spans);
    }
    app.studio.training.history.layers = layers;
    for tab in ["Train", "Step graph", "Arena", "Capture plan", "Data", "Predictions", "Verify"] {
        robot.window.query_all_by_label(tab).last().expect("a tab").click();
        robot.window.run_steps(4);
        let started = Instant::now();
        const FRAMES: usize = 20;
        robot.window.run_steps(FRAMES);
        let frame_ms = started.elapsed().as_secs_f64() * 1e3 / FRAMES as f64;
        println!("{tab}: {frame_ms:.2} ms a frame, accessibility tree included");
        assert!(frame_ms < 100.0, "{tab}: {frame_ms:.1} ms a frame");
    }
}
