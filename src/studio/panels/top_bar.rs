//! The top bar: menus, the run's state, the device, and the transport.

use crate::studio::commands::choices::{DeviceChoice, FirstKernels, TourMove};
use crate::studio::commands::fold::FoldCommand;
use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::side::Side;
use crate::studio::commands::tab::Tab;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::top_bar::{DeviceView, TopBarView, TransportView};
use crate::studio::view_models::status::state_name;
use crate::studio::view_models::transport::Next;
use crate::studio::widgets::button::{command_icon_ui, command_menu_ui, command_ui, named};
use crate::train::RunState;
use egui::{Align, Button, Layout, RichText, Ui, Vec2};

/// Shows the bar.
pub fn top_bar_ui(ui: &mut Ui, view: &TopBarView<'_>, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        // A menu bar takes the whole available width, but the rest of the line is needed for other controls.
        ui.allocate_ui(Vec2::new(224.0, 24.0), |ui| {
            egui::MenuBar::new().style(menu_style).ui(ui, |ui| menus_ui(ui, view, commands))
        });
        let window = ui.ctx().content_rect().width();
        if view.hides_network {
            command_icon_ui(ui, UiCommand::ShowSide(Side::Network), true, commands);
        }
        command_icon_ui(ui, UiCommand::Undo, view.enabled.has(&UiCommand::Undo), commands);
        command_icon_ui(ui, UiCommand::Redo, view.enabled.has(&UiCommand::Redo), commands);
        ui.add_space(12.0);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            if view.hides_inspector {
                command_icon_ui(ui, UiCommand::ShowSide(Side::Inspector), true, commands);
            }
            transport_ui(ui, view.transport, window < ROOM_FOR_NAMES, commands);
            ui.add_space(12.0);
            device_ui(ui, &view.device, window < ROOM_FOR_DEVICE, commands);
            ui.add_space(12.0);
            state_ui(ui, view);
            ui.add_space(12.0);
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| title_ui(ui, view));
        });
    });
}

/// The widths of the window, in points, below which the device, and the actions of the transport, are shown only as
/// icons.
const ROOM_FOR_DEVICE: f32 = 1000.0;
const ROOM_FOR_NAMES: f32 = 800.0;

/// The document's name, in the rest of the line.
fn title_ui(ui: &mut Ui, view: &TopBarView<'_>) {
    let mark = if view.is_dirty { " •" } else { "" };
    let title = RichText::new(format!("{}{mark}", view.title)).font(theme::strong(13.0));
    let place = view.place.as_deref().unwrap_or("Not saved to a file yet");
    ui.add(egui::Label::new(title).truncate().show_tooltip_when_elided(false))
        .on_hover_text(format!("{}\n{place}", view.title));
}

/// Names without frames, and the space between them.
fn menu_style(style: &mut egui::Style) {
    egui::containers::menu::menu_style(style);
    style.spacing.button_padding = Vec2::new(8.0, 2.0);
    style.spacing.item_spacing.x = 0.0;
}

fn state_ui(ui: &mut Ui, view: &TopBarView<'_>) {
    let c = theme::colors(ui);
    let state = view.state;
    let color = match state {
        Some(RunState::Running) => c.accent,
        Some(RunState::Failed(_)) => c.error,
        _ => c.weak,
    };
    let name = state_name(state);
    let text = view.runs_on.map_or_else(|| name.to_owned(), |device| format!("{name} on {}", device.label()));
    ui.label(RichText::new(text).size(12.0).color(color));
    let (rect, _) = ui.allocate_exact_size(Vec2::splat(8.0), egui::Sense::hover());
    ui.painter().circle_filled(rect.center(), 4.0, color);
}

