//! The step graph: every operation with its kernel and cost.

use crate::studio::commands::{Command, Queue};
use crate::studio::icons;
use crate::studio::selection::Selection;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::view_models::step_graph::OpRow;
use crate::studio::widgets::button::{empty_ui, named, phase_ui, weak_ui};
use crate::tensor::Bytes;
use egui::{Align, Button, Layout, RichText, Sense, TextEdit, Ui};
use egui_extras::{Column, TableBuilder};

/// What the panel remembers.
#[derive(Default)]
pub struct StepGraphPanel {
    filter: String,
    /// The rows that the filter leaves, for a plan and a filter.
    rows: Vec<usize>,
    made_for: Option<(u64, String)>,
    shown: Selection,
}

const HEADERS: [&str; 9] = ["", "#", "Layer", "Op", "Kernel", "Dimensions", "FLOPs", "Bytes", "Time"];

/// The place of the dimensions among the headers.
const DIMS: usize = 5;

/// Shows the panel.
pub fn step_graph_ui(ui: &mut Ui, studio: &Studio, panel: &mut StepGraphPanel, out: &mut Queue) {
    let Some(plan) = &studio.plan else {
        return empty_ui(ui, "No step yet", "Mend the problems in the network; its step appears here at once.");
    };
    ui.horizontal(|ui| {
        ui.label(RichText::new(icons::SEARCH).color(theme::colors(ui).weak));
        let edit = TextEdit::singleline(&mut panel.filter)
            .hint_text("Filter by phase, layer, op, kernel")
            .desired_width(280.0)
            .id_salt("op filter");
        ui.name_inputs("Filter operations", |ui| ui.add(edit));
        let key = (studio.plan_revision, panel.filter.to_lowercase());
        if panel.made_for.as_ref() != Some(&key) {
            panel.rows = plan.ops.iter().filter(|o| o.matches(&key.1)).map(|o| o.index).collect();
            panel.made_for = Some(key);
        }
        weak_ui(ui, format!("{} of {} ops", panel.rows.len(), plan.ops.len()));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            weak_ui(
                ui,
                format!("{} FLOP · about {} a step", format::count(plan.flops as f64), format::micros(plan.cost_us)),
            );
        });
    });
    ui.add_space(4.0);
    let selected = studio.selection.current();
    let jump = match selected {
        Selection::Op(op) if panel.shown != *selected => panel.rows.iter().position(|r| r == op),
        _ => None,
    };
    panel.shown = selected.clone();
    // Where there is little room, the dimensions stay in the inspector and the kernel's name keeps its room.
    let with_dims = ui.available_width() > 820.0;
    let mut table = TableBuilder::new(ui)
        .id_salt("ops")
        .sense(Sense::click())
        .auto_shrink([false, false])
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::exact(20.0))
        .column(Column::exact(32.0))
        .column(Column::exact(if with_dims { 120.0 } else { 92.0 }).clip(true))
        .column(Column::exact(104.0).clip(true))
        .column(Column::remainder().at_least(120.0).clip(true));
    if with_dims {
        table = table.column(Column::exact(160.0).clip(true));
    }
    table = table.columns(Column::exact(60.0), 3);
    if let Some(row) = jump {
        table = table.scroll_to_row(row, None);
    }
    let header = table.header(20.0, |mut row| {
        for (index, name) in HEADERS.into_iter().enumerate().filter(|(i, _)| with_dims || *i != DIMS) {
            row.col(|ui| {
                if index >= 6 {
                    ui.with_layout(Layout::right_to_left(Align::Center), |ui| weak_ui(ui, name));
                } else {
                    weak_ui(ui, name);
                }
            });
        }
    });
    header.body(|body| {
        body.rows(22.0, panel.rows.len(), |mut row| {
            let op = &plan.ops[panel.rows[row.index()]];
            row.set_selected(*selected == Selection::Op(op.index));
            let related = studio.related.ops.contains(&op.index);
            let chosen = cells(&mut row, op, related, with_dims);
            if chosen || row.response().clicked() {
                out.push(Command::Select(Selection::Op(op.index)));
            }
        });
    });
}

/// Shows a row; true where its kernel was pressed, which is how the keyboard selects it.
fn cells(row: &mut egui_extras::TableRow<'_, '_>, op: &OpRow, related: bool, with_dims: bool) -> bool {
    let mono = |ui: &mut Ui, text: &str, weak: bool| {
        let c = theme::colors(ui);
        let color = if weak { c.weak } else { c.text };
        ui.add(egui::Label::new(RichText::new(text).font(theme::mono()).color(color)).truncate().selectable(false));
    };
    let right = |ui: &mut Ui, text: String, exact: String| {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.add(egui::Label::new(RichText::new(text).size(12.0)).selectable(false)).on_hover_text(exact);
        });
    };
    row.col(|ui| {
        if related {
            // A bar in the accent marks what belongs to the selection.
            let rect = ui.max_rect();
            ui.painter().vline(rect.left() + 1.0, rect.y_range(), egui::Stroke::new(2.0, theme::colors(ui).accent));
        }
        ui.add_space(4.0);
        phase_ui(ui, op.phase);
    });
    row.col(|ui| mono(ui, &op.index.to_string(), true));
    row.col(|ui| mono(ui, &op.layer, false));
    row.col(|ui| mono(ui, op.op, false));
    let mut pressed = false;
    row.col(|ui| {
        ui.spacing_mut().button_padding.x = 0.0;
        let button = ui.add(Button::new(RichText::new(&op.kernel).font(theme::mono())).frame(false).truncate());
        named(&button, &format!("Op {} {}", op.index, op.kernel), true);
        pressed = button.clicked();
    });
    if with_dims {
        row.col(|ui| mono(ui, &op.dims, true));
    }
    row.col(|ui| right(ui, format::count(op.flops as f64), format!("{} FLOP", format::exact(op.flops))));
    row.col(|ui| right(ui, Bytes(op.bytes).to_string(), format!("{} bytes moved at least", format::exact(op.bytes))));
    row.col(|ui| right(ui, format::micros(op.cost_us), "Estimated".into()));
    pressed
}
