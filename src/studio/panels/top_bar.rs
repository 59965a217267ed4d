//! The top bar: menus, the run's state, the device, and the transport.

use crate::studio::commands::{Command, Queue, Tab};
use crate::studio::devices::DeviceChoice;
use crate::studio::folds::FoldCommand;
use crate::studio::icons;
use crate::studio::presets;
use crate::studio::runs::RunsCommand;
use crate::studio::sides::Side;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::tour::TourMove;
use crate::studio::transport::Next;
use crate::studio::view_models::format;
use crate::studio::view_models::status::state_name;
use crate::studio::widgets::button::{command_icon_ui, command_menu_ui, command_ui, named};
use crate::train::RunState;
use egui::{Align, Button, Layout, RichText, Ui, Vec2};

/// Shows the bar.
pub fn top_bar_ui(ui: &mut Ui, studio: &Studio, out: &mut Queue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        // A menu bar takes all the width there is, and the rest of the line is for others.
        ui.allocate_ui(Vec2::new(224.0, 24.0), |ui| {
            egui::MenuBar::new().style(menu_style).ui(ui, |ui| menus_ui(ui, studio, out))
        });
        let window = ui.ctx().content_rect().width();
        let hidden = |side: Side| !side.is_shown(&studio.settings, window);
        if hidden(Side::Network) {
            command_icon_ui(ui, Command::ShowSide(Side::Network), true, out);
        }
        command_icon_ui(ui, Command::Undo, studio.is_enabled(&Command::Undo), out);
        command_icon_ui(ui, Command::Redo, studio.is_enabled(&Command::Redo), out);
        ui.add_space(12.0);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            ui.spacing_mut().item_spacing.x = 4.0;
            if hidden(Side::Inspector) {
                command_icon_ui(ui, Command::ShowSide(Side::Inspector), true, out);
            }
            transport_ui(ui, studio, window < ROOM_FOR_NAMES, out);
            ui.add_space(12.0);
            device_ui(ui, studio, window < ROOM_FOR_DEVICE, out);
            ui.add_space(12.0);
            state_ui(ui, studio);
            ui.add_space(12.0);
            ui.with_layout(Layout::left_to_right(Align::Center), |ui| title_ui(ui, studio));
        });
    });
}

/// The widths of the window, in points, below which the device, and what the transport does, are shown by signs alone.
const ROOM_FOR_DEVICE: f32 = 1000.0;
const ROOM_FOR_NAMES: f32 = 800.0;

/// The document's name, in what is left of the line.
fn title_ui(ui: &mut Ui, studio: &Studio) {
    let mark = if studio.document.is_dirty() { " •" } else { "" };
    let title = RichText::new(format!("{}{mark}", studio.document.title())).font(theme::strong(13.0));
    let place =
        studio.document.path().map_or_else(|| "Not saved to a file yet".to_owned(), |p| p.display().to_string());
    ui.add(egui::Label::new(title).truncate()).on_hover_text(format!("{}\n{place}", studio.document.title()));
}

/// Names without frames, and room between them.
fn menu_style(style: &mut egui::Style) {
    egui::containers::menu::menu_style(style);
    style.spacing.button_padding = Vec2::new(8.0, 2.0);
    style.spacing.item_spacing.x = 0.0;
}

fn state_ui(ui: &mut Ui, studio: &Studio) {
    let c = theme::colors(ui);
    let state = studio.training.state.as_ref();
    let color = match state {
        Some(RunState::Running) => c.accent,
        Some(RunState::Failed(_)) => c.error,
        _ => c.weak,
    };
    ui.label(RichText::new(state_name(state)).size(12.0).color(color));
    let (rect, _) = ui.allocate_exact_size(Vec2::splat(8.0), egui::Sense::hover());
    ui.painter().circle_filled(rect.center(), 4.0, color);
}

/// What the network is planned for and trained on, and the choice of another.
fn device_ui(ui: &mut Ui, studio: &Studio, short: bool, out: &mut Queue) {
    let c = theme::colors(ui);
    let machine = studio.devices.current();
    let text = if short { icons::DEVICE.to_owned() } else { format!("{}  {}", icons::DEVICE, machine.name) };
    let text = RichText::new(text).size(12.0).color(c.weak);
    let menu = ui.menu_button(text, |ui| {
        ui.set_min_width(280.0);
        let chosen = studio.settings.device;
        let auto = format!("Automatic: {}", "the first GPU that works, or the CPU");
        let item = |ui: &mut Ui, label: &str, about: &str, choice: DeviceChoice, out: &mut Queue| {
            let button = ui.add(Button::selectable(chosen == choice, label)).on_hover_text(about);
            if button.clicked() {
                out.push(Command::ChooseDevice(choice));
                ui.close();
            }
        };
        item(ui, &auto, Command::ChooseDevice(DeviceChoice::Auto).info().about, DeviceChoice::Auto, out);
        for machine in studio.devices.list() {
            item(ui, &machine.name, &machine.about, machine.choice, out);
        }
        if let Some(why) = &studio.devices.why_no_gpu {
            ui.separator();
            ui.set_max_width(360.0);
            let text = format!("No GPU can be used: {why}. The command stepgraph doctor says more.");
            let text = RichText::new(text).size(12.0).color(theme::colors(ui).weak);
            ui.add(egui::Label::new(text).wrap().halign(Align::LEFT));
        }
    });
    named(&menu.response, &format!("Device: {}", machine.name), true);
    let precision = studio.document.preset().precision.name();
    menu.response.on_hover_text(format!("{}, {precision}. Click to choose another device.", machine.about));
}

