//! The recordings of a run: one line for each, a strip of which one every step used, and what happened to them.

use crate::studio::theme;
use crate::studio::view_models::format::with_micro_signs;
use crate::studio::view_models::panels::recordings::RecordingsPanelView;
use crate::studio::view_models::recordings::{COLUMNS, KeyNames, cells, counts_text, reason, shares, strip};
use crate::studio::widgets::button::{empty_ui, weak_ui};
use crate::train::{RecordingSeen, RecordingsSeen};
use egui::{Align, Color32, Label, Layout, Rect, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder, TableRow};

/// The height of the strip, of the list of events, and of a recording, in points.
const STRIP: f32 = 20.0;
const EVENTS: f32 = 150.0;
const ROW: f32 = 40.0;
/// Widths of the columns behind the key, and the largest one of the key, in points.
const WIDTHS: [f32; COLUMNS.len()] = [56.0, 60.0, 64.0, 80.0, 48.0, 72.0];
const KEY: f32 = 560.0;
/// What the parts of a key mean.
const ABOUT_KEY: &str = "What tells a recording from the others: the path through the network, what it is for, and its \
                         inputs. L3=1 says that layer 3 chose 1: the path of a branch, the passes of a repeat, 1 for a \
                         residual that runs its layers, 1 for an early exit that was taken.";

/// Shows the panel.
pub fn recordings_ui(ui: &mut Ui, view: &RecordingsPanelView<'_>) {
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
}

/// Which recordings every stretch of steps used, from the first on the left to the newest on the right: each has its
/// share of the height.
fn strip_ui(ui: &mut Ui, kinds: &[u16], recordings: &[RecordingSeen], names: &KeyNames) {
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), STRIP), Sense::hover());
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
            recording_ui(&mut row, seen, names);
        });
    });
}

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
