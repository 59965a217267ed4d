//! The contents of a buffer: statistics, a histogram, a picture, and the search for the first value that is not finite.

use crate::studio::commands::choices::Weights;
use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::panels::values::ValuesView;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::view_models::values::ShownValues;
use crate::studio::widgets::button::{icon_ui, named, weak_ui};
use crate::studio::widgets::tensor_values::{extent, histogram_ui, picture_ui, texture};
use crate::train::{Picture, Summary};
use egui::{Align, Button, ComboBox, Layout, RichText, ScrollArea, TextureHandle, Ui};

/// The texture of the picture, made once for each answer and theme.
#[derive(Default)]
pub struct PictureCache {
    made_for: Option<(u64, bool)>,
    texture: Option<TextureHandle>,
}

impl PictureCache {
    fn get(&mut self, ui: &Ui, number: u64, picture: &Picture) -> Option<&TextureHandle> {
        let key = (number, ui.visuals().dark_mode);
        if self.made_for != Some(key) {
            self.made_for = Some(key);
            self.texture = texture(ui.ctx(), picture, key.1);
        }
        self.texture.as_ref()
    }
}

/// Shows the values of the selected buffer or operation, or what to do to see them.
pub fn values_ui(ui: &mut Ui, view: &ValuesView<'_>, cache: &mut PictureCache, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        ui.label(RichText::new("Values").font(theme::strong(12.0)).color(theme::colors(ui).weak));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let (text, name) = if view.is_on { ("Hide", "Hide values") } else { ("Show", "Show values") };
            let tooltip = UiCommand::ShowValues.tooltip(ui.ctx());
            let button = ui.add(Button::new(RichText::new(text).size(12.0)).frame(false)).on_hover_text(tooltip);
            named(&button, name, true);
            if button.clicked() {
                commands.push(UiCommand::ShowValues);
            }
            if view.is_looking {
                ui.add(egui::Spinner::new().size(12.0));
            }
        });
    });
    if !view.is_on {
        weak_ui(ui, "Runs a copy of the step up to the marked operation, and shows what is stored here.");
        return;
    }
    if view.is_outdated {
        let is_empty = view.readiness == Readiness::Empty;
        let to_do =
            if is_empty { "Add a layer to look at values." } else { "Fix the network's problem to look at values." };
        weak_ui(ui, to_do);
        return;
    }
    weights_ui(ui, view, commands);
    parts_ui(ui, view, commands);
    if let Some(problem) = view.problem {
        let color = theme::colors(ui).error;
        ui.add(egui::Label::new(RichText::new(problem).size(12.0).color(color)).wrap());
    }
    match view.values {
        Some(shown) => shown_ui(ui, view, shown, cache, commands),
        None if view.buffer.is_none() => drop(weak_ui(ui, "Select a buffer or an operation to look at its values.")),
        None if view.problem.is_none() => drop(weak_ui(ui, "Running the step up to here.")),
        None => {}
    }
    first_bad_ui(ui, view, commands);
}

fn weights_ui(ui: &mut Ui, view: &ValuesView<'_>, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 4.0;
        weak_ui(ui, "with");
        let run = match view.snapshot_step {
            Some(step) => format!("the run's, step {}", format::exact(step)),
            None => "the run's".to_owned(),
        };
        let choices = [(Weights::Initial, "initial weights"), (Weights::Run, run.as_str())];
        for (weights, label) in choices {
            let command = UiCommand::UseWeights(weights);
            let on = view.weights == weights;
            let can_use = weights == Weights::Initial || view.can_use_run;
            let button = Button::selectable(on, RichText::new(label).size(12.0));
            let response = ui.add_enabled(can_use, button).on_hover_text(command.info().about);
            let response = response.on_disabled_hover_text("No run has weights yet: train, or make a step");
            if response.clicked() {
                commands.push(command);
            }
        }
    });
}

