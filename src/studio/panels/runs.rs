//! Kept runs: the table, its commands, and the comparison of the selected runs.

use crate::studio::commands::runs::Column as Field;
use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::run_tools::{tool_ui, tools_ui};
use crate::studio::panels::trash::trash_ui;
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::loaded_run::LoadedRun;
use crate::studio::view_models::panels::runs::RunsPanelView;
use crate::studio::view_models::runs::RunRow;
use crate::studio::widgets::axis::{tick, time_tick};
use crate::studio::widgets::button::{empty_ui, named, weak_ui};
use crate::studio::widgets::compare::{
    CompareSpec, CompareView, Compared, Shown, compare_ui, letter_ui as run_letter_ui,
};
use crate::studio::widgets::field::problem_ui;
use crate::studio::widgets::frozen_columns::{Frozen, Ground};
use crate::studio::widgets::keyboard::{list_ui, row_by_keys, runs_id};
use crate::train::runs::{RunEnd, RunEntry};
use egui::{Align, Button, ComboBox, Layout, Rect, RichText, ScrollArea, Stroke, StrokeKind, TextEdit, Ui, Vec2};
use egui_extras::{Column, TableBuilder};

/// The state of the panel.
#[derive(Default)]
pub struct RunsPanel {
    /// The name that is being typed, and its run.
    name: Option<(String, String)>,
    /// The layer whose changes are compared.
    layer: Option<String>,
    /// The row of the selected run, and its id.
    at: Option<(usize, String)>,
    /// The height of the table as last drawn.
    height: f32,
    /// The position under the pointer in the plots.
    view: CompareView,
}

/// Shows the panel.
pub fn runs_ui(ui: &mut Ui, view: &RunsPanelView<'_>, panel: &mut RunsPanel, commands: &mut CommandQueue) {
    if let Some(problem) = view.problem {
        problem_ui(ui, problem, "Name a folder for runs with STEPGRAPH_RUNS and open the studio again.");
    }
    tools_ui(ui, view, commands);
    report_ui(ui, view, commands);
    ui.add_space(4.0);
    if view.shows_trash {
        return trash_ui(ui, view.trash, commands);
    }
    if view.table.rows.is_empty() {
        let (title, next) = match view.table.hidden {
            _ if view.problem.is_some() => (
                "No run can be kept",
                "The reason is above. Runs that are trained now are lost when the window is closed.",
            ),
            0 => ("No runs yet", "Press Train: every run is kept here with its curves, its network and its weights."),
            _ => ("Every run is hidden", "Tick “hidden” above to list them."),
        };
        return empty_ui(ui, title, next);
    }
    let room = ui.available_height();
    let rows = view.table.rows.len() as f32;
    let half = (room * 0.42).max(96.0);
    let height = if view.selected.is_empty() { room - 48.0 } else { half.min(rows * 26.0 + 28.0) };
    table_ui(ui, view, panel, height, commands);
    ui.separator();
    if view.selected.is_empty() {
        weak_ui(ui, "Select a run to see its curves; tick several to compare them.");
        return;
    }
    ScrollArea::vertical().id_salt("run details").auto_shrink([false, false]).show(ui, |ui| {
        details_ui(ui, view, panel, commands);
        curves_ui(ui, view, panel, commands);
        differences_ui(ui, view);
    });
}

/// The result of the last replay of a capsule.
fn report_ui(ui: &mut Ui, view: &RunsPanelView<'_>, commands: &mut CommandQueue) {
    let Some((path, report)) = view.replayed else { return };
    let c = theme::colors(ui);
    ui.add_space(4.0);
    theme::card(ui, false).show(ui, |ui| {
        ui.set_width(ui.available_width());
        ui.horizontal(|ui| {
            let (icon, color) =
                if report.bits.is_bit_equal { (icons::CHECK, c.accent) } else { (icons::WARNING, c.error) };
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            ui.label(RichText::new(icon).color(color));
            ui.label(RichText::new(format!("Replay of {name}")).font(theme::strong(13.0)));
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                tool_ui(ui, view, RunsCommand::DismissReplay, "Close", commands);
            });
        });
        ScrollArea::vertical().id_salt("replay report").max_height(140.0).show(ui, |ui| {
            ui.add(egui::Label::new(RichText::new(report.to_string().trim_end()).size(12.0)).wrap().selectable(true));
        });
    });
}

