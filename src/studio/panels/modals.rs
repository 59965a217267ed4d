//! Questions that stand before everything else: unsaved changes, and a path to type where the system has no file dialog.

use crate::studio::commands::{Command, Queue};
use crate::studio::files::Asked;
use crate::studio::state::Studio;
use crate::studio::theme;
use crate::studio::widgets::button::weak_ui;
use egui::{Align, Id, Key, Layout, Modal, RichText, TextEdit, Ui};
use std::path::PathBuf;

/// The question that is open, if any.
#[derive(Default)]
pub struct Modals {
    path: Option<(Asked, String, bool)>,
    /// What waits for an answer about unsaved changes.
    unsaved: Option<Command>,
}

/// The answer to the question about unsaved changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Unsaved {
    SaveThen(Command),
    DiscardThen(Command),
}

impl Modals {
    /// Asks for a path.
    pub fn ask_path(&mut self, what: Asked, start: String) {
        self.path = Some((what, start, true));
    }

    /// Asks what to do with unsaved changes before `then`.
    pub fn ask_unsaved(&mut self, then: Command) {
        self.unsaved = Some(then);
    }
}

/// Shows the open question; gives the answer about unsaved changes.
pub fn modals_ui(ui: &Ui, studio: &Studio, modals: &mut Modals, out: &mut Queue) -> Option<Unsaved> {
    path_ui(ui, modals, out);
    unsaved_ui(ui, studio, modals)
}

fn path_ui(ui: &Ui, modals: &mut Modals, out: &mut Queue) {
    let Some((what, text, fresh)) = &mut modals.path else { return };
    let (title, action) = match what {
        Asked::Open => ("Open a preset by its path", "Open"),
        Asked::SaveAs => ("Save the preset by its path", "Save"),
    };
    let modal = Modal::new(Id::unique("path")).show(ui.ctx(), |ui| {
        ui.set_width(480.0);
        ui.label(RichText::new(title).font(theme::strong(15.0)));
        weak_ui(ui, "Type the path of a .json file.");
        ui.add_space(8.0);
        let edit = TextEdit::singleline(text).desired_width(f32::INFINITY).font(theme::mono()).id_salt("typed path");
        let response = ui.name_inputs("Path", |ui| ui.add(edit));
        if std::mem::take(fresh) {
            response.request_focus();
        }
        let entered = response.lost_focus() && ui.input(|i| i.key_pressed(Key::Enter));
        ui.add_space(8.0);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let sound = !text.trim().is_empty();
            let go = ui.add_enabled(sound, egui::Button::new(action)).clicked() || (entered && sound);
            let cancel = ui.button("Cancel").clicked();
            (go, cancel)
        })
        .inner
    });
    let (go, cancel) = modal.inner;
    if go {
        let path = PathBuf::from(text.trim());
        out.push(match what {
            Asked::Open => Command::OpenFile(path),
            Asked::SaveAs => Command::SaveFile(path),
        });
    }
    if go || cancel || modal.should_close() {
        modals.path = None;
    }
}

fn unsaved_ui(ui: &Ui, studio: &Studio, modals: &mut Modals) -> Option<Unsaved> {
    let then = modals.unsaved.clone()?;
    let modal = Modal::new(Id::unique("unsaved")).show(ui.ctx(), |ui| {
        ui.set_width(400.0);
        ui.label(RichText::new(format!("Save the changes to {}?", studio.document.title())).font(theme::strong(15.0)));
        weak_ui(ui, "Without saving, the edits since the last save are lost.");
        ui.add_space(8.0);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let save = ui.button("Save changes").clicked();
            let cancel = ui.button("Cancel").clicked();
            let discard = ui.button("Discard changes").clicked();
            (save, discard, cancel)
        })
        .inner
    });
    let (save, discard, cancel) = modal.inner;
    if save || discard || cancel || modal.should_close() {
        modals.unsaved = None;
    }
    match (save, discard) {
        (true, _) => Some(Unsaved::SaveThen(then)),
        (_, true) => Some(Unsaved::DiscardThen(then)),
        _ => None,
    }
}
