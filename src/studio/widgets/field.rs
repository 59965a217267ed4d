//! The editor of one field: text, switch or choice, in place.
//!
//! An invalid text is kept while it is being typed, with a message below it about what is allowed; the document
//! receives only valid values.

use crate::model::LayerPath;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::document::edit::Edit;
use crate::studio::document::fields::value::{Field, FieldValue, Owner};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::widgets::button::weak_ui;
use crate::studio::widgets::keyboard::layers_id;
use egui::text::{CCursor, CCursorRange};
use egui::{Align, ComboBox, Key, Layout, Response, RichText, Stroke, TextEdit, Ui, Vec2};
use std::collections::HashMap;

/// A text that is being typed.
#[derive(Clone, Debug)]
struct Draft {
    text: String,
    /// The document's value when the text was last compared with it.
    base: FieldValue,
    error: Option<&'static str>,
}

/// The texts that differ from what the document would print.
#[derive(Debug, Default)]
pub struct Drafts(HashMap<(Owner, &'static str), Draft>);

/// What fields are edited with: their unfinished texts, and the queue of commands.
pub struct Editing<'a> {
    pub drafts: &'a mut Drafts,
    pub commands: &'a mut CommandQueue,
}

impl Drafts {
    /// Fields with an invalid text.
    #[must_use]
    pub fn mistakes(&self) -> usize {
        self.0.values().filter(|d| d.error.is_some()).count()
    }

    /// True if the text of this field is invalid.
    #[must_use]
    pub fn is_mistake(&self, owner: &Owner, name: &'static str) -> bool {
        self.0.get(&(owner.clone(), name)).is_some_and(|d| d.error.is_some())
    }

    /// The first layer with an invalid text in a field.
    #[must_use]
    pub fn first_layer(&self) -> Option<LayerPath> {
        let layers = self.0.iter().filter(|(_, d)| d.error.is_some()).filter_map(|((owner, _), _)| match owner {
            Owner::Layer(path) => Some(path),
            Owner::List(list) => Some(&list.block),
            Owner::Preset | Owner::Input(_) | Owner::Source(_) => None,
        });
        layers.min_by(|a, b| a.0.cmp(&b.0)).cloned()
    }

    /// Discards every text.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Discards the texts of layers, because their paths have changed.
    pub fn forget_layers(&mut self) {
        self.0.retain(|(owner, _), _| !matches!(owner, Owner::Layer(_)));
    }
}

/// How a field is shown.
#[derive(Clone, Copy, Debug)]
pub struct FieldOptions<'a> {
    /// The name for assistive tools.
    pub name: &'a str,
    /// Marks it as the cause of a mistake.
    pub is_wrong: bool,
    pub label_width: f32,
    pub width: f32,
    /// Gives the keyboard focus to the field.
    pub is_entered: bool,
}

/// Shows one field.
pub fn field_ui(ui: &mut Ui, field: &Field, options: FieldOptions<'_>, editing: &mut Editing<'_>) {
    let row = Layout::left_to_right(Align::Center);
    let error = ui
        .allocate_ui_with_layout(Vec2::new(options.width, 24.0), row, |ui| {
            ui.set_min_width(options.width);
            ui.spacing_mut().item_spacing.x = 4.0;
            ui.allocate_ui_with_layout(Vec2::new(options.label_width, 24.0), row, |ui| {
                ui.set_min_width(options.label_width);
                let text = RichText::new(&*field.title()).size(12.0).color(theme::colors(ui).weak);
                ui.add(egui::Label::new(text).truncate().show_tooltip_when_elided(false)).on_hover_text(field.help);
            });
            editor_ui(ui, field, options, editing)
        })
        .inner;
    if let Some(error) = error {
        problem_ui(ui, error, "");
    }
}

/// Shows only the editor; returns what is wrong with the text.
fn editor_ui(ui: &mut Ui, field: &Field, options: FieldOptions<'_>, editing: &mut Editing<'_>) -> Option<&'static str> {
    let set = |value| UiCommand::Edit(Edit::SetField { owner: field.owner.clone(), name: field.name, value });
    let enter = |response: &Response| options.is_entered.then(|| response.request_focus());
    match field.value {
        FieldValue::Flag(mut flag) => {
            let response = ui.checkbox(&mut flag, "").on_hover_text(field.help);
            response.widget_info(|| egui::WidgetInfo::selected(egui::Role::CheckBox, true, flag, options.name));
            if response.changed() {
                editing.commands.push(set(FieldValue::Flag(flag)));
            }
            enter(&response);
            None
        }
        FieldValue::Choice(chosen) => {
            let shown = field.options.get(chosen).copied().unwrap_or_default();
            let width = ui.available_width();
            ui.spacing_mut().button_padding.x = 6.0;
            ui.spacing_mut().icon_width = 12.0;
            let combo = ComboBox::from_id_salt(("choice", &field.owner, field.name))
                .width(width)
                .truncate()
                .selected_text(shown);
            let response = combo.show_ui(ui, |ui| {
                for (index, option) in field.options.iter().enumerate() {
                    if ui.selectable_label(index == chosen, *option).clicked() {
                        editing.commands.extend((index != chosen).then(|| set(FieldValue::Choice(index))));
                        // A choice by keyboard closes the list, like one by the pointer.
                        ui.close();
                    }
                }
            });
            response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, options.name));
            enter(&response.response);
            response.response.on_hover_text(field.help);
            None
        }
        _ => {
            let mut save = |value| editing.commands.push(set(value));
            let (response, error) = text_ui(ui, field, options, editing.drafts, &mut save);
            enter(&response);
            error
        }
    }
}