/// The device that the network is planned for and trained on, and the choice of another one.
fn device_ui(ui: &mut Ui, view: &DeviceView<'_>, short: bool, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let text = if short { icons::DEVICE.to_owned() } else { format!("{}  {}", icons::DEVICE, view.name) };
    let text = RichText::new(text).size(12.0).color(c.weak);
    let menu = ui.menu_button(text, |ui| {
        ui.set_min_width(280.0);
        let chosen = view.chosen;
        let auto = format!("Automatic: {}", "the first GPU that works, or the CPU");
        let item = |ui: &mut Ui, label: &str, about: &str, choice: DeviceChoice, commands: &mut CommandQueue| {
            let button = ui.add(Button::selectable(chosen == choice, label)).on_hover_text(about);
            if button.clicked() {
                commands.push(UiCommand::ChooseDevice(choice));
                ui.close();
            }
        };
        item(ui, &auto, UiCommand::ChooseDevice(DeviceChoice::Auto).info().about, DeviceChoice::Auto, commands);
        for (name, about, choice) in &view.all {
            item(ui, name, about, *choice, commands);
        }
        let absent = |why| format!("No GPU can be used: {why}. The command stepgraph doctor says more.");
        let unable = |why| format!("The CPU is used, because {why}.");
        if let Some(text) = view.why_no_gpu.map(absent).or_else(|| view.cpu_only.map(unable)) {
            ui.separator();
            ui.set_max_width(360.0);
            let text = RichText::new(text).size(12.0).color(theme::colors(ui).weak);
            // Menus justify what they contain, and letters would be spread apart.
            ui.with_layout(egui::Layout::top_down(Align::LEFT), |ui| ui.add(egui::Label::new(text).wrap()));
        }
    });
    named(&menu.response, &format!("Device: {}", view.name), true);
    let precision = view.precision;
    menu.response.on_hover_text(format!("{}, {precision}. Click to choose another device.", view.about));
}

/// Drawn from the right: stop, train or pause, step, reset.
fn transport_ui(ui: &mut Ui, view: TransportView, short: bool, commands: &mut CommandQueue) {
    let t = view.allowed;
    let command_ui = if short { command_icon_ui } else { command_ui };
    command_ui(ui, UiCommand::Stop, t.stop, commands);
    if view.is_stopped {
        lead_ui(ui, UiCommand::Continue, short, commands);
    }
    if view.is_running {
        command_ui(ui, UiCommand::Pause, t.pause, commands);
    } else {
        let c = theme::colors(ui);
        let next = view.next;
        // Continuing a stopped run comes before starting another one.
        let leads = t.train && !view.is_stopped;
        let text = RichText::new(format!("{}  {}", icons::PLAY, next.label())).color(match (leads, t.train) {
            (true, _) => c.on_accent,
            (false, true) => c.text,
            (false, false) => c.weak,
        });
        let mut button = Button::new(text);
        if leads {
            button = button.fill(c.accent);
        }
        let about = match next {
            Next::Train => UiCommand::Train.tooltip(ui.ctx()),
            Next::TrainOn(steps) => format!(
                "The run is over: continues from here for {} more steps. Reset starts again from new weights.",
                format::exact(steps)
            ),
            Next::TrainAnew if view.is_stopped => format!(
                "Starts a new run from new weights. {} resumes the one that was stopped.",
                UiCommand::Continue.name_with_keys(ui.ctx())
            ),
            Next::TrainAnew if view.is_recording => {
                "Starts a new run from new weights; the last one stays in Runs.".to_owned()
            }
            Next::TrainAnew => "Starts a new run from new weights; the curves of the last one are removed.".to_owned(),
        };
        let response = ui.add_enabled(t.train, button).on_hover_text(about);
        named(&response, next.label(), t.train);
        if response.clicked() {
            commands.push(UiCommand::Train);
        }
    }
    command_ui(ui, UiCommand::Step, t.step, commands);
    command_ui(ui, UiCommand::Reset, t.reset, commands);
}

/// The most likely action, in the accent colour.
fn lead_ui(ui: &mut Ui, command: UiCommand, short: bool, commands: &mut CommandQueue) {
    let (c, info) = (theme::colors(ui), command.info());
    let text = if short { info.icon.to_owned() } else { format!("{}  {}", info.icon, info.label) };
    let button = ui.add(Button::new(RichText::new(text).color(c.on_accent)).fill(c.accent));
    named(&button, info.label, true);
    if button.on_hover_text(command.tooltip(ui.ctx())).clicked() {
        commands.push(command);
    }
}

