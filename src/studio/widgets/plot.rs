//! A plot of curves against the step, with axes that can be logarithmic. All plots of a [`PlotView`] share the step
//! axis and the crosshair.

use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::widgets::axis::{hovered, inside, scale, step_end, step_marks, step_tick, with_values};
use crate::studio::widgets::classes::DISTINCT;
use crate::studio::widgets::layer_curves::LayerLine;
use crate::studio::widgets::layer_curves::layer_color;
use crate::studio::widgets::layer_curves::layer_lines;
use crate::studio::widgets::layer_curves::layer_rows_ui;
use crate::studio::widgets::plot_head::head_ui;
pub use crate::studio::widgets::plot_spec::{Curve, PlotSpec};
use crate::studio::widgets::smoothing::smoothed_points;
use egui::{Id, PointerButton, Pos2, Rangef, Rect, Response, Stroke, StrokeKind, Ui};
use egui_plot::{GridMark, Line, Plot, PlotPoints, PlotTransform, Points, VLine};
use std::collections::HashSet;

/// The common state of the plots of a panel.
#[derive(Default)]
pub struct PlotView {
    /// True while the axes do not follow the run.
    pub frozen: bool,
    /// The step under the pointer, in any of the plots.
    cursor: Option<f64>,
    found: Option<f64>,
    /// Plots whose vertical axis was zoomed; the others fit theirs to the visible values.
    own_y: HashSet<&'static str>,
    /// What was drawn with the pointer, until the plot with this title has processed it.
    zoom: Option<(&'static str, Zoom)>,
    /// The start of the current drag.
    pressed: Option<Pos2>,
}

/// Bounds to show; those of an axis that does not change are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Zoom {
    x: Option<[f64; 2]>,
    y: Option<[f64; 2]>,
}

/// A drag along one axis does not change the other: below this share of the longer side, and always below this many
/// points.
const ALONG: (f32, f32) = (0.25, 8.0);

/// Which axes a drag zooms.
fn axes_of(from: Pos2, to: Pos2) -> [bool; 2] {
    let d = (to - from).abs();
    let (share, least) = ALONG;
    [d.x, d.y].map(|side| side >= least && side >= share * d.max_elem())
}

impl PlotView {
    /// True if the vertical axis of this plot was zoomed.
    #[must_use]
    pub fn has_own_y(&self, title: &str) -> bool {
        self.own_y.contains(title)
    }

    /// Resets the view to the whole run.
    pub fn fit(&mut self) {
        self.frozen = false;
        self.own_y.clear();
    }

    /// Starts a frame: the pointer's position is that of the last one.
    pub fn begin(&mut self) {
        self.cursor = self.found.take();
    }
}

/// The smallest width of the vertical axis, in points.
const Y_AXIS: f32 = 52.0;
/// The smallest height of the step axis, in points.
const X_AXIS: f32 = 18.0;
/// The space for a mark of the step axis with its label; with less space, labels fade.
const STEP_MARK: f32 = 84.0;

