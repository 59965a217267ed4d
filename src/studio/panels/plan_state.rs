//! What panels say where the network cannot be used yet, or where its plan is an older one.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::widgets::button::empty_ui;

/// Says why the network cannot be used yet, where it is not [`Readiness::Ready`].
pub(super) fn unready_ui(ui: &mut egui::Ui, readiness: Readiness, to: &str) {
    match readiness {
        Readiness::Ready => {}
        Readiness::Empty => {
            let next = "Press Add layer in the network at the left: what a layer does is said beside its name.";
            empty_ui(ui, &format!("Add a layer to {to}"), next);
        }
        Readiness::HasProblems => {
            let next = "The problems are marked in the network at the left, each with its remedy.";
            empty_ui(ui, &format!("Fix the network to {to}"), next);
        }
        Readiness::Compiling => {
            empty_ui(ui, "Compiling…", &format!("The network is being planned; then you can {to}."));
        }
        Readiness::DeviceAbsent => {
            let next = "The chosen one is not here: it can only be planned for.";
            empty_ui(ui, &format!("Choose a device to {to}"), next);
        }
    }
}

/// Says that what follows is of the network before its problem, and draws it faintly; nothing where it is of the
/// network on screen.
pub(super) fn outdated_ui(ui: &mut egui::Ui, is_outdated: bool, commands: &mut CommandQueue) {
    /// How much of their colour things keep that are of an older network.
    const FAINT: f32 = 0.45;
    if !is_outdated {
        return;
    }
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let color = theme::colors(ui).warning;
        let text = format!("{}  The network has a problem. What is shown here is the step before it.", icons::WARNING);
        ui.label(egui::RichText::new(text).size(12.0).color(color));
        if ui.button("Show the problem").on_hover_text(UiCommand::ShowProblem.info().about).clicked() {
            commands.push(UiCommand::ShowProblem);
        }
    });
    ui.add_space(4.0);
    ui.set_opacity(FAINT);
}
