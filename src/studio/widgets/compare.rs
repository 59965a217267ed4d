//! Curves of several runs in one plot, against the step or the running time.

use crate::studio::theme;
use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::view_models::series::smoothed::Smoothed;
use crate::studio::widgets::axis::{
    hovered, inside, linear_marks, scale, step_marks, step_tick, tick as short, with_values,
};
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::classes::DISTINCT;
pub use crate::studio::widgets::compare_spec::{CompareSpec, Compared, Shown};
use crate::studio::widgets::compare_values::listed;
use crate::studio::widgets::layer_curves::{
    LayerLine, layer_color, layer_keys_fit, layer_keys_ui, layer_lines, layer_rows_ui,
};
use crate::studio::widgets::smoothing::smoothed_points;
use crate::train::export::LINE_COLORS;
use egui::{Color32, RichText, Ui};
use egui_plot::{GridInput, GridMark, Line, LineStyle, Plot, PlotPoint, PlotPoints, PlotUi, Points, Text, VLine};

/// The colour of the run at this index among the selected ones. On a dark background the two blues are exchanged, and
/// black becomes white.
#[must_use]
fn run_color(ui: &Ui, index: usize) -> Color32 {
    let mut index = index % LINE_COLORS.len();
    if ui.visuals().dark_mode {
        index = match index {
            0 => 5,
            5 => 0,
            other => other,
        };
    }
    let [r, g, b] = LINE_COLORS[index];
    let color = Color32::from_rgb(r, g, b);
    if color == Color32::BLACK { theme::colors(ui).text } else { color }
}

/// A run's letter over a stroke of its colour, because the colour alone is not sufficient.
pub fn letter_ui(ui: &mut Ui, letter: char, index: usize) {
    let color = run_color(ui, index);
    let response = ui.label(RichText::new(letter.to_string()).font(theme::strong(12.0)));
    let rect = response.rect;
    ui.painter().hline(rect.x_range(), rect.bottom(), egui::Stroke::new(3.0, color));
}

/// The common state of the plots of a comparison: the position under the pointer, in any of the plots.
#[derive(Default)]
pub struct CompareView {
    cursor: Option<f64>,
    found: Option<f64>,
}

impl CompareView {
    /// Starts a frame: the pointer's position is that of the last one.
    pub fn begin(&mut self) {
        self.cursor = self.found.take();
    }
}

/// The largest number of ranges of a layer's curve that are drawn.
const STRETCHES: usize = 400;
/// The space for a letter at the end of a curve, in points.
const LETTER: f32 = 12.0;

/// The position of a step of a run along the axis: the step itself, or its running time in seconds.
fn across(run: &LoadedRun, step: f64, by_time: bool) -> f64 {
    let before = run.outline.before as f64;
    if by_time { run.outline.ms((step - before - 1.0).max(0.0) as usize) * 1e-3 } else { step }
}

/// Few marks, because those of time are wide.
fn time_marks(input: &GridInput) -> Vec<GridMark> {
    linear_marks(input, 3.0)
}

/// The smallest width of the vertical axis, and the smallest height of the other one, in points.
const AXES: [f32; 2] = [52.0, 18.0];