/// An entry of a menu.
fn item_ui(ui: &mut Ui, view: &TopBarView<'_>, command: UiCommand, commands: &mut CommandQueue) {
    let (enabled, info) = (view.enabled.has(&command), command.info());
    if let (UiCommand::StartWith(kernels), Some(chosen)) = (&command, view.starts_with) {
        let is_chosen = *kernels == chosen;
        let icon = if is_chosen { icons::CHECK } else { info.icon };
        let response = ui.add(Button::new(format!("{icon}   {}", info.label))).on_hover_text(info.about);
        response.widget_info(|| egui::WidgetInfo::selected(egui::Role::RadioButton, true, is_chosen, info.label));
        if response.clicked() {
            if !is_chosen {
                commands.push(command);
            }
            ui.close();
        }
        return;
    }
    command_menu_ui(ui, command, info.label, enabled, commands);
}

/// Groups of entries, separated by lines.
fn groups_ui(ui: &mut Ui, view: &TopBarView<'_>, groups: &[&[UiCommand]], commands: &mut CommandQueue) {
    ui.set_min_width(240.0);
    for (at, group) in groups.iter().enumerate() {
        if at > 0 {
            ui.separator();
        }
        for command in *group {
            item_ui(ui, view, command.clone(), commands);
        }
    }
}

fn menus_ui(ui: &mut Ui, view: &TopBarView<'_>, commands: &mut CommandQueue) {
    use UiCommand as C;
    ui.menu_button("File", |ui| file_menu_ui(ui, view, commands));
    let edit: [&[C]; 3] = [
        &[C::Undo, C::Redo],
        &[C::AddLayer, C::Duplicate, C::MoveUp, C::MoveDown, C::Remove],
        &[C::Fold(FoldCommand::All), C::Fold(FoldCommand::Nothing)],
    ];
    ui.menu_button("Edit", |ui| groups_ui(ui, view, &edit, commands));
    let shown: [&[C]; 4] = [
        &Tab::ALL.map(C::ShowTab),
        &[Side::Network, Side::Inspector].map(C::ShowSide),
        &[
            C::Back,
            C::Forward,
            C::FitArena,
            C::FollowPlots,
            C::ToggleLogAxis,
            C::ToggleTheme,
            C::ReduceMotion,
            C::SelectLargestBuffer,
            C::ResetLayout,
        ],
        &[C::Palette],
    ];
    ui.menu_button("View", |ui| groups_ui(ui, view, &shown, commands));
    let run: [&[C]; 5] = [
        &[C::TrainOrPause, C::Step, C::Stop, C::Continue, C::Reset],
        &[FirstKernels::AtOnce, FirstKernels::Fastest].map(C::StartWith),
        &[C::TimeBothWays, C::MeasurePrices, C::Prove(None), C::CancelProofs],
        &[RunsCommand::MakeCapsule, RunsCommand::ReplayCapsule].map(C::Runs),
        &[C::MeasureOps, C::ComparePlans, C::ShowValues, C::FindFirstBad],
    ];
    ui.menu_button("Run", |ui| groups_ui(ui, view, &run, commands));
    let help: [&[C]; 1] = [&[C::Tour(TourMove::Start), C::ShowShortcuts, C::ShowAbout]];
    ui.menu_button("Help", |ui| groups_ui(ui, view, &help, commands));
}

fn file_menu_ui(ui: &mut Ui, view: &TopBarView<'_>, commands: &mut CommandQueue) {
    use UiCommand as C;
    ui.set_min_width(240.0);
    item_ui(ui, view, C::New, commands);
    ui.menu_button(format!("{}   New from preset", icons::FILE), |ui| {
        for index in 0..C::preset_count() {
            command_menu_ui(ui, C::NewFromPreset(index), C::preset_name(index), true, commands);
        }
    });
    ui.separator();
    item_ui(ui, view, C::Open, commands);
    item_ui(ui, view, C::OpenByPath, commands);
    if !view.recent.is_empty() {
        ui.menu_button(format!("{}   Open recent", icons::RECENT), |ui| {
            for path in view.recent {
                command_menu_ui(ui, C::OpenRecent(path.clone()), &path.display().to_string(), true, commands);
            }
        });
    }
    ui.separator();
    let rest: [&[C]; 3] = [&[C::Save, C::SaveAs, C::SaveByPath], &[C::SaveWeights, C::SaveWeightsByPath], &[C::Quit]];
    groups_ui(ui, view, &rest, commands);
}
