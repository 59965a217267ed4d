//! A histogram of step times on a logarithmic axis, with median and 99th percentile marked.

use crate::studio::theme;
use crate::studio::view_models::curves::Histogram;
use crate::studio::view_models::format;
use crate::studio::widgets::axis::{hovered, inside, linear_marks, time_tick};
use crate::studio::widgets::button::weak_ui;
use egui::{Color32, RichText, Stroke, Ui};
use egui_plot::{GridMark, HLine, LineStyle, Plot, PlotPoints, Polygon, VLine};

/// One distribution with its name and colour.
pub struct Bars<'a> {
    pub name: &'static str,
    pub histogram: &'a Histogram,
    pub color: Color32,
}

/// Marks at round times on an axis of logarithms, at most about `room` of them.
fn marks((low, high): (f64, f64), room: f64) -> Vec<GridMark> {
    const FINE: [&[f64]; 4] =
        [&[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];
    let powers = (low.floor().max(-40.0) as i32)..=(high.ceil().min(40.0) as i32);
    let of = |fine: &[f64]| -> Vec<f64> {
        let all = powers.clone().flat_map(|p| fine.iter().map(move |m| f64::from(p) + m.log10()));
        all.filter(|v| low <= *v && *v <= high).collect()
    };
    let mut found = of(FINE[0]);
    for fine in &FINE[1..] {
        let coarser = of(fine);
        // A single mark shows no scale: then every second or third of the finer ones is drawn.
        if found.len() as f64 > room && coarser.len() >= 2 {
            found = coarser;
        }
    }
    let stride = (found.len() as f64 / room.max(1.0)).ceil().max(1.0) as usize;
    // The size of a step determines the distance of marks for the plot: labels of close ones would fade.
    let step_size = (high - low) / (found.len() / stride).max(1) as f64;
    found.into_iter().step_by(stride).map(|value| GridMark { value, step_size }).collect()
}

/// Draws a distribution with its median and its 99th percentile.
fn draw<'a>(plot: &mut egui_plot::PlotUi<'a>, bars: &Bars<'a>) {
    let h = bars.histogram;
    for (edges, share) in h.edges_us.windows(2).zip(&h.shares).filter(|(_, s)| **s > 0.0) {
        let (x0, x1) = (edges[0].log10(), edges[1].log10());
        let corners = PlotPoints::from(vec![[x0, 0.0], [x1, 0.0], [x1, *share], [x0, *share]]);
        let bar = Polygon::new(bars.name, corners).fill_color(bars.color.gamma_multiply(0.45));
        plot.polygon(bar.stroke(Stroke::new(1.0, bars.color)).allow_hover(false));
    }
    if h.count > 0 {
        let line =
            |us: f64, style| VLine::new(bars.name, us.max(1e-6).log10()).color(bars.color).width(1.5).style(style);
        plot.vline(line(h.median_us, LineStyle::Solid).allow_hover(false));
        plot.vline(line(h.p99_us, LineStyle::dashed_dense()).allow_hover(false));
    }
}

/// Shows distributions in one plot of this height.
pub fn histogram_ui(ui: &mut Ui, title: &'static str, all: &[Bars<'_>], height: f32) {
    let c = theme::colors(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.label(RichText::new(title).font(theme::strong(13.0)));
        weak_ui(ui, "share of steps by host time");
    });
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        for bars in all {
            let (rect, _) = ui.allocate_exact_size(egui::Vec2::splat(10.0), egui::Sense::hover());
            ui.painter().rect_filled(rect, 2, bars.color);
            let h = bars.histogram;
            let text = format!("{} {}, p99 {}", bars.name, format::micros(h.median_us), format::micros(h.p99_us));
            ui.label(RichText::new(text).size(12.0))
                .on_hover_text(format!("Median and 99th percentile of {}", format::counted(h.count as u64, "step")));
            ui.add_space(4.0);
        }
    });
    let rows = f64::from(((height - 48.0).max(64.0) / 36.0).floor().max(3.0));
    let width = (ui.available_width() - 44.0).max(64.0);
    let room = f64::from(width / 72.0);
    let plot = Plot::new(("histogram", title))
        .height((height - 48.0).max(64.0))
        .allow_scroll(false)
        .allow_drag(false)
        .allow_zoom(false)
        .allow_boxed_zoom(false)
        .grid_color(c.hairline)
        .include_y(0.0)
        .y_axis_min_width(44.0)
        .x_grid_spacer(move |input| marks(input.bounds, room))
        .y_grid_spacer(move |input| linear_marks(&input, rows))
        .x_axis_formatter(move |mark: GridMark, range| {
            inside(time_tick(10f64.powf(mark.value), 0.0), mark.value, range, width)
        })
        .y_axis_formatter(
            |mark: GridMark, _| if mark.value >= 0.0 { format!("{:.0}%", mark.value * 100.0) } else { String::new() },
        )
        .label_formatter(|at| {
            let position = hovered(at);
            Some(format::micros(10f64.powf(position.x)))
        });
    let response = plot.show(ui, |plot| {
        plot.hline(HLine::new("", 0.0).color(c.hairline).width(1.0).allow_hover(false));
        all.iter().for_each(|bars| draw(plot, bars));
    });
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, title));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_leave_room_for_their_labels() {
        let us = |bounds, room| marks(bounds, room).iter().map(|m| 10f64.powf(m.value).round()).collect::<Vec<_>>();
        assert_eq!(us((1.0, 2.0), 4.0), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(us((1.0, 4.0), 4.0), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(us((1.0, 1.35), 5.0), [10.0, 12.0, 15.0, 20.0]);
        assert!(us((-3.0, 9.0), 4.0).len() <= 4);
        assert_eq!(us((2.04, 2.61), 3.9), [120.0, 200.0, 300.0]);
    }
}
