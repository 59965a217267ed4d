//! A whole time series: the training part, the held-out part, and the input and target of one sample.

use crate::studio::panels::inside::stepper_ui;
use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::view_models::whole_series::WholeSeries;
use crate::studio::widgets::axis::hovered;
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::classes::HIGH;
use egui::{Button, Ui};
use egui_plot::{Legend, Line, Plot, PlotPoints, PlotUi, Span};

/// The state of the page.
#[derive(Default)]
pub struct SeriesPage {
    sample: usize,
    column: usize,
}

/// Shows the page.
pub fn whole_series_ui(ui: &mut Ui, series: &WholeSeries, page: &mut SeriesPage) {
    page.sample = page.sample.min(series.samples.saturating_sub(1));
    page.column = page.column.min(series.columns.len().saturating_sub(1));
    ui.horizontal_wrapped(|ui| {
        if let Some(sample) = stepper_ui(ui, "sample", "", page.sample, series.samples) {
            page.sample = sample;
        }
        if series.columns.len() > 1 {
            ui.add_space(8.0);
            for (at, column) in series.columns.iter().enumerate() {
                if ui.add(Button::selectable(at == page.column, &column.name)).clicked() {
                    page.column = at;
                }
            }
        }
    });
    weak_ui(ui, format!("Sample {}: {}.", page.sample + 1, series.sample_text(page.sample)));
    weak_ui(ui, format!("{}. A click in the curve goes to the sample there.", series.parts_text()));
    plot_ui(ui, series, page);
}

fn plot_ui(ui: &mut Ui, series: &WholeSeries, page: &mut SeriesPage) {
    let Some(column) = series.columns.get(page.column) else { return };
    let (c, name) = (theme::colors(ui), column.name.clone());
    let (least, largest) = column.values.extent(1.0, series.lines as f64).unwrap_or((0.0, 1.0));
    let pixels = ui.available_width().max(16.0) as usize;
    let plot = Plot::new(("series", page.column))
        .height((ui.available_height() - 8.0).max(160.0))
        .grid_color(c.hairline)
        .legend(Legend::default())
        .include_x(1.0)
        .include_x(series.lines as f64)
        .include_y(least)
        .include_y(largest)
        .x_axis_label("line of the table's values")
        .y_axis_label(name.clone())
        .label_formatter(move |at| {
            let position = hovered(at);
            Some(format!("line {:.0}\n{name} {}", position.x, format::number(position.y)))
        });
    let response = plot.show(ui, |plot| {
        sample_spans(plot, series, page.sample, c);
        curves(plot, series, page.column, (pixels, c));
        let clicked = plot.response().clicked().then(|| plot.pointer_coordinate()).flatten();
        clicked.map(|at| series.sample_at(at.x.round().max(1.0) as usize))
    });
    if let Some(sample) = response.inner {
        page.sample = sample;
    }
    let label = format!(
        "Series {}: {}; sample {}: {}",
        column.name,
        series.parts_text(),
        page.sample + 1,
        series.sample_text(page.sample)
    );
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &label));
}

/// The lines of a sample's input and target, behind the curve.
fn sample_spans(plot: &mut PlotUi<'_>, series: &WholeSeries, sample: usize, c: &theme::Colors) {
    let [seen, learnt] = series.stretches(sample);
    for (name, [from, to], color) in [("window", seen, c.weak), ("horizon", learnt, HIGH)] {
        let around = from as f64 - 0.5..=to as f64 + 0.5;
        let fill = color.gamma_multiply(0.25);
        plot.span(Span::new(name, around).fill(fill).border_width(1.0).border_color(color));
    }
}

/// The visible ranges of the training part, the held-out part, and the lines between them.
fn curves(plot: &mut PlotUi<'_>, series: &WholeSeries, column: usize, (pixels, c): (usize, &theme::Colors)) {
    let values = &series.columns[column].values;
    let (lines, bounds) = (series.lines as f64, plot.plot_bounds());
    let [from, to] = [bounds.min()[0], bounds.max()[0]];
    let in_view = if from < to { [from.max(1.0), to.min(lines)] } else { [1.0, lines] };
    let (last, first) = (series.last_trained as f64, series.first_held_out.map_or(lines, |first| first as f64));
    // Held-out samples and training samples share no line.
    let parts = [
        ("training", [1.0, last], c.accent),
        ("between", [last, first], c.weak),
        ("held out", [first, lines], c.warning),
    ];
    for (name, [begin, end], color) in parts {
        let [from, to] = [begin.max(in_view[0] - 1.0), end.min(in_view[1] + 1.0)];
        let is_empty = end <= begin || name == "held out" && series.first_held_out.is_none();
        if is_empty || to < from || name == "training" && series.last_trained == 0 {
            continue;
        }
        let points = values.points(from, to, pixels).into_iter().filter(|at| at[0] >= begin && at[0] <= end);
        let points: PlotPoints<'_> = points.collect();
        plot.line(Line::new(name, points).color(color).width(1.5));
    }
}
