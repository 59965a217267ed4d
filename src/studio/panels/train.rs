//! The run: its curves, its numbers, and the controls that act on it while it runs.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::curves::{metrics_ui, plots_menu_ui, plots_ui};
use crate::studio::panels::plan_state::unready_ui;
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::train::{RunView, TrainView};
use crate::studio::view_models::readiness::Readiness;
use crate::studio::widgets::button::{command_icon_ui, command_ui, slider_ui, weak_ui};
use crate::studio::widgets::field::problem_ui;
use crate::studio::widgets::plot::PlotView;
use crate::train::runs::mean_of_last;
use egui::{Align, Layout, RichText, Slider, TextEdit, Ui, Vec2};

/// The state of the panel.
#[derive(Default)]
pub struct TrainPanel {
    pub view: PlotView,
    /// The learning rate that is being typed.
    lr_text: Option<String>,
}

impl TrainPanel {
    /// Resets the plots to the whole run.
    pub fn fit(&mut self) {
        self.view.fit();
    }
}

/// Shows the panel.
pub fn train_ui(ui: &mut Ui, view: &TrainView<'_>, panel: &mut TrainPanel, commands: &mut CommandQueue) {
    if let Some(error) = view.failure {
        let curves = match (view.run.shows_previous, view.run.done) {
            (true, _) => "The curves below are those of the previous run",
            (false, 0) => "The network is not changed",
            (false, _) => "The curves end where it failed",
        };
        problem_ui(ui, error, &format!("{curves}; change what is named here and train again."));
        ui.add_space(8.0);
    }
    if let Some(problem) = view.problem {
        problem_ui(ui, problem, "");
        ui.add_space(8.0);
    }
    if !view.has_run {
        return first_ui(ui, view, commands);
    }
    numbers_ui(ui, &view.run);
    ui.add_space(4.0);
    controls_ui(ui, view, panel, commands);
    ui.add_space(4.0);
    plots_ui(ui, view, &mut panel.view, commands);
}

/// Before the first run: what the network is, and the button to press.
fn first_ui(ui: &mut Ui, view: &TrainView<'_>, commands: &mut CommandQueue) {
    let preset = view.preset;
    if view.readiness != Readiness::Ready {
        return unready_ui(ui, view.readiness, "train it", commands);
    }
    ui.vertical_centered(|ui| {
        ui.add_space((ui.available_height() * 0.28).min(160.0));
        ui.set_max_width(460.0_f32.min(ui.available_width()));
        ui.label(RichText::new(&preset.name).font(theme::strong(20.0)));
        ui.add_space(4.0);
        ui.label(RichText::new(&preset.about).color(theme::colors(ui).weak));
        ui.add_space(12.0);
        let c = theme::colors(ui);
        let text = RichText::new(format!("{}  Train", icons::PLAY)).color(c.on_accent).size(15.0);
        let button = ui.add(egui::Button::new(text).fill(c.accent).min_size(Vec2::new(128.0, 32.0)));
        crate::studio::widgets::button::named(&button, "Train this network", true);
        if button.on_hover_text(UiCommand::Train.tooltip(ui.ctx())).clicked() {
            commands.push(UiCommand::Train);
        }
        ui.add_space(4.0);
        let steps = preset.train.map_or(1000, |t| t.steps);
        let data = preset.data.as_ref().map_or("no data", |d| d.source.name());
        let samples = format::counted(preset.samples_a_step() as u64, "sample");
        weak_ui(ui, format!("{} of {samples} on {data}", format::counted(steps as u64, "step")));
        ui.add_space(16.0);
        metrics_ui(ui, &view.metrics, commands);
    });
}

/// A number with its name below it, and its origin as a tooltip.
struct Number {
    label: String,
    value: String,
    about: String,
}

