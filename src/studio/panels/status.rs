//! The status line.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::jobs::jobs_ui;
use crate::studio::panels::plan_changes::difference_ui;
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::notice::Notice;
use crate::studio::view_models::panels::status::StatusView;
use crate::studio::widgets::button::{button_width, command_icon_ui, named, weak_ui};
use egui::{Align, Button, Label, Layout, RichText, Sense, Ui};

/// The smallest width of the plan, in points, and the largest width of a notice that shares a line.
const ROOM_FOR_PLAN: f32 = 240.0;
const ROOM_FOR_NOTICE: f32 = 560.0;
/// The width of the window below which a job replaces the text about the recording.
const ROOM_FOR_ALL: f32 = 1200.0;

/// The button that dismisses a notice, with the space before it.
const SIGN: f32 = 40.0;

/// Shows the line: from the right the run and the background jobs, and in the remaining space the rest, shortened if it
/// does not fit. The changes of an edit and a notice are both shown; the notice gets a separate line if both do not
/// fit.
pub fn status_ui(ui: &mut Ui, view: &StatusView<'_>, panel: &mut StatusPanel, commands: &mut CommandQueue) {
    let own_line = view.notice.filter(|_| panel.needs_two_lines);
    if let Some(notice) = own_line {
        ui.horizontal(|ui| notice_ui(ui, notice, commands));
    }
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 12.0;
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let jobs = view.jobs;
            if jobs.is_empty() || ui.ctx().content_rect().width() >= ROOM_FOR_ALL {
                weak_ui(ui, view.recorded.as_str());
            }
            if !view.run.is_empty() {
                weak_ui(ui, view.run.as_str());
            }
            if !jobs.is_empty() {
                ui.scope(|ui| jobs_ui(ui, jobs, commands));
            }
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                let notice = view.notice.filter(|_| own_line.is_none());
                let difference = view.difference.filter(|_| !view.is_plan_outdated);
                let room = ui.available_width();
                let both = view.notice.zip(difference.map(|d| d.text));
                panel.needs_two_lines = both.is_some_and(|(n, d)| difference_width(ui, d) + notice_width(ui, n) > room);
                left_ui(ui, view, notice, commands);
            });
        });
    });
    if own_line.is_some() != (panel.needs_two_lines && view.notice.is_some()) {
        // The next frame adds the missing line, or removes the unnecessary one.
        ui.ctx().request_repaint();
    }
}

/// The state of the status line.
#[derive(Default)]
pub struct StatusPanel {
    /// True if a notice and the changes of an edit do not fit side by side.
    needs_two_lines: bool,
}

/// The width of a difference.
fn difference_width(ui: &Ui, difference: &str) -> f32 {
    button_width(ui, small(difference))
}

/// The width of a notice in a line that it shares.
fn notice_width(ui: &Ui, notice: &Notice) -> f32 {
    let buttons: f32 = notice.actions.iter().map(|a| button_width(ui, small(a.title()))).sum();
    (button_width(ui, small(notice.line())) + buttons + SIGN).min(ROOM_FOR_NOTICE)
}

/// A text in the line.
fn small(text: impl Into<String>) -> RichText {
    RichText::new(text).size(12.0)
}

/// The mistakes, the plan, the difference and the notice, as far as they fit: the plan is shortened first.
fn left_ui(ui: &mut Ui, view: &StatusView<'_>, notice: Option<&Notice>, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let problems = view.problems;
    if problems > 0 {
        let noun = if problems == 1 { "problem" } else { "problems" };
        let text = RichText::new(format!("{}  {problems} {noun}", icons::WARNING)).size(12.0).color(c.error);
        let button = ui.add(Button::new(text).frame(false));
        let button = button.on_hover_text(UiCommand::ShowProblem.tooltip(ui.ctx()));
        named(&button, &format!("{problems} {noun}"), true);
        if button.clicked() {
            commands.push(UiCommand::ShowProblem);
        }
    }
    let difference = view.difference;
    let wanted = difference.map_or(0.0, |d| difference_width(ui, d.text)) + notice.map_or(0.0, |n| notice_width(ui, n));
    let for_plan = ui.available_width() - wanted;
    if let Some(plan) = view.plan.as_deref().filter(|_| wanted == 0.0 || for_plan >= ROOM_FOR_PLAN) {
        ui.scope(|ui| {
            ui.set_max_width(for_plan.max(ROOM_FOR_PLAN));
            ui.add(Label::new(RichText::new(plan).size(12.0).color(c.weak)).truncate());
        });
    }
    if let Some(difference) = difference {
        difference_ui(ui, &difference, commands);
    }
    if let Some(notice) = notice {
        notice_ui(ui, notice, commands);
    }
}

/// A notice in one line, shortened if it does not fit, with the whole text as its tooltip and on a click; the actions
/// for it; and the button that dismisses it.
fn notice_ui(ui: &mut Ui, notice: &Notice, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let color = if notice.is_error { c.error } else { c.text };
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
            commands.push(UiCommand::ShowNotice);
        }
    });
    for action in &notice.actions {
        let title = action.title();
        let button = ui.add(Button::new(small(title.clone()))).on_hover_text(action.tooltip(ui.ctx()));
        named(&button, &title, true);
        if button.clicked() {
            commands.push(action.clone());
        }
    }
    command_icon_ui(ui, UiCommand::DismissNotice, true, commands);
}
