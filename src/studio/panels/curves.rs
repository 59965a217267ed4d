//! The plots of a run, their layout, and the metrics that the step computes for them.

use crate::model::losses::SoftmaxCrossEntropy;
use crate::model::{LossSpec, Preset};
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::train::{MetricsView, PlotsView, RunView, TrainView};
use crate::studio::view_models::status::state_name;
use crate::studio::widgets::axis::{tick, time_tick};
use crate::studio::widgets::button::{command_ui, empty_ui, weak_ui};
use crate::studio::widgets::classes::{HIGH, LOW};
use crate::studio::widgets::field::problem_ui;
use crate::studio::widgets::histogram::{Bars, histogram_ui};
use crate::studio::widgets::plot::{Curve, PlotFrame, PlotSpec, PlotView, plot_ui};
use crate::studio::widgets::recording_strip::{StripSpec, recording_strip_ui};
use egui::{Align, Layout, Ui, Vec2};

/// Every plot with its title and description.
const PLOTS: [(&str, &str); 7] = [
    ("Loss", "Loss of the batches, and of the held-out samples"),
    ("Accuracy", "Share that is classified correctly, of the batches and of the held-out samples"),
    ("Step time", "Time of every step on the host"),
    ("Step times", "Histogram of the last 4096 steps; after Measure eager, eager steps beside replayed ones"),
    ("Update", "The largest change of any parameter, by step"),
    ("Update by layer", "The largest change of any parameter of each layer"),
    ("Learning rate", "The learning rate of each step"),
];

/// The smallest height of a plot with its title, in points.
const LEAST: f32 = 168.0;
/// The height of the strip of recordings, in points.
const STRIP: f32 = 10.0;

/// The menu that shows and hides plots, and shows which metrics the next run computes.
pub fn plots_menu_ui(ui: &mut Ui, view: &TrainView<'_>, commands: &mut CommandQueue) {
    let response = ui.menu_button("Plots", |ui| {
        for (title, about) in PLOTS {
            let mut shown = !view.plots.hidden.contains(title);
            if ui.checkbox(&mut shown, title).on_hover_text(about).changed() {
                commands.push(UiCommand::ShowPlot(title, shown));
            }
        }
        ui.separator();
        metrics_ui(ui, &view.metrics, commands);
    });
    response.response.on_hover_text("Which plots are shown, and what the next run measures");
}

/// The metrics that the next run computes inside its step.
pub fn metrics_ui(ui: &mut Ui, view: &MetricsView<'_>, commands: &mut CommandQueue) {
    let mut metrics = view.metrics;
    let before = metrics;
    weak_ui(ui, "Measured inside the step, from the next run on");
    let prices = view.prices;
    let accuracy = "Share of the batch that is classified correctly";
    let updates = "The change of parameters, in total and by layer, and the norm of the gradient";
    let groups =
        [(&mut metrics.accuracy, "Accuracy", accuracy), (&mut metrics.updates, "Updates and gradient norm", updates)];
    for (i, (on, name, about)) in groups.into_iter().enumerate() {
        if i == 0 && !view.has_classes {
            continue;
        }
        ui.checkbox(on, name).on_hover_text(about);
        if let Some(p) = prices {
            let (added, share) = (p.added_us[i], p.added_us[i] / p.step_us.max(1e-6) * 100.0);
            // A cost that is smaller than the noise is reported as such.
            let price = if share < 0.5 { "no measurable cost".to_owned() } else { format!("{share:.1}% of a step") };
            let exact =
                format!("{added:+.2} µs on a step of {} without it", format::micros(f64::from(p.step_us - added)));
            weak_ui(ui, price).on_hover_text(exact);
        }
    }
    if view.is_measuring {
        weak_ui(ui, "measuring what they cost…");
    } else if prices.is_none() {
        let button = ui.add_enabled(view.can_measure, egui::Button::new("Measure what they cost"));
        if button.on_hover_text(UiCommand::MeasurePrices.info().about).clicked() {
            commands.push(UiCommand::MeasurePrices);
        }
    }
    if let Some(problem) = view.problem {
        problem_ui(ui, problem, "");
    }
    if metrics != before {
        commands.push(UiCommand::SetMetrics(metrics));
    }
}

/// Why training and held-out loss of the same network differ; empty if they differ only in their samples.
fn loss_note(preset: Option<&Preset>) -> String {
    match preset.map(|p| p.loss) {
        Some(LossSpec::SoftmaxCrossEntropy(SoftmaxCrossEntropy { label_smoothing })) if label_smoothing > 0.0 => {
            format!(
                "The training loss has label smoothing of {label_smoothing}, the held-out loss has none: of the same \
             answers it is lower."
            )
        }
        _ => String::new(),
    }
}

/// A plot of a run with the user's settings, and only its own curve.
fn plot_of<'a>(view: &TrainView<'a>, title: &'static str, unit: &'static str, curve: Curve<'a>) -> PlotSpec<'a> {
    PlotSpec {
        title,
        unit,
        note: "",
        curve,
        curve_name: "train",
        points: &[],
        points_name: "",
        points_every: None,
        baseline: None,
        steps: view.run.history.curves.loss.raw.len(),
        log: log_of(view, title, view.plots.log_axis),
        can_log: true,
        range: None,
        exponential: None,
        value: format::number,
        tick,
    }
}