impl PlotSpec<'_> {
    /// Draws the curve of the baseline between two steps, if there is one.
    fn baseline_line(&self, plot: &mut egui_plot::PlotUi<'_>, [from, to]: [f64; 2], pixels: usize, c: &theme::Colors) {
        let Some((name, series)) = self.baseline else { return };
        let points = series.points(from, to, pixels).into_iter().filter(|p| p[1].is_finite());
        let points: PlotPoints<'_> = points.map(|[x, y]| [x, scale(self.log, y)]).collect();
        plot.line(Line::new(format!("baseline {name}"), points).color(c.weak).width(1.5).allow_hover(false));
    }

    /// Draws the curves between two steps.
    fn lines<'b>(&self, plot: &mut egui_plot::PlotUi<'b>, from: f64, to: f64, pixels: usize, c: &theme::Colors) {
        /// Up to this number of held-out points, each is marked.
        const MARKED: usize = 40;
        /// The approximate largest number of points of the curves of all layers together.
        const LAYER_POINTS: usize = 12_000;
        let log = self.log;
        let shown = |points: Vec<[f64; 2]>| -> PlotPoints<'b> {
            points.into_iter().filter(|p| p[1].is_finite()).map(|[x, y]| [x, scale(log, y)]).collect()
        };
        let line = |plot: &mut egui_plot::PlotUi<'b>, name: String, points, color, width| {
            plot.line(Line::new(name, shown(points)).color(color).width(width).allow_hover(false));
        };
        match &self.curve {
            Curve::Smoothed(s) => {
                let raw = format!("{} raw", self.curve_name);
                line(plot, raw, s.raw.points(from, to, pixels), c.accent.gamma_multiply(0.35), 1.0);
                line(plot, self.curve_name.into(), s.smooth.points(from, to, pixels), c.accent, 1.5);
            }
            Curve::Plain(s) => line(plot, self.curve_name.into(), s.points(from, to, pixels), c.accent, 1.5),
            Curve::Layers { curves, marked } => {
                let layers = curves.names.len();
                let most = (LAYER_POINTS / layers.max(1)).clamp(24, pixels.max(24));
                let others = (0..layers).filter(|i| Some(*i) != *marked);
                for i in others.chain(*marked) {
                    let (mut color, mut width) = (layer_color(i, layers), 1.0);
                    if *marked == Some(i) {
                        width = 2.5;
                    } else if marked.is_some() || layers > DISTINCT {
                        color = color.gamma_multiply(0.55);
                    }
                    let name = curves.names.get(i).map_or("", String::as_str);
                    let found = curves.stretches(i, from, to, most);
                    let has_shadow = layers <= 4 || *marked == Some(i);
                    let line = LayerLine { color, width, has_shadow, is_stepped: layers <= DISTINCT || has_shadow };
                    layer_lines(plot, name, &found, |x| x, log, &line);
                }
                return;
            }
        }
        if !self.points.is_empty() {
            let is_smoothed = self.smoothing() > 0.0;
            let raw = if is_smoothed { c.warning.gamma_multiply(0.45) } else { c.warning };
            if is_smoothed {
                line(plot, format!("{} raw", self.points_name), self.points.to_vec(), raw, 1.0);
            }
            // Both bold curves are averaged over the same steps.
            let smoothed = smoothed_points(self.points, self.smoothing());
            line(plot, self.points_name.into(), smoothed, c.warning, 2.0);
            // A few points are marked, because a single point has no line.
            if self.points.len() <= MARKED {
                let raw = if self.points.len() == 1 { c.warning } else { raw };
                let marks = Points::new("marks", shown(self.points.to_vec())).color(raw).radius(3.0);
                plot.points(marks.allow_hover(false));
            }
        }
    }
}

/// The values of a plot at a step, one on each line.
fn listed(spec: &PlotSpec<'_>, step: f64) -> String {
    /// The largest number of layers whose values are listed at the pointer.
    const LISTED: usize = 12;
    let values = spec.values_at(Some(step));
    let mut lines: Vec<String> =
        values.iter().take(LISTED).map(|(name, v)| format!("{name} {}", (spec.value)(*v))).collect();
    if values.len() > LISTED {
        lines.push(format!("and {} more", values.len() - LISTED));
    }
    lines.join("\n")
}

/// Sets the bounds of a plot, which follows the run or is zoomed; returns its first and its last step.
fn set_bounds(
    plot: &mut egui_plot::PlotUi<'_>,
    spec: &PlotSpec<'_>,
    zoom: Zoom,
    [following, fits_y]: [bool; 2],
    steps: f64,
) -> (f64, f64) {
    let log = spec.log;
    let mut x = plot.plot_bounds().range_x();
    if following {
        x = 0.0..=steps;
        plot.set_plot_bounds_x(x.clone());
    }
    if let Some([low, high]) = zoom.x {
        x = low..=high;
        plot.set_plot_bounds_x(x.clone());
    }
    let (from, to) = (*x.start(), *x.end());
    if let Some([low, high]) = zoom.y {
        plot.set_plot_bounds_y(low..=high);
    } else if following || fits_y {
        let whole = spec.range.filter(|_| following);
        let (low, high) = whole.or_else(|| spec.extent(from, to)).unwrap_or((0.0, 1.0));
        let (low, high) = (scale(log, low), scale(log, high));
        // A constant is drawn in the middle, with round marks around it.
        let least = if low == high { high.abs() * 0.5 } else { high.abs() * 0.02 };
        let margin = ((high - low) * 0.05).max(if log { 0.05 } else { least }).max(1e-9);
        plot.set_plot_bounds_y(low - margin..=high + margin);
    }
    (from, to)
}

/// The horizontal extent of a plot: the steps at its left and its right end, and the positions of these ends on the
/// screen.
#[derive(Clone, Copy, Debug)]
pub struct PlotFrame {
    pub steps: [f64; 2],
    pub x: Rangef,
}

impl PlotFrame {
    fn of(plot: &PlotTransform) -> Self {
        let steps = plot.bounds().range_x();
        Self { steps: [*steps.start(), *steps.end()], x: plot.frame().x_range() }
    }

