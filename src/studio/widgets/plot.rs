//! A plot of curves against the step, with axes that can be logarithmic.

use super::button::weak_ui;
use super::series::{Series, Smoothed};
use crate::studio::theme;
use crate::studio::view_models::format;
use egui::{Color32, Id, RichText, Sense, Ui, Vec2};
use egui_plot::{GridInput, GridMark, Line, Plot, PlotPoints, Points};

/// What a plot shows.
pub struct PlotSpec<'a> {
    pub title: &'static str,
    /// The unit in the title, or nothing.
    pub unit: &'static str,
    /// A curve over every step.
    pub curve: &'a Smoothed,
    pub curve_name: &'static str,
    /// Points at some steps.
    pub points: &'a [[f64; 2]],
    pub points_name: &'static str,
    /// The curve of a pinned run, by name, to stand faintly behind this one.
    pub baseline: Option<(&'a str, &'a Series)>,
    pub log: bool,
    /// Bounds that the data should not leave, such as 0 to 1.
    pub range: Option<(f64, f64)>,
    /// How a value reads.
    pub value: fn(f64) -> String,
}

/// Held-out points up to this number are marked.
const MARKED: usize = 40;
/// The least width of the vertical axis, in points.
const Y_AXIS: f32 = 44.0;
/// The room for a mark of the step axis with its label: below it, labels fade.
const STEP_MARK: f32 = 84.0;
/// The smallest value on a logarithmic axis.
const FLOOR: f64 = 1e-12;

fn scale(log: bool, y: f64) -> f64 {
    if log { y.max(FLOOR).log10() } else { y }
}

fn key_ui(ui: &mut Ui, color: Color32, name: &str) -> egui::Response {
    let (rect, _) = ui.allocate_exact_size(Vec2::new(12.0, 12.0), Sense::hover());
    ui.painter().hline(rect.x_range(), rect.center().y, egui::Stroke::new(2.0, color));
    weak_ui(ui, name)
}