/// Whether a plot's axis is logarithmic: the user's choice, otherwise `or`.
fn log_of(view: &TrainView<'_>, title: &str, or: bool) -> bool {
    view.plots.plot_log.get(title).copied().unwrap_or(or)
}

/// The text beside plots.
struct Notes {
    loss: String,
    /// What is not known about the changes by layer.
    layers: String,
}

impl Notes {
    fn of(run: &RunView<'_>) -> Self {
        let h = run.history;
        // A run that was started by an older version lacks its first steps.
        let late = h.layers.first_step().filter(|first| first * 10 > h.curves.loss.raw.len() as u64 && *first > 1);
        let since = |first| {
            format!("Changes by layer are known from step {} on: those before it were not kept.", format::exact(first))
        };
        let loss = if h.curves.held_out_loss.is_empty() { String::new() } else { loss_note(run.preset) };
        Self { loss, layers: late.map_or_else(String::new, since) }
    }
}

/// Loss and accuracy, with their points for held-out samples.
fn learning_plots<'a>(view: &TrainView<'a>, notes: &'a Notes) -> Vec<PlotSpec<'a>> {
    let run = &view.run;
    let h = run.history;
    let points_name = if run.maybe_trained { "maybe trained on" } else { "held-out" };
    let mut plots = vec![PlotSpec {
        note: &notes.loss,
        exponential: run.predicts_tokens.then_some("perplexity"),
        points: &h.curves.held_out_loss,
        points_name,
        points_every: run.evaluated_every,
        ..plot_of(view, "Loss", "", Curve::Smoothed(&h.curves.loss))
    }];
    if h.curves.accuracy.raw.last().is_some_and(f32::is_finite) || !h.curves.held_out_accuracy.is_empty() {
        plots.push(PlotSpec {
            points: &h.curves.held_out_accuracy,
            points_name,
            points_every: run.evaluated_every,
            range: Some((0.0, 1.0)),
            log: false,
            can_log: false,
            ..plot_of(view, "Accuracy", "", Curve::Smoothed(&h.curves.accuracy))
        });
    }
    plots
}

/// Every plot of the run that the user wants to see, with the curves of the baseline.
fn plots<'a>(view: &TrainView<'a>, notes: &'a Notes) -> Vec<PlotSpec<'a>> {
    let (h, shown) = (view.run.history, &view.plots);
    let mut plots = learning_plots(view, notes);
    // Other load on the machine can make a step a hundred times slower: only a logarithmic axis shows both.
    let clock = if shown.is_timed_on_device { "by the device's clock" } else { "on the host" };
    let time = plot_of(view, "Step time", clock, Curve::Smoothed(&h.curves.step_us));
    plots.push(PlotSpec { value: format::micros, tick: time_tick, log: log_of(view, "Step time", true), ..time });
    if h.curves.update_max.raw.last().is_some_and(|v| v > 0.0) {
        plots.push(plot_of(view, "Update", "largest change of a parameter", Curve::Smoothed(&h.curves.update_max)));
    }
    if !h.layers.is_empty() {
        let curve = Curve::Layers { curves: &h.layers, marked: shown.marked };
        let layers = plot_of(view, "Update by layer", "click a curve to select its layer", curve);
        plots.push(PlotSpec { note: &notes.layers, log: log_of(view, "Update by layer", true), ..layers });
    }
    plots.push(PlotSpec { curve_name: "rate", ..plot_of(view, "Learning rate", "", Curve::Plain(&h.lr)) });
    if let Some((name, pinned)) = shown.baseline {
        for spec in &mut plots {
            let curve = match spec.title {
                "Loss" => &pinned.curves.loss,
                "Accuracy" => &pinned.curves.accuracy,
                "Step time" => &pinned.curves.step_us,
                "Update" => &pinned.curves.update_max,
                _ => continue,
            };
            spec.baseline = Some((name, &curve.smooth));
        }
    }
    plots.retain(|p| !shown.hidden.contains(p.title));
    plots
}