/// Laid out from the right: stop, train or pause, step, reset.
fn transport_ui(ui: &mut Ui, studio: &Studio, short: bool, out: &mut Queue) {
    let t = studio.training.transport(studio.is_ready());
    let command_ui = if short { command_icon_ui } else { command_ui };
    command_ui(ui, Command::Stop, t.stop, out);
    if studio.training.is_stopped() {
        lead_ui(ui, Command::Continue, short, out);
    }
    if studio.training.is_running() {
        command_ui(ui, Command::Pause, t.pause, out);
    } else {
        let c = theme::colors(ui);
        let next = studio.next();
        // Continuing a stopped run comes before beginning another one.
        let leads = t.train && !studio.training.is_stopped();
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
            Next::Train => Command::Train.tooltip(ui.ctx()),
            Next::TrainOn(steps) => format!(
                "The run is over: continues from here for {} more steps. Reset begins again from new weights.",
                format::exact(steps)
            ),
            Next::TrainAnew if studio.training.is_stopped() => format!(
                "Begins another run from new weights. {} resumes the one that was stopped.",
                Command::Continue.name_with_keys(ui.ctx())
            ),
            Next::TrainAnew if studio.training.keeping.is_recording() => {
                "Begins another run from new weights; the last one stays in Runs.".to_owned()
            }
            Next::TrainAnew => "Begins another run from new weights; the curves of the last one go.".to_owned(),
        };
        let response = ui.add_enabled(t.train, button).on_hover_text(about);
        named(&response, next.label(), t.train);
        if response.clicked() {
            out.push(Command::Train);
        }
    }
    command_ui(ui, Command::Step, t.step, out);
    command_ui(ui, Command::Reset, t.reset, out);
}

/// What is most likely to be pressed, in the accent.
fn lead_ui(ui: &mut Ui, command: Command, short: bool, out: &mut Queue) {
    let (c, info) = (theme::colors(ui), command.info());
    let text = if short { info.icon.to_owned() } else { format!("{}  {}", info.icon, info.label) };
    let button = ui.add(Button::new(RichText::new(text).color(c.on_accent)).fill(c.accent));
    named(&button, info.label, true);
    if button.on_hover_text(command.tooltip(ui.ctx())).clicked() {
        out.push(command);
    }
}

fn menus_ui(ui: &mut Ui, studio: &Studio, out: &mut Queue) {
    let item = |ui: &mut Ui, command: Command, out: &mut Queue| {
        let enabled = studio.is_enabled(&command);
        let label = command.info().label;
        command_menu_ui(ui, command, label, enabled, out);
    };
    ui.menu_button("File", |ui| {
        ui.set_min_width(240.0);
        item(ui, Command::New, out);
        ui.menu_button(format!("{}   New from preset", icons::FILE), |ui| {
            for index in 0..presets::count() {
                command_menu_ui(ui, Command::NewFromPreset(index), presets::name(index), true, out);
            }
        });
        ui.separator();
        item(ui, Command::Open, out);
        item(ui, Command::OpenByPath, out);
        if !studio.settings.recent.is_empty() {
            ui.menu_button(format!("{}   Open recent", icons::RECENT), |ui| {
                for path in &studio.settings.recent {
                    command_menu_ui(ui, Command::OpenFile(path.clone()), &path.display().to_string(), true, out);
                }
            });
        }
        ui.separator();
        item(ui, Command::Save, out);
        item(ui, Command::SaveAs, out);
        item(ui, Command::SaveByPath, out);
        ui.separator();
        item(ui, Command::SaveWeights, out);
        item(ui, Command::SaveWeightsByPath, out);
        ui.separator();
        item(ui, Command::Quit, out);
    });
    ui.menu_button("Edit", |ui| {
        ui.set_min_width(240.0);
        for command in [Command::Undo, Command::Redo] {
            item(ui, command, out);
        }
        ui.separator();
        for command in [Command::AddLayer, Command::Duplicate, Command::MoveUp, Command::MoveDown, Command::Remove] {
            item(ui, command, out);
        }
        ui.separator();
        for command in [Command::Fold(FoldCommand::All), Command::Fold(FoldCommand::Nothing)] {
            item(ui, command, out);
        }
    });
    ui.menu_button("View", |ui| {
        ui.set_min_width(240.0);
        for tab in Tab::ALL {
            item(ui, Command::ShowTab(tab), out);
        }
        ui.separator();
        for side in [Side::Network, Side::Inspector] {
            item(ui, Command::ShowSide(side), out);
        }
        ui.separator();
        for command in [
            Command::Back,
            Command::Forward,
            Command::FitArena,
            Command::FollowPlots,
            Command::ToggleLogAxis,
            Command::ToggleTheme,
            Command::ReduceMotion,
            Command::SelectLargestBuffer,
        ] {
            item(ui, command, out);
        }
        item(ui, Command::ResetLayout, out);
        ui.separator();
        item(ui, Command::Palette, out);
    });
    ui.menu_button("Run", |ui| {
        ui.set_min_width(240.0);
        for command in [Command::TrainOrPause, Command::Step, Command::Stop, Command::Continue, Command::Reset] {
            item(ui, command, out);
        }
        ui.separator();
        for command in [Command::TimeBothWays, Command::MeasurePrices, Command::Prove(None), Command::CancelProofs] {
            item(ui, command, out);
        }
        ui.separator();
        for command in [RunsCommand::MakeCapsule, RunsCommand::ReplayCapsule] {
            item(ui, Command::Runs(command), out);
        }
        ui.separator();
        for command in [Command::MeasureOps, Command::ComparePlans, Command::ShowValues, Command::FindFirstBad] {
            item(ui, command, out);
        }
    });
    ui.menu_button("Help", |ui| {
        ui.set_min_width(240.0);
        for command in [Command::Tour(TourMove::Start), Command::ShowShortcuts, Command::ShowAbout] {
            item(ui, command, out);
        }
    });
}
