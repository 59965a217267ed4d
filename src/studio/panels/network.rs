//! The network panel: what comes in, the layers as cards, and how they are trained.

use super::layer_card::card_ui;
use crate::model::LayerPath;
use crate::studio::commands::{Command, Queue};
use crate::studio::document::Edit;
use crate::studio::fields::counted;
use crate::studio::icons;
use crate::studio::selection::Selection;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::view_models::format;
use crate::studio::view_models::network::Section;
use crate::studio::widgets::button::{command_icon_ui, weak_ui};
use crate::studio::widgets::field::{Drafts, FieldLayout, field_ui, problem_ui};
use egui::{Align, Button, Layout, RichText, ScrollArea, Sense, Stroke, Ui, Vec2};
use std::collections::HashMap;

/// What the panel remembers.
#[derive(Default)]
pub struct NetworkPanel {
    /// Heights of the cards as last drawn: those out of view are not laid out. A stale one is put right when its card comes into view.
    heights: HashMap<LayerPath, f32>,
    /// The selection that was last brought into view.
    shown: Selection,
}

/// A layer that is being dragged.
#[derive(Clone, Debug)]
pub struct Dragged(pub LayerPath);

/// Where a dragged layer would land.
#[derive(Clone, Debug, PartialEq)]
pub struct Landing {
    pub parent: LayerPath,
    pub index: usize,
}

/// Shows the panel.
pub fn network_ui(ui: &mut Ui, studio: &Studio, panel: &mut NetworkPanel, drafts: &mut Drafts, out: &mut Queue) {
    let view = &studio.network;
    ui.horizontal(|ui| {
        ui.label(RichText::new("Network").font(theme::strong(13.0)));
        weak_ui(ui, format!("{} · {} params", counted(view.cards.len(), "layer"), format::count(view.params as f64)));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            command_icon_ui(ui, Command::AddLayer, true, out);
        });
    });
    ui.separator();
    ScrollArea::vertical().id_salt("network").auto_shrink([false, false]).show(ui, |ui| {
        ui.spacing_mut().item_spacing.y = 4.0;
        for p in &view.general {
            problem_ui(ui, &p.message, &p.help);
        }
        if let Some(section) = view.sections.first() {
            section_ui(ui, section, drafts, out);
        }
        cards_ui(ui, studio, panel, drafts, out);
        ui.add_space(8.0);
        for section in view.sections.iter().skip(1) {
            section_ui(ui, section, drafts, out);
        }
        ui.add_space(16.0);
    });
}

pub(super) fn section_ui(ui: &mut Ui, section: &Section, drafts: &mut Drafts, out: &mut Queue) {
    ui.add_space(4.0);
    ui.label(RichText::new(section.title).font(theme::strong(12.0)).color(theme::colors(ui).weak));
    let layout = FieldLayout { label_width: 104.0, width: ui.available_width() };
    for field in &section.fields {
        let own = section.problems.iter().filter(|p| p.field == field.name);
        let is_wrong = own.clone().next().is_some();
        field_ui(ui, field, field.label, is_wrong, layout, drafts, out);
        for p in own {
            problem_ui(ui, &p.message, &p.help);
        }
    }
    let known = |p: &&crate::studio::view_models::network::Problem| !section.fields.iter().any(|f| f.name == p.field);
    for p in section.problems.iter().filter(known) {
        problem_ui(ui, &p.message, &p.help);
    }
}

fn cards_ui(ui: &mut Ui, studio: &Studio, panel: &mut NetworkPanel, drafts: &mut Drafts, out: &mut Queue) {
    let view = &studio.network;
    ui.add_space(4.0);
    ui.label(RichText::new("Layers").font(theme::strong(12.0)).color(theme::colors(ui).weak));
    if view.cards.is_empty() {
        weak_ui(ui, "No layers yet. Add the first one.");
    }
    let width = ui.available_width();
    let selected = studio.selection.current();
    let wanted = match selected {
        Selection::Layer(path) if panel.shown != *selected => Some(path.clone()),
        _ => None,
    };
    let mut landing = None;
    for card in &view.cards {
        let known = panel.heights.get(&card.path).copied();
        let top = ui.cursor().min;
        let bring = wanted.as_ref() == Some(&card.path);
        if let Some(height) = known {
            let rect = egui::Rect::from_min_size(top, Vec2::new(width, height));
            if bring {
                ui.scroll_to_rect(rect, None);
            }
            if !ui.is_rect_visible(rect) {
                ui.allocate_exact_size(Vec2::new(width, height), Sense::hover());
                continue;
            }
        }
        let related = studio.related.layers.contains(&card.path);
        let rect = card_ui(ui, card, *selected == Selection::Layer(card.path.clone()), related, drafts, out);
        panel.heights.insert(card.path.clone(), rect.height());
        if bring && known.is_none() {
            ui.scroll_to_rect(rect, None);
        }
        landing = landing.or_else(|| land_ui(ui, card, rect));
    }
    panel.shown = selected.clone();
    let c = theme::colors(ui);
    let add = Button::new(RichText::new(format!("{}  Add layer…", icons::ADD)).color(c.accent))
        .min_size(Vec2::new(width, 28.0))
        .frame(false);
    let response = ui.add(add).on_hover_text(Command::AddLayer.tooltip(ui.ctx()));
    crate::studio::widgets::button::named(&response, "Add layer at the end", true);
    if response.clicked() {
        out.push(Command::Select(Selection::Nothing));
        out.push(Command::AddLayer);
    }
    drop_ui(ui, landing, out);
}

/// Where the pointer, with a layer in hand, would put it: before or behind this card, or into it where it is an empty block.
fn land_ui(ui: &Ui, card: &crate::studio::view_models::network::Card, rect: egui::Rect) -> Option<Landing> {
    let dragged = egui::DragAndDrop::payload::<Dragged>(ui.ctx())?;
    let pos = ui.input(|i| i.pointer.interact_pos())?;
    if !rect.expand2(Vec2::new(0.0, 2.0)).contains(pos) || card.path.0.starts_with(&dragged.0.0) {
        return None;
    }
    let (parent, index) = crate::studio::document::split_path(&card.path);
    let c = theme::colors(ui);
    if card.children.is_some() && pos.y > rect.top() + rect.height() * 0.35 {
        ui.painter().rect_stroke(rect.shrink(1.0), 4, Stroke::new(2.0, c.accent), egui::StrokeKind::Inside);
        return Some(Landing { parent: card.path.clone(), index: 0 });
    }
    let behind = pos.y > rect.center().y;
    let y = if behind { rect.bottom() + 2.0 } else { rect.top() - 2.0 };
    ui.painter().hline(rect.x_range(), y, Stroke::new(2.0, c.accent));
    Some(Landing { parent, index: index + usize::from(behind) })
}

fn drop_ui(ui: &Ui, landing: Option<Landing>, out: &mut Queue) {
    if !ui.input(|i| i.pointer.any_released()) {
        return;
    }
    if let (Some(landing), Some(dragged)) = (landing, egui::DragAndDrop::take_payload::<Dragged>(ui.ctx())) {
        out.push(Command::Edit(Edit::Move { from: dragged.0.clone(), parent: landing.parent, index: landing.index }));
    }
}