    /// The position of a step on the screen, inside the plot or not.
    #[must_use]
    pub fn x_of(&self, step: f64) -> f32 {
        let [from, to] = self.steps;
        self.x.min + ((step - from) / (to - from).max(1e-9)) as f32 * self.x.span()
    }
}

/// Shows a plot of this height, and returns the rectangle of its curves. Dragging zooms into a box, or along one axis,
/// dragging with the secondary button pans, and a double click fits the whole run.
pub fn plot_ui(
    ui: &mut Ui,
    spec: &PlotSpec<'_>,
    height: f32,
    view: &mut PlotView,
    commands: &mut CommandQueue,
) -> PlotFrame {
    let c = theme::colors(ui);
    let lacks_room = head_ui(ui, spec, view.cursor, commands);
    // The height of the plot is reduced by that of the layers' names.
    let rows = match &spec.curve {
        Curve::Layers { curves, .. } if lacks_room => layer_rows_ui(ui, &curves.names),
        _ => 0.0,
    };
    let (log, tick) = (spec.log, spec.tick);
    let pixels = ui.available_width().max(64.0) as usize;
    let width = (ui.available_width() - Y_AXIS).max(64.0);
    let room = f64::from(width / STEP_MARK);
    let steps = step_end(spec.steps.max(2) as f64, room, width);
    let height = (height - 24.0 - rows).max(64.0);
    let inner = height - X_AXIS;
    let (following, fits_y) = (!view.frozen, !view.own_y.contains(spec.title));
    let zoom = view.zoom.take_if(|(title, _)| *title == spec.title).map(|(_, zoom)| zoom).unwrap_or_default();
    let cursor = view.cursor;
    let listed = cursor.map(|step| listed(spec, step));
    let link = Id::unique("train plots");
    let plot = Plot::new(spec.title)
        .height(height)
        .link_axis(link, [true, false])
        .allow_scroll(false)
        .allow_double_click_reset(false)
        .pan_pointer_button(PointerButton::Secondary)
        .allow_boxed_zoom(false)
        .show_x(false)
        .show_y(false)
        .grid_color(c.hairline)
        .y_axis_min_width(Y_AXIS)
        .x_grid_spacer(move |input| step_marks(input.bounds, room))
        .x_axis_formatter(move |mark: GridMark, range| inside(step_tick(mark), mark.value, range, width))
        .label_formatter(move |at| {
            let position = hovered(at);
            let values = listed.as_deref().unwrap_or_default();
            Some(format!("step {}\n{values}", format::exact(position.x.round().max(0.0) as u64)))
        });
    let plot = with_values(plot, log, tick, inner);
    let response = plot.show(ui, |plot| {
        let (from, to) = set_bounds(plot, spec, zoom, [following, fits_y], steps);
        spec.baseline_line(plot, [from, to], pixels, c);
        spec.lines(plot, from, to, pixels, c);
        if let Some(step) = cursor {
            plot.vline(VLine::new("", step).color(c.weak).width(1.0).allow_hover(false));
        }
    });
    let (r, transform) = (response.response, response.transform);
    r.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, format!("{} against step", spec.title)));
    steer(ui, spec, view, &r, &transform, commands);
    PlotFrame::of(&transform)
}

/// Draws the box of a zoom, and zooms to it when the pointer is released.
fn drag_ui(ui: &Ui, title: &'static str, view: &mut PlotView, r: &Response, at: &PlotTransform) {
    let stopped = r.drag_stopped_by(PointerButton::Primary);
    if !(stopped || r.dragged_by(PointerButton::Primary)) {
        return;
    }
    let from = ui.input(|i| i.pointer.press_origin()).or(view.pressed);
    let (Some(from), Some(to)) = (from, r.interact_pointer_pos()) else { return };
    view.pressed = (!stopped).then_some(from);
    let frame = *at.frame();
    let to = frame.clamp(to);
    let [along_x, along_y] = axes_of(from, to);
    let mut area = Rect::from_two_pos(from, to);
    // Along one axis, the other keeps its whole range.
    if !along_x {
        (area.min.x, area.max.x) = (frame.left(), frame.right());
    }
    if !along_y {
        (area.min.y, area.max.y) = (frame.top(), frame.bottom());
    }
    if !(along_x || along_y) {
        return;
    }
    if stopped {
        let (low, high) = (at.value_from_position(area.left_bottom()), at.value_from_position(area.right_top()));
        view.zoom =
            Some((title, Zoom { x: along_x.then_some([low.x, high.x]), y: along_y.then_some([low.y, high.y]) }));
        if along_y {
            view.own_y.insert(title);
        }
        ui.ctx().request_repaint();
        return;
    }
    let accent = theme::colors(ui).accent;
    ui.painter().rect_filled(area, 0, accent.gamma_multiply(0.12));
    ui.painter().rect_stroke(area, 0, Stroke::new(1.0, accent), StrokeKind::Inside);
}

