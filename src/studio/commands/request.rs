//! Requests from the program itself: the rest of a command, after a dialog, a question or a thread has answered.

use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::ui_command::UiCommand;
use crate::studio::document::dialog::{DataField, DialogPurpose};
use crate::train::export::Format;
use std::path::PathBuf;

/// A request from the program itself. For requests that write a file, `replace` says that the user agreed to replace an
/// existing one.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Opens a preset file.
    Open(PathBuf),
    Save {
        path: PathBuf,
        replace: bool,
    },
    SaveWeights {
        path: PathBuf,
        replace: bool,
    },
    /// Sets a field of the data to this file or folder.
    UseData(DataField, PathBuf),
    /// Exports the selected runs.
    ExportRuns {
        format: Format,
        path: PathBuf,
        replace: bool,
    },
    MakeCapsule {
        path: PathBuf,
        replace: bool,
    },
    ReplayCapsule(PathBuf),
    /// Moves runs to the trash, after the user agreed.
    DeleteRuns(Vec<String>),
    /// Deletes runs from the trash permanently, after the user agreed.
    RemoveRuns(Vec<String>),
    /// Opens a run's own network and continues the run.
    ContinueInOwnNetwork(String),
}

impl DialogPurpose {
    /// The action that follows once this path was chosen.
    #[must_use]
    pub fn request(self, path: PathBuf, replace: bool) -> Request {
        match self {
            Self::Open => Request::Open(path),
            Self::SaveAs => Request::Save { path, replace },
            Self::Weights => Request::SaveWeights { path, replace },
            Self::Data(field) | Self::DataFolder(field) => Request::UseData(field, path),
            Self::Export(format) => Request::ExportRuns { format, path, replace },
            Self::Capsule => Request::MakeCapsule { path, replace },
            Self::Replay => Request::ReplayCapsule(path),
        }
    }
}

/// An action, independent of where it was requested.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Command(UiCommand),
    Request(Request),
}

impl Action {
    /// True if it replaces the open document by another one.
    #[must_use]
    pub const fn replaces_document(&self) -> bool {
        matches!(
            self,
            Self::Command(
                UiCommand::New
                    | UiCommand::NewFromPreset(_)
                    | UiCommand::OpenRecent(_)
                    | UiCommand::Runs(RunsCommand::OpenPreset)
            ) | Self::Request(Request::Open(_) | Request::ContinueInOwnNetwork(_))
        )
    }
}

impl From<UiCommand> for Action {
    fn from(command: UiCommand) -> Self {
        Self::Command(command)
    }
}

impl From<Request> for Action {
    fn from(request: Request) -> Self {
        Self::Request(request)
    }
}