fn text_ui(
    ui: &mut Ui,
    field: &Field,
    options: FieldOptions<'_>,
    drafts: &mut Drafts,
    set: &mut dyn FnMut(FieldValue),
) -> (Response, Option<&'static str>) {
    let key = (field.owner.clone(), field.name);
    let draft = drafts.0.get(&key).filter(|d| d.base == field.value);
    let mut text = draft.map_or_else(|| field.value.text(), |d| d.text.clone());
    let error = draft.and_then(|d| d.error);
    if draft.is_none() {
        // The document was changed by other means, such as undo: its value is used.
        drafts.0.remove(&key);
    }
    if options.is_wrong || error.is_some() {
        mark_wrong(ui);
    }
    let font =
        if matches!(field.value, FieldValue::Text(_)) { egui::FontId::proportional(13.0) } else { theme::mono() };
    let width = ui.available_width();
    let edit =
        TextEdit::singleline(&mut text).id_salt(("text", &field.owner, field.name)).font(font).desired_width(width);
    let edit = edit.hint_text(empty_hint(&field.value));
    let edit =
        edit.margin(egui::Margin::symmetric(6, 2)).min_size(Vec2::new(0.0, 24.0)).align(egui::Align2::LEFT_CENTER);
    let mut shown = ui.name_inputs(options.name, |ui| edit.show(ui));
    let response = shown.response.response.on_hover_text(field.help);
    // Otherwise the hint would become the name.
    ui.ctx().accesskit_node_builder(response.id, |node| node.set_label(options.name.to_owned()));
    let by_pointer = ui.input(|i| i.pointer.any_down() || i.pointer.any_released());
    if options.is_entered || (response.gained_focus() && !by_pointer) {
        // A user who reaches the field by keyboard wants to replace the value: typing replaces it.
        let all = CCursorRange::two(CCursor::default(), CCursor::new(text.chars().count()));
        shown.state.cursor.set_char_range(Some(all));
        shown.state.store(ui.ctx(), response.id);
    }
    if response.changed() {
        let parsed = field.value.parse(&text);
        let (base, error) = match parsed {
            Ok(value) => {
                set(value.clone());
                (value, None)
            }
            Err(error) => (field.value.clone(), Some(error)),
        };
        drafts.0.insert(key, Draft { text, base, error });
        return (response, error);
    }
    if response.lost_focus() && error.is_none() {
        drafts.0.remove(&key);
    }
    let is_done = |i: &egui::InputState| i.key_pressed(Key::Enter) || i.key_pressed(Key::Escape);
    if response.lost_focus() && matches!(field.owner, Owner::Layer(_) | Owner::List(_)) && ui.input(is_done) {
        // The focus returns to the list, whose keys continue from this layer.
        ui.memory_mut(|m| m.request_focus(layers_id()));
    }
    (response, error)
}

/// The meaning of an empty text.
const fn empty_hint(value: &FieldValue) -> &'static str {
    match value {
        FieldValue::Choose(_) => "every step the same",
        FieldValue::Lengths(_) => "all of one length",
        _ => "",
    }
}

/// Moves the next field below the line of a mistake.
fn mark_wrong(ui: &mut Ui) {
    let line = Stroke::new(1.0, theme::colors(ui).error);
    let w = &mut ui.visuals_mut().widgets;
    for state in [&mut w.inactive, &mut w.hovered, &mut w.active] {
        state.bg_stroke = line;
    }
    ui.visuals_mut().selection.stroke = line;
}

/// A mistake with what to do about it.
pub fn problem_ui(ui: &mut Ui, message: &str, help: &str) {
    let c = theme::colors(ui);
    ui.scope(|ui| {
        // The first of several lines is as high as the other fields.
        ui.spacing_mut().interact_size.y = 14.0;
        ui.horizontal_wrapped(|ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            ui.label(RichText::new(icons::WARNING).size(12.0).color(c.error));
            ui.label(RichText::new(format!("{message}{}", joint(message, help))).size(12.0).color(c.error));
            if !help.is_empty() {
                weak_ui(ui, help);
            }
        });
    });
}

/// The separator between a message and its help: a full stop if the help is a sentence.
fn joint(message: &str, help: &str) -> &'static str {
    match help.chars().next() {
        Some(first) if !message.ends_with(['.', ';', ':', '!', '?']) => {
            if first.is_uppercase() {
                "."
            } else {
                ";"
            }
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_and_its_help_are_separated() {
        assert_eq!(
            [joint("found 3", "give 4"), joint("found 3", "Give 4."), joint("Found 3.", "Give 4.")],
            [";", ".", ""]
        );
        assert_eq!(joint("found 3", ""), "");
    }
}
