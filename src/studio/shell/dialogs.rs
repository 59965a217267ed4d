//! Requests files: with a dialog of the system, or with a typed path.

use crate::studio::document::dialog::DialogPurpose;
use crate::studio::document::history::Document;
use crate::studio::shell::app::StudioApp;
use std::path::Path;

impl StudioApp {
    /// Opens the dialog for a typed path.
    pub(super) fn ask_path(&mut self, what: DialogPurpose) {
        self.panels.modals.ask_path(what, self.start_path(what));
    }

    fn start_path(&self, what: DialogPurpose) -> String {
        let document: &Document = &self.studio.document;
        match (document.path(), what) {
            (Some(path), DialogPurpose::Weights) => path.with_file_name(self.weights_name()).display().to_string(),
            (None, DialogPurpose::Weights) => self.weights_name(),
            (_, DialogPurpose::Data(_) | DialogPurpose::DataFolder(_)) => document.base().display().to_string(),
            (Some(path), DialogPurpose::Export(_) | DialogPurpose::Capsule) => {
                path.with_file_name(self.export_name(what)).display().to_string()
            }
            (_, DialogPurpose::Export(_) | DialogPurpose::Capsule | DialogPurpose::Replay) => self.export_name(what),
            (Some(path), _) => path.display().to_string(),
            (None, DialogPurpose::SaveAs) => format!("{}.json", document.preset().name),
            (None, DialogPurpose::Open) => String::new(),
        }
    }

    /// The proposed file name for the weights of the run.
    fn weights_name(&self) -> String {
        let trained = self.studio.training.preset.as_ref().unwrap_or_else(|| self.studio.document.preset());
        format!("{}.safetensors", trained.name)
    }

    pub(super) fn ask(&self, what: DialogPurpose) {
        let document = &self.studio.document;
        let name = match (what, document.path().and_then(Path::file_name)) {
            (DialogPurpose::Weights, _) => self.weights_name(),
            (DialogPurpose::Export(_) | DialogPurpose::Capsule | DialogPurpose::Replay, _) => self.export_name(what),
            (_, Some(name)) => name.to_string_lossy().into_owned(),
            (_, None) => format!("{}.json", document.preset().name),
        };
        self.studio.files.ask(what, &name, document.path().and_then(Path::parent));
    }
}