/// Handles the keyboard: arrows select, and Delete moves to the trash. Returns the row that was reached.
fn walk_ui(ui: &Ui, view: &RunsPanelView<'_>, panel: &mut RunsPanel, commands: &mut CommandQueue) -> Option<usize> {
    let rows = &view.table.rows;
    let room = Rect::from_min_size(ui.cursor().min, Vec2::new(ui.available_width(), panel.height));
    let frame = list_ui(ui, runs_id(), room, &format!("Kept runs, {}", plain_count(rows.len(), "row")));
    if frame.has_focus() {
        let line = Stroke::new(1.0, theme::colors(ui).accent);
        ui.painter().rect_stroke(frame.rect.expand(3.0), 2, line, StrokeKind::Inside);
    }
    let place = |id: &String| rows.iter().position(|r| r.id == *id);
    let now = view.selected.first().and_then(place);
    let to = row_by_keys(ui, runs_id(), rows.len(), now);
    // If the run that had the keyboard focus is deleted, the run that takes its place gets it.
    let lost = panel.at.take_if(|(_, id)| now.is_some() || place(id).is_some() || frame.has_focus());
    let lost = lost.filter(|(_, id)| now.is_none() && place(id).is_none());
    let to = to.or_else(|| lost.map(|(at, _)| at.min(rows.len().saturating_sub(1))));
    panel.at = now.zip(view.selected.first().cloned()).or_else(|| panel.at.take());
    let to = to?;
    select_ui(ui, rows.get(to)?, commands);
    Some(to)
}

/// Selects only one run, and gives the keyboard focus to the table.
fn select_ui(ui: &Ui, run: &RunRow, commands: &mut CommandQueue) {
    commands.push(UiCommand::Runs(RunsCommand::Select(run.id.clone())));
    ui.memory_mut(|m| m.request_focus(runs_id()));
}

/// The columns of the table: the check box, and the columns of a run.
const COLUMNS: usize = Field::ALL.len() + 1;

fn table_ui(ui: &mut Ui, view: &RunsPanelView<'_>, panel: &mut RunsPanel, height: f32, commands: &mut CommandQueue) {
    let jump = walk_ui(ui, view, panel, commands);
    // Name and numbers fit even a narrow window: the name is shortened. The settings of a run follow to the right.
    let figures = [84.0, 76.0, 68.0, 58.0, 62.0, 68.0];
    let taken = 48.0 + figures.iter().sum::<f32>() + 8.0 * (figures.len() + 2) as f32;
    let name = (ui.available_width() - taken).clamp(110.0, 220.0);
    let widths: Vec<f32> = [name].into_iter().chain(figures).chain([120.0, 64.0]).collect();
    let least = widths.iter().sum::<f32>() + 48.0 + 160.0 + 80.0;
    let scroll = ScrollArea::horizontal().id_salt("runs").auto_shrink([false, true]);
    let table = scroll.show_viewport(ui, |ui, viewport| {
        // The check box and the name stay visible when the other columns are scrolled horizontally.
        let frozen = Frozen::new(ui, viewport, 2);
        ui.set_min_width(least);
        let mut table = TableBuilder::new(ui)
            .id_salt("kept runs")
            .auto_shrink([false, true])
            .min_scrolled_height(64.0)
            .sense(egui::Sense::click())
            .max_scroll_height(height)
            .cell_layout(Layout::left_to_right(Align::Center))
            .column(Column::exact(48.0));
        for width in widths {
            table = table.column(Column::initial(width).at_least(40.0).clip(true).resizable(true));
        }
        if let Some(row) = jump {
            table = table.scroll_to_row(row, None);
        }
        let table = table.column(Column::remainder().at_least(160.0).clip(true));
        let table = table.header(24.0, |mut row| {
            frozen.row_ui(&mut row, COLUMNS, Ground::default(), |ui, at| match at.checked_sub(1) {
                None => drop(weak_ui(ui, "")),
                Some(at) => header_ui(ui, view, Field::ALL[at], commands),
            });
        });
        let mut pressed = None;
        table.body(|body| {
            body.rows(26.0, view.table.rows.len(), |mut row| {
                let run = &view.table.rows[row.index()];
                let ground = Ground { is_selected: view.letter(&run.id).is_some(), hovers: true };
                row.set_selected(ground.is_selected);
                let mut was_pressed = false;
                let stays = frozen.row_ui(&mut row, COLUMNS, ground, |ui, at| match at.checked_sub(1) {
                    None => letter_ui(ui, view, run, commands),
                    Some(at) => was_pressed |= cell_ui(ui, view, run, Field::ALL[at], &run.cells[at]),
                });
                if stays || was_pressed || row.response().clicked() {
                    pressed = Some(run);
                }
            });
        });
        if let Some(run) = pressed {
            select_ui(ui, run, commands);
        }
    });
    panel.height = table.content_size.y.min(table.inner_rect.height());
}

