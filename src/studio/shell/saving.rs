//! Saves the document and weights, and processes the answers of the thread that reads and writes files.

use crate::model::Preset;
use crate::studio::commands::Edit;
use crate::studio::document::fields::value::{FieldValue, Owner};
use crate::studio::document::files::{FileEvent, Overwrite};
use crate::studio::document::presets;
use crate::studio::panels::modals::Question;
use crate::studio::shell::app::StudioApp;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl StudioApp {
    /// Saves the document; if something would be lost by it and the user was not `asked`, a question follows.
    pub(super) fn save_to(&mut self, path: PathBuf, asked: bool) {
        // A name without an extension gets that of presets.
        let path = if path.extension().is_none() { path.with_extension("json") } else { path };
        self.name_after(&path);
        let own = self.studio.document.path().map(Path::to_owned);
        let onto = if asked { Overwrite::Anything } else { Overwrite::Own(own) };
        if !self.studio.files.save(path, Arc::clone(self.studio.document.preset()), onto) {
            self.after_save = None;
            self.studio.complain("Too many files are being written. Try again in a moment.");
        }
    }

    /// An unnamed network takes the name of its file.
    fn name_after(&mut self, path: &Path) {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if self.studio.document.preset().name == presets::UNTITLED
            && !stem.is_empty()
            && !stem.contains(char::is_control)
        {
            let name = FieldValue::Text(stem);
            self.studio.document.apply(&Edit::SetField { owner: Owner::Preset, name: "name", value: name });
        }
    }

    pub(super) fn probe_for_weights(&mut self, path: PathBuf) {
        let path = if path.extension().is_none() { path.with_extension("safetensors") } else { path };
        // The run writes later, on another thread: the path must be absolute.
        let path = std::path::absolute(&path).unwrap_or(path);
        if !self.studio.files.probe(path) {
            self.after_weights = None;
            self.studio.complain("Too many files are being written. Try again in a moment.");
        }
    }

    pub(super) fn save_weights_to(&mut self, path: PathBuf) {
        if !self.studio.training.save_weights(path) {
            self.after_weights = None;
            self.studio.complain("The weights were not saved: no run has them any more.");
        }
    }

    /// Receives the run's results of saving weights.
    pub(super) fn take_saved_weights(&mut self, ctx: &egui::Context) {
        while let Some(outcome) = self.studio.training.take_saved() {
            match outcome {
                Ok(path) => {
                    self.studio.say(format!("Weights saved to {}", path.display()));
                    let Some((then, revision)) = self.after_weights.take() else { continue };
                    // A run that continues has newer weights by now; the user has decided about that. The user is asked
                    // about edits made since.
                    if revision == self.studio.document.revision() {
                        self.carry_out(ctx, then);
                    } else {
                        self.perform(ctx, then);
                    }
                }
                Err(why) => {
                    self.after_weights = None;
                    self.studio.complain(format!("The weights were not saved: {why}"));
                }
            }
        }
    }

    /// Reads a preset; the answer opens it.
    pub(super) fn open_file(&mut self, path: PathBuf) {
        if !self.studio.files.read(path) {
            self.studio.complain("Too many files are being opened. Try again in a moment.");
        }
    }

    /// Receives results from the file thread.
    pub(super) fn take_file_events(&mut self, ctx: &egui::Context) {
        while let Some(event) = self.studio.files.poll() {
            match event {
                FileEvent::Chosen(_, None) => (self.after_save, self.after_weights) = (None, None),
                FileEvent::Chosen(purpose, Some(path)) => self.perform(ctx, purpose.request(path, false)),
                FileEvent::Free(path) => self.save_weights_to(path),
                FileEvent::Exists(what, path) => self.panels.modals.ask(Question::Replace(what, path)),
                FileEvent::Changed(path) => self.panels.modals.ask(Question::Changed(path)),
                FileEvent::NoDialog(what) => self.ask_path(what),
                FileEvent::Opened(path, result) => self.take_opened(path, *result),
                FileEvent::Saved(path, preset) => {
                    let path = std::path::absolute(&path).unwrap_or(path);
                    self.studio.settings.remember(path.clone());
                    self.studio.say(format!("Saved to {}", path.display()));
                    self.studio.document.mark_saved(path, preset);
                    if let Some(then) = self.after_save.take() {
                        self.perform(ctx, then);
                    }
                }
                FileEvent::Failed(text) => {
                    self.after_save = None;
                    self.refuse(text);
                }
            }
        }
    }

    /// Opens a preset that was read. A file that cannot be opened is removed from the recent files.
    fn take_opened(&mut self, path: PathBuf, result: Result<Preset, String>) {
        match result {
            Ok(preset) => {
                let path = std::path::absolute(&path).unwrap_or(path);
                self.studio.settings.remember(path.clone());
                self.open_document(preset, Some(path));
            }
            Err(text) => {
                self.studio.settings.recent.retain(|p| *p != path);
                self.refuse(text);
            }
        }
    }

    /// A file that was not opened or not written is reported immediately, with the whole message.
    pub(super) fn refuse(&mut self, text: String) {
        self.studio.complain(text);
        self.show_notice();
    }

    pub(super) fn show_notice(&mut self) {
        if let Some(notice) = self.studio.notice.clone() {
            self.panels.modals.report(notice);
        }
    }
}
