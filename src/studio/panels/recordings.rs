//! The recordings of a run: one line for each, a strip of which one every step used, and what happened to them.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::panels::recordings::RecordingsPanelView;
use crate::studio::view_models::recordings::{COLUMNS, cells, compared, counts_text, only_lines};
use crate::studio::widgets::button::{empty_ui, named, weak_ui};
use crate::studio::widgets::recording_strip::{StripSpec, recording_color, recording_strip_ui};
use crate::train::{RecordingSeen, RecordingsSeen, StepDifference};
use egui::{Align, Button, Grid, Label, Layout, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder};

/// The height of the strip, and of the list of events, in points.
const STRIP: f32 = 20.0;
const EVENTS: f32 = 150.0;
/// What the two recordings of a comparison are called.
const SIDES: [&str; 2] = ["A", "B"];
/// Widths of the columns behind the key, in points.
const WIDTHS: [f32; COLUMNS.len()] = [64.0, 64.0, 68.0, 84.0, 52.0, 76.0, 200.0];

/// Shows the panel.
pub fn recordings_ui(ui: &mut Ui, view: &RecordingsPanelView<'_>, commands: &mut CommandQueue) {
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
    let width = ui.available_width();
    ui.allocate_ui(Vec2::new(width, height), |ui| table_ui(ui, &seen.recordings, view.chosen, commands));
    ui.separator();
    match view.difference {
        Some(difference) => ui.columns(2, |sides| {
            events_ui(&mut sides[0], seen);
            difference_ui(&mut sides[1], difference);
        }),
        None => events_ui(ui, seen),
    }
}

/// Which recording every step used, from the first on the left to the newest on the right.
fn strip_ui(ui: &mut Ui, kinds: &[u16], recordings: &[RecordingSeen]) {
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), STRIP), Sense::hover());
    recording_strip_ui(ui, response, &StripSpec { kinds, first: 1, x: rect.x_range(), recordings });
}

/// A line for each recording.
fn table_ui(ui: &mut Ui, recordings: &[RecordingSeen], chosen: &[u32], commands: &mut CommandQueue) {
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
                    compare_ui(ui, seen, chosen, commands);
                    let (square, _) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
                    ui.painter().rect_filled(square, 2, recording_color(u16::try_from(seen.kind).unwrap_or(u16::MAX)));
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

/// Takes a recording into the comparison of two, or out of it; the first is marked A, the second B.
fn compare_ui(ui: &mut Ui, seen: &RecordingSeen, chosen: &[u32], commands: &mut CommandQueue) {
    let place = chosen.iter().position(|kind| *kind == seen.kind);
    let sign = place.map_or(" ", |place| SIDES[place.min(1)]);
    let button =
        ui.add(Button::new(RichText::new(sign).size(12.0)).min_size(Vec2::splat(18.0)).selected(place.is_some()));
    named(&button, &format!("Compare recording {}", seen.kind), true);
    if button.on_hover_text("Compares this recording with another: choose two").clicked() {
        commands.push(UiCommand::CompareRecording(seen.kind));
    }
}

/// What two recordings have different.
fn difference_ui(ui: &mut Ui, difference: &StepDifference) {
    ScrollArea::vertical().id_salt("recording difference").auto_shrink([false, false]).show(ui, |ui| {
        Grid::new("recording figures").num_columns(3).spacing(Vec2::new(16.0, 2.0)).show(ui, |ui| {
            weak_ui(ui, "");
            SIDES.iter().for_each(|side| drop(weak_ui(ui, *side)));
            ui.end_row();
            for [what, a, b] in compared(difference) {
                weak_ui(ui, what);
                [a, b].into_iter().for_each(|text| drop(ui.label(RichText::new(text).size(12.0))));
                ui.end_row();
            }
        });
        if difference.is_empty() {
            weak_ui(ui, "Both have the same operations.");
        }
        for ((side, operations), kernels) in SIDES.iter().zip(&difference.operations).zip(&difference.kernels) {
            let lines = only_lines(operations, kernels);
            if !lines.is_empty() {
                weak_ui(ui, format!("Only in {side}"));
            }
            for line in lines {
                ui.add(Label::new(RichText::new(&line).size(12.0)).truncate()).on_hover_text(line);
            }
        }
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