fn header_ui(ui: &mut Ui, view: &RunsPanelView<'_>, column: Field, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let is_sorted = view.order.column == column;
    let arrow = match (is_sorted, view.order.is_reversed) {
        (false, _) => "",
        (true, false) => icons::DOWN,
        (true, true) => icons::UP,
    };
    let color = if is_sorted { c.text } else { c.weak };
    let text = RichText::new(format!("{} {arrow}", column.title())).size(12.0).color(color);
    let show = |ui: &mut Ui| ui.add(Button::new(text).frame(false).truncate());
    let response =
        if column.is_number() { ui.with_layout(Layout::right_to_left(Align::Center), show).inner } else { show(ui) };
    let response = response.on_hover_text(column.about());
    named(&response, &format!("Sort by {}", column.title().to_lowercase()), true);
    if response.clicked() {
        commands.push(UiCommand::Runs(RunsCommand::SortBy(column)));
    }
}

/// The check box that adds a run to the comparison, with the run's letter and colour there.
fn letter_ui(ui: &mut Ui, view: &RunsPanelView<'_>, run: &RunRow, commands: &mut CommandQueue) {
    ui.spacing_mut().item_spacing.x = 4.0;
    let index = view.selected.iter().position(|id| *id == run.id);
    let mut ticked = index.is_some();
    let response = ui.add(egui::Checkbox::without_text(&mut ticked));
    let name = format!("Compare {}", run.name);
    response.widget_info(|| egui::WidgetInfo::selected(egui::Role::CheckBox, true, index.is_some(), &name));
    if response.on_hover_text("Draws its curves over those of the other ticked runs").changed() {
        commands.push(UiCommand::Runs(RunsCommand::Toggle(run.id.clone())));
        ui.memory_mut(|m| m.request_focus(runs_id()));
    }
    if let (Some(index), Some(letter)) = (index, view.letter(&run.id)) {
        run_letter_ui(ui, letter, index);
    }
}

/// Draws a cell; returns true if the run was pressed in it.
fn cell_ui(ui: &mut Ui, view: &RunsPanelView<'_>, run: &RunRow, column: Field, text: &str) -> bool {
    let c = theme::colors(ui);
    if column == Field::Name {
        let pin = if view.baseline == Some(run.id.as_str()) { format!("  {}", icons::TRAIN) } else { String::new() };
        let color = if run.is_hidden { c.weak } else { c.text };
        let button = Button::new(RichText::new(format!("{text}{pin}")).color(color)).frame(false).truncate();
        let response = ui.add(button).on_hover_text(&run.tooltip);
        named(&response, &format!("Run {}", run.name), true);
        return response.clicked();
    }
    if column == Field::State {
        // Only the window that trains a run knows whether it is paused.
        let is_paused = view.paused == Some(run.id.as_str());
        let text = if is_paused && run.state == RunEnd::Running { "paused" } else { text };
        let (icon, color) = match run.state {
            RunEnd::Running if is_paused => (icons::PAUSE, c.accent),
            RunEnd::Running => (icons::PLAY, c.accent),
            RunEnd::Finished => (icons::CHECK, c.text),
            RunEnd::Stopped => (icons::STOP, c.weak),
            RunEnd::Failed | RunEnd::Damaged => (icons::WARNING, c.error),
            RunEnd::Interrupted => (icons::WARNING, c.warning),
        };
        let label = egui::Label::new(RichText::new(format!("{icon}  {text}")).size(12.0).color(color))
            .selectable(false)
            .truncate();
        ui.add(label).on_hover_text(&run.tooltip);
        return false;
    }
    let label = egui::Label::new(RichText::new(text).size(12.0)).selectable(false).truncate();
    if column.is_number() {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.add(label));
    } else {
        ui.add(label);
    }
    false
}

