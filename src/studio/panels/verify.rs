//! The checks of a step: a button for each, and their results.

use crate::studio::commands::selection::Selection;
use crate::studio::commands::{CommandQueue, UiCommand};
use crate::studio::panels::plan_state::unready_ui;
use crate::studio::theme;
use crate::studio::theme::icons;
use crate::studio::view_models::format;
use crate::studio::view_models::format::plain_count;
use crate::studio::view_models::panels::verify::VerifyView;
use crate::studio::view_models::proofs::Proved;
use crate::studio::view_models::readiness::Readiness;
use crate::studio::widgets::button::{command_ui, empty_ui, named, weak_ui};
use crate::studio::widgets::field::problem_ui;
use crate::tensor::Bytes;
use crate::train::{Compared, Culprit, Proof};
use egui::{Align, Button, CollapsingHeader, Layout, RichText, ScrollArea, TextEdit, Ui, Vec2};
use egui_extras::{Column, TableBuilder};
use std::time::Duration;

/// The state of the panel.
#[derive(Default)]
pub struct VerifyPanel {
    /// The number of replays that is being typed.
    replays: Option<String>,
}

/// Shows the panel.
pub fn verify_ui(ui: &mut Ui, view: &VerifyView<'_>, panel: &mut VerifyPanel, commands: &mut CommandQueue) {
    buttons_ui(ui, view, panel, commands);
    ui.add_space(4.0);
    status_ui(ui, view, commands);
    ui.separator();
    if view.proved.is_empty() && !view.is_running {
        if view.readiness != Readiness::Ready {
            return unready_ui(ui, view.readiness, "verify its step", commands);
        }
        let next = "The window stays usable while checks run, and each figure appears when it is known.";
        return empty_ui(ui, "Nothing verified yet", next);
    }
    ScrollArea::vertical().id_salt("proofs").auto_shrink([false, false]).show(ui, |ui| {
        for proof in Proof::ALL {
            let own: Vec<&Proved> = view.proved.iter().filter(|p| p.proof == proof).collect();
            let runs = view.current.filter(|(p, _)| *p == proof);
            if own.is_empty() && runs.is_none() {
                continue;
            }
            ui.add_space(8.0);
            ui.label(RichText::new(proof.name()).font(theme::strong(13.0))).on_hover_text(proof.about());
            for proved in own {
                check_ui(ui, view, proved, commands);
            }
            if let Some((_, name)) = runs {
                ui.horizontal(|ui| {
                    ui.add(egui::Spinner::new().size(12.0));
                    weak_ui(ui, format!("{name}, {}", format::duration(view.seconds)));
                });
            }
        }
        ui.add_space(16.0);
    });
}

fn buttons_ui(ui: &mut Ui, view: &VerifyView<'_>, panel: &mut VerifyPanel, commands: &mut CommandQueue) {
    let ready = view.can_prove;
    ui.horizontal_wrapped(|ui| {
        let c = theme::colors(ui);
        let text = RichText::new(format!("{}  Verify everything", icons::CHECK)).color(c.on_accent);
        let button = ui.add_enabled(ready, Button::new(text).fill(c.accent));
        named(&button, "Verify everything", ready);
        if button.on_hover_text(UiCommand::Prove(None).tooltip(ui.ctx())).clicked() {
            commands.push(UiCommand::Prove(None));
        }
        for proof in Proof::ALL {
            let button = ui.add_enabled(ready, Button::new(proof.name())).on_hover_text(proof.about());
            if button.clicked() {
                commands.push(UiCommand::Prove(Some(proof)));
            }
        }
    });
    replays_ui(ui, view, panel, commands);
}

/// How often the step is replayed to check that it is deterministic.
fn replays_ui(ui: &mut Ui, view: &VerifyView<'_>, panel: &mut VerifyPanel, commands: &mut CommandQueue) {
    ui.horizontal(|ui| {
        weak_ui(ui, "replays");
        let set = view.replays;
        let mut text = panel.replays.clone().unwrap_or_else(|| set.map_or_else(String::new, |n| n.to_string()));
        let edit = TextEdit::singleline(&mut text).desired_width(72.0).font(theme::mono());
        let edit = edit.id_salt("replays");
        let response = ui.name_inputs("Replays of the stress", |ui| ui.add(edit)).on_hover_text(
            "The number of replays in each of two series that check determinism; empty: as many as take six seconds",
        );
        if text.is_empty() {
            weak_ui(ui, "as many as a few seconds allow");
        }
        if response.changed() {
            let parsed = text.trim().parse::<u64>().ok().filter(|n| *n > 0);
            if text.trim().is_empty() || parsed.is_some() {
                commands.push(UiCommand::SetReplays(parsed));
            }
            panel.replays = Some(text);
        } else if response.lost_focus() {
            panel.replays = None;
        }
        let wrong = panel
            .replays
            .as_ref()
            .is_some_and(|t| !t.trim().is_empty() && t.trim().parse::<u64>().ok().filter(|n| *n > 0).is_none());
        if wrong {
            problem_ui(ui, "expected a whole number, at least 1", "");
        }
    });
}