/// Chooses a parameter, gradient or moment of a flat vector.
fn parts_ui(ui: &mut Ui, view: &ValuesView<'_>, commands: &mut CommandQueue) {
    let plan = view.plan.map(|p| &p.compiled.plan);
    let parts = plan.zip(view.buffer).and_then(|(p, id)| p.buffers.get(id.0 as usize)).map(|b| &b.parts);
    let Some(parts) = parts.filter(|p| !p.is_empty()) else { return };
    let now = view.part.min(parts.len() - 1);
    let width = ui.available_width() - 8.0;
    let combo = ComboBox::from_id_salt("part of the vector").width(width).selected_text(&parts[now].name);
    let combo = combo.truncate().show_ui(ui, |ui| {
        ScrollArea::vertical().max_height(240.0).show_rows(ui, 20.0, parts.len(), |ui, rows| {
            for index in rows {
                if ui.selectable_label(index == now, &parts[index].name).clicked() {
                    commands.push(UiCommand::ShowPart(index));
                }
            }
        });
    });
    combo.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Part of the vector"));
}

/// The values in one line, if there is little space; nothing if they are not requested.
pub fn values_line_ui(ui: &mut Ui, view: &ValuesView<'_>) {
    let is_looked_at = view.is_on && !view.is_outdated;
    let Some(shown) = view.values.filter(|_| is_looked_at) else { return };
    let Some(look) = &shown.summary else {
        weak_ui(ui, &shown.holds);
        return;
    };
    let s = &look.statistics;
    let bad = s.nans + s.infinities;
    let mean = if s.mean.is_nan() { "–".to_owned() } else { format::number(s.mean) };
    let text = format!("{}: {} to {}, mean {mean}", shown.holds, format::number(s.min), format::number(s.max));
    ui.add(egui::Label::new(RichText::new(text).size(12.0)).truncate());
    if bad > 0 {
        let text = format!("{}  {bad} not finite", icons::WARNING);
        ui.label(RichText::new(text).size(12.0).color(theme::colors(ui).error));
    }
}

fn shown_ui(
    ui: &mut Ui,
    view: &ValuesView<'_>,
    shown: &ShownValues,
    cache: &mut PictureCache,
    commands: &mut CommandQueue,
) {
    let done = match shown.place.ops {
        0 => "before the first op".to_owned(),
        n => format!("after op {}", n - 1),
    };
    let step = format::exact(shown.step + 1);
    let weights = match shown.step {
        0 => "the initial weights".to_owned(),
        n => format!("the run's weights after step {}", format::exact(n)),
    };
    weak_ui(ui, format!("Values of step {step}, {done}"))
        .on_hover_text(format!("A copy of the step makes step {step} with {weights}; the run is not changed"));
    ui.add(egui::Label::new(RichText::new(&shown.holds).font(theme::mono())).wrap());
    if let Some(op) = shown.writer {
        let kernel = view.plan.and_then(|p| p.ops.get(op)).map_or("", |o| o.kernel.as_str());
        link_ui(ui, "written by", &format!("{op} {kernel}"), Selection::Op(op), commands);
    }
    let Some(look) = &shown.summary else { return };
    statistics_ui(ui, look);
    histogram_ui(ui, &look.histogram, 44.0);
    ui.horizontal(|ui| {
        weak_ui(ui, format::number(look.histogram.from));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            weak_ui(ui, format::number(look.histogram.to));
            let room = Layout::centered_and_justified(egui::Direction::LeftToRight);
            ui.with_layout(room, |ui| weak_ui(ui, "roots of counts"));
        });
    });
    let p = &look.picture;
    if p.slices > 1 {
        slices_ui(ui, p, commands);
    }
    if let Some(texture) = cache.get(ui, shown.number, p) {
        picture_ui(ui, p, texture);
        let (from, to) = extent(&p.cells);
        let (blue, orange) = (if from < 0.0 { " (blue)" } else { "" }, if to > 0.0 { " (orange)" } else { "" });
        let (from, to) = (format::number(from.into()), format::number(to.into()));
        weak_ui(ui, format!("{from}{blue} to {to}{orange}"));
    }
}

