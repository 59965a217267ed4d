//! The recordings of a run: one line for each, a strip of which one every step used, and what happened to them.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::format::with_micro_signs;
use crate::studio::view_models::panels::recordings::RecordingsPanelView;
<<<<<<< HEAD
use crate::studio::view_models::recordings::{COLUMNS, KeyNames, cells, counts_text, reason, shares, strip};
use crate::studio::widgets::button::{empty_ui, weak_ui};
use crate::train::{RecordingSeen, RecordingsSeen};
use egui::{Align, Color32, Label, Layout, Rect, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder, TableRow};
=======
use crate::studio::view_models::recordings::{COLUMNS, cells, compared, counts_text, only_lines};
use crate::studio::widgets::button::{empty_ui, named, weak_ui};
use crate::studio::widgets::recording_strip::{StripSpec, recording_color, recording_strip_ui};
use crate::train::{RecordingSeen, RecordingsSeen, StepDifference};
use egui::{Align, Button, Grid, Label, Layout, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder};
>>>>>>> h-pool-2

/// The height of the strip, of the list of events, and of a recording, in points.
const STRIP: f32 = 20.0;
const EVENTS: f32 = 150.0;
<<<<<<< HEAD
const ROW: f32 = 40.0;
/// Widths of the columns behind the key, and the largest one of the key, in points.
const WIDTHS: [f32; COLUMNS.len()] = [56.0, 60.0, 64.0, 80.0, 48.0, 72.0];
const KEY: f32 = 560.0;
/// What the parts of a key mean.
const ABOUT_KEY: &str = "What tells a recording from the others: the path through the network, what it is for, and its \
                         inputs. L3=1 says that layer 3 chose 1: the path of a branch, the passes of a repeat, 1 for a \
                         residual that runs its layers, 1 for an early exit that was taken.";
=======
/// What the two recordings of a comparison are called.
const SIDES: [&str; 2] = ["A", "B"];
/// Widths of the columns behind the key, in points.
const WIDTHS: [f32; COLUMNS.len()] = [64.0, 64.0, 68.0, 84.0, 52.0, 76.0, 200.0];
>>>>>>> h-pool-2

/// Shows the panel.
pub fn recordings_ui(ui: &mut Ui, view: &RecordingsPanelView<'_>, commands: &mut CommandQueue) {
    let Some(seen) = view.seen else {
        return empty_ui(
            ui,
            "No recordings yet",
            "Press Train: each kind of step of the run is recorded once, and listed here.",
        );
    };
    let names = KeyNames::of(seen.recordings.iter().map(|recording| &*recording.key));
    ui.label(RichText::new("Recordings").font(theme::strong(13.0)));
    small_ui(ui, counts_text(seen));
    if !names.common.is_empty() {
        small_ui(ui, format!("In all of them: {}", names.common));
    }
    if view.kinds.iter().any(|kind| *kind > 0) {
        strip_ui(ui, view.kinds, &seen.recordings, &names);
    } else {
        weak_ui(ui, "All steps of this run use one recording.");
    }
    let height = (ui.available_height() - EVENTS).max(96.0);
<<<<<<< HEAD
    ui.allocate_ui(Vec2::new(ui.available_width(), height), |ui| table_ui(ui, &seen.recordings, &names));
    ui.separator();
    events_ui(ui, seen, &names);
}

/// A weak line that goes on below where it is too long.
fn small_ui(ui: &mut Ui, text: String) {
    ui.add(Label::new(RichText::new(text).size(12.0).color(theme::colors(ui).weak)).wrap());
}

/// The colour of a recording by its number: hues that follow one another are far apart.
fn colour(kind: u16) -> Color32 {
    let hue = (f32::from(kind) * 0.618_034).fract();
    egui::ecolor::Hsva::new(hue, 0.55, 0.8, 1.0).into()
=======
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
>>>>>>> h-pool-2
}

