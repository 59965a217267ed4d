//! The line above a plot: its title, the meaning of its colours, and the values at the pointer.

use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::widgets::button::named;
use crate::studio::widgets::layer_curves::{key_ui, layer_keys_fit, layer_keys_ui};
use crate::studio::widgets::plot_spec::{Curve, PlotSpec};
use egui::{Button, RichText, Ui, Vec2};

/// Shows the title with its description; returns true if the names of layers do not fit in it.
pub(super) fn head_ui(ui: &mut Ui, spec: &PlotSpec<'_>, cursor: Option<f64>, commands: &mut CommandQueue) -> bool {
    let mut lacks_room = false;
    let c = theme::colors(ui);
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 6.0;
        ui.label(RichText::new(spec.title).font(theme::strong(13.0)));
        log_ui(ui, spec, commands);
        let values = spec.values_at(cursor);
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            let mut text = values.first().map(|(_, v)| (spec.value)(*v)).unwrap_or_default();
            if let (Curve::Layers { curves, .. }, Some((name, _))) = (&spec.curve, values.first()) {
                // If the pointer is not over a plot, the names of the colours are more useful than a number, and both
                // seldom fit.
                lacks_room = !layer_keys_fit(ui, &curves.names);
                text = if cursor.is_none() && !lacks_room { String::new() } else { format!("{name} {text}") };
            } else if let (Some(_), Some((_, v))) = (cursor, values.iter().find(|(n, _)| n == spec.points_name)) {
                text = format!("{text} / {}", (spec.value)(*v));
            }
            let exponentials = spec.exponentials(&values);
            let list = values.iter().map(|(n, v)| format!("{n}: {}", (spec.value)(*v)));
            let list: Vec<String> = list.chain(exponentials.clone()).collect();
            ui.label(RichText::new(text).font(theme::mono())).on_hover_text(list.join("\n"));
            ui.with_layout(egui::Layout::left_to_right(egui::Align::Center), |ui| {
                if let Some(step) = cursor {
                    let more = exponentials.map_or_else(String::new, |text| format!(", {text}"));
                    let text = format!("at step {}{more}", format::exact(step.round().max(0.0) as u64));
                    ui.add(egui::Label::new(RichText::new(text).size(12.0).color(c.weak)).truncate());
                    return;
                }
                keys_ui(ui, spec);
                if let Curve::Layers { curves, .. } = &spec.curve
                    && !lacks_room
                {
                    return layer_keys_ui(ui, &curves.names);
                }
                if let Some(text) = exponentials.as_ref().filter(|_| ui.available_width() > EXPONENTIAL_ROOM) {
                    let shown = RichText::new(text).size(12.0).color(c.weak);
                    let message =
                        "Perplexity, training / held-out: as uncertain as a choice among as many equally likely tokens";
                    ui.add(egui::Label::new(shown).truncate().show_tooltip_when_elided(false)).on_hover_text(message);
                }
                if !spec.unit.is_empty() {
                    let text = RichText::new(spec.unit).size(12.0).color(c.weak);
                    ui.add(egui::Label::new(text).truncate());
                }
            });
        });
    });
    lacks_room
}

/// The switch between a linear and a logarithmic axis.
fn log_ui(ui: &mut Ui, spec: &PlotSpec<'_>, commands: &mut CommandQueue) {
    if !spec.can_log {
        return;
    }
    let button = Button::selectable(spec.log, RichText::new("log").size(12.0)).min_size(Vec2::new(28.0, 18.0));
    let button = ui.add(button).on_hover_text(if spec.log {
        "The axis is logarithmic; click for a linear one"
    } else {
        "The axis is linear; click for a logarithmic one"
    });
    named(&button, &format!("{}: logarithmic axis", spec.title), true);
    if button.clicked() {
        commands.push(UiCommand::SetPlotLog(spec.title, !spec.log));
    }
}

/// The meaning of the colours, and what is missing from the curve.
fn keys_ui(ui: &mut Ui, spec: &PlotSpec<'_>) {
    let c = theme::colors(ui);
    if !spec.points_name.is_empty() {
        key_ui(ui, c.accent, spec.curve_name);
        let key = key_ui(ui, c.warning, spec.points_name);
        if let Some(every) = spec.points_every {
            key.on_hover_text(format!("Evaluated every {}", format::counted(every, "step")));
        }
    }
    if let Some((name, _)) = spec.baseline {
        let short = format!("baseline: {}", format::elided(name, NAME_LENGTH));
        let short = if ui.available_width() > NAME_ROOM { &short } else { "baseline" };
        let response = key_ui(ui, c.weak, short).on_hover_text(format!("The pinned run: {name}"));
        let name = format!("baseline {name}");
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &name));
    }
    if !spec.note.is_empty() {
        let sign = ui.label(RichText::new(icons::INFO).size(12.0).color(c.weak));
        sign.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, spec.note));
        sign.on_hover_text(spec.note);
    }
}

/// From this width on the exponentials of the values are shown.
const EXPONENTIAL_ROOM: f32 = 150.0;

/// From this width on a pinned run is named, with at most this many characters.
const NAME_ROOM: f32 = 210.0;
const NAME_LENGTH: usize = 18;