/// Shows a plot of this height.
pub fn compare_ui(ui: &mut Ui, runs: &[Compared<'_>], spec: &CompareSpec<'_>, height: f32, view: &mut CompareView) {
    let rows = head_ui(ui, runs, spec, view.cursor).map_or(0.0, |names| layer_rows_ui(ui, names));
    let c = theme::colors(ui);
    let (log, tick, by_time, cursor) = (spec.log, spec.tick, spec.by_time, view.cursor);
    let pixels = ui.available_width().max(64.0) as usize;
    let width = (ui.available_width() - AXES[0]).max(64.0);
    let room = f64::from(width / 72.0);
    let height = (height - 24.0 - rows).max(64.0);
    let inner = height - AXES[1];
    let colors: Vec<Color32> = (0..runs.len()).map(|i| run_color(ui, i)).collect();
    let plot = Plot::new(("compare", spec.title, by_time, log))
        .height(height)
        .allow_scroll(false)
        .show_x(false)
        .show_y(false)
        .grid_color(c.hairline)
        .y_axis_min_width(AXES[0])
        .x_grid_spacer(move |input| if by_time { time_marks(&input) } else { step_marks(input.bounds, room) })
        .x_axis_formatter(move |mark: GridMark, range| {
            let text = if by_time { format!("{} s", short(mark.value, mark.step_size)) } else { step_tick(mark) };
            inside(text, mark.value, range, width)
        })
        .label_formatter(move |at| {
            let position = hovered(at);
            Some(listed(runs, spec, position.x).join("\n"))
        });
    let plot = with_values(plot, log, tick, inner);
    let response = plot.show(ui, |plot| {
        let mut ends: Vec<(PlotPoint, String, Color32)> = Vec::new();
        for (index, compared) in runs.iter().enumerate() {
            let (alone, color) = (runs.len() == 1, colors[index]);
            let end = match spec.shown {
                Shown::Curve(curve, points) => {
                    let found = (curve(compared.run), points(compared.run));
                    curve_lines(plot, compared, found, spec, (color, alone), pixels)
                }
                Shown::Layer(name) => layers_lines(plot, compared, name, spec, (color, alone)),
            };
            if let Some(end) = end {
                add_letter(plot, &mut ends, end, (compared.letter, color));
            }
        }
        if let Some(x) = cursor {
            plot.vline(VLine::new("", x).color(c.weak).width(1.0).allow_hover(false));
        }
        letters(plot, ends);
    });
    let name = format!("{} of the selected runs", spec.title);
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    if let Some(at) = response.response.hover_pos() {
        view.found = Some(response.transform.value_from_position(at).x.max(0.0));
    }
}

/// Draws a run's letter at the end of its curve. Curves that end at the same place share a label, because overlapping
/// letters cannot be read.
fn add_letter(
    plot: &PlotUi<'_>,
    ends: &mut Vec<(PlotPoint, String, Color32)>,
    [x, y]: [f64; 2],
    (letter, color): (char, Color32),
) {
    let end = PlotPoint::new(x, y);
    let at = plot.screen_from_plot(end);
    match ends.iter_mut().find(|(other, ..)| plot.screen_from_plot(*other).distance(at) < LETTER) {
        Some((_, letters, _)) => letters.push(letter),
        None => ends.push((end, letter.to_string(), color)),
    }
}

/// The letters of runs at the ends of their curves.
fn letters(plot: &mut PlotUi<'_>, ends: Vec<(PlotPoint, String, Color32)>) {
    let roof = plot.screen_from_plot(PlotPoint::new(0.0, plot.plot_bounds().max()[1])).y;
    for (end, letters, color) in ends {
        let is_below = plot.screen_from_plot(end).y - roof < LETTER + 4.0;
        let anchor = match (letters.len() > 1, is_below) {
            (true, false) => egui::Align2::RIGHT_BOTTOM,
            (true, true) => egui::Align2::RIGHT_TOP,
            (false, false) => egui::Align2::LEFT_BOTTOM,
            (false, true) => egui::Align2::LEFT_TOP,
        };
        let text = Text::new("letter", end, RichText::new(letters).font(theme::strong(12.0)));
        plot.text(text.color(color).anchor(anchor).allow_hover(false));
    }
}

/// The values at the pointer in the rest of the line, complete as a tooltip.
fn cursor_ui(ui: &mut Ui, runs: &[Compared<'_>], spec: &CompareSpec<'_>, cursor: f64) {
    let lines = listed(runs, spec, cursor);
    ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
        let text = RichText::new(lines.join("  ")).size(12.0).color(theme::colors(ui).weak);
        ui.add(egui::Label::new(text).truncate().show_tooltip_when_elided(false)).on_hover_text(lines.join("\n"));
    });
}