/// Which recordings every stretch of steps used, from the first on the left to the newest on the right: each has its
/// share of the height.
fn strip_ui(ui: &mut Ui, kinds: &[u16], recordings: &[RecordingSeen], names: &KeyNames) {
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), STRIP), Sense::hover());
<<<<<<< HEAD
    let stretches = strip(kinds, rect.width() as usize);
    let each = rect.width() / stretches.len().max(1) as f32;
    for (at, stretch) in stretches.iter().enumerate() {
        let left = rect.left() + at as f32 * each;
        let mut top = rect.top();
        for (kind, share) in shares(&kinds[stretch.from..stretch.to]) {
            let bottom = top + share * rect.height();
            let cell = Rect::from_x_y_ranges(left..=left + each, top..=bottom);
            ui.painter().rect_filled(cell, 0, colour(kind));
            top = bottom;
        }
    }
    let name = format!("Recording of each of {} steps", kinds.len());
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &name));
    let under = response.hover_pos().map(|at| ((at.x - rect.left()) / each) as usize);
    if let Some(stretch) = under.and_then(|at| stretches.get(at)) {
        let called = |kind: u16| {
            let known = recordings.iter().find(|seen| seen.kind == u32::from(kind));
            known.map_or_else(|| "not known any more".to_owned(), |seen| names.name(&seen.key))
        };
        let text = match stretch.to - stretch.from {
            1 => format!("step {}: {}", stretch.to, called(stretch.kind)),
            steps => {
                let mut text = format!("steps {} to {}", stretch.from + 1, stretch.to);
                for (kind, share) in shares(&kinds[stretch.from..stretch.to]) {
                    text += &format!("\n{:.0} × {}", share * steps as f32, called(kind));
                }
                text
            }
        };
        response.on_hover_text_at_pointer(text);
    }
}

/// A line for each recording.
fn table_ui(ui: &mut Ui, recordings: &[RecordingSeen], names: &KeyNames) {
=======
    recording_strip_ui(ui, response, &StripSpec { kinds, first: 1, x: rect.x_range(), recordings });
}

/// A line for each recording.
fn table_ui(ui: &mut Ui, recordings: &[RecordingSeen], chosen: &[u32], commands: &mut CommandQueue) {
>>>>>>> h-pool-2
    let mut table = TableBuilder::new(ui)
        .id_salt("recordings")
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::remainder().at_least(120.0).at_most(KEY).clip(true));
    for width in WIDTHS {
        table = table.column(Column::exact(width).clip(true));
    }
    let table = table.header(24.0, |mut row| {
        row.col(|ui| drop(weak_ui(ui, "Recording").on_hover_text(ABOUT_KEY)));
        for (title, about) in COLUMNS {
            row.col(|ui| drop(weak_ui(ui, title).on_hover_text(about)));
        }
    });
    table.body(|body| {
        body.rows(ROW, recordings.len(), |mut row| {
            let Some(seen) = recordings.get(row.index()) else { return };
<<<<<<< HEAD
            recording_ui(&mut row, seen, names);
=======
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
>>>>>>> h-pool-2
        });
    });
}

<<<<<<< HEAD
/// A recording: what tells it from the others with its reason below, and its figures.
fn recording_ui(row: &mut TableRow<'_, '_>, seen: &RecordingSeen, names: &KeyNames) {
    row.col(|ui| {
        let (square, _) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
        if seen.kind > 0 {
            ui.painter().rect_filled(square, 2, colour(u16::try_from(seen.kind).unwrap_or(u16::MAX)));
        }
        ui.vertical(|ui| {
            ui.spacing_mut().item_spacing.y = 2.0;
            ui.add_space(3.0);
            let line = |text: RichText| Label::new(text).truncate().selectable(false).show_tooltip_when_elided(false);
            let why = reason(seen);
            let weak = theme::colors(ui).weak;
            ui.add(line(RichText::new(names.name(&seen.key)))).on_hover_text(format!("{}\n\n{ABOUT_KEY}", seen.key));
            let about = format!("Why it was recorded: {why}");
            ui.add(line(RichText::new(&why).size(12.0).color(weak))).on_hover_text(about);
        });
    });
    for text in cells(seen) {
        row.col(|ui| drop(ui.add(Label::new(RichText::new(&text).size(12.0)).truncate().selectable(false))));
    }
}

=======
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

>>>>>>> h-pool-2
/// What happened, the newest first.
fn events_ui(ui: &mut Ui, seen: &RecordingsSeen, names: &KeyNames) {
    weak_ui(ui, "What happened, the newest first");
    ScrollArea::vertical().id_salt("recording events").auto_shrink([false, false]).show(ui, |ui| {
        for event in seen.events.iter().rev() {
            let text = format!("{}: {}", names.name(&event.key), with_micro_signs(&event.about));
            ui.add(Label::new(RichText::new(text).size(12.0)).truncate());
        }
    });
}
