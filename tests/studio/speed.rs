//! The time of a frame with a large network, and the time from an edit to its plan.
//!
//! `cargo test --release --test studio speed -- --nocapture` checks the design's budgets: 8 ms of CPU for a frame,
//! including tessellation, and 50 ms from an edit to its plan. In debug builds and beside other tests the bounds are
//! loose: they find times that grow with the network.

use crate::robot::Robot;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use std::sync::Arc;
use std::time::Instant;
use stepgraph::ir::Role;
use stepgraph::plan::BufferId;
use stepgraph::studio::commands::Selection;
use stepgraph::studio::commands::{AnswersPage, PredictionsCommand, Tab, UiCommand};
use stepgraph::studio::theme;
use stepgraph::studio::view_models::arena::{ArenaView, BufferRect};
use stepgraph::studio::view_models::sequences::inside::{Found, InsideView};
use stepgraph::studio::widgets::arena_map::{Axis, Highlight, Window, map_ui};
use stepgraph::train::runs::LayerCurves;
use stepgraph::train::{AttentionMap, Insight, PositionAnswer, Spans, StepReport, WritingEvent};

/// The limit of a frame's CPU time, in milliseconds.
const FRAME_MS: f64 = if cfg!(debug_assertions) { 100.0 } else { 8.0 };
/// The limit of the time from an edit to its plan, in milliseconds.
const PLAN_MS: f64 = if cfg!(debug_assertions) { 2000.0 } else { 50.0 };