fn status_ui(ui: &mut Ui, view: &VerifyView<'_>, commands: &mut CommandQueue) {
    if let Some(problem) = view.problem {
        problem_ui(ui, problem, "");
    }
    price_ui(ui, view);
    ui.horizontal_wrapped(|ui| {
        // As high as its button, so that nothing moves when the button appears or disappears.
        ui.set_min_height(24.0);
        if view.is_running {
            // A long check shows its time, even if nothing else changes.
            ui.ctx().request_repaint_after(Duration::from_millis(500));
            let text = view.current.map_or_else(|| "preparing".to_owned(), |(p, name)| format!("{}: {name}", p.name()));
            weak_ui(ui, text);
            command_ui(ui, UiCommand::CancelProofs, true, commands);
            return;
        }
        let count = |wanted: Option<bool>| view.proved.iter().filter(|p| p.check.passed == wanted).count();
        let (good, bad, skipped) = (count(Some(true)), count(Some(false)), count(None));
        if good + bad + skipped == 0 {
            return;
        }
        let c = theme::colors(ui);
        let color = if bad > 0 { c.error } else { c.text };
        let text = format!("{good} passed, {bad} failed, {skipped} skipped");
        ui.label(RichText::new(text).color(color));
        let revision = view.revision;
        if view.proved.iter().any(|p| p.revision != Some(revision)) {
            let why = match view.proved.iter().any(|p| p.revision.is_none()) {
                true => "another device was chosen since: results marked stale are not of it",
                false => "edited since: results marked stale are of an older network",
            };
            let text = format!("{}  {why}", icons::INFO);
            ui.label(RichText::new(text).size(12.0).color(c.warning));
        } else if let Some(one) = view.proved.first() {
            weak_ui(ui, format!("of {}, revision {revision}, the current one", one.document));
        }
    });
}

/// The estimated cost of all checks of the document. The line exists from the start, so that nothing below it moves.
fn price_ui(ui: &mut Ui, view: &VerifyView<'_>) {
    let replays = view.replays;
    let Some(found) = view.estimate else {
        let is_coming = view.readiness == Readiness::Ready && (view.is_estimating || view.is_running);
        weak_ui(ui, if is_coming { "estimating what everything takes…" } else { " " });
        return;
    };
    let (seconds, bytes) = (format::duration(found.price.seconds.max(1.0)), Bytes(found.price.bytes));
    let most = if replays.is_some() { "about" } else { "up to about" };
    let text = format!("everything takes {most} {seconds} and {bytes} of memory here");
    let about =
        "Estimated from the network: nearly all of the time is for gradients in double precision and repeated replays.";
    let c = theme::colors(ui);
    let (text, color) = match found.free.filter(|free| *free < found.price.bytes) {
        Some(free) => {
            let text = format!("{}  {text}, and {} are free: make the network smaller", icons::WARNING, Bytes(free));
            (text, c.warning)
        }
        None => (text, c.weak),
    };
    ui.add(egui::Label::new(RichText::new(text).size(12.0).color(color)).wrap()).on_hover_text(about);
}