/// Shows a plot of this height; `follow` keeps the whole run in view and ends where a person pans or zooms.
pub fn plot_ui(ui: &mut Ui, spec: &PlotSpec<'_>, height: f32, follow: &mut bool) {
    let c = theme::colors(ui);
    let held_out = c.warning;
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.label(RichText::new(spec.title).font(theme::strong(13.0)));
        // Beside the key of a baseline there is no room for a unit that is a sentence.
        if !spec.unit.is_empty() && (spec.baseline.is_none() || spec.unit.len() < 20) {
            weak_ui(ui, spec.unit);
        }
        if !spec.points_name.is_empty() {
            key_ui(ui, c.accent, spec.curve_name);
            key_ui(ui, held_out, spec.points_name);
        }
        if let Some((name, _)) = spec.baseline {
            let response = key_ui(ui, c.weak, "baseline").on_hover_text(format!("The pinned run: {name}"));
            let name = format!("baseline {name}");
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &name));
        }
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            if let Some(last) = spec.curve.smooth.last().filter(|v| v.is_finite()) {
                ui.label(RichText::new((spec.value)(f64::from(last))).font(theme::mono()));
            }
        });
    });
    let (log, value) = (spec.log, spec.value);
    let steps = spec.curve.raw.len().max(2) as f64;
    let pixels = ui.available_width().max(64.0) as usize;
    let room = f64::from((ui.available_width() - Y_AXIS).max(64.0) / STEP_MARK);
    let following = *follow;
    let (accent, faint) = (c.accent, c.accent.gamma_multiply(0.35));
    let link = Id::unique("train plots");
    let plot = Plot::new(spec.title)
        .height((height - 24.0).max(64.0))
        .link_axis(link, [true, false])
        .link_cursor(link, [true, false])
        .allow_scroll(false)
        .show_x(true)
        .grid_color(c.hairline)
        .y_axis_min_width(Y_AXIS)
        .x_grid_spacer(move |input| step_marks(input.bounds, room))
        .x_axis_formatter(|mark: GridMark, _| step_tick(mark))
        .y_grid_spacer(move |input| if log { log_marks(input.bounds) } else { linear_marks(&input) })
        .y_axis_formatter(move |mark: GridMark, _| tick(if log { 10f64.powf(mark.value) } else { mark.value }))
        .label_formatter(move |at| {
            let (egui_plot::HoverPosition::NearDataPoint { position, .. }
            | egui_plot::HoverPosition::Elsewhere { position }) = at;
            let y = if log { 10f64.powf(position.y) } else { position.y };
            Some(format!("step {}\n{}", position.x.round().max(0.0), value(y)))
        });
    let response = plot.show(ui, |plot| {
        let mut x = plot.plot_bounds().range_x();
        if following {
            x = 0.0..=steps;
        }
        let (from, to) = (*x.start(), *x.end());
        if following {
            let mut extent = spec.curve.raw.extent(from, to);
            if let Some((a, b)) = spec.baseline.and_then(|(_, s)| s.extent(from, to)) {
                extent = Some(extent.map_or((a, b), |(low, high)| (low.min(a), high.max(b))));
            }
            for p in spec.points {
                extent = Some(extent.map_or((p[1], p[1]), |(a, b)| (a.min(p[1]), b.max(p[1]))));
            }
            let (low, high) = spec.range.or(extent).unwrap_or((0.0, 1.0));
            let (low, high) = (scale(log, low), scale(log, high));
            let margin = ((high - low) * 0.05).max(if log { 0.05 } else { high.abs() * 0.02 }).max(1e-9);
            plot.set_plot_bounds_x(x);
            plot.set_plot_bounds_y(low - margin..=high + margin);
        }
        let curve = |series: &super::series::Series| -> PlotPoints<'static> {
            let points = series.points(from, to, pixels).into_iter().filter(|p| p[1].is_finite());
            points.map(|[x, y]| [x, scale(log, y)]).collect()
        };
        if let Some((name, series)) = spec.baseline {
            let line = Line::new(format!("baseline {name}"), curve(series));
            plot.line(line.color(c.weak).width(1.5).allow_hover(false));
        }
        plot.line(
            Line::new(format!("{} raw", spec.curve_name), curve(&spec.curve.raw))
                .color(faint)
                .width(1.0)
                .allow_hover(false),
        );
        plot.line(Line::new(spec.curve_name, curve(&spec.curve.smooth)).color(accent).width(1.5).allow_hover(false));
        if !spec.points.is_empty() {
            let points: PlotPoints<'static> = spec.points.iter().map(|[x, y]| [*x, scale(log, *y)]).collect();
            plot.line(Line::new(spec.points_name, points).color(held_out).width(2.0).allow_hover(false));
            // Few points are marked: one alone makes no line.
            if spec.points.len() <= MARKED {
                let points: PlotPoints<'static> = spec.points.iter().map(|[x, y]| [*x, scale(log, *y)]).collect();
                plot.points(Points::new("marks", points).color(held_out).radius(3.0).allow_hover(false));
            }
        }
    });
    let r = response.response;
    r.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, format!("{} against step", spec.title)));
    let zoomed = r.hovered() && ui.input(|i| i.zoom_delta() != 1.0);
    if r.dragged() || zoomed {
        *follow = false;
    }
    if r.double_clicked() {
        *follow = true;
    }
}

/// Marks of a logarithmic axis: powers of ten, with twos and fives between them where there is room.
pub(super) fn log_marks((low, high): (f64, f64)) -> Vec<GridMark> {
    let fine = high - low < 2.5;
    let powers = (low.floor().max(-40.0) as i32)..=(high.ceil().min(40.0) as i32);
    let mut marks = Vec::new();
    for power in powers {
        marks.push(GridMark { value: f64::from(power), step_size: 1.0 });
        if fine {
            marks.extend([2.0f64, 5.0].map(|m| GridMark {
                value: f64::from(power) + m.log10(),
                step_size: if high - low < 1.2 { 1.0 } else { 0.3 },
            }));
        }
    }
    marks.retain(|m| low <= m.value && m.value <= high);
    marks
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `wanted`.
fn round_step(wanted: f64) -> f64 {
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= wanted * (1.0 - 1e-9)).unwrap_or(power)
}

