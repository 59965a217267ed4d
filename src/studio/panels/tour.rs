//! The tour's card, beside the parts that its step explains and never over them.

use crate::studio::commands::choices::TourMove;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format::percent;
use crate::studio::view_models::panels::tour::TourView;
use crate::studio::view_models::tour::TourStep;
use crate::studio::widgets::button::{icon_ui, named, weak_ui};
use crate::tensor::Bytes;
use egui::{Align, Align2, Area, Button, Frame, Id, Layout, Margin, Order, Pos2, Rect, RichText, Stroke, Ui, Vec2};

/// The rectangles of the parts of the window in this frame; a hidden panel has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    pub network: Option<Rect>,
    pub middle: Rect,
    pub inspector: Option<Rect>,
}

/// The width of the card's content, and its margin on each side, in points.
const WIDTH: f32 = 216.0;
const MARGIN: f32 = 14.0;
/// The space between the card and the edge of its part.
const GAP: f32 = 6.0;

/// The corner of the card that is fixed, its position, and the width of the content. The card of each step is not over
/// the parts that the step explains:
///
/// - *Train*: the button at the upper right and the curves. The card is at the lower end of the inspector, whose head
///   describes the network, otherwise at the lower end of the network panel.
/// - *Memory*: the map and the inspector, which names the owner. The card is at the lower end of the network panel.
/// - *Edit*: the network and the status line. The card is at the lower end of the inspector.
///
/// If the panel that should contain it is hidden, the card is at the lower end of the tabs.
fn place(step: TourStep, parts: &Parts) -> (Align2, Pos2, f32) {
    let Parts { network, middle, inspector } = *parts;
    let (part, corner) = match (step, network, inspector) {
        (TourStep::Train | TourStep::Edit, _, Some(part)) => (part, Align2::RIGHT_BOTTOM),
        (TourStep::Train | TourStep::Memory, Some(part), _) => (part, Align2::LEFT_BOTTOM),
        (TourStep::Memory, None, _) => (middle, Align2::LEFT_BOTTOM),
        (TourStep::Train | TourStep::Edit, ..) => (middle, Align2::RIGHT_BOTTOM),
    };
    let room = part.shrink(GAP);
    (corner, corner.pos_in_rect(&room), WIDTH.min(room.width() - 2.0 * MARGIN))
}

/// Shows the current step.
pub fn tour_ui(ui: &Ui, view: &TourView, parts: &Parts, commands: &mut CommandQueue) {
    let (corner, at, width) = place(view.step, parts);
    let c = theme::colors(ui);
    let frame = Frame::new()
        .fill(c.card)
        .stroke(Stroke::new(1.0, c.accent))
        .corner_radius(8)
        .inner_margin(Margin::same(MARGIN as i8))
        .shadow(ui.visuals().window_shadow);
    let area = Area::new(Id::unique("tour")).order(Order::Foreground).pivot(corner).fixed_pos(at);
    area.show(ui.ctx(), |ui| {
        frame.show(ui, |ui| {
            ui.set_width(width);
            card_ui(ui, view, commands);
        });
    });
}

fn card_ui(ui: &mut Ui, view: &TourView, commands: &mut CommandQueue) {
    let (step, done) = (view.step, view.is_done);
    let c = theme::colors(ui);
    ui.horizontal(|ui| {
        weak_ui(ui, format!("Tour, {} of {}", step.number(), TourStep::ALL.len()));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let about = "Ends the tour permanently; the Help menu starts it again";
            if icon_ui(ui, icons::CLOSE, "Dismiss the tour", about).clicked() {
                commands.push(UiCommand::Tour(TourMove::Dismiss));
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
        memory_ui(ui, view);
    }
    ui.add_space(8.0);
    ui.horizontal(|ui| {
        if let (false, Some((label, command))) = (done, step.offer())
            && ui.add_enabled(view.can_offer, Button::new(label)).on_hover_text(command.info().about).clicked()
        {
            commands.push(command);
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
                commands.push(UiCommand::Tour(TourMove::Next));
            }
            for dot in TourStep::ALL.into_iter().rev() {
                let (rect, _) = ui.allocate_exact_size(Vec2::splat(8.0), egui::Sense::hover());
                let fill = if dot == step { c.accent } else { c.hairline };
                ui.painter().circle_filled(rect.center(), 3.0, fill);
            }
        });
    });
}

/// Names the largest buffer, so that the user knows what to look for.
fn memory_ui(ui: &mut Ui, view: &TourView) {
    let Some(largest) = &view.largest else { return };
    let share = percent(largest.share);
    weak_ui(ui, format!("Here it is {}, {} and {share} of the arena.", largest.name, Bytes(largest.bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_never_covers_what_its_step_explains() {
        let rect = |x: f32, right: f32| Rect::from_min_max(Pos2::new(x, 36.0), Pos2::new(right, 670.0));
        let card = |step, parts: &Parts| {
            let (corner, at, width) = place(step, parts);
            // The highest card, with several lines of text.
            corner.anchor_size(at, Vec2::new(width + 2.0 * MARGIN, 260.0))
        };
        for [network, inspector] in [[340.0, 256.0], [264.0, 200.0], [480.0, 320.0]] {
            let parts = Parts {
                network: Some(rect(0.0, network)),
                middle: rect(network, 1280.0 - inspector),
                inspector: Some(rect(1280.0 - inspector, 1280.0)),
            };
            let (left, right) = (rect(0.0, network), rect(1280.0 - inspector, 1280.0));
            assert!(right.contains_rect(card(TourStep::Train, &parts)));
            let head = Rect::from_min_max(right.min, Pos2::new(1280.0, 236.0));
            assert!(!head.intersects(card(TourStep::Train, &parts)));
            assert!(left.contains_rect(card(TourStep::Memory, &parts)));
            assert!(right.contains_rect(card(TourStep::Edit, &parts)));
            // Without the inspector the map and the network are not covered.
            let narrow = Parts { middle: rect(network, 900.0), inspector: None, ..parts };
            assert!(left.contains_rect(card(TourStep::Train, &narrow)));
            assert!(left.contains_rect(card(TourStep::Memory, &narrow)));
            assert!(!left.intersects(card(TourStep::Edit, &narrow)));
        }
    }
}
