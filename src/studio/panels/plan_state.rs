//! Notes in panels if the network cannot be used yet, or if its plan is outdated.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::panels::plan::{PlanOnScreen, RecordingOnScreen};
use crate::studio::view_models::plan::PlanView;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::widgets::button::{below_empty_ui, empty_ui, weak_ui};

/// Says why the network cannot be used yet, if it is not [`Readiness::Ready`].
pub(super) fn unready_ui(ui: &mut egui::Ui, readiness: Readiness, to: &str, commands: &mut CommandQueue) {
    match readiness {
        Readiness::Ready => {}
        Readiness::Empty => {
            let next = "Press Add layer in the network at the left; each layer is described beside its name.";
            empty_ui(ui, &format!("Add a layer to {to}"), next);
        }
        Readiness::HasProblems => {
            let next = "The problems are marked in the network at the left, each with what to do.";
            empty_ui(ui, &format!("Fix the network to {to}"), next);
            below_empty_ui(ui, UiCommand::ShowProblem, commands);
        }
        Readiness::Compiling => {
            empty_ui(ui, "Compiling…", &format!("The network is being planned; then you can {to}."));
        }
        Readiness::DeviceAbsent => {
            let next = "This machine does not have the chosen device: networks can only be planned for it.";
            empty_ui(ui, &format!("Choose a device to {to}"), next);
        }
    }
}

/// Says why the network has no plan yet.
pub(super) fn unplanned_ui(ui: &mut egui::Ui, readiness: Readiness, to: &str, commands: &mut CommandQueue) {
    let why = match readiness {
        Readiness::Empty | Readiness::HasProblems => readiness,
        // A network is also planned for a device that is not here.
        Readiness::Ready | Readiness::Compiling | Readiness::DeviceAbsent => Readiness::Compiling,
    };
    unready_ui(ui, why, to, commands);
}

/// Says that the content below is not about the network as it is on screen, but about a recording, or about the network
/// before its mistakes.
pub(super) fn plan_head_ui(ui: &mut egui::Ui, view: &PlanOnScreen<'_>, commands: &mut CommandQueue) {
    if let Some(recording) = &view.recording {
        recording_ui(ui, recording, commands);
    }
    outdated_ui(ui, view, commands);
}

/// Says which recording is shown, with a button that returns to the network's own plan.
pub(super) fn recording_ui(ui: &mut egui::Ui, recording: &RecordingOnScreen<'_>, commands: &mut CommandQueue) {
    let colors = theme::colors(ui);
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        // The buttons of the inspector have no frames.
        ui.spacing_mut().button_padding = egui::Vec2::new(6.0, 2.0);
        let strong = egui::RichText::new(format!("Recording: {}", recording.name)).size(12.0).color(colors.accent);
        ui.label(strong).on_hover_text("What is shown here is the step of this recording of the run");
        if recording.is_planning {
            ui.add(egui::Spinner::new().size(12.0));
            weak_ui(ui, "planning its step");
        }
        let command = UiCommand::ShowRecording(None);
        let info = command.info();
        if ui.button(info.label).on_hover_text(info.about).clicked() {
            commands.push(command);
        }
    });
    if let Some(why) = recording.problem {
        let text = format!("{}  Its step cannot be planned: {why}. The network's own plan is shown.", icons::WARNING);
        ui.add(egui::Label::new(egui::RichText::new(text).size(12.0).color(colors.error)).wrap());
    }
    ui.add_space(4.0);
}

/// Shows the path of a plan, which is that of evaluations; shows nothing if the network does not choose, or if the plan
/// is that of a recording, whose name is shown above it.
pub(super) fn path_ui(ui: &mut egui::Ui, view: &PlanOnScreen<'_>) {
    let path = view.plan.and_then(PlanView::path_text).filter(|_| view.recording.is_none());
    if let Some(path) = path {
        weak_ui(ui, path).on_hover_text("The path of evaluations, whose plan this is");
    }
}

/// Says that the content below is about the network before its mistakes, and draws it faintly; does nothing if it is
/// about the network on screen.
fn outdated_ui(ui: &mut egui::Ui, view: &PlanOnScreen<'_>, commands: &mut CommandQueue) {
    /// The opacity of content about an older network.
    const FAINT: f32 = 0.45;
    if !view.is_outdated {
        return;
    }
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let color = theme::colors(ui).warning;
        let is_empty = view.readiness == Readiness::Empty;
        let text = if is_empty {
            "The network has no layers: add a layer. What is shown here is the step of the last ones."
        } else {
            "The network has a problem. What is shown here is the step before it."
        };
        ui.label(egui::RichText::new(format!("{}  {text}", icons::WARNING)).size(12.0).color(color));
        if !is_empty && ui.button("Show the problem").on_hover_text(UiCommand::ShowProblem.info().about).clicked() {
            commands.push(UiCommand::ShowProblem);
        }
    });
    ui.add_space(4.0);
    ui.set_opacity(FAINT);
}
