//! Background jobs in the status line: the name, the progress, and a button that cancels the job.

use crate::studio::commands::CommandQueue;
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::job::Job;
use crate::studio::widgets::button::{named, weak_ui};
use egui::{Button, Popup, PopupCloseBehavior, RichText, Sense, Shape, Stroke, Ui, Vec2};
use std::f32::consts::TAU;

/// Shows the first job, and the number of the others, which a click lists. Drawn from the right.
pub fn jobs_ui(ui: &mut Ui, jobs: &[Job], commands: &mut CommandQueue) {
    let Some((first, others)) = jobs.split_first() else { return };
    if !others.is_empty() {
        let button = ui.add(Button::new(RichText::new(format!("+{}", others.len())).size(12.0)));
        named(&button, "Other jobs in the background", true);
        let button = button.on_hover_text("Other jobs in the background");
        Popup::menu(&button).close_behavior(PopupCloseBehavior::CloseOnClickOutside).show(|ui| {
            ui.set_min_width(220.0);
            for job in others {
                ui.horizontal(|ui| {
                    ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| job_ui(ui, job, commands));
                });
            }
        });
    }
    job_ui(ui, first, commands);
}

/// One job, drawn from the right.
fn job_ui(ui: &mut Ui, job: &Job, commands: &mut CommandQueue) {
    ui.spacing_mut().item_spacing.x = 6.0;
    match job.cancel() {
        Some(cancel) => {
            let sign = RichText::new(icons::CLOSE).size(12.0);
            let button = ui.add(Button::new(sign).frame(false).min_size(Vec2::splat(18.0)));
            named(&button, &format!("Cancel: {}", job.name), true);
            if button.on_hover_text(cancel.info().about).clicked() {
                commands.push(cancel);
            }
        }
        None => drop(ui.allocate_exact_size(Vec2::new(0.0, 18.0), Sense::hover())),
    }
    let label = weak_ui(ui, job.title());
    let name = format!("Job: {}", job.title());
    label.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &name));
    progress_ui(ui, job.progress);
}

/// The progress as a part of a circle; if it is not known, a rotating arc. It does not request frames, because the
/// window is drawn often enough while a job runs.
fn progress_ui(ui: &mut Ui, progress: Option<f32>) {
    const POINTS: usize = 24;
    let (rect, _) = ui.allocate_exact_size(Vec2::splat(12.0), Sense::hover());
    let c = theme::colors(ui);
    let radius = rect.width() / 2.0 - 1.5;
    ui.painter().circle_stroke(rect.center(), radius, Stroke::new(2.0, c.hairline));
    let (from, part) = match progress {
        Some(share) => (0.0, share.clamp(0.02, 1.0)),
        None => (ui.input(|i| i.time).rem_euclid(1.5) as f32 / 1.5, 0.25),
    };
    let at = |i: usize| {
        let turn = (from + part * i as f32 / POINTS as f32) * TAU;
        rect.center() + radius * Vec2::new(turn.sin(), -turn.cos())
    };
    ui.painter().add(Shape::line((0..=POINTS).map(at).collect(), Stroke::new(2.0, c.accent)));
}
