//! The numbers beside the map: the peak compared with its bounds, the largest buffers, roles, planners and precisions.

use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::arena::ArenaView;
use crate::studio::view_models::compare::Comparison;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::arena::ArenaPanelView;
use crate::studio::view_models::plan::PlanView;
use crate::studio::widgets::button::{named, role_ui, weak_ui};
use crate::tensor::Bytes;
use egui::{Align, Button, Layout, Rect, RichText, Sense, Ui, Vec2};

fn line_ui(ui: &mut Ui, label: &str, value: &str, exact: &str) {
    ui.horizontal(|ui| {
        weak_ui(ui, label);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.label(RichText::new(value).size(12.0)).on_hover_text(exact);
        });
    });
}

fn bytes_ui(ui: &mut Ui, label: &str, bytes: u64) {
    line_ui(ui, label, &Bytes(bytes).to_string(), &format!("{} bytes", format::exact(bytes)));
}

/// A heading.
pub fn title_ui(ui: &mut Ui, title: &str) {
    ui.add_space(12.0);
    ui.label(RichText::new(title).font(theme::strong(12.0)).color(theme::colors(ui).weak));
}

/// Shows the peak compared with the lower bound and with the size without sharing.
pub fn numbers_ui(ui: &mut Ui, arena: &ArenaView) {
    ui.label(RichText::new(Bytes(arena.arena_bytes).to_string()).font(theme::strong(20.0)))
        .on_hover_text(format!("{} bytes", format::exact(arena.arena_bytes)));
    let saved = 1.0 - arena.arena_bytes as f64 / arena.unshared_bytes.max(1) as f64;
    let verdict = if arena.is_optimal { "proved the smallest possible" } else { "the best plan found" };
    weak_ui(ui, verdict);
    ui.add_space(4.0);
    let whole = arena.unshared_bytes.max(1) as f32;
    for (label, bytes, about) in [
        (
            "lower bound",
            arena.lower_bound_bytes,
            "The largest sum of bytes that are alive at the same time: no placement needs less",
        ),
        ("arena", arena.arena_bytes, "The size of the arena: the memory that the step needs"),
        ("unshared", arena.unshared_bytes, "Every buffer its own"),
    ] {
        ui.scope(|ui| bytes_ui(ui, label, bytes)).response.on_hover_text(about);
        bar_ui(ui, bytes as f32 / whole, theme::colors(ui).accent);
    }
    line_ui(ui, "over the bound", &format!("{:.3}", arena.ratio), "Arena over lower bound");
    line_ui(ui, "saved by sharing", &format::percent(saved), "Compared with a separate buffer for every value");
    bytes_ui(ui, "survives the step", arena.persistent_bytes);
    bytes_ui(ui, "padding", arena.padding_bytes);
    line_ui(ui, "buffers", &arena.rects.len().to_string(), "Buffers in the arena");
}

/// A share as a bar of the available width.
fn bar_ui(ui: &mut Ui, share: f32, color: egui::Color32) {
    let (rect, _) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 3.0), Sense::hover());
    ui.painter().rect_filled(rect, 1, theme::colors(ui).hairline);
    let part = Vec2::new(rect.width() * share.clamp(0.0, 1.0), 3.0);
    ui.painter().rect_filled(Rect::from_min_size(rect.min, part), 1, color);
}

/// Lists the largest buffers, each with its owner; a click selects one.
pub fn largest_ui(ui: &mut Ui, plan: &PlanView, view: &ArenaPanelView<'_>, commands: &mut CommandQueue) {
    /// The number of lines in the list.
    const LINES: usize = 5;
    title_ui(ui, "Largest buffers");
    let c = theme::colors(ui);
    for (index, id) in plan.arena.largest.iter().take(LINES).enumerate() {
        let Some(r) = plan.arena.rect(*id) else { continue };
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            role_ui(ui, r.role);
            let on = *view.shown.selection == Selection::Buffer(*id);
            let text = RichText::new(&r.name).font(theme::mono()).color(if on { c.accent } else { c.text });
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                ui.label(RichText::new(Bytes(r.bytes).to_string()).size(12.0))
                    .on_hover_text(format!("{} bytes", format::exact(r.bytes)));
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let button = ui.add(Button::new(text).frame(false).truncate()).on_hover_text(r.tooltip());
                    named(&button, &format!("Largest buffer {}: {}", index + 1, r.name), true);
                    if button.clicked() {
                        commands.push(UiCommand::Select(Selection::Buffer(*id)));
                    }
                });
            });
        });
    }
}

