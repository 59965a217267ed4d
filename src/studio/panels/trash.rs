//! Deleted runs, with buttons that restore a run and that delete it permanently.

use crate::studio::commands::runs::Column as Field;
use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme::icons;
use crate::studio::view_models::runs::{RunRow, RunsView};
use crate::studio::widgets::button::{empty_ui, named, weak_ui};
use egui::{Align, Button, Layout, RichText, Ui};
use egui_extras::{Column, TableBuilder};

/// The columns for a run in the trash, with their widths; the name takes the remaining width.
const FIELDS: [(Field, f32); 4] =
    [(Field::State, 84.0), (Field::Started, 84.0), (Field::Steps, 76.0), (Field::Loss, 68.0)];

/// Shows the list.
pub fn trash_ui(ui: &mut Ui, trash: Option<&RunsView>, commands: &mut CommandQueue) {
    let Some(trash) = trash else { return drop(weak_ui(ui, "Reading the trash…")) };
    if trash.rows.is_empty() {
        return empty_ui(ui, "The trash is empty", "Deleted runs are listed here, and can be restored.");
    }
    let mut table = TableBuilder::new(ui)
        .id_salt("trash")
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::remainder().at_least(72.0).clip(true));
    for (_, width) in FIELDS {
        table = table.column(Column::exact(width).clip(true));
    }
    let table = table.column(Column::exact(216.0));
    let table = table.header(24.0, |mut row| {
        row.col(|ui| drop(weak_ui(ui, Field::Name.title())));
        for (field, _) in FIELDS {
            row.col(|ui| aligned_ui(ui, field, |ui| drop(weak_ui(ui, field.title()).on_hover_text(field.about()))));
        }
        row.col(|_| {});
    });
    table.body(|body| {
        body.rows(28.0, trash.rows.len(), |mut row| {
            let Some(run) = trash.rows.get(row.index()) else { return };
            row.col(|ui| {
                let name = egui::Label::new(&run.name).truncate().selectable(false);
                ui.add(name).on_hover_text(&run.tooltip);
            });
            for (field, _) in FIELDS {
                let text = Field::ALL.iter().position(|f| *f == field).and_then(|at| run.cells.get(at));
                row.col(|ui| {
                    aligned_ui(ui, field, |ui| {
                        let text = RichText::new(text.map_or("", String::as_str)).size(12.0);
                        ui.add(egui::Label::new(text).truncate().selectable(false));
                    });
                });
            }
            row.col(|ui| buttons_ui(ui, run, commands));
        });
    });
}

/// Numbers are aligned to the right.
fn aligned_ui(ui: &mut Ui, field: Field, show: impl FnOnce(&mut Ui)) {
    if field.is_number() {
        ui.with_layout(Layout::right_to_left(Align::Center), show);
    } else {
        show(ui);
    }
}

/// The buttons that restore a run, and that delete it permanently.
fn buttons_ui(ui: &mut Ui, run: &RunRow, commands: &mut CommandQueue) {
    ui.spacing_mut().item_spacing.x = 4.0;
    let id = run.id.clone();
    for (command, label) in
        [(RunsCommand::RestoreRun(id.clone()), "Restore"), (RunsCommand::Remove(vec![id]), "Delete permanently…")]
    {
        let info = command.info();
        let text = RichText::new(format!("{}  {label}", info.icon)).size(12.0);
        let button = ui.add(Button::new(text)).on_hover_text(info.about);
        named(&button, &format!("{label} {}", run.name), true);
        if button.clicked() {
            commands.push(UiCommand::Runs(command));
        }
    }
}

/// The line above the list, with the button that removes everything in it.
pub fn trash_tools_ui(ui: &mut Ui, trash: Option<&RunsView>, commands: &mut CommandQueue) {
    let rows = trash.map_or(&[][..], |t| &t.rows[..]);
    let text = format!("{}  Empty the trash…", icons::TRASH);
    let button = ui.add_enabled(!rows.is_empty(), Button::new(text));
    named(&button, "Empty the trash…", !rows.is_empty());
    if button.on_hover_text("Removes everything in the trash from the disk, after a question").clicked() {
        let ids = rows.iter().map(|r| r.id.clone()).collect();
        commands.push(UiCommand::Runs(RunsCommand::Remove(ids)));
    }
}
