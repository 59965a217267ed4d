//! The recordings of a run: one line for each, a strip that shows which one every step used, and a list of events.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::plan_state::{recording_ui, unready_ui};
use crate::studio::theme;
use crate::studio::view_models::format::with_micro_signs;
use crate::studio::view_models::panels::recordings::RecordingsPanelView;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::recordings::{COLUMNS, KeyNames, cells, compared, counts_text, only_lines, reason};
use crate::studio::view_models::step_kinds::StepKinds;
use crate::studio::widgets::button::{below_empty_ui, empty_ui, named, weak_ui};
use crate::studio::widgets::recording_strip::{StripSpec, recording_color, recording_strip_ui};
use crate::train::{RecordingSeen, RecordingsSeen, StepDifference};
use egui::{Align, Button, Grid, Label, Layout, RichText, ScrollArea, Sense, Ui, Vec2};
use egui_extras::{Column, TableBuilder};

/// The height of the strip, of the list of events, and of a recording, in points.
const STRIP: f32 = 20.0;
const EVENTS: f32 = 150.0;
const ROW: f32 = 40.0;
/// The height of the line above the table, in points.
const HEAD: f32 = 28.0;
/// The height of a line of a comparison, in points.
const LINE: f32 = 16.0;
/// Widths of the columns after the key, and the largest width of the key, in points.
const WIDTHS: [f32; COLUMNS.len()] = [56.0, 60.0, 64.0, 80.0, 48.0, 72.0];
const KEY: f32 = 560.0;
/// The names of the two recordings of a comparison.
const SIDES: [&str; 2] = ["A", "B"];
/// The side of the button that chooses one of them, in points.
const SIDE: f32 = 18.0;
/// The meanings of the parts of a key.
const ABOUT_KEY: &str = "How a recording differs from the others: the path through the network, what it is for, and \
                         its inputs. L3=1 says that layer 3 chose 1: the path of a branch, the passes of a repeat, 1 \
                         for a residual that runs its layers, 1 for an early exit that was taken.";

/// Shows the panel.
pub fn recordings_ui(ui: &mut Ui, view: &RecordingsPanelView<'_>, commands: &mut CommandQueue) {
    let Some(seen) = view.seen else { return nothing_ui(ui, view.readiness, commands) };
    let names = view.names;
    ui.label(RichText::new("Recordings").font(theme::strong(13.0)));
    small_ui(ui, counts_text(seen));
    if !names.common.is_empty() {
        small_ui(ui, format!("In all of them: {}", names.common));
    }
    if view.kinds.are_known() {
        strip_ui(ui, view.kinds, &seen.recordings, names);
    } else {
        weak_ui(ui, "All steps of this run use one recording.");
    }
    if let Some(recording) = &view.on_screen {
        recording_ui(ui, recording, commands);
    } else {
        // As high as the line of a chosen one, so that the table does not move.
        ui.horizontal(|ui| {
            ui.set_min_height(HEAD);
            weak_ui(ui, "Choose one to look at its step graph, arena and capture plan.");
        });
    }
    // The list of events follows the table, and uses the remaining space.
    let whole = HEAD + (ROW + ui.spacing().item_spacing.y) * seen.recordings.len() as f32 + 16.0;
    let height = whole.min(ui.available_height() - EVENTS).max(96.0);
    let width = ui.available_width();
    ui.allocate_ui(Vec2::new(width, height), |ui| table_ui(ui, &seen.recordings, view, commands));
    ui.separator();
    match view.difference {
        Some(difference) => ui.columns(2, |sides| {
            events_ui(&mut sides[0], seen, names);
            difference_ui(&mut sides[1], difference);
        }),
        None => events_ui(ui, seen, names),
    }
}

/// Before the first run: what to press, or why it cannot start.
fn nothing_ui(ui: &mut Ui, readiness: Readiness, commands: &mut CommandQueue) {
    if readiness != Readiness::Ready {
        return unready_ui(ui, readiness, "record its steps", commands);
    }
    let next = "Press Train: each kind of step of the run is recorded once, and listed here.";
    empty_ui(ui, "No recordings yet", next);
    below_empty_ui(ui, UiCommand::Train, commands);
}

/// A weak line, which wraps if it is too long.
fn small_ui(ui: &mut Ui, text: String) {
    ui.add(Label::new(RichText::new(text).size(12.0).color(theme::colors(ui).weak)).wrap());
}

