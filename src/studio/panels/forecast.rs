//! The network's forecast for a window of a series, after its input and beside the actual values.

use crate::data::Dataset;
use crate::studio::panels::inside::stepper_ui;
use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::widgets::axis::hovered;
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::classes::HIGH;
use crate::train::{Forecast, ForecastWindow};
use egui::{Button, RichText, Ui};
use egui_plot::{Legend, Line, LineStyle, MarkerShape, Plot, PlotPoints, Points, VLine};

/// The state of the page.
#[derive(Default)]
pub struct ForecastPage {
    window: usize,
    column: usize,
}

/// The points of a column, from `first` on.
fn points(lines: &[Vec<f32>], column: usize, first: f64) -> Vec<[f64; 2]> {
    let value = |line: &Vec<f32>| f64::from(line.get(column).copied().unwrap_or(f32::NAN));
    lines.iter().enumerate().map(|(i, line)| [first + i as f64, value(line)]).collect()
}

/// Shows the page.
pub fn forecast_ui(ui: &mut Ui, forecast: &Forecast, set: &Dataset, part: &str, page: &mut ForecastPage) {
    let count = forecast.windows.len();
    page.window = page.window.min(count.saturating_sub(1));
    page.column = page.column.min(forecast.columns.len().saturating_sub(1));
    ui.horizontal_wrapped(|ui| {
        if let Some(window) = stepper_ui(ui, "window", part, page.window, count) {
            page.window = window;
        }
        if forecast.columns.len() > 1 {
            for (at, name) in forecast.columns.iter().enumerate() {
                if ui.add(Button::selectable(at == page.column, name)).clicked() {
                    page.column = at;
                }
            }
        }
    });
    let Some(window) = forecast.windows.get(page.window) else { return };
    errors_ui(ui, forecast, page.column);
    plot_ui(ui, forecast, window, set, page.column);
}

/// The errors of the forecasts of a column, compared with those of repeating the last value.
fn errors_ui(ui: &mut Ui, forecast: &Forecast, column: usize) {
    let Some(error) = forecast.errors.get(column) else { return };
    let number = format::number;
    ui.horizontal_wrapped(|ui| {
        let text = format!("RMSE {} · MAE {}", number(error.rmse), number(error.mae));
        ui.label(RichText::new(text).font(theme::strong(13.0)));
        weak_ui(
            ui,
            format!("repeating the last value: {} · {}", number(error.repeated_rmse), number(error.repeated_mae)),
        )
        .on_hover_text("Over all windows, in the units of the data");
        if let Some(share) = forecast.share {
            weak_ui(ui, format!("squared error {} of that", format::percent(share)));
        }
    });
}

fn plot_ui(ui: &mut Ui, forecast: &Forecast, window: &ForecastWindow, set: &Dataset, column: usize) {
    let c = theme::colors(ui);
    let seen = forecast.seen(set, window.sample);
    let before = points(&seen, column, 1.0 - seen.len() as f64);
    let (truth, guess) = (points(&window.truth, column, 1.0), points(&window.forecast, column, 1.0));
    let last = before.last().copied();
    let from_last = |points: &[[f64; 2]]| -> PlotPoints<'static> {
        last.into_iter().chain(points.iter().copied()).collect::<Vec<_>>().into()
    };
    let name = forecast.columns.get(column).map_or("value", String::as_str).to_owned();
    let plot = Plot::new("forecast")
        .height((ui.available_height() - 8.0).max(160.0))
        .allow_scroll(false)
        .grid_color(c.hairline)
        .legend(Legend::default())
        .x_axis_label("positions after the last one that the network saw")
        .y_axis_label(name.clone())
        .label_formatter(move |at| {
            let position = hovered(at);
            Some(format!("position {:+.0}\n{name} {}", position.x, format::number(position.y)))
        });
    let response = plot.show(ui, |plot| {
        plot.vline(VLine::new("", 0.0).color(c.hairline).allow_hover(false));
        plot.line(Line::new("seen", PlotPoints::from(before.clone())).color(c.weak).width(1.5));
        plot.line(Line::new("what came", from_last(&truth)).color(c.text).width(1.5));
        let line = Line::new("forecast", from_last(&guess)).color(HIGH).width(2.0);
        plot.line(line.style(LineStyle::dashed_loose()));
        let marks = Points::new("forecast", PlotPoints::from(guess.clone())).color(HIGH).radius(3.0);
        plot.points(marks.shape(MarkerShape::Diamond));
    });
    let text = |points: &[[f64; 2]]| points.iter().map(|p| format::number(p[1])).collect::<Vec<_>>().join(", ");
    let label = format!("Forecast of sample {}: {}; actual values: {}", window.sample, text(&guess), text(&truth));
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &label));
}
