//! The inspector: information about the selection, with links to everything that it belongs to.

use crate::select::cuda::CompiledFor;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::values::{PictureCache, values_ui};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::inspector_page::{Group, Row};
use crate::studio::view_models::panels::inspector::InspectorPanelView;
use crate::studio::view_models::panels::plan::PlanOnScreen;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::widgets::button::{command_icon_ui, weak_ui};
use egui::{Align, Button, Layout, RichText, ScrollArea, Ui};

/// Shows the panel.
pub fn inspector_ui(
    ui: &mut Ui,
    view: &InspectorPanelView<'_>,
    pictures: &mut PictureCache,
    commands: &mut CommandQueue,
) {
    let page = view.page;
    ui.horizontal(|ui| {
        ui.label(RichText::new("Inspector").font(theme::strong(13.0)));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 0.0;
            command_icon_ui(ui, UiCommand::Forward, view.can_go_forward, commands);
            command_icon_ui(ui, UiCommand::Back, view.can_go_back, commands);
        });
    });
    ui.separator();
    ScrollArea::vertical().id_salt("inspector").auto_shrink([false, false]).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 2.0;
        ui.spacing_mut().interact_size.y = 20.0;
        ui.spacing_mut().button_padding = egui::Vec2::new(0.0, 1.0);
        weak_ui(ui, page.kind);
        ui.add(egui::Label::new(RichText::new(&page.title).font(theme::strong(15.0))).wrap());
        if !page.about.is_empty() {
            ui.add(egui::Label::new(RichText::new(&page.about).size(12.0).color(theme::colors(ui).weak)).wrap());
        }
        match view.shown.selection {
            Selection::Nothing | Selection::Layer(_) if view.shown.is_outdated => {
                ui.add_space(4.0);
                let is_empty = view.shown.readiness == Readiness::Empty;
                let when = if is_empty { "a layer is added" } else { "the network's problem is fixed" };
                let text = RichText::new(format!("{}  Its numbers come back when {when}.", icons::WARNING))
                    .size(12.0)
                    .color(theme::colors(ui).warning);
                ui.add(egui::Label::new(text).wrap());
            }
            _ => crate::studio::panels::plan_state::plan_head_ui(ui, &view.shown, commands),
        }
        if *view.shown.selection == Selection::Nothing {
            ui.add_space(4.0);
            weak_ui(ui, "Select a layer, an operation, a kernel, a buffer or bytes to see it here and in every view.");
        }
        for (index, group) in page.groups.iter().enumerate() {
            group_ui(ui, group, commands);
            if index == 0 {
                measured_ui(ui, &view.shown);
                if view.values.buffer.is_some() {
                    ui.add_space(10.0);
                    values_ui(ui, &view.values, pictures, commands);
                }
            }
        }
        ui.add_space(16.0);
    });
}

/// The measured time of the selected operations: of one operation, or of those of a layer, node or kernel together.
fn measured_ui(ui: &mut Ui, shown: &PlanOnScreen<'_>) {
    let Some(measured) = shown.measured else { return };
    let ops: Vec<usize> = match shown.selection {
        Selection::Op(op) | Selection::Call(op) => vec![*op],
        Selection::Nothing | Selection::Buffer(_) | Selection::Part(..) | Selection::Bytes(_) => return,
        _ => shown.related.ops.iter().copied().collect(),
    };
    let us: f64 = ops.iter().filter_map(|i| measured.op_us(*i)).sum();
    let floor: f64 = ops.iter().filter_map(|i| measured.floor(*i)).map(|f| f.us).sum();
    let bound = match ops[..] {
        [op] => measured.floor(op).map_or_else(String::new, |f| format!(" ({})", f.bound)),
        _ => String::new(),
    };
    let width = ui.available_width();
    let rounds = measured.times.rounds;
    let exact = format!("{us:.3} µs, the median of {rounds} runs by itself");
    fact_ui(ui, "measured time", &format::micros(us), &exact, width);
    let is_for_any_size =
        |op: &usize| shown.plan.is_some_and(|p| p.levels.compiled_for(*op) == Some(CompiledFor::AnySize));
    let own_sizes: Option<f64> = ops.iter().map(|i| measured.own_sizes_us(*i)).sum();
    if let Some(us) = own_sizes.filter(|_| ops.iter().any(is_for_any_size)) {
        let exact = format!("{us:.3} µs with kernels that are compiled for these sizes");
        fact_ui(ui, "for its sizes", &format::micros(us), &exact, width);
    }
    if floor > 0.0 && us > 0.0 {
        fact_ui(ui, "least time", &format!("{}{bound}", format::micros(floor)), &format!("{floor:.3} µs"), width);
        let share = format::percent(floor / us);
        fact_ui(
            ui,
            "roofline efficiency",
            &share,
            "The least time that the machine needs for the operation, divided by the measured time",
            width,
        );
    }
}

fn group_ui(ui: &mut Ui, group: &Group, commands: &mut CommandQueue) {
    ui.add_space(10.0);
    ui.label(RichText::new(group.title).font(theme::strong(12.0)).color(theme::colors(ui).weak));
    let width = ui.available_width();
    for row in &group.rows {
        match row {
            Row::Note(text) => drop(weak_ui(ui, text)),
            Row::Fact { label, value, exact } => fact_ui(ui, label, value, exact, width),
            Row::Link { label, text, to } => {
                ui.horizontal(|ui| {
                    ui.spacing_mut().item_spacing.x = 6.0;
                    weak_ui(ui, label);
                    let text_of = RichText::new(text).font(theme::mono()).color(theme::colors(ui).accent);
                    let button = ui.add(Button::new(text_of).frame(false).truncate()).on_hover_text(text);
                    if button.clicked() {
                        commands.push(UiCommand::Select(to.clone()));
                    }
                });
            }
        }
    }
}

/// A line with a label and a value; the value is below the label if they do not fit on one line.
fn fact_ui(ui: &mut Ui, label: &str, value: &str, exact: &str, width: f32) {
    let fits = (label.chars().count() + value.chars().count()) as f32 * 7.0 < width - 12.0;
    let value = RichText::new(value).font(theme::mono());
    if fits {
        ui.horizontal(|ui| {
            weak_ui(ui, label);
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(value).on_hover_text(exact));
        });
    } else {
        ui.add_space(2.0);
        ui.add(egui::Label::new(RichText::new(label).size(12.0).color(theme::colors(ui).weak)).wrap());
        ui.add(egui::Label::new(value).wrap()).on_hover_text(exact);
    }
}
