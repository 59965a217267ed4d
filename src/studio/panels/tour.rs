//! The tour's card: it stands over the lower end of the inspector, where it hides neither the map nor the curves.

use crate::studio::commands::{Command, Queue};
use crate::studio::icons;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::tour::{TourMove, TourStep};
use crate::studio::widgets::button::{icon_ui, named, weak_ui};
use egui::{Align, Align2, Area, Button, Frame, Id, Layout, Margin, Order, RichText, Stroke, Ui, Vec2};

/// Shows the present step, where the tour runs.
pub fn tour_ui(ui: &Ui, studio: &Studio, out: &mut Queue) {
    let Some((step, done)) = studio.tour.shown() else { return };
    let c = theme::colors(ui);
    let frame = Frame::new()
        .fill(c.card)
        .stroke(Stroke::new(1.0, c.accent))
        .corner_radius(8)
        .inner_margin(Margin::same(14))
        .shadow(ui.visuals().window_shadow);
    let area =
        Area::new(Id::unique("tour")).order(Order::Foreground).anchor(Align2::RIGHT_BOTTOM, Vec2::new(-6.0, -40.0));
    area.show(ui.ctx(), |ui| {
        frame.show(ui, |ui| {
            ui.set_width(216.0);
            card_ui(ui, studio, step, done, out);
        });
    });
}

fn card_ui(ui: &mut Ui, studio: &Studio, step: TourStep, done: bool, out: &mut Queue) {
    let c = theme::colors(ui);
    ui.horizontal(|ui| {
        weak_ui(ui, format!("Tour, {} of {}", step.number(), TourStep::ALL.len()));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let about = "Ends the tour for good; the Help menu starts it again";
            if icon_ui(ui, icons::CLOSE, "Dismiss the tour", about).clicked() {
                out.push(Command::Tour(TourMove::Dismiss));
            }
        });
    });
    ui.add(egui::Label::new(RichText::new(step.title()).font(theme::strong(15.0))).wrap());
    ui.add_space(4.0);
    let text = if done { step.praise() } else { step.text() };
    ui.horizontal_top(|ui| {
        if done {
            ui.label(RichText::new(icons::CHECK).color(c.accent));
        }
        ui.add(egui::Label::new(text).wrap());
    });
    if step == TourStep::Memory {
        ui.add_space(4.0);
        memory_ui(ui, studio);
    }
    ui.add_space(8.0);
    ui.horizontal(|ui| {
        if let (false, Some((label, command))) = (done, step.offer()) {
            let enabled = studio.is_enabled(&command);
            if ui.add_enabled(enabled, Button::new(label)).on_hover_text(command.info().about).clicked() {
                out.push(command);
            }
        }
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let last = step == TourStep::Edit;
            let label = if last {
                "Finish"
            } else if done {
                "Next"
            } else {
                "Skip"
            };
            let text = RichText::new(label).color(if done { c.on_accent } else { c.text });
            let button = Button::new(text).fill(if done { c.accent } else { c.card });
            let response = ui.add(button);
            named(&response, &format!("{label} this step of the tour"), true);
            if response.clicked() {
                out.push(Command::Tour(TourMove::Next));
            }
            for dot in TourStep::ALL.into_iter().rev() {
                let (rect, _) = ui.allocate_exact_size(Vec2::splat(8.0), egui::Sense::hover());
                let fill = if dot == step { c.accent } else { c.hairline };
                ui.painter().circle_filled(rect.center(), 3.0, fill);
            }
        });
    });
}

/// The largest buffer in words: a person knows what to look for.
fn memory_ui(ui: &mut Ui, studio: &Studio) {
    let Some(plan) = &studio.plan else { return };
    let Some(largest) = plan.arena.largest.first().and_then(|id| plan.arena.rect(*id)) else { return };
    let share = largest.bytes as f64 / plan.arena.arena_bytes.max(1) as f64;
    let share = crate::studio::view_models::format::percent(share);
    weak_ui(
        ui,
        format!("Here it is {}, {} and {share} of the arena.", largest.name, crate::tensor::Bytes(largest.bytes)),
    );
}