/// Name, folder and other information about the first selected run.
fn details_ui(ui: &mut Ui, view: &RunsPanelView<'_>, panel: &mut RunsPanel, commands: &mut CommandQueue) {
    let Some(entry) = view.first() else { return };
    ui.horizontal_wrapped(|ui| {
        name_ui(ui, entry, panel, commands);
        let r = &entry.record;
        let weights = match (entry.can_continue, entry.has_weights) {
            _ if entry.has_damaged_weights => "weights damaged",
            (true, _) => "checkpoint kept",
            (false, true) => "weights kept",
            (false, false) => "no weights",
        };
        weak_ui(ui, format!("seed {} · plan {} · {weights}", r.seed, r.plan_hash));
    });
    if let Some(path) = &view.folder {
        ui.horizontal(|ui| {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                tool_ui(ui, view, RunsCommand::CopyFolder, "Copy", commands);
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let text = RichText::new(path).font(theme::mono()).color(theme::colors(ui).weak);
                    ui.add(egui::Label::new(text).truncate().show_tooltip_when_elided(false).selectable(true))
                        .on_hover_text(path);
                });
            });
        });
    }
    let read = view.loaded.get(&entry.id).map(|l| l.outline.last_step);
    if let Some(error) = &entry.record.error {
        let kept = match entry.record.state {
            RunEnd::Damaged => "The readable parts of it are shown, and can be exported.",
            _ => "The steps before it are kept.",
        };
        problem_ui(ui, error, kept);
    } else if let Some(read) = read.filter(|r| *r < entry.record.steps && entry.record.state != RunEnd::Running) {
        let what = format!("The file of its curves is damaged after step {}.", format::exact(read));
        problem_ui(ui, &what, "The steps before it are shown, and can be exported.");
    }
}

fn name_ui(ui: &mut Ui, entry: &RunEntry, panel: &mut RunsPanel, commands: &mut CommandQueue) {
    let typed = panel.name.as_ref().filter(|(id, _)| *id == entry.id).map(|(_, text)| text.clone());
    let mut text = typed.clone().unwrap_or_else(|| entry.name().to_owned());
    let edit = TextEdit::singleline(&mut text).desired_width(260.0).id_salt(("run name", &entry.id));
    let response = ui.name_inputs("Run name", |ui| ui.add(edit));
    let response =
        response.on_hover_text("The run's name; Enter saves it, and an empty text restores the preset's name");
    if response.changed() {
        panel.name = Some((entry.id.clone(), text.clone()));
    }
    if response.lost_focus() {
        if typed.is_some() && text.trim() != entry.name() {
            commands.push(UiCommand::Runs(RunsCommand::Rename(entry.id.clone(), text)));
        }
        panel.name = None;
    }
}

/// The choice of the plots' axes, and of the layer that is compared.
fn axes_ui(
    ui: &mut Ui,
    view: &RunsPanelView<'_>,
    compared: &[Compared<'_>],
    panel: &mut RunsPanel,
    commands: &mut CommandQueue,
) {
    ui.horizontal(|ui| {
        for (text, by_time) in [("by step", false), ("by running time", true)] {
            if ui
                .selectable_label(view.by_time == by_time, text)
                .on_hover_text(RunsCommand::ByTime(by_time).info().about)
                .clicked()
            {
                commands.push(UiCommand::Runs(RunsCommand::ByTime(by_time)));
            }
        }
        let mut log = view.log_axis;
        if ui.checkbox(&mut log, "log").on_hover_text(UiCommand::ToggleLogAxis.info().about).changed() {
            commands.push(UiCommand::ToggleLogAxis);
        }
        weak_ui(ui, "dashed: held-out");
        layer_choice_ui(ui, compared, panel);
    });
}

/// The plots of a comparison; `layer` is the layer whose changes are compared.
fn specs<'a>(view: &RunsPanelView<'_>, compared: &[Compared<'_>], layer: Option<&'a str>) -> Vec<CompareSpec<'a>> {
    let (log, by_time) = (view.log_axis, view.by_time);
    let none = |_: &LoadedRun| -> &[[f64; 2]] { &[] };
    let mut specs = vec![CompareSpec {
        title: "Loss",
        shown: Shown::Curve(|r| &r.curves.loss, |r| &r.curves.held_out_loss),
        log,
        by_time,
        value: format::number,
        tick,
    }];
    if compared.iter().any(|c| c.run.curves.accuracy.raw.last().is_some_and(f32::is_finite)) {
        specs.push(CompareSpec {
            title: "Accuracy",
            shown: Shown::Curve(|r| &r.curves.accuracy, |r| &r.curves.held_out_accuracy),
            log: false,
            by_time,
            value: format::number,
            tick,
        });
    }
    specs.push(CompareSpec {
        title: "Step time",
        shown: Shown::Curve(|r| &r.curves.step_us, none),
        log: true,
        by_time,
        value: format::micros,
        tick: time_tick,
    });
    if let Some(layer) = layer {
        let shown = Shown::Layer(layer);
        specs.push(CompareSpec { title: "Update by layer", shown, log: true, by_time, value: format::number, tick });
    }
    specs
}