/// The median time of a frame: its layout, its accessibility tree, and its triangles.
fn frame_ms<State>(window: &mut Harness<'_, State>) -> f64 {
    const FRAMES: usize = 31;
    let mut times: Vec<f64> = (0..FRAMES)
        .map(|_| {
            let started = Instant::now();
            window.step();
            let output = window.output();
            let triangles = window.ctx.tessellate(output.shapes.clone(), output.pixels_per_point);
            let took = started.elapsed().as_secs_f64() * 1e3;
            assert!(!triangles.is_empty());
            took
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[FRAMES / 2]
}

fn held(what: &str, found_ms: f64, budget_ms: f64) {
    println!("{what}: {found_ms:.2} ms of {budget_ms:.0}");
    assert!(found_ms < budget_ms, "{what}: {found_ms:.2} ms, the budget is {budget_ms:.0}");
}

fn report(i: u32) -> StepReport {
    StepReport {
        step: u64::from(i) + 1,
        loss: 2.0 + (i as f32 * 0.01).sin(),
        update_max: 1e-3,
        grad_norm: 1.0,
        accuracy: 0.5,
        lr: 1e-3,
        loss_scale: f32::NAN,
        step_us: 20.0 + (i % 7) as f32,
        feed_us: 1.0,
        ..StepReport::default()
    }
}

fn large() -> Robot {
    let mut robot = Robot::open(Some("stress-200"));
    robot.until("the preset", |app| app.studio.network.cards.len() >= 200);
    robot.settle();
    robot
}

#[test]
fn a_frame_stays_cheap_with_200_layers_and_long_curves() {
    let mut robot = large();
    let reports: Vec<StepReport> = (0..1_000_000).map(report).collect();
    let app = robot.window.state_mut();
    app.studio.training.state = Some(stepgraph::train::RunState::Stopped);
    app.studio.training.steps(&reports);
    // A curve for every layer, with the largest number of points.
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
        let found = frame_ms(&mut robot.window);
        held(tab, found, FRAME_MS);
    }
    // Reports arrive while the curves are shown.
    robot.window.query_all_by_label("Train").last().expect("a tab").click();
    robot.window.run_steps(4);
    let mut live = Vec::new();
    for round in 0..15u32 {
        let more: Vec<StepReport> = (0..2000).map(|i| report(1_000_000 + round * 2000 + i)).collect();
        robot.window.state_mut().studio.training.steps(&more);
        let started = Instant::now();
        robot.window.step();
        live.push(started.elapsed().as_secs_f64() * 1e3);
    }
    live.sort_by(f64::total_cmp);
    held("live curves", live[live.len() / 2], FRAME_MS);
}

#[test]
fn every_level_of_the_step_graph_stays_cheap_with_something_selected() {
    let mut robot = large();
    robot.choose(UiCommand::ShowTab(Tab::StepGraph));
    robot.choose(UiCommand::Select(Selection::Op(5)));
    robot.window.run_steps(4);
    for level in ["IR", "Lowered", "Selected", "Recorded"] {
        robot.press(&format!("Level {level}"));
        robot.window.run_steps(3);
        let found = frame_ms(&mut robot.window);
        held(level, found, FRAME_MS);
    }
}

#[test]
fn thousands_of_rows_are_drawn_as_fast_as_a_few() {
    let mut preset = stepgraph::studio::document::presets::digits();
    let dense = preset.layers[0].clone();
    let mut inner = dense.clone();
    if let stepgraph::model::LayerSpec::Dense(d) = &mut inner {
        d.units = 128;
    }
    preset.layers = std::iter::once(dense).chain(vec![inner; 1000]).chain(preset.layers.pop()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep.json");
    std::fs::write(&path, stepgraph::model::write_preset(&preset)).expect("a file");
    let mut robot = Robot::open(path.to_str());
    robot.until("the preset", |app| app.studio.network.cards.len() > 1000);
    robot.settle();
    robot.choose(UiCommand::ShowTab(Tab::StepGraph));
    robot.window.run_steps(4);
    robot.press("Level IR");
    robot.press("Sort by Layer");
    robot.window.run_steps(3);
    let rows = robot.app().studio.plan.as_ref().expect("a plan").compiled.graph.nodes.len();
    println!("{rows} rows");
    assert!(rows >= 4000, "{rows} rows");
    let found = frame_ms(&mut robot.window);
    held("thousands of rows", found, FRAME_MS);
}

#[test]
fn five_thousand_rectangles_stay_smooth() {
    const COUNT: u32 = 5000;
    let rect = |i: u32| BufferRect {
        id: BufferId(i),
        role: Role::ALL[i as usize % Role::ALL.len()],
        name: format!("L{i}:Dense.y"),
        shape: [64, 64].into(),
        dtype: "f32",
        bytes: 16_384,
        offset: u64::from(i % 100) * 16_384,
        live: [(i / 100) as usize * 20, (i / 100) as usize * 20 + 20],
        layer: None,
        writers: vec![(i / 100) as usize * 20],
        readers: vec![(i / 100) as usize * 20 + 19],
    };
    let view = ArenaView {
        rects: (0..COUNT).map(rect).collect(),
        ops: 1000,
        arena_bytes: 1_638_400,
        persistent_bytes: 0,
        lower_bound_bytes: 1_638_400,
        unshared_bytes: 81_920_000,
        ratio: 1.0,
        is_optimal: true,
        by_role: Vec::new(),
        padding_bytes: 0,
        attempts: Vec::new(),
        live_bytes: vec![1_638_400; 1000],
        largest: Vec::new(),
    };
    let mut installed = false;
    let mut window = None;
    let some = (0..500).map(|i| BufferId(i * 10)).collect();
    let ops = std::collections::BTreeSet::new();
    let mut harness = Harness::builder().with_size([1600., 900.]).build_ui(move |ui| {
        if !std::mem::replace(&mut installed, true) {
            theme::install(ui.ctx());
            return;
        }
        let axis = Axis::default();
        let window = window.get_or_insert_with(|| Window::fit(&view, &axis));
        let highlight = Highlight {
            parts: &[],
            buffers: &some,
            ops: &ops,
            op: Some(500),
            search: "dense",
            bytes: Some([4096, 9000]),
            fading: None,
        };
        map_ui(ui, &view, &axis, window, &highlight);
    });
    harness.run_steps(3);
    harness.hover_at(egui::Pos2::new(800., 400.));
    harness.run_steps(2);
    let found = frame_ms(&mut harness);
    held("5,000 rectangles", found, FRAME_MS);
}

#[test]
fn long_samples_and_texts_stay_smooth() {
    const POSITIONS: usize = 1024;
    let mut robot = Robot::open(Some("gpt-sums"));
    robot.train(100_000);
    robot.until("some steps", |app| app.studio.training.done() > 2);
    robot.press("Pause");
    robot.until("the pause", |app| app.studio.training.state == Some(stepgraph::train::RunState::Paused));
    let show = |robot: &mut Robot, command: UiCommand| {
        robot.choose(command);
        robot.window.run_steps(3);
    };
    show(&mut robot, UiCommand::ShowTab(Tab::Predictions));
    let answer = |i: u32| PositionAnswer {
        truth: i % 13,
        loss: f64::from(i % 50) * 0.1,
        likely: (0..5).map(|class| (class, 0.2)).collect(),
    };
    let weight = |i: usize| if i % POSITIONS > i / POSITIONS { 0.0 } else { 1.0 / (1 + i / POSITIONS) as f32 };
    let weights = (0..POSITIONS * POSITIONS).map(weight).collect();
    for (page, insight) in [
        (AnswersPage::Tokens, Insight::Positions((0..POSITIONS as u32).map(answer).collect())),
        (AnswersPage::Attention, Insight::Attention(AttentionMap { positions: POSITIONS, causal: true, weights })),
    ] {
        show(&mut robot, UiCommand::Predictions(PredictionsCommand::Show(page)));
        robot.until("an answer", |app| {
            let found = app.studio.predictions.inside.as_ref().map(|view| &view.found);
            matches!((page, found), (AnswersPage::Tokens, Some(Found::Tokens(_))) | (_, Some(Found::Attention(_))))
        });
        let studio = &mut robot.window.state_mut().studio;
        let (model, set) = (studio.training.compiled.as_ref(), studio.training.data.as_ref());
        let (model, set) = (&model.expect("a network").model, &set.expect("data").0);
        let before = studio.predictions.inside.as_deref().expect("an answer").clone();
        let large = InsideView { found: Found::of(model, set, 0, &insight), ..before };
        studio.predictions.inside = Some(Arc::new(large));
        studio.predictions.generation += 1;
        robot.window.run_steps(3);
        robot.window.hover_at(egui::Pos2::new(560., 420.));
        robot.window.run_steps(2);
        held(&format!("{page:?} of {POSITIONS} positions"), frame_ms(&mut robot.window), FRAME_MS);
        // A new answer makes the picture again.
        let mut times: Vec<f64> = (0..15)
            .map(|_| {
                robot.window.state_mut().studio.predictions.generation += 1;
                let started = Instant::now();
                robot.window.step();
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        held(&format!("a new answer, {page:?}"), times[times.len() / 2], FRAME_MS);
    }
    show(&mut robot, UiCommand::Predictions(PredictionsCommand::Show(AnswersPage::Writing)));
    let writing = &mut robot.window.state_mut().studio.training.writing;
    writing.take(WritingEvent::Began { prompt: "a".into(), notes: Vec::new(), most: 4000 });
    for tokens in 1..=4000 {
        let text = if tokens % 12 == 0 { "\n" } else { "word " };
        writing.take(WritingEvent::Wrote { text: text.into(), tokens, step: 1 });
    }
    robot.window.run_steps(3);
    let mut times: Vec<f64> = (0..15)
        .map(|i| {
            let event = WritingEvent::Wrote { text: "more ".into(), tokens: 4001 + i, step: 1 };
            robot.window.state_mut().studio.training.writing.take(event);
            let started = Instant::now();
            robot.window.step();
            started.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    held("a text of 4,000 tokens that grows", times[times.len() / 2], FRAME_MS);
}

#[test]
fn an_edit_is_planned_within_its_budget() {
    let mut robot = large();
    let mut took = Vec::new();
    for units in ["72", "80", "88", "96", "104"] {
        robot.set("L0 units", units);
        took.push(robot.app().studio.last_edit.took.as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    held("edit to plan, stress-200", took[took.len() / 2], PLAN_MS);
}
