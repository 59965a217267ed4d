//! The curves of layers: one for each layer, or one layer of several runs.

use crate::studio::widgets::axis::scale;
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::classes::{DISTINCT, HIGH, LOW, color, mix};
use crate::train::runs::Stretch;
use egui::{Color32, Sense, Ui, Vec2};
use egui_plot::{FilledArea, Line, PlotPoints};

/// The space for a layer's name with its colour, in points.
const LAYER_KEY: f32 = 80.0;

/// A name beside a stroke of its colour.
pub(super) fn key_ui(ui: &mut Ui, color: Color32, name: &str) -> egui::Response {
    let (rect, _) = ui.allocate_exact_size(Vec2::new(12.0, 12.0), Sense::hover());
    ui.painter().hline(rect.x_range(), rect.center().y, egui::Stroke::new(2.0, color));
    weak_ui(ui, name)
}

/// True if the names of all these layers fit.
pub(super) fn layer_keys_fit(ui: &Ui, names: &[String]) -> bool {
    names.len() as f32 * LAYER_KEY <= ui.available_width()
}

/// The names of layers with their colours.
pub(super) fn layer_keys_ui(ui: &mut Ui, names: &[String]) {
    names.iter().enumerate().for_each(|(i, name)| drop(key_ui(ui, layer_color(i, names.len()), name)));
}

/// The largest number of layers whose names get separate rows if they do not fit in a line.
const KEYS: usize = 8;

/// The names of a few layers with their colours, in separate rows, if they do not fit in the head of the plot; returns
/// their height.
pub(super) fn layer_rows_ui(ui: &mut Ui, names: &[String]) -> f32 {
    if names.len() > KEYS {
        return 0.0;
    }
    let top = ui.cursor().top();
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = Vec2::new(6.0, 0.0);
        ui.spacing_mut().interact_size.y = 14.0;
        for (i, name) in names.iter().enumerate() {
            let text = egui::RichText::new(name).size(12.0);
            let wrap = Some(egui::TextWrapMode::Extend);
            let galley = egui::WidgetText::from(text).into_galley(ui, wrap, f32::INFINITY, egui::TextStyle::Body);
            // A stroke and its name stay in one row.
            if ui.available_size_before_wrap().x < galley.size().x + 12.0 + 6.0 {
                ui.end_row();
            }
            key_ui(ui, layer_color(i, names.len()), name);
        }
    });
    ui.cursor().top() - top
}

/// The colour of a layer's curve: a few layers have distinct colours, many have a scale from the first to the last.
pub(super) fn layer_color(layer: usize, layers: usize) -> Color32 {
    if layers <= DISTINCT { color(layer) } else { mix(LOW, HIGH, layer as f32 / (layers - 1) as f32) }
}

/// How a layer's curve is drawn.
pub(super) struct LayerLine {
    pub color: Color32,
    pub width: f32,
    /// Whether the smallest change of every range is shown too, as a shadow, if there is space for shadows.
    pub has_shadow: bool,
    /// Whether a range is as wide as its steps; if there are many curves, each has one point for each range.
    pub is_stepped: bool,
}

/// Draws a layer's curve: its largest change in every range of steps.
pub(super) fn layer_lines(
    plot: &mut egui_plot::PlotUi<'_>,
    name: &str,
    stretches: &[Stretch],
    across: impl Fn(f64) -> f64,
    log: bool,
    line: &LayerLine,
) {
    let ends = |s: &Stretch| match s.steps {
        [from, to] if from < to && line.is_stepped => vec![from, to],
        [from, to] => vec![f64::midpoint(from, to)],
    };
    // A step that leaves a layer out does not change it, and a logarithmic axis cannot show 0.
    let places =
        || stretches.iter().filter(|s| !log || s.high > 0.0).flat_map(|s| ends(s).into_iter().map(move |x| (x, s)));
    let xs: Vec<f64> = places().map(|(x, _)| across(x)).collect();
    let side = |of: fn(&Stretch) -> f32| -> Vec<f64> { places().map(|(_, s)| scale(log, f64::from(of(s)))).collect() };
    let tops = side(|s| s.high);
    if line.has_shadow && stretches.iter().any(|s| s.low < s.high) {
        let low: fn(&Stretch) -> f32 = if log { |s| if s.low > 0.0 { s.low } else { s.high } } else { |s| s.low };
        let area = FilledArea::new(format!("{name} range"), &xs, &side(low), &tops);
        plot.add(area.fill_color(line.color.gamma_multiply(0.25)).allow_hover(false));
    }
    let points: PlotPoints<'_> = xs.iter().zip(&tops).filter(|(_, y)| y.is_finite()).map(|(x, y)| [*x, *y]).collect();
    // There are few points; joining those of one pixel to a band would draw wedges between long ranges.
    let curve = Line::new(name.to_owned(), points).allow_band(false);
    plot.line(curve.color(line.color).width(line.width).allow_hover(false));
}