/// Numbers side by side in columns of equal width; in two rows if they do not fit in one.
fn columns_ui(ui: &mut Ui, numbers: &[Number]) {
    const LEAST: f32 = 80.0;
    let fit = ((ui.available_width() / LEAST).floor() as usize).clamp(1, numbers.len().max(1));
    let per_row = numbers.len().div_ceil(numbers.len().div_ceil(fit));
    let width = (ui.available_width() / per_row as f32).floor().min(132.0);
    for row in numbers.chunks(per_row) {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing = Vec2::ZERO;
            for n in row {
                ui.allocate_ui_with_layout(Vec2::new(width, 36.0), Layout::top_down(Align::Min), |ui| {
                    ui.set_width(width - 4.0);
                    let value = egui::Label::new(RichText::new(&n.value).font(theme::strong(15.0))).truncate();
                    ui.add(value).on_hover_text(&n.about);
                    ui.add(
                        egui::Label::new(RichText::new(&n.label).size(12.0).color(theme::colors(ui).weak)).truncate(),
                    );
                });
                ui.add_space(4.0);
            }
        });
    }
}

/// The names of the numbers about a run's speed.
const ABOUT_PACE: &str = "Over the last second, or over the time of all steps if the run was shorter";

fn numbers_ui(ui: &mut Ui, run: &RunView<'_>) {
    let h = run.history;
    let last = |points: &[[f64; 2]]| points.last().map(|p| p[1]);
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let batch = run.preset.map_or(0, |p| p.samples_a_step()) as f64;
    let rate = |r: f64| (r > 0.0).then(|| format::count(r));
    let time = |us: f32| (us > 0.0).then(|| format::micros(f64::from(us)));
    let number = |label: &str, value: Option<String>, about: &str| Number {
        label: label.into(),
        value: or_dash(value),
        about: about.into(),
    };
    let rhythm = run.evaluated_every.map_or_else(String::new, |n| format!(", every {}", format::counted(n, "step")));
    let loss = mean_of_last(h.curves.loss.raw.values()).map(|v| format::number(f64::from(v)));
    let accuracy = last(&h.curves.held_out_accuracy).map(|a| format!("{:.1}%", a * 100.0));
    // A number that is cut off would look like a smaller one.
    let total = if run.total < 100_000 { format::exact(run.total) } else { format::count(run.total as f64) };
    let [loss_name, accuracy_name, samples] = match run.maybe_trained {
        true => [
            "evaluated loss",
            "evaluated acc.",
            "samples that the run may have trained on before it was resumed with others: not a held-out metric",
        ],
        false => ["held-out loss", "held-out acc.", "samples the run never trains on"],
    };
    let mut numbers = vec![
        number(
            &format!("step of {total}"),
            Some(format::exact(run.done)),
            &format!("Steps made, of {} in the run", format::exact(run.total)),
        ),
        number("training loss", loss, "Mean loss of the last 32 batches, before each update, as in the table of runs"),
        number(
            loss_name,
            last(&h.curves.held_out_loss).map(format::number),
            &format!("Mean loss over {samples}{rhythm}"),
        ),
        number(accuracy_name, accuracy, &format!("Share of correctly classified {samples}{rhythm}")),
        number("steps/s", rate(run.steps_per_s), ABOUT_PACE),
        number("samples/s", rate(run.steps_per_s * batch), ABOUT_PACE),
        number("median step", time(run.median_us), "Median host time over the last 4096 steps"),
        number("p99 step", time(run.p99_us), "99th percentile of the host time over the last 4096 steps"),
    ];
    if h.curves.held_out_accuracy.is_empty() && !h.curves.accuracy.raw.last().is_some_and(f32::is_finite) {
        numbers.remove(3);
    }
    if run.predicts_tokens {
        let about = format!(
            "Perplexity: as uncertain as a choice among this number of equally likely tokens; over {samples}{rhythm}"
        );
        numbers.insert(
            3,
            number("perplexity", last(&h.curves.held_out_loss).map(|loss| format::number(loss.exp())), &about),
        );
    }
    columns_ui(ui, &numbers);
}

/// The width below which the controls use two lines.
const ROOM_FOR_CONTROLS: f32 = 600.0;
/// The additional width of the icon for an edited network.
const ROOM_FOR_SIGN: f32 = 24.0;

