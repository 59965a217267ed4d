//! The line above the table of kept runs: commands for the selected runs, and which runs are listed.

use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::trash::trash_tools_ui;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::runs::RunsPanelView;
use crate::studio::widgets::button::{button_width, command_menu_ui, icon_ui, named, weak_ui};
use crate::train::export::Format;
use egui::{Align, Button, Layout, Ui};

/// The smallest width of a button that replaces another one in the line: both have the same width, so that nothing
/// beside them moves.
fn least_width(ui: &Ui, command: &RunsCommand) -> f32 {
    use RunsCommand::{Hide, Pin, Unhide, Unpin};
    let pair = match command {
        Pin | Unpin => [(Pin, "Pin as baseline"), (Unpin, "Unpin")],
        Hide | Unhide => [(Hide, "Hide"), (Unhide, "Unhide")],
        _ => return 0.0,
    };
    let widths = pair.map(|(command, label)| button_width(ui, Tool::Do(command, label).text()));
    widths[0].max(widths[1]) - ui.spacing().item_spacing.x
}

/// A command as a button with icon and name that is narrower than those of the transport.
pub fn tool_ui(ui: &mut Ui, view: &RunsPanelView<'_>, command: RunsCommand, label: &str, commands: &mut CommandQueue) {
    let info = command.info();
    let least = least_width(ui, &command);
    let command = UiCommand::Runs(command);
    let enabled = view.enabled.has(&command);
    let text = format!("{}  {label}", info.icon);
    let button = Button::new(text).min_size(egui::Vec2::new(least, 0.0));
    let response = ui.add_enabled(enabled, button).on_hover_text(info.about);
    let response = match view.why_not_deleted.as_deref().filter(|_| command == UiCommand::Runs(RunsCommand::Delete)) {
        Some(why) => response.on_disabled_hover_text(why),
        None => response.on_disabled_hover_text(info.about),
    };
    named(&response, info.label, enabled);
    if response.clicked() {
        commands.push(command);
    }
}

/// An item in the line above the table.
enum Tool {
    Export,
    Do(RunsCommand, &'static str),
}

impl Tool {
    /// The width of its button, including the space after it.
    fn width(&self, ui: &Ui) -> f32 {
        let own = button_width(ui, self.text());
        match self {
            Self::Export => own,
            Self::Do(command, _) => own.max(least_width(ui, command) + ui.spacing().item_spacing.x),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Export => format!("{}  Export", icons::SAVE),
            Self::Do(command, label) => format!("{}  {label}", command.info().icon),
        }
    }
}

/// The formats to which a run can be exported.
fn formats_ui(ui: &mut Ui, commands: &mut CommandQueue) {
    ui.set_min_width(200.0);
    for format in Format::ALL {
        let label = format!("{}…", format.title());
        command_menu_ui(ui, UiCommand::Runs(RunsCommand::Export(format)), &label, true, commands);
    }
}

/// The commands for runs, the most useful first; those that do not fit in the line are in a menu at its end.
pub fn tools_ui(ui: &mut Ui, view: &RunsPanelView<'_>, commands: &mut CommandQueue) {
    const EXPORTS: &str = "Writes the first selected run to a file; a plot shows all that are selected";
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        // The choice of listed runs is at the right, regardless of the available width.
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            lists_ui(ui, view, commands);
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                if view.shows_trash {
                    return trash_tools_ui(ui, view.trash, commands);
                }
                if let Some(step) = view.capsule_step {
                    ui.spinner();
                    weak_ui(ui, format!("capsule: step {}", format::exact(step)));
                    tool_ui(ui, view, RunsCommand::CancelCapsule, "Cancel", commands);
                }
                let tools = tools(view);
                let more = 24.0 + ui.spacing().item_spacing.x;
                let mut room = ui.available_width() - more;
                let fit = tools.iter().take_while(|t| {
                    room -= t.width(ui);
                    room >= 0.0
                });
                let fit = fit.count();
                for tool in &tools[..fit] {
                    match tool {
                        Tool::Do(command, label) => tool_ui(ui, view, command.clone(), label, commands),
                        Tool::Export => {
                            ui.add_enabled_ui(view.first().is_some(), |ui| {
                                let menu = ui.menu_button(tool.text(), |ui| formats_ui(ui, commands));
                                menu.response.on_hover_text(EXPORTS);
                            });
                        }
                    }
                }
                let about = "More with runs, and capsules: runs in one file that repeat to the bit";
                let menu = icon_ui(ui, icons::MENU, "More with runs", about);
                egui::Popup::menu(&menu).show(|ui| {
                    ui.set_min_width(220.0);
                    for tool in &tools[fit..] {
                        match tool {
                            Tool::Do(command, _) => menu_item_ui(ui, view, command.clone(), commands),
                            Tool::Export => {
                                ui.add_enabled_ui(view.first().is_some(), |ui| {
                                    ui.menu_button(tool.text(), |ui| formats_ui(ui, commands));
                                });
                            }
                        }
                    }
                    for command in [RunsCommand::MakeCapsule, RunsCommand::ReplayCapsule] {
                        menu_item_ui(ui, view, command, commands);
                    }
                });
            });
        });
    });
}

fn menu_item_ui(ui: &mut Ui, view: &RunsPanelView<'_>, command: RunsCommand, commands: &mut CommandQueue) {
    let (label, command) = (command.info().label, UiCommand::Runs(command));
    let enabled = view.enabled.has(&command);
    command_menu_ui(ui, command, label, enabled, commands);
}

/// The commands for the selected runs, the most useful first.
fn tools(view: &RunsPanelView<'_>) -> Vec<Tool> {
    let is_pinned = view.baseline.is_some() && view.baseline == view.selected.first().map(String::as_str);
    let is_hidden = view.first().is_some_and(|e| e.label.hidden);
    vec![
        Tool::Do(RunsCommand::Continue, "Continue"),
        Tool::Export,
        if is_pinned { Tool::Do(RunsCommand::Unpin, "Unpin") } else { Tool::Do(RunsCommand::Pin, "Pin as baseline") },
        Tool::Do(RunsCommand::Delete, "Delete…"),
        if is_hidden { Tool::Do(RunsCommand::Unhide, "Unhide") } else { Tool::Do(RunsCommand::Hide, "Hide") },
        Tool::Do(RunsCommand::OpenPreset, "Open preset"),
        Tool::Do(RunsCommand::CopyFolder, "Copy folder"),
    ]
}

/// Which runs are listed, from the right: deleted ones, and hidden ones too.
fn lists_ui(ui: &mut Ui, view: &RunsPanelView<'_>, commands: &mut CommandQueue) {
    let text = format!("{}  Trash", icons::TRASH);
    let button = ui.add(Button::selectable(view.shows_trash, text)).on_hover_text(RunsCommand::ShowTrash.info().about);
    button.widget_info(|| egui::WidgetInfo::selected(egui::Role::Button, true, view.shows_trash, "Trash"));
    if button.clicked() {
        commands.push(UiCommand::Runs(RunsCommand::ShowTrash));
    }
    if view.shows_trash {
        return;
    }
    let mut hidden = view.order.shows_hidden;
    let label = if view.table.hidden > 0 { format!("hidden ({})", view.table.hidden) } else { "hidden".into() };
    let about = RunsCommand::ShowHidden.info().about;
    if ui.checkbox(&mut hidden, label).on_hover_text(about).changed() {
        commands.push(UiCommand::Runs(RunsCommand::ShowHidden));
    }
}
