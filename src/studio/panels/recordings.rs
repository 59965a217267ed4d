//! The recordings of a run: one line for each, a strip of which one every step used, and what happened to them.

use crate::studio::theme;
use crate::studio::view_models::panels::recordings::RecordingsPanelView;
use crate::studio::view_models::recordings::{COLUMNS, cells, counts_text, strip};
use crate::studio::widgets::button::{empty_ui, weak_ui};
use crate::train::{RecordingSeen, RecordingsSeen};
use egui::{Align, Color32, Label, Layout, Rect, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder};

/// The height of the strip, and of the list of events, in points.
const STRIP: f32 = 20.0;
const EVENTS: f32 = 150.0;
/// Widths of the columns behind the key, in points.
const WIDTHS: [f32; COLUMNS.len()] = [64.0, 64.0, 68.0, 84.0, 52.0, 76.0, 200.0];

/// Shows the panel.
pub fn recordings_ui(ui: &mut Ui, view: &RecordingsPanelView<'_>) {
    let Some(seen) = view.seen else {
        return empty_ui(
            ui,
            "No recordings yet",
            "Press Train: each kind of step of the run is recorded once, and listed here.",
        );
    };
    ui.horizontal(|ui| {
        ui.label(RichText::new("Recordings").font(theme::strong(13.0)));
        ui.add(Label::new(RichText::new(counts_text(seen)).size(12.0).color(theme::colors(ui).weak)).truncate());
    });
    if view.kinds.iter().any(|kind| *kind > 0) {
        strip_ui(ui, view.kinds, &seen.recordings);
    } else {
        weak_ui(ui, "All steps of this run use one recording.");
    }
    let height = (ui.available_height() - EVENTS).max(96.0);
    ui.allocate_ui(Vec2::new(ui.available_width(), height), |ui| table_ui(ui, &seen.recordings));
    ui.separator();
    events_ui(ui, seen);
}

/// The colour of a recording by its number: hues that follow one another are far apart.
fn colour(kind: u16) -> Color32 {
    let hue = (f32::from(kind) * 0.618_034).fract();
    egui::ecolor::Hsva::new(hue, 0.55, 0.8, 1.0).into()
}

/// Which recording every step used, from the first on the left to the newest on the right.
fn strip_ui(ui: &mut Ui, kinds: &[u16], recordings: &[RecordingSeen]) {
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), STRIP), Sense::hover());
    let stretches = strip(kinds, rect.width() as usize);
    let each = rect.width() / stretches.len().max(1) as f32;
    for (at, stretch) in stretches.iter().enumerate() {
        let left = rect.left() + at as f32 * each;
        let cell = Rect::from_x_y_ranges(left..=left + each, rect.y_range());
        ui.painter().rect_filled(cell, 0, colour(stretch.kind));
    }
    let name = format!("Recording of each of {} steps", kinds.len());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    let under = response.hover_pos().map(|at| ((at.x - rect.left()) / each) as usize);
    if let Some(stretch) = under.and_then(|at| stretches.get(at)) {
        let key = recordings.iter().find(|seen| seen.kind == u32::from(stretch.kind));
        let steps = match stretch.to - stretch.from {
            1 => format!("step {}", stretch.to),
            _ => format!("most of steps {} to {}", stretch.from + 1, stretch.to),
        };
        response.on_hover_text_at_pointer(format!("{steps}: {}", key.map_or("not known", |seen| &seen.key)));
    }
}

/// A line for each recording.
fn table_ui(ui: &mut Ui, recordings: &[RecordingSeen]) {
    let mut table = TableBuilder::new(ui)
        .id_salt("recordings")
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::remainder().at_least(160.0).clip(true));
    for width in WIDTHS {
        table = table.column(Column::exact(width).clip(true));
    }
    let table = table.header(24.0, |mut row| {
        row.col(|ui| drop(weak_ui(ui, "Key").on_hover_text("Inputs, precision, path and what it is for")));
        for (title, about) in COLUMNS {
            row.col(|ui| drop(weak_ui(ui, title).on_hover_text(about)));
        }
    });
    table.body(|body| {
        body.rows(24.0, recordings.len(), |mut row| {
            let Some(seen) = recordings.get(row.index()) else { return };
            row.col(|ui| {
                if seen.kind > 0 {
                    let (square, _) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
                    ui.painter().rect_filled(square, 2, colour(u16::try_from(seen.kind).unwrap_or(u16::MAX)));
                }
                ui.add(Label::new(&seen.key).truncate().selectable(false)).on_hover_text(&seen.key);
            });
            for text in cells(seen) {
                row.col(|ui| {
                    ui.add(Label::new(RichText::new(&text).size(12.0)).truncate().selectable(false))
                        .on_hover_text(text);
                });
            }
        });
    });
}

/// What happened, the newest first.
fn events_ui(ui: &mut Ui, seen: &RecordingsSeen) {
    ScrollArea::vertical().id_salt("recording events").auto_shrink([false, false]).show(ui, |ui| {
        for event in seen.events.iter().rev() {
            let text = format!("{}: {}", event.key, event.about);
            ui.add(Label::new(RichText::new(text).size(12.0)).truncate());
        }
    });
}