fn controls_ui(ui: &mut Ui, view: &TrainView<'_>, panel: &mut TrainPanel, commands: &mut CommandQueue) {
    let sign = if view.is_stale { ROOM_FOR_SIGN } else { 0.0 };
    if ui.available_width() < ROOM_FOR_CONTROLS + sign {
        ui.horizontal(|ui| lr_ui(ui, &view.run, panel, commands));
        ui.horizontal(|ui| view_ui(ui, view, panel, commands));
        return;
    }
    ui.horizontal(|ui| {
        lr_ui(ui, &view.run, panel, commands);
        ui.add_space(8.0);
        view_ui(ui, view, panel, commands);
    });
}

/// The learning rate, which takes effect immediately.
fn lr_ui(ui: &mut Ui, run: &RunView<'_>, panel: &mut TrainPanel, commands: &mut CommandQueue) {
    weak_ui(ui, "learning rate");
    let mut text = panel.lr_text.clone().unwrap_or_else(|| format!("{}", run.lr));
    let edit = TextEdit::singleline(&mut text).desired_width(80.0).font(theme::mono()).id_salt("live lr");
    let response = ui.add_enabled_ui(run.obeys, |ui| ui.name_inputs("Live learning rate", |ui| ui.add(edit))).inner;
    let response = response.on_hover_text("Applies to the next replay; the recording does not change. Enter sets it.");
    let parsed = text.trim().parse::<f32>().ok().filter(|v| (0.0..=1e6).contains(v));
    if response.lost_focus() {
        if let Some(lr) = parsed.filter(|lr| *lr != run.lr) {
            commands.push(UiCommand::SetLr(lr));
        }
        panel.lr_text = None;
    } else if response.has_focus() {
        panel.lr_text = Some(text);
    }
    for (label, name, factor) in [("÷2", "Halve the learning rate", 0.5), ("×2", "Double the learning rate", 2.0)] {
        let button = ui.add_enabled(run.obeys, egui::Button::new(label)).on_hover_text(name);
        crate::studio::widgets::button::named(&button, name, run.obeys);
        if button.clicked() {
            commands.push(UiCommand::SetLr(run.lr * factor));
        }
    }
}

/// How the curves are drawn.
fn view_ui(ui: &mut Ui, view: &TrainView<'_>, panel: &mut TrainPanel, commands: &mut CommandQueue) {
    weak_ui(ui, "smoothing");
    let mut smoothing = view.run.smoothing;
    let lag = smoothing / (1.0 - smoothing).max(1e-3);
    let slider = Slider::new(&mut smoothing, 0.0..=0.999).fixed_decimals(3);
    let response = slider_ui(ui, slider, "Smoothing", 64.0).on_hover_text(format!(
        "Share of the past in the bold curves, of training and of held-out samples alike: they follow the raw ones, \
         which are drawn faintly, about {} late. The first points are averages of what there is: each curve starts \
         at its first value.",
        format::counted(lag.round() as u64, "step")
    ));
    if response.changed() {
        commands.push(UiCommand::SetSmoothing(smoothing));
    }
    let mut log = view.plots.log_axis;
    if ui.checkbox(&mut log, "log").on_hover_text(UiCommand::ToggleLogAxis.info().about).changed() {
        commands.push(UiCommand::ToggleLogAxis);
    }
    ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
        if panel.view.frozen {
            command_ui(ui, UiCommand::FollowPlots, true, commands);
        } else {
            let freeze = ui.button("Freeze").on_hover_text("Keeps the current axes while the run continues");
            panel.view.frozen = freeze.clicked();
        }
        plots_menu_ui(ui, view, commands);
        if view.is_stale {
            let c = theme::colors(ui);
            // The text and the button that resolves it fit only in a wide window.
            let is_wide = ui.available_width() > 120.0;
            let words = if is_wide { "  edited since" } else { "" };
            let text = format!("{}{words}", icons::INFO);
            let label = ui.label(RichText::new(text).size(12.0).color(c.warning));
            label.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, "edited since"));
            label.on_hover_text(
                "Edited since the start: this run trains the network without the edits. Reset and train to use them.",
            );
            if is_wide {
                command_icon_ui(ui, UiCommand::Reset, true, commands);
            }
        }
    });
}
