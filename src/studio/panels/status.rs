//! The status line.

use super::plan_changes::difference_ui;
use crate::studio::commands::{Command, Queue};
use crate::studio::icons;
use crate::studio::notice::Notice;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::view_models::status::{plan_text, recorded_text, run_text};
use crate::studio::widgets::button::{button_width, command_icon_ui, named, weak_ui};
use egui::{Align, Button, Label, Layout, RichText, Sense, Ui};

/// The room below which a notice comes instead of the plan.
const ROOM_FOR_BOTH: f32 = 560.0;

/// Shows the line: from the right the run, and in what is left of it the rest, cut where it does not fit.
pub fn status_ui(ui: &mut Ui, studio: &Studio, out: &mut Queue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 12.0;
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            weak_ui(ui, recorded_text(&studio.training, studio.devices.current().trains()));
            let run = run_text(&studio.training);
            if !run.is_empty() {
                weak_ui(ui, run);
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| left_ui(ui, studio, out));
        });
    });
}

fn left_ui(ui: &mut Ui, studio: &Studio, out: &mut Queue) {
    let c = theme::colors(ui);
    let room = ui.available_width();
    let problems = studio.problems();
    if problems > 0 {
        let noun = if problems == 1 { "problem" } else { "problems" };
        let text = RichText::new(format!("{}  {problems} {noun}", icons::WARNING)).size(12.0).color(c.error);
        let button = ui.add(Button::new(text).frame(false));
        let button = button.on_hover_text(Command::ShowProblem.tooltip(ui.ctx()));
        named(&button, &format!("{problems} {noun}"), true);
        if button.clicked() {
            out.push(Command::ShowProblem);
        }
    }
    if let Some(plan) = studio.plan.as_ref().filter(|_| studio.notice.is_none() || room >= ROOM_FOR_BOTH) {
        let stale = if studio.is_plan_stale() && problems > 0 { " (before the problem)" } else { "" };
        let text = format!("{}{stale}", plan_text(plan));
        ui.add(Label::new(RichText::new(text).size(12.0).color(c.weak)).truncate());
    }
    if let Some(notice) = &studio.notice {
        return notice_ui(ui, notice, out);
    }
    if let Some(difference) = studio.difference.as_ref().filter(|_| !studio.is_plan_outdated()) {
        difference_ui(ui, studio, difference, out);
    }
}

/// A notice in one line, cut where it does not fit, whole as its tooltip and where it is pressed; what can be done about it; and the sign that
/// dismisses it.
fn notice_ui(ui: &mut Ui, notice: &Notice, out: &mut Queue) {
    /// The sign with the space before it.
    const SIGN: f32 = 40.0;
    let c = theme::colors(ui);
    let color = if notice.is_error { c.error } else { c.text };
    let small = |text: String| RichText::new(text).size(12.0);
    let buttons: f32 = notice.actions.iter().map(|a| button_width(ui, small(a.title()))).sum();
    let room = (ui.available_width() - SIGN - buttons).max(SIGN);
    ui.scope(|ui| {
        ui.set_max_width(room);
        let label =
            Label::new(small(notice.line()).color(color)).truncate().selectable(false).show_tooltip_when_elided(false);
        let label = ui.add(label.sense(Sense::click())).on_hover_text(&notice.text);
        named(&label, &notice.line(), true);
        let label = label.on_hover_cursor(egui::CursorIcon::PointingHand);
        if label.clicked() {
            out.push(Command::ShowNotice);
        }
    });
    for action in &notice.actions {
        let title = action.title();
        let button = ui.add(Button::new(small(title.clone()))).on_hover_text(action.tooltip(ui.ctx()));
        named(&button, &title, true);
        if button.clicked() {
            out.push(action.clone());
        }
    }
    command_icon_ui(ui, Command::DismissNotice, true, out);
}