fn check_ui(ui: &mut Ui, view: &VerifyView<'_>, proved: &Proved, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let check = &proved.check;
    let stale = proved.revision != Some(view.revision);
    let (sign, word, color) = match check.passed {
        Some(true) => (icons::CHECK, "passed", c.text),
        Some(false) => (icons::CLOSE, "failed", c.error),
        None => (icons::INFO, "skipped", c.weak),
    };
    // A table's columns; numbers may take several lines.
    let name_width = (ui.available_width() * 0.3).clamp(150.0, 280.0);
    ui.horizontal_top(|ui| {
        ui.spacing_mut().item_spacing.x = 8.0;
        let cell = |ui: &mut Ui, width: f32, add: &mut dyn FnMut(&mut Ui)| {
            ui.allocate_ui_with_layout(Vec2::new(width, 18.0), Layout::top_down(Align::Min), |ui| {
                ui.set_width(width);
                add(ui);
            });
        };
        cell(ui, 64.0, &mut |ui| drop(ui.label(RichText::new(format!("{sign}  {word}")).size(12.0).color(color))));
        cell(ui, name_width, &mut |ui| {
            ui.add(egui::Label::new(RichText::new(&check.name).font(theme::strong(12.0))).wrap());
            if stale {
                let (text, since) = match proved.revision {
                    Some(revision) => (format!("stale, of revision {revision}"), "The network was edited since"),
                    None => ("stale, of another device".to_owned(), "Another device was chosen since"),
                };
                ui.label(RichText::new(text).size(12.0).color(c.warning))
                    .on_hover_text(format!("{since}; check it again"));
            }
        });
        cell(ui, 48.0, &mut |ui| {
            weak_ui(ui, format!("{:.2} s", proved.seconds)).on_hover_text("Duration of the check");
        });
        let rest = (ui.available_width() - 8.0).max(120.0);
        cell(ui, rest, &mut |ui| drop(ui.add(egui::Label::new(RichText::new(&check.figures).size(12.0)).wrap())));
    });
    if check.detail.is_empty() && check.compared.is_empty() {
        return;
    }
    ui.indent(("figures", &check.name), |ui| {
        for (line, culprit) in check.detail.iter().zip(check.culprits.iter().chain(std::iter::repeat(&None))) {
            detail_ui(ui, line, culprit.as_ref().filter(|_| !stale), commands);
        }
        if !check.compared.is_empty() {
            CollapsingHeader::new(format!("{} compared", plain_count(check.compared.len(), "buffer")))
                .id_salt(("compared", &check.name))
                .show(ui, |ui| compared_ui(ui, &check.compared, !stale, commands));
        }
    });
}

/// A line about a failure; clicking it selects the operation or the layer that it names.
fn detail_ui(ui: &mut Ui, line: &str, culprit: Option<&Culprit>, commands: &mut CommandQueue) {
    let c = theme::colors(ui);
    let text = RichText::new(line).size(12.0).color(c.error);
    let Some(culprit) = culprit else {
        ui.add(egui::Label::new(text).wrap());
        return;
    };
    let (to, about) = match culprit {
        Culprit::Op(index) => (Selection::Op(*index), "Selects this operation in every view"),
        Culprit::Layer(path) => (Selection::Layer(path.clone()), "Selects this layer in every view"),
    };
    let button = ui.add(Button::new(text).frame(false).wrap()).on_hover_text(about);
    if button.clicked() {
        commands.push(UiCommand::Select(to));
    }
}

/// Every buffer with its differences.
fn compared_ui(ui: &mut Ui, compared: &[Compared], selectable: bool, commands: &mut CommandQueue) {
    let table = TableBuilder::new(ui)
        .id_salt("compared buffers")
        .auto_shrink([false, true])
        .max_scroll_height(240.0)
        .cell_layout(Layout::left_to_right(Align::Center))
        .column(Column::remainder().at_least(120.0).clip(true))
        .column(Column::exact(88.0))
        .column(Column::exact(120.0));
    let table = table.header(20.0, |mut row| {
        for name in ["buffer", "bytes", "eager and replay"] {
            row.col(|ui| drop(weak_ui(ui, name)));
        }
    });
    table.body(|body| {
        body.rows(20.0, compared.len(), |mut row| {
            let Some(one) = compared.get(row.index()) else { return };
            row.col(|ui| {
                let text = RichText::new(&one.name).font(theme::mono());
                let button = ui.add_enabled(selectable, Button::new(text).frame(false).truncate());
                if button.on_hover_text("Selects this buffer in every view").clicked() {
                    commands.push(UiCommand::Select(Selection::Buffer(one.buffer)));
                }
            });
            row.col(|ui| {
                let exact = format!("{} bytes", format::exact(one.bytes));
                ui.label(RichText::new(Bytes(one.bytes).to_string()).size(12.0)).on_hover_text(exact);
            });
            row.col(|ui| {
                let c = theme::colors(ui);
                let (text, color) = if one.different == 0 {
                    ("bit-equal".to_owned(), c.text)
                } else {
                    (format!("{} bytes differ", format::exact(one.different)), c.error)
                };
                ui.label(RichText::new(text).size(12.0).color(color));
            });
        });
    });
}