/// Shows which recordings the steps used, from the first step on the left to the newest on the right.
fn strip_ui(ui: &mut Ui, kinds: &StepKinds, recordings: &[RecordingSeen], names: &KeyNames) {
    let (rect, response) = ui.allocate_exact_size(Vec2::new(ui.available_width(), STRIP), Sense::hover());
    let spec = StripSpec { kinds, steps: [0, kinds.len()], x: rect.x_range(), recordings, names };
    recording_strip_ui(ui, response, &spec);
}

/// A line for each recording.
fn table_ui(ui: &mut Ui, recordings: &[RecordingSeen], view: &RecordingsPanelView<'_>, commands: &mut CommandQueue) {
    let mut table = TableBuilder::new(ui)
        .id_salt("recordings")
        .sense(Sense::click())
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
            let is_shown = view.shown == Some(&*seen.key);
            row.set_selected(is_shown);
            let mut is_chosen = false;
            row.col(|ui| is_chosen = row_ui(ui, seen, view, commands));
            for text in cells(seen) {
                row.col(|ui| drop(ui.add(Label::new(RichText::new(&text).size(12.0)).truncate().selectable(false))));
            }
            if is_chosen || row.response().clicked() {
                // Pressing it again shows the network's own plan.
                commands.push(UiCommand::ShowRecording((!is_shown).then(|| seen.key.clone())));
            }
        });
    });
}

/// A recording: how it differs from the others, with its reason below. Returns true if it was chosen to be shown.
fn row_ui(ui: &mut Ui, seen: &RecordingSeen, view: &RecordingsPanelView<'_>, commands: &mut CommandQueue) -> bool {
    if seen.kind > 0 {
        compare_ui(ui, seen, view.chosen, commands);
    } else {
        ui.add_space(SIDE + ui.spacing().item_spacing.x);
    }
    let (square, _) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
    if seen.kind > 0 {
        ui.painter().rect_filled(square, 2, recording_color(u16::try_from(seen.kind).unwrap_or(u16::MAX)));
    }
    let shown = ui.vertical(|ui| {
        ui.spacing_mut().item_spacing.y = 2.0;
        ui.spacing_mut().interact_size.y = 16.0;
        ui.spacing_mut().button_padding = Vec2::ZERO;
        ui.add_space(3.0);
        let name = view.names.name(&seen.key);
        let text = RichText::new(&name).color(ui.visuals().text_color());
        let label = ui.add(Button::new(text).frame(false).truncate());
        named(&label, &format!("Show recording {name}"), view.can_show);
        let about = format!("{}\n\n{}\n\n{ABOUT_KEY}", seen.key, UiCommand::ShowRecording(Some(name)).info().about);
        let label = label.on_hover_text(about);
        let why = reason(seen);
        let weak = RichText::new(&why).size(12.0).color(theme::colors(ui).weak);
        let line = Label::new(weak).truncate().selectable(false).show_tooltip_when_elided(false);
        ui.add(line).on_hover_text(format!("Why it was recorded: {why}"));
        label.clicked()
    });
    shown.inner
}

/// Adds a recording to the comparison of two, or removes it; the first is marked A, the second B.
fn compare_ui(ui: &mut Ui, seen: &RecordingSeen, chosen: &[u32], commands: &mut CommandQueue) {
    let place = chosen.iter().position(|kind| *kind == seen.kind);
    let sign = place.map_or(" ", |place| SIDES[place.min(1)]);
    // The same size with and without a letter.
    ui.spacing_mut().button_padding = Vec2::ZERO;
    let text = RichText::new(sign).size(12.0);
    let button = ui.add(Button::new(text).min_size(Vec2::splat(SIDE)).selected(place.is_some()));
    named(&button, &format!("Compare recording {}", seen.kind), true);
    if button.on_hover_text("Compares this recording with another: choose two").clicked() {
        commands.push(UiCommand::CompareRecording(seen.kind));
    }
}

/// The differences of two recordings.
fn difference_ui(ui: &mut Ui, difference: &StepDifference) {
    ScrollArea::vertical().id_salt("recording difference").auto_shrink([false, false]).show(ui, |ui| {
        ui.spacing_mut().interact_size.y = LINE;
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

/// The events, the newest first.
fn events_ui(ui: &mut Ui, seen: &RecordingsSeen, names: &KeyNames) {
    weak_ui(ui, "What happened, the newest first");
    ScrollArea::vertical().id_salt("recording events").auto_shrink([false, false]).show(ui, |ui| {
        for event in seen.events.iter().rev() {
            let text = format!("{}: {}", names.name(&event.key), with_micro_signs(&event.about));
            ui.add(Label::new(RichText::new(text).size(12.0)).truncate());
        }
    });
}
