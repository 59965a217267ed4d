//! Curves of several runs over each other, against the step or the running time.

use super::axis::{linear_marks, log_marks, step_marks, step_tick, tick};
use super::series::Smoothed;
use crate::studio::runs::LoadedRun;
use crate::studio::theme;
use crate::train::export::LINE_COLORS;
use egui::{Color32, RichText, Ui};
use egui_plot::{GridInput, GridMark, Line, LineStyle, Plot, PlotPoint, PlotPoints, Points, Text};

/// The colour of the run at this place among the selected ones. On dark ground the two blues change places, and black is white.
#[must_use]
pub fn run_color(ui: &Ui, index: usize) -> Color32 {
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

/// A run's letter over a stroke of its colour: the colour alone tells nobody anything.
pub fn letter_ui(ui: &mut Ui, letter: char, index: usize) {
    let color = run_color(ui, index);
    let response = ui.label(RichText::new(letter.to_string()).font(theme::strong(12.0)));
    let rect = response.rect;
    ui.painter().hline(rect.x_range(), rect.bottom(), egui::Stroke::new(3.0, color));
}

/// A run with its letter.
pub struct Compared<'a> {
    pub letter: char,
    pub name: &'a str,
    pub run: &'a LoadedRun,
}

/// What a plot shows of every run.
pub struct CompareSpec {
    pub title: &'static str,
    pub curve: fn(&LoadedRun) -> &Smoothed,
    pub points: fn(&LoadedRun) -> &[[f64; 2]],
    pub log: bool,
    pub by_time: bool,
    pub value: fn(f64) -> String,
}

/// The room that a letter at the end of a curve takes, in points.
const LETTER: f32 = 12.0;

/// The smallest value on a logarithmic axis.
const FLOOR: f64 = 1e-12;

fn scale(log: bool, y: f64) -> f64 {
    if log { y.max(FLOOR).log10() } else { y }
}

/// The place of a step of a run along the axis: the step itself, or its running time in seconds.
fn across(run: &LoadedRun, step: f64, by_time: bool) -> f64 {
    let before = run.curves.before as f64;
    if by_time { run.curves.ms((step - before - 1.0).max(0.0) as usize) * 1e-3 } else { step }
}

/// Few marks: those of time are longer than those of a height.
fn time_marks(input: &GridInput) -> Vec<GridMark> {
    linear_marks(input, 3.0)
}

/// Shows a plot of this height.
pub fn compare_ui(ui: &mut Ui, runs: &[Compared<'_>], spec: &CompareSpec, height: f32) {
    ui.label(RichText::new(spec.title).font(theme::strong(13.0)));
    let c = theme::colors(ui);
    let (log, value, by_time) = (spec.log, spec.value, spec.by_time);
    let pixels = ui.available_width().max(64.0) as usize;
    let room = f64::from((ui.available_width() - 44.0).max(64.0) / 72.0);
    let colors: Vec<Color32> = (0..runs.len()).map(|i| run_color(ui, i)).collect();
    let plot = Plot::new(("compare", spec.title, by_time, log))
        .height((height - 24.0).max(64.0))
        .allow_scroll(false)
        .grid_color(c.hairline)
        .y_axis_min_width(44.0)
        .x_grid_spacer(move |input| if by_time { time_marks(&input) } else { step_marks(input.bounds, room) })
        .x_axis_formatter(
            move |mark: GridMark, _| {
                if by_time { format!("{} s", tick(mark.value)) } else { step_tick(mark) }
            },
        )
        .y_grid_spacer(move |input| if log { log_marks(input.bounds) } else { linear_marks(&input, 6.0) })
        .y_axis_formatter(move |mark: GridMark, _| {
            let y = if log { 10f64.powf(mark.value) } else { mark.value };
            tick(y)
        })
        .label_formatter(move |at| {
            let (egui_plot::HoverPosition::NearDataPoint { position, .. }
            | egui_plot::HoverPosition::Elsewhere { position }) = at;
            let y = if log { 10f64.powf(position.y) } else { position.y };
            let x = position.x.max(0.0);
            let x = if by_time { format!("{x:.3} s") } else { format!("step {}", x.round()) };
            Some(format!("{x}\n{}", value(y)))
        });
    let response = plot.show(ui, |plot| {
        let mut ends: Vec<(PlotPoint, String, Color32)> = Vec::new();
        for (index, compared) in runs.iter().enumerate() {
            let (run, color) = (compared.run, colors[index]);
            let curve = (spec.curve)(run);
            let before = run.curves.before as f64;
            let points = |series: &super::series::Series| -> Vec<[f64; 2]> {
                let found = series.points(0.0, series.len() as f64, pixels).into_iter().filter(|p| p[1].is_finite());
                found.map(|[x, y]| [across(run, before + x, by_time), scale(log, y)]).collect()
            };
            let name = format!("{} {}", compared.letter, compared.name);
            let smooth = points(&curve.smooth);
            if runs.len() == 1 {
                let raw = PlotPoints::from(points(&curve.raw));
                plot.line(Line::new("raw", raw).color(color.gamma_multiply(0.3)).width(1.0).allow_hover(false));
            }
            if let Some([x, y]) = smooth.last().copied() {
                let end = PlotPoint::new(x, y);
                let at = plot.screen_from_plot(end);
                // Curves that end at the same place share a label: letters over each other are read as none.
                match ends.iter_mut().find(|(other, ..)| plot.screen_from_plot(*other).distance(at) < LETTER) {
                    Some((_, letters, _)) => letters.push(compared.letter),
                    None => ends.push((end, compared.letter.to_string(), color)),
                }
            }
            plot.line(Line::new(name, PlotPoints::from(smooth)).color(color).width(1.5).allow_hover(false));
            let held_out: Vec<[f64; 2]> =
                (spec.points)(run).iter().map(|[step, y]| [across(run, *step, by_time), scale(log, *y)]).collect();
            if held_out.len() == 1 {
                plot.points(Points::new("held-out", held_out).color(color).radius(3.0).allow_hover(false));
            } else if !held_out.is_empty() {
                let line = Line::new("held-out", PlotPoints::from(held_out)).color(color).width(1.5);
                plot.line(line.style(LineStyle::dashed_dense()).allow_hover(false));
            }
        }
        for (end, letters, color) in ends {
            let anchor = if letters.len() > 1 { egui::Align2::RIGHT_BOTTOM } else { egui::Align2::LEFT_BOTTOM };
            let text = Text::new("letter", end, RichText::new(letters).font(theme::strong(12.0)));
            plot.text(text.color(color).anchor(anchor).allow_hover(false));
        }
    });
    let name = format!("{} of the selected runs", spec.title);
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
}
