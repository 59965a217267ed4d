//! The capture plan: buffers by layer, and every scalar as frozen or live.

use crate::studio::commands::{Command, Queue};
use crate::studio::icons;
use crate::studio::selection::Selection;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::view_models::capture::{COLUMNS, Cell, Shown};
use crate::studio::view_models::status::{recorded_text, recording_text};
use crate::studio::widgets::button::{empty_ui, named, weak_ui};
use egui::{Align, Button, Layout, RichText, Ui};
use egui_extras::{Column, TableBuilder};

/// What the panel remembers between frames.
#[derive(Debug, Default)]
pub struct CapturePanel {
    pub shown: Shown,
}

/// Shows the panel.
pub fn capture_ui(ui: &mut Ui, studio: &Studio, panel: &mut CapturePanel, out: &mut Queue) {
    let Some(plan) = &studio.plan else {
        return empty_ui(
            ui,
            "No capture plan yet",
            "Mend the problems in the network; its buffers appear here at once.",
        );
    };
    let view = &plan.capture;
    ui.horizontal(|ui| {
        ui.label(RichText::new("Buffers by layer").font(theme::strong(13.0)));
        let recorded = recorded_text(&studio.training, studio.devices.current().trains());
        weak_ui(ui, &recorded).on_hover_text(recording_text(&studio.training));
    });
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        for shown in Shown::ALL {
            let [word, about] = shown.words();
            let button = ui.add(Button::selectable(panel.shown == shown, word)).on_hover_text(about);
            named(&button, about, true);
            if button.clicked() {
                panel.shown = shown;
            }
        }
        ui.add_space(12.0);
        let told = recording_text(&studio.training);
        ui.add(egui::Label::new(RichText::new(&told).size(12.0).color(theme::colors(ui).weak)).truncate());
    });
    let shown = panel.shown;
    // The table of buffers takes what its rows need, up to a good half.
    let rows = view.layers.len() + 4;
    let half = (ui.available_height() * 0.58).max(120.0).min(rows as f32 * 28.0);
    ui.push_id("layers", |ui| {
        let table = TableBuilder::new(ui)
            .id_salt("capture layers")
            .auto_shrink([false, true])
            .max_scroll_height(half)
            .cell_layout(Layout::left_to_right(Align::Center))
            .column(Column::exact(132.0).clip(true))
            .columns(Column::remainder().at_least(64.0).clip(true), COLUMNS.len());
        let table = table.header(20.0, |mut row| {
            row.col(|ui| drop(weak_ui(ui, "Layer")));
            for name in COLUMNS {
                row.col(|ui| drop(weak_ui(ui, name)));
            }
        });
        table.body(|body| {
            let extra = [("loss dY", &view.loss), ("input x", &view.x), ("input y", &view.y)];
            body.rows(24.0, view.layers.len() + extra.len(), |mut row| {
                let index = row.index();
                if let Some(layer) = view.layers.get(index) {
                    row.set_selected(layer.layer.as_ref().is_some_and(|l| studio.related.layers.contains(l)));
                    row.col(|ui| {
                        let button =
                            ui.add(Button::new(RichText::new(&layer.name).font(theme::mono())).frame(false).truncate());
                        if let (true, Some(path)) = (button.clicked(), &layer.layer) {
                            out.push(Command::Select(Selection::Layer(path.clone())));
                        }
                    });
                    for cell in &layer.cells {
                        row.col(|ui| cell_ui(ui, cell.as_ref(), shown, studio, out));
                    }
                } else if let Some((name, cell)) = extra.get(index - view.layers.len()) {
                    row.col(|ui| drop(ui.label(RichText::new(*name).font(theme::mono()))));
                    row.col(|ui| cell_ui(ui, cell.as_ref(), shown, studio, out));
                    for _ in 1..COLUMNS.len() {
                        row.col(|_| {});
                    }
                }
            });
        });
    });
    ui.separator();
    let live = view.constants.iter().filter(|c| c.live).count();
    ui.horizontal(|ui| {
        ui.label(RichText::new("Constants").font(theme::strong(13.0)));
        weak_ui(
            ui,
            format!("{} frozen at capture, {live} read from memory at every replay", view.constants.len() - live),
        );
    });
    constants_ui(ui, studio, out);
}

fn cell_ui(ui: &mut Ui, cell: Option<&Cell>, shown: Shown, studio: &Studio, out: &mut Queue) {
    let c = theme::colors(ui);
    let Some(cell) = cell else {
        ui.label(RichText::new("–").color(c.weak));
        return;
    };
    let on = studio.related.buffers.contains(&cell.buffer);
    let text = RichText::new(&cell.texts[shown as usize]).font(theme::mono()).color(if on { c.accent } else { c.text });
    let response = ui.add(Button::new(text).frame(false).truncate()).on_hover_text(&cell.tooltip);
    named(&response, cell.tooltip.lines().next().unwrap_or_default(), true);
    if response.clicked() {
        out.push(Command::Select(Selection::Buffer(cell.buffer)));
    }
}

fn constants_ui(ui: &mut Ui, studio: &Studio, out: &mut Queue) {
    let Some(plan) = &studio.plan else { return };
    let rows = &plan.capture.constants;
    let table = TableBuilder::new(ui)
        .id_salt("constants")
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::exact(96.0))
        .column(Column::initial(130.0).at_least(60.0).clip(true))
        .column(Column::initial(150.0).at_least(60.0).clip(true))
        .column(Column::remainder().at_least(100.0).clip(true));
    let table = table.header(20.0, |mut row| {
        for name in ["", "Constant", "Value", "Operation"] {
            row.col(|ui| drop(weak_ui(ui, name)));
        }
    });
    table.body(|body| {
        body.rows(22.0, rows.len(), |mut row| {
            let k = &rows[row.index()];
            row.col(|ui| {
                let (icon, word, about) = if k.live {
                    (icons::LIVE, "live", "Read from memory at every replay: it can change while the step is replayed")
                } else {
                    (icons::FROZEN, "frozen", "Written into the recording: a change needs a new one")
                };
                let c = theme::colors(ui);
                let color = if k.live { c.accent } else { c.weak };
                ui.label(RichText::new(format!("{icon}  {word}")).size(12.0).color(color)).on_hover_text(about);
            });
            row.col(|ui| drop(ui.label(RichText::new(&k.name).font(theme::mono()))));
            row.col(|ui| drop(ui.label(RichText::new(&k.value).font(theme::mono()))));
            row.col(|ui| {
                let text = format!("{} {}", k.op, k.kernel);
                if ui.add(Button::new(RichText::new(text).font(theme::mono())).frame(false).truncate()).clicked() {
                    out.push(Command::Select(Selection::Op(k.op)));
                }
            });
        });
    });
}