fn curves_ui(ui: &mut Ui, view: &RunsPanelView<'_>, panel: &mut RunsPanel, commands: &mut CommandQueue) {
    let compared: Vec<Compared<'_>> = view
        .selected
        .iter()
        .filter_map(|id| Some(Compared { letter: view.letter(id)?, name: view.name(id), run: view.loaded.get(id)? }))
        .collect();
    if compared.is_empty() {
        weak_ui(ui, "Reading the curves…");
        return;
    }
    axes_ui(ui, view, &compared, panel, commands);
    let layer = panel.layer.clone();
    let specs = specs(view, &compared, layer.as_deref());
    let gap = 12.0;
    let columns = ((ui.available_width() / 300.0) as usize).clamp(1, specs.len());
    let width = ((ui.available_width() - gap * (columns as f32 - 1.0)) / columns as f32).floor();
    let height = (ui.available_height() - 8.0).clamp(180.0, 320.0);
    panel.view.begin();
    for row in specs.chunks(columns) {
        ui.horizontal_top(|ui| {
            ui.spacing_mut().item_spacing.x = gap;
            for spec in row {
                ui.allocate_ui_with_layout(Vec2::new(width, height), Layout::top_down(Align::Min), |ui| {
                    ui.set_width(width);
                    compare_ui(ui, &compared, spec, height, &mut panel.view);
                });
            }
        });
    }
}

/// The choice of the layer whose changes are compared, if the runs have any; for a single run all are shown.
fn layer_choice_ui(ui: &mut Ui, compared: &[Compared<'_>], panel: &mut RunsPanel) {
    let moved = |c: &&Compared<'_>| !c.run.outline.layers.is_empty();
    let mut names: Vec<&String> = Vec::new();
    for name in compared.iter().filter(moved).flat_map(|c| &c.run.outline.layers.names) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if panel.layer.as_ref().is_none_or(|l| !names.contains(&l)) {
        panel.layer = names.first().map(|n| (*n).clone());
    }
    let (Some(layer), true) = (&mut panel.layer, compared.len() > 1) else { return };
    ui.add_space(8.0);
    weak_ui(ui, "layer");
    let combo = ComboBox::from_id_salt("compared layer").width(112.0).selected_text(layer.as_str());
    let response = combo.show_ui(ui, |ui| {
        for name in names {
            ui.selectable_value(layer, name.clone(), name);
        }
    });
    response.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Layer to compare"));
}

/// The fields in which the presets of the selected runs differ.
fn differences_ui(ui: &mut Ui, view: &RunsPanelView<'_>) {
    if view.selected.len() < 2 {
        return;
    }
    ui.add_space(8.0);
    ui.horizontal(|ui| {
        ui.label(RichText::new("Differences of the presets").font(theme::strong(13.0)));
        if view.differences.is_empty() {
            weak_ui(ui, "none: these runs trained the same network from the same settings");
        }
    });
    if view.differences.is_empty() {
        return;
    }
    let names: Vec<&str> = view.selected.iter().map(|id| view.name(id)).collect();
    let columns = names.len() as f32 + 1.0;
    let width = ((ui.available_width() - 8.0 * columns) / columns).clamp(72.0, 220.0);
    let mut row = |cells: &mut dyn FnMut(&mut Ui, usize)| {
        let (rect, _) = ui.allocate_exact_size(Vec2::new(ui.available_width(), 20.0), egui::Sense::hover());
        // Networks with hundreds of layers may differ in all of them, so only visible rows are drawn.
        if !ui.is_rect_visible(rect) {
            return;
        }
        for index in 0..=names.len() {
            let left = rect.min + Vec2::new(index as f32 * (width + 8.0), 0.0);
            let cell = egui::Rect::from_min_size(left, Vec2::new(width, 20.0));
            let layout = Layout::left_to_right(Align::Center);
            ui.scope_builder(egui::UiBuilder::new().max_rect(cell).layout(layout), |ui| cells(ui, index));
        }
    };
    row(&mut |ui, index| match index.checked_sub(1) {
        None => drop(weak_ui(ui, "Field")),
        Some(at) => {
            run_letter_ui(ui, view.letter(&view.selected[at]).unwrap_or(' '), at);
            ui.add(egui::Label::new(RichText::new(names[at]).size(12.0)).truncate());
        }
    });
    for difference in view.differences {
        row(&mut |ui, index| {
            let text = index.checked_sub(1).map_or(&difference.field, |at| &difference.values[at]);
            ui.add(egui::Label::new(RichText::new(text).font(theme::mono())).truncate());
        });
    }
}