/// The title, with the layer that is shown, or the colours of all of them; returns their names if they do not fit.
fn head_ui<'a>(
    ui: &mut Ui,
    runs: &[Compared<'a>],
    spec: &CompareSpec<'_>,
    cursor: Option<f64>,
) -> Option<&'a [String]> {
    let mut rest = None;
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.label(RichText::new(spec.title).font(theme::strong(13.0)));
        let layers = match (spec.shown, runs) {
            (Shown::Layer(_), [one]) => Some(one.run.outline.layers.names.as_slice()),
            _ => None,
        };
        // The names below the title stay where they are while the pointer is over a plot.
        rest = layers.filter(|names| !layer_keys_fit(ui, names));
        match (cursor, spec.shown, layers) {
            (Some(x), ..) => cursor_ui(ui, runs, spec, x),
            (None, Shown::Layer(_), Some(names)) if rest.is_none() => layer_keys_ui(ui, names),
            (None, Shown::Layer(name), None) => drop(weak_ui(ui, name)),
            _ => {}
        }
    });
    rest
}

/// Draws a curve with its points; returns its end.
fn curve_lines(
    plot: &mut PlotUi<'_>,
    of: &Compared<'_>,
    (curve, points): (&Smoothed, &[[f64; 2]]),
    spec: &CompareSpec<'_>,
    (color, alone): (Color32, bool),
    pixels: usize,
) -> Option<[f64; 2]> {
    let (run, log, by_time) = (of.run, spec.log, spec.by_time);
    let before = run.outline.before as f64;
    let placed = |series: &crate::studio::view_models::series::values::Series| -> Vec<[f64; 2]> {
        let found = series.points(0.0, series.len() as f64, pixels).into_iter().filter(|p| p[1].is_finite());
        found.map(|[x, y]| [across(run, before + x, by_time), scale(log, y)]).collect()
    };
    let smooth = placed(&curve.smooth);
    if alone {
        let raw = PlotPoints::from(placed(&curve.raw));
        plot.line(Line::new("raw", raw).color(color.gamma_multiply(0.3)).width(1.0).allow_hover(false));
    }
    let end = smooth.last().copied();
    let name = format!("{} {}", of.letter, of.name);
    plot.line(Line::new(name, PlotPoints::from(smooth)).color(color).width(1.5).allow_hover(false));
    // Both curves are averaged over the same steps.
    let smoothed = smoothed_points(points, curve.weight());
    let held_out: Vec<[f64; 2]> =
        smoothed.iter().map(|[step, y]| [across(run, *step, by_time), scale(log, *y)]).collect();
    if held_out.len() == 1 {
        plot.points(Points::new("held-out", held_out).color(color).radius(3.0).allow_hover(false));
    } else if !held_out.is_empty() {
        let line = Line::new("held-out", PlotPoints::from(held_out)).color(color).width(1.5);
        plot.line(line.style(LineStyle::dashed_dense()).allow_hover(false));
    }
    end
}

/// Draws the layer with this name, for a single run every layer; returns the end of its curve if it needs a letter.
fn layers_lines(
    plot: &mut PlotUi<'_>,
    of: &Compared<'_>,
    name: &str,
    spec: &CompareSpec<'_>,
    (color, alone): (Color32, bool),
) -> Option<[f64; 2]> {
    let curves = &of.run.outline.layers;
    let (layers, last) = (curves.names.len(), curves.steps().last()?[1] as f64);
    let place = |step: f64| across(of.run, step, spec.by_time);
    let mut end = None;
    for (layer, own) in curves.names.iter().enumerate().filter(|(_, n)| alone || *n == name) {
        let found = curves.stretches(layer, 0.0, last, STRETCHES);
        let (color, has_shadow) = if alone { (layer_color(layer, layers), layers <= 4) } else { (color, false) };
        let line = LayerLine { color, width: 1.2, has_shadow, is_stepped: layers <= DISTINCT || !alone };
        layer_lines(plot, own, &found, place, spec.log, &line);
        end = found.last().filter(|_| !alone).map(|s| [place(s.steps[1]), scale(spec.log, f64::from(s.high))]);
    }
    end
}
