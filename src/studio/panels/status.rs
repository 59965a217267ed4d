//! The status line.

use crate::studio::commands::{Command, Queue};
use crate::studio::icons;
use crate::studio::selection::Selection;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::view_models::status::{plan_text, recorded_text, run_text};
use crate::studio::widgets::button::{command_icon_ui, named, weak_ui};
use egui::{Align, Button, Layout, RichText, Ui};

/// Shows the line.
pub fn status_ui(ui: &mut Ui, studio: &Studio, out: &mut Queue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 12.0;
        let c = theme::colors(ui);
        let problems = studio.problems();
        if problems > 0 {
            let noun = if problems == 1 { "problem" } else { "problems" };
            let text = RichText::new(format!("{}  {problems} {noun}", icons::WARNING)).size(12.0).color(c.error);
            let button =
                ui.add(Button::new(text).frame(false)).on_hover_text("Shows the layer that causes the first one");
            named(&button, &format!("{problems} {noun}"), true);
            if let (true, Some(path)) = (button.clicked(), &studio.network.first_problem) {
                out.push(Command::Select(Selection::Layer(path.clone())));
            }
        }
        if let Some(plan) = &studio.plan {
            let stale = if studio.is_plan_stale() && problems > 0 { " (before the problem)" } else { "" };
            weak_ui(ui, format!("{}{stale}", plan_text(plan)));
        }
        if let Some(difference) = &studio.difference {
            ui.label(RichText::new(difference).size(12.0).color(c.text)).on_hover_text("What the last edit changed");
        }
        if let Some(notice) = &studio.notice {
            let color = if notice.is_error { c.error } else { c.text };
            let text = RichText::new(notice.text.lines().next().unwrap_or_default()).size(12.0).color(color);
            ui.add(egui::Label::new(text).truncate()).on_hover_text(&notice.text);
            command_icon_ui(ui, Command::DismissNotice, true, out);
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            weak_ui(ui, recorded_text(&studio.training));
            let run = run_text(&studio.training);
            if !run.is_empty() {
                weak_ui(ui, run);
            }
        });
    });
}