fn link_ui(ui: &mut Ui, label: &str, text: &str, to: Selection, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        weak_ui(ui, label);
        let text = RichText::new(text).font(theme::mono()).color(theme::colors(ui).accent);
        if ui.add(Button::new(text).frame(false).truncate()).clicked() {
            commands.push(UiCommand::Select(to));
        }
    });
}

fn statistics_ui(ui: &mut Ui, look: &Summary) {
    let s = &look.statistics;
    let known = |v: f64| if v.is_nan() { "–".to_owned() } else { format::number(v) };
    let share = |n: usize| format!("{} of {}", format::exact(n as u64), format::exact(s.count as u64));
    let mut lines = vec![
        ("min to max", format!("{} to {}", known(s.min), known(s.max)), format!("{} to {}", s.min, s.max)),
        ("mean ± std", format!("{} ± {}", known(s.mean), known(s.std)), format!("{} ± {}", s.mean, s.std)),
        ("zeros", format::percent(s.zeros as f64 / s.count.max(1) as f64), share(s.zeros)),
    ];
    if s.nans + s.infinities > 0 {
        let at = look.first_bad.map_or_else(String::new, |i| format!("; the first is element {i}"));
        let exact = format!("{} NaN and {} infinite{at}", share(s.nans), share(s.infinities));
        lines.push(("NaN, Inf", format!("{}, {}", s.nans, s.infinities), exact));
    }
    for (label, value, exact) in lines {
        ui.horizontal(|ui| {
            weak_ui(ui, label);
            let bad = label.starts_with("NaN");
            let color = if bad { theme::colors(ui).error } else { theme::colors(ui).text };
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let icon = if bad { format!("{} ", icons::WARNING) } else { String::new() };
                ui.label(RichText::new(format!("{icon}{value}")).size(12.0).color(color)).on_hover_text(exact);
            });
        });
    }
}

/// Buttons for the pictures along the leading axes.
fn slices_ui(ui: &mut Ui, p: &Picture, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 2.0;
        let back = ui.add_enabled_ui(p.slice > 0, |ui| icon_ui(ui, icons::BACK, "Picture before", "Picture before"));
        if back.inner.clicked() {
            commands.push(UiCommand::ShowSlice(p.slice - 1));
        }
        let more = p.slice + 1 < p.slices;
        let next = ui.add_enabled_ui(more, |ui| icon_ui(ui, icons::FORWARD, "Next picture", "Next picture"));
        if next.inner.clicked() {
            commands.push(UiCommand::ShowSlice(p.slice + 1));
        }
        let at: Vec<String> = p.at.iter().map(ToString::to_string).collect();
        weak_ui(ui, format!("[{}, :, :], {} of {}", at.join(", "), p.slice + 1, p.slices));
    });
}

fn first_bad_ui(ui: &mut Ui, view: &ValuesView<'_>, commands: &mut CommandQueue) {
    ui.add_space(4.0);
    let enabled = view.can_search;
    let info = UiCommand::FindFirstBad.info();
    let button = Button::new(RichText::new(format!("{}  {}", info.icon, info.label)).size(12.0));
    let response = ui.add_enabled(enabled, button).on_hover_text(info.about);
    named(&response, info.label, enabled);
    if response.clicked() {
        commands.push(UiCommand::FindFirstBad);
    }
    let Some(found) = view.first_bad else { return };
    let Some(bad) = found else {
        weak_ui(ui, "Every value of the step is finite.");
        return;
    };
    let kernel = |op: usize| view.plan.and_then(|p| p.ops.get(op)).map_or("", |o| o.kernel.as_str());
    match bad.op {
        Some(op) => link_ui(ui, "made by", &format!("{op} {}", kernel(op)), Selection::Op(op), commands),
        None => drop(weak_ui(ui, "It existed before the step: check the data, or the weights.")),
    }
    link_ui(ui, "first in", &bad.name, Selection::Buffer(bad.buffer), commands);
}