/// Applies the pointer's actions to the axes.
fn steer(
    ui: &Ui,
    spec: &PlotSpec<'_>,
    view: &mut PlotView,
    r: &Response,
    at: &PlotTransform,
    commands: &mut CommandQueue,
) {
    if let Some(pos) = r.hover_pos() {
        view.found = Some(at.value_from_position(pos).x.clamp(1.0, spec.steps.max(1) as f64));
    }
    let zoomed = r.hovered() && ui.input(|i| i.zoom_delta() != 1.0);
    if r.dragged() || zoomed {
        view.frozen = true;
    }
    if zoomed || r.dragged_by(PointerButton::Secondary) {
        view.own_y.insert(spec.title);
    }
    drag_ui(ui, spec.title, view, r, at);
    if r.double_clicked() {
        view.fit();
    } else if let (Curve::Layers { curves, .. }, true, Some(pos)) = (&spec.curve, r.clicked(), r.interact_pointer_pos())
    {
        let spot = at.value_from_position(pos);
        let distance = |layer: usize| {
            curves.at(layer, spot.x).map_or(f64::INFINITY, |v| (scale(spec.log, f64::from(v)) - spot.y).abs())
        };
        let nearest = (0..curves.paths.len()).min_by(|a, b| distance(*a).total_cmp(&distance(*b)));
        if let Some(path) = nearest.and_then(|n| curves.paths.get(n)) {
            commands.push(UiCommand::Select(Selection::Layer(path.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studio::view_models::series::smoothed::Smoothed;

    #[test]
    fn values_are_read_at_the_pointer_for_every_curve() {
        let mut curve = Smoothed::default();
        [4.0, 2.0, 3.0].into_iter().for_each(|v| curve.push(v));
        let spec = PlotSpec {
            title: "Loss",
            unit: "",
            note: "",
            curve: Curve::Smoothed(&curve),
            curve_name: "train",
            points: &[[2.0, 0.5]],
            points_name: "held-out",
            points_every: None,
            baseline: None,
            steps: 3,
            log: false,
            can_log: true,
            range: None,
            exponential: Some("perplexity"),
            value: format::number,
            tick: crate::studio::widgets::axis::tick,
        };
        let text = |at| spec.values_at(at).iter().map(|(n, v)| format!("{n} {v}")).collect::<Vec<_>>().join(", ");
        assert_eq!(text(Some(2.2)), "train 2, raw 2, held-out 0.5");
        assert_eq!(text(Some(1.0)), "train 4, raw 4");
        assert_eq!(text(None), "train 3, held-out 0.5");
        assert_eq!(spec.exponentials(&spec.values_at(None)), Some("perplexity 20.086 / 1.649".to_owned()));
        assert_eq!(spec.extent(1.5, 2.5), Some((0.5, 4.0)));
        let mut curve = Smoothed::default();
        curve.set_weight(0.5);
        [4.0, 2.0, 3.0].into_iter().for_each(|v| curve.push(v));
        let spec = PlotSpec { curve: Curve::Smoothed(&curve), points: &[[1.0, 1.0], [3.0, 0.0]], ..spec };
        let found: Vec<(String, f64)> = spec.values_at(Some(3.0));
        assert_eq!(found[2].0, "held-out");
        // The values 1, 0.5 and 0 of its line, with weights 1, 2 and 4, divided by 7.
        assert!((found[2].1 - 2.0 / 7.0).abs() < 1e-6 && found[3] == ("held-out raw".to_owned(), 0.0), "{found:?}");
    }

    #[test]
    fn a_drag_along_an_axis_zooms_only_that_axis() {
        let drag = |x: f32, y: f32| axes_of(Pos2::ZERO, Pos2::new(x, y));
        assert_eq!(drag(100.0, 20.0), [true, false]);
        assert_eq!(drag(-20.0, 100.0), [false, true]);
        assert_eq!(drag(100.0, -60.0), [true, true]);
        assert_eq!(drag(3.0, 5.0), [false, false]);
    }

    #[test]
    fn logarithms_have_a_floor() {
        assert_eq!((scale(true, 0.0), scale(true, 100.0), scale(false, -3.0)), (-12.0, 2.0, -3.0));
    }
}