/// Shows how the bytes are divided among roles.
pub fn by_role_ui(ui: &mut Ui, arena: &ArenaView) {
    title_ui(ui, "By role, summed over the step");
    weak_ui(ui, "Sums, not the peak: buffers that are never live together share memory.");
    let most = arena.by_role.iter().map(|(_, b)| *b).max().unwrap_or(1).max(1);
    for (role, bytes) in &arena.by_role {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            role_ui(ui, *role);
            ui.label(RichText::new(role.name()).size(12.0));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                ui.label(RichText::new(Bytes(*bytes).to_string()).size(12.0))
                    .on_hover_text(format!("{} bytes", format::exact(*bytes)));
            });
        });
        bar_ui(ui, *bytes as f32 / most as f32, theme::role(*role));
    }
}

/// Shows the results of every planner and every precision; until these were requested, the planners that were tried.
pub fn planners_ui(ui: &mut Ui, view: &ArenaPanelView<'_>, arena: &ArenaView, commands: &mut CommandQueue) {
    if let Some(found) = view.comparison {
        comparison_ui(ui, found, arena);
        return;
    }
    tried_ui(ui, arena);
    ui.add_space(4.0);
    if view.is_comparing {
        ui.horizontal(|ui| {
            ui.add(egui::Spinner::new().size(14.0));
            weak_ui(ui, "Planning every way");
        });
        return;
    }
    let info = UiCommand::ComparePlans.info();
    let text = RichText::new(info.label).size(12.0).color(theme::colors(ui).accent);
    let button = ui.add_enabled(view.can_compare, Button::new(text).frame(false)).on_hover_text(info.about);
    if button.clicked() {
        commands.push(UiCommand::ComparePlans);
    }
}

/// A name at the left, and columns of numbers at the right, each with its exact value as a tooltip.
fn columns_ui(ui: &mut Ui, name: &str, strong: bool, columns: [(String, String); 2]) {
    let c = theme::colors(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            for (value, exact) in columns.into_iter().rev() {
                ui.allocate_ui_with_layout(Vec2::new(62.0, 18.0), Layout::right_to_left(Align::Center), |ui| {
                    ui.set_width(62.0);
                    ui.label(RichText::new(value).size(12.0)).on_hover_text(exact);
                });
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                let text = RichText::new(name).size(12.0).color(if strong { c.text } else { c.weak });
                ui.add(egui::Label::new(text).truncate());
                if strong {
                    ui.label(RichText::new(icons::CHECK).size(12.0).color(c.accent)).on_hover_text("In use");
                }
            });
        });
    });
}

fn comparison_ui(ui: &mut Ui, found: &Comparison, arena: &ArenaView) {
    title_ui(ui, "Planners side by side");
    for p in &found.planners {
        let over = p.bytes as f64 / arena.lower_bound_bytes.max(1) as f64;
        let bound = if p.meets_bound { "meets the bound" } else { "above the bound" };
        let exact = format!("{} bytes, {over:.3} times the lower bound: {bound}", format::exact(p.bytes));
        let time = (format::micros(p.us), format!("{:.1} µs to plan", p.us));
        columns_ui(ui, &p.name, p.chosen, [(Bytes(p.bytes).to_string(), exact), time]);
    }
    title_ui(ui, &format!("Precisions, planned for an {}", found.gpu));
    weak_ui(ui, "The size of the arena, and the least time of the step by the data sheet.");
    for p in &found.precisions {
        if let Some(why) = &p.error {
            columns_ui(ui, p.name, false, [("no plan".into(), why.clone()), ("–".into(), why.clone())]);
            continue;
        }
        let bytes = format!("{} bytes, {} ops", format::exact(p.arena_bytes), p.ops);
        let floor = (format::micros(p.floor_us), "The least time of the step by the data sheet's rates".to_owned());
        columns_ui(ui, p.name, false, [(Bytes(p.arena_bytes).to_string(), bytes), floor]);
    }
}

fn tried_ui(ui: &mut Ui, arena: &ArenaView) {
    title_ui(ui, "Planners tried");
    for attempt in &arena.attempts {
        let name = attempt.planner.replace('_', " ");
        let time = format::micros(attempt.micros as f64);
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            let text = RichText::new(name).size(12.0).color(if attempt.chosen {
                theme::colors(ui).text
            } else {
                theme::colors(ui).weak
            });
            if attempt.chosen {
                ui.label(RichText::new(icons::CHECK).size(12.0).color(theme::colors(ui).accent))
                    .on_hover_text("Chosen");
            }
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                ui.label(RichText::new(Bytes(attempt.bytes).to_string()).size(12.0))
                    .on_hover_text(format!("in {time}"));
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| ui.add(egui::Label::new(text).truncate()));
            });
        });
    }
}