/// Marks of the step axis: at whole numbers, at most about `room` of them.
pub(super) fn step_marks((low, high): (f64, f64), room: f64) -> Vec<GridMark> {
    let step_size = round_step(((high - low) / room.max(1.0)).max(1.0));
    // The bounds come back from pixels: a mark at the very edge must not be lost to rounding.
    let first = (low.max(0.0) / step_size - 1e-6).ceil() as i64;
    let last = (high / step_size + 1e-6).floor() as i64;
    (first..=last.min(first + 64)).map(|i| GridMark { value: i as f64 * step_size, step_size }).collect()
}

/// A mark on the step axis: short where the marks stay apart, otherwise exact.
pub(super) fn step_tick(mark: GridMark) -> String {
    let step = mark.value.round().max(0.0);
    let shown = if step >= 999_500.0 { 1e5 } else { 100.0 };
    if step >= 1000.0 && mark.step_size < shown {
        return format::exact(step as u64);
    }
    format::count(step).replace(".0 ", " ")
}

/// Marks of a linear axis: a handful, at round values.
pub(super) fn linear_marks(input: &GridInput) -> Vec<GridMark> {
    let (low, high) = input.bounds;
    let step = round_step(((high - low) / 6.0).max(1e-12));
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last.min(first + 64)).map(|i| GridMark { value: i as f64 * step, step_size: step }).collect()
}

/// A mark on the vertical axis, as short as it can be.
pub(super) fn tick(value: f64) -> String {
    let a = value.abs();
    if value == 0.0 {
        "0".into()
    } else if a >= 1000.0 {
        format::count(value).replace(".0 ", " ")
    } else if a < 1e-3 {
        format!("{value:.0e}")
    } else {
        // Three digits that count are enough for a mark.
        let digits = (2 - a.log10().floor() as i32).clamp(0, 5) as usize;
        let text = format!("{value:.digits$}");
        if !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_short() {
        assert_eq!([0.0, 0.5, 2.0, 0.000_1, 12_000.0].map(tick), ["0", "0.5", "2", "1e-4", "12 k"]);
    }

    #[test]
    fn marks_stand_at_round_values() {
        let values =
            |marks: Vec<GridMark>| marks.iter().map(|m| (m.value * 1000.0).round() / 1000.0).collect::<Vec<_>>();
        assert_eq!(values(log_marks((0.9, 2.1))), [1.0, 1.301, 1.699, 2.0]);
        assert_eq!(values(log_marks((0.0, 4.0))), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            values(linear_marks(&GridInput { bounds: (0.0, 1.0), base_step_size: 0.1 })),
            [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        );
    }

    #[test]
    fn the_step_axis_has_whole_marks() {
        let labels = |bounds, room| step_marks(bounds, room).into_iter().map(step_tick).collect::<Vec<_>>().join(" ");
        assert_eq!(labels((0.0, 2.0), 4.0), "0 1 2");
        assert_eq!(labels((0.0, 10.0), 4.0), "0 5 10");
        assert_eq!(labels((0.0, 10.0), 5.0), "0 2 4 6 8 10");
        assert_eq!(labels((0.0, 800.0), 4.0), "0 200 400 600 800");
        assert_eq!(labels((-0.4, 0.8), 4.0), "0");
        assert_eq!(labels((0.0, 2000.0), 4.0), "0 500 1 k 1.5 k 2 k");
        assert_eq!(labels((12_000.0, 12_100.0), 2.0), "12\u{2009}000 12\u{2009}050 12\u{2009}100");
    }

    #[test]
    fn logarithms_have_a_floor() {
        assert_eq!((scale(true, 0.0), scale(true, 100.0), scale(false, -3.0)), (-12.0, 2.0, -3.0));
    }
}
