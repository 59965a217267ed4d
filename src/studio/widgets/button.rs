//! Buttons and small symbols.

use crate::ir::{Phase, Role};
use crate::studio::commands::shortcut_text::keys_text;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::view_models::step_graph::letter;
use egui::{Align2, Button, FontId, Response, RichText, Sense, Ui, Vec2};

/// A button that shows only an icon; `name` is the name for assistive tools.
pub fn icon_ui(ui: &mut Ui, icon: &str, name: &str, tooltip: &str) -> Response {
    let response = ui.add(Button::new(RichText::new(icon).size(14.0)).frame(false).min_size(Vec2::splat(24.0)));
    named(&response, name, ui.is_enabled());
    response.on_hover_text(tooltip)
}

/// Sets the name of a control for assistive tools.
pub fn named(response: &Response, name: &str, enabled: bool) {
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, enabled, name));
}

/// A command as a button with only its icon.
pub fn command_icon_ui(ui: &mut Ui, command: UiCommand, enabled: bool, commands: &mut CommandQueue) -> Response {
    let info = command.info();
    let tooltip = command.tooltip(ui.ctx());
    let response = ui.add_enabled_ui(enabled, |ui| icon_ui(ui, info.icon, info.label, &tooltip)).inner;
    if response.clicked() {
        commands.push(command);
    }
    response
}

/// A command as a button with icon and name.
pub fn command_ui(ui: &mut Ui, command: UiCommand, enabled: bool, commands: &mut CommandQueue) -> Response {
    let info = command.info();
    let tooltip = command.tooltip(ui.ctx());
    let text = format!("{}  {}", info.icon, info.label);
    let response = ui.add_enabled(enabled, Button::new(text)).on_hover_text(tooltip);
    named(&response, info.label, enabled);
    if response.clicked() {
        commands.push(command);
    }
    response
}

/// A command below the text of an empty panel, as the next action.
pub fn below_empty_ui(ui: &mut Ui, command: UiCommand, commands: &mut CommandQueue) {
    ui.vertical_centered(|ui| {
        ui.add_space(8.0);
        command_ui(ui, command, true, commands);
    });
}

/// The width of a button with this text, including the space after it.
#[must_use]
pub fn button_width(ui: &Ui, text: impl Into<egui::WidgetText>) -> f32 {
    let wrap = Some(egui::TextWrapMode::Extend);
    let galley = text.into().into_galley(ui, wrap, f32::INFINITY, egui::TextStyle::Button);
    galley.size().x + 2.0 * ui.spacing().button_padding.x + ui.spacing().item_spacing.x
}

/// The answers of a dialog in one line at its right end, in the order of the Tab key. `given` is called for each button
/// as it is shown, and returns whether it was chosen; returns the chosen one.
pub fn answers_ui(ui: &mut Ui, answers: &[&str], mut given: impl FnMut(Response, usize) -> bool) -> Option<usize> {
    ui.horizontal(|ui| {
        let width: f32 = answers.iter().map(|text| button_width(ui, *text)).sum();
        ui.add_space((ui.available_width() - width + ui.spacing().item_spacing.x).max(0.0));
        let mut chosen = None;
        for (n, text) in answers.iter().enumerate() {
            chosen = Some(n).filter(|_| given(ui.button(*text), n)).or(chosen);
        }
        chosen
    })
    .inner
}

/// A command as a menu entry with its shortcut.
pub fn command_menu_ui(ui: &mut Ui, command: UiCommand, label: &str, enabled: bool, commands: &mut CommandQueue) {
    let info = command.info();
    let mut button = Button::new(format!("{}   {label}", info.icon));
    if let Some(keys) = info.shortcut {
        button = button.shortcut_text(keys_text(ui.ctx(), &keys));
    }
    let response = ui.add_enabled(enabled, button).on_hover_text(info.about).on_disabled_hover_text(info.about);
    named(&response, label, enabled);
    if response.clicked() {
        commands.push(command);
        ui.close();
    }
}

/// A line of text to type, with a hint; `name` is the name for assistive tools, regardless of the hint.
pub fn text_line_ui(ui: &mut Ui, text: &mut String, name: &str, hint: &str, width: f32) -> Response {
    let edit = egui::TextEdit::singleline(text).hint_text(hint).desired_width(width).id_salt(name);
    let response = ui.add(edit);
    ui.ctx().accesskit_node_builder(response.id, |node| node.set_label(name.to_owned()));
    response
}

/// A slider of this width, with a name for assistive tools.
pub fn slider_ui(ui: &mut Ui, slider: egui::Slider<'_>, name: &str, width: f32) -> Response {
    ui.scope(|ui| {
        ui.spacing_mut().slider_width = width;
        ui.spacing_mut().slider_rail_height = 4.0;
        // The rail has the fill of a control, which equals the background here.
        ui.visuals_mut().widgets.inactive.bg_fill = theme::colors(ui).hairline;
        ui.name_inputs(name, |ui| ui.add(slider))
    })
    .inner
}

/// A phase: its step of the lightness ramp, with its letter.
pub fn phase_ui(ui: &mut Ui, phase: Phase) -> Response {
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(16.0), Sense::hover());
    let (fill, text) = theme::colors(ui).phase(phase);
    ui.painter().rect_filled(rect, 3, fill);
    ui.painter().text(rect.center(), Align2::CENTER_CENTER, letter(phase), FontId::proportional(11.0), text);
    response.on_hover_text(phase_legend(phase))
}

/// A phase's name, and the meaning of every letter.
#[must_use]
pub fn phase_legend(phase: Phase) -> String {
    let all = Phase::ALL.map(|p| format!("{} {}", letter(p), p.name()));
    format!("{}\n\nPhases of a step: {}", phase.name(), all.join(", "))
}

/// A role's colour as a small square.
pub fn role_ui(ui: &mut Ui, role: Role) {
    let (rect, response) = ui.allocate_exact_size(Vec2::splat(10.0), Sense::hover());
    ui.painter().rect_filled(rect, 2, theme::role(role));
    response.on_hover_text(role.name());
}

/// Weak text.
pub fn weak_ui(ui: &mut Ui, text: impl Into<String>) -> Response {
    let color = theme::colors(ui).weak;
    ui.label(RichText::new(text).size(12.0).color(color))
}

/// An empty state: what is missing and what to do next.
pub fn empty_ui(ui: &mut Ui, title: &str, next: &str) {
    ui.vertical_centered(|ui| {
        ui.add_space((ui.available_height() * 0.35).min(180.0));
        ui.label(RichText::new(title).font(theme::strong(15.0)));
        weak_ui(ui, next);
    });
}