/// Shows the plots.
pub fn plots_ui(ui: &mut Ui, view: &TrainView<'_>, axes: &mut PlotView, commands: &mut CommandQueue) {
    let (run, shown) = (&view.run, &view.plots);
    if run.history.curves.loss.raw.is_empty() {
        return empty_ui(ui, state_name(run.state), "Curves begin with the first step.");
    }
    axes.begin();
    let notes = Notes::of(run);
    let plots = plots(view, &notes);
    // The histogram is behind the curve of the same times.
    let mut cells: Vec<Option<&PlotSpec<'_>>> = plots.iter().map(Some).collect();
    if !shown.hidden.contains("Step times") {
        let at = plots.iter().position(|p| p.title == "Step time").map_or(cells.len(), |i| i + 1);
        cells.insert(at, None);
    }
    if cells.is_empty() {
        return empty_ui(ui, "Every plot is hidden", "The Plots menu above brings them back.");
    }
    let columns = if ui.available_width() > 560.0 { 2 } else { 1 };
    let columns = if ui.available_width() > 1240.0 { 3 } else { columns }.min(cells.len());
    let rows = cells.len().div_ceil(columns);
    let gap = 12.0;
    let height = ((ui.available_height() - gap * (rows as f32 - 1.0)) / rows as f32).max(LEAST);
    let width = ((ui.available_width() - gap * columns as f32) / columns as f32).floor();
    egui::ScrollArea::vertical().id_salt("plots").auto_shrink([false, false]).show(ui, |ui| {
        ui.spacing_mut().item_spacing = Vec2::new(gap, 4.0);
        for row in cells.chunks(columns) {
            let top = ui.cursor().min;
            let all = egui::Rect::from_min_size(top, Vec2::new(ui.available_width(), height));
            if !ui.is_rect_visible(all) {
                ui.allocate_exact_size(all.size(), egui::Sense::hover());
                continue;
            }
            ui.horizontal_top(|ui| {
                for spec in row {
                    ui.allocate_ui_with_layout(Vec2::new(width, height), Layout::top_down(Align::Min), |ui| {
                        ui.set_width(width);
                        ui.spacing_mut().item_spacing = Vec2::new(8.0, 4.0);
                        match spec {
                            Some(spec) if spec.title == "Loss" && has_strip(view) => {
                                let frame = plot_ui(ui, spec, height - 8.0 - STRIP - 4.0, axes, commands);
                                strip_ui(ui, shown, frame);
                            }
                            Some(spec) => {
                                plot_ui(ui, spec, height - 8.0, axes, commands);
                            }
                            None => times_ui(ui, shown, height - 8.0, commands),
                        }
                    });
                }
            });
        }
    });
}

/// Whether the steps of the run use several recordings, and it is known which step used which.
fn has_strip(view: &TrainView<'_>) -> bool {
    let kinds = view.plots.kinds;
    kinds.len() == view.run.history.curves.loss.raw.len() && kinds.are_known()
}

/// Which recording ran at each step, below the curve of the same steps.
fn strip_ui(ui: &mut Ui, view: &PlotsView<'_>, frame: PlotFrame) {
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), STRIP), egui::Sense::hover());
    let Some((first, last)) = steps_in(frame.steps, view.kinds.len()) else { return };
    // A step extends from half a step before it to half a step after it.
    let [left, right] = [first as f64 - 0.5, last as f64 + 0.5].map(|step| frame.x.clamp(frame.x_of(step)));
    let x = egui::Rangef::new(left.max(rect.left()), right.min(rect.right()));
    let (kinds, steps) = (view.kinds, [first - 1, last]);
    let spec = StripSpec { kinds, steps, x, recordings: view.recordings, names: view.names };
    recording_strip_ui(ui, response, &spec);
}

/// The first and the last step, counted from 1, between two ends of an axis; `None` if there is none.
fn steps_in([from, to]: [f64; 2], count: usize) -> Option<(usize, usize)> {
    let (first, last) = (from.ceil().max(1.0) as usize, to.floor().max(0.0) as usize);
    let last = last.min(count);
    (first <= last).then_some((first, last))
}

/// The histogram of step times, with eager and replayed steps if they were measured.
fn times_ui(ui: &mut Ui, view: &PlotsView<'_>, height: f32, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let mut all = vec![Bars { name: "Run", histogram: view.times, color: c.weak }];
    if let Some(two) = view.both_ways {
        // The run's own times include other load on the machine, so the comparison uses those that were measured
        // alternately.
        all = vec![
            Bars { name: "Eager", histogram: &two.eager, color: HIGH },
            Bars { name: "Replay", histogram: &two.replay, color: LOW },
        ];
    }
    histogram_ui(ui, "Step times", &all, height - 28.0);
    ui.horizontal(|ui| {
        command_ui(ui, UiCommand::TimeBothWays, view.can_time, commands);
        match (view.both_ways, view.is_timing) {
            (_, true) => drop(weak_ui(ui, "measuring…")),
            (Some(two), false) => {
                let text = format!("eager takes {:.2}× as long", two.ratio());
                weak_ui(ui, text).on_hover_text(format!(
                    "Medians of steps that ran in alternation, at step {}",
                    format::exact(two.step)
                ));
            }
            (None, false) => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strip_shows_the_steps_that_the_plot_shows() {
        assert_eq!(steps_in([0.0, 100.0], 30), Some((1, 30)));
        assert_eq!(steps_in([4.2, 9.8], 30), Some((5, 9)));
        assert_eq!(steps_in([40.0, 50.0], 30), None);
        assert_eq!(steps_in([-3.0, 0.5], 30), None);
        let frame = PlotFrame { steps: [10.0, 20.0], x: egui::Rangef::new(100.0, 200.0) };
        assert_eq!([frame.x_of(10.0), frame.x_of(15.0), frame.x_of(25.0)], [100.0, 150.0, 250.0]);
    }
}
