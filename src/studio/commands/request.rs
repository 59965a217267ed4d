//! What the program asks of itself: the rest of a command, once a dialog, a question or a thread has answered.

use crate::studio::commands::runs::RunsCommand;
use crate::studio::commands::ui_command::UiCommand;
use crate::studio::document::dialog::{DataField, DialogPurpose};
use crate::train::export::Format;
use std::path::PathBuf;

/// What the program asks of itself. Where a file would be written, `replace` says that the person agreed to lose what
/// is there.
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
    /// Has a field of the data name this file or folder.
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
    /// Moves runs to the trash: the person agreed.
    DeleteRuns(Vec<String>),
    /// Removes runs from the trash for good: the person agreed.
    RemoveRuns(Vec<String>),
    /// Opens a run's own network and continues the run.
    ContinueInOwnNetwork(String),
}

impl DialogPurpose {
    /// What follows when this path was chosen.
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
    /// True where it puts another document in the place of the one that is open.
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
