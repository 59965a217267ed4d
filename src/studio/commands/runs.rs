//! The commands for kept runs; most of them apply to the selected runs.

use crate::studio::commands::info::Info;
use crate::studio::theme::icons;
use crate::train::export::Format;
use serde::{Deserialize, Serialize};

/// A column of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Column {
    Name,
    #[default]
    Started,
    Preset,
    Device,
    Precision,
    Steps,
    Loss,
    HeldOut,
    StepTime,
    State,
}

impl Column {
    pub const ALL: [Self; 10] = [
        Self::Name,
        Self::State,
        Self::Started,
        Self::Steps,
        Self::Loss,
        Self::HeldOut,
        Self::StepTime,
        Self::Preset,
        Self::Precision,
        Self::Device,
    ];

    /// The title of the column.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Started => "Started",
            Self::Preset => "Preset",
            Self::Device => "Device",
            Self::Precision => "Precision",
            Self::Steps => "Steps",
            Self::Loss => "Loss",
            Self::HeldOut => "Held-out",
            Self::StepTime => "Step",
            Self::State => "State",
        }
    }

    /// What the column shows, including its unit.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Name => "The run's name, or its preset's",
            Self::Started => "When its training was prepared; exact times are UTC",
            Self::Preset => "The network that was trained",
            Self::Device => "What it was trained on",
            Self::Precision => "The precision of products and activations",
            Self::Steps => "Steps made",
            Self::Loss => "Mean loss of the last 32 batches, before each update",
            Self::HeldOut => "Accuracy on samples that it never trained on; the loss if there are no classes",
            Self::StepTime => "Median host time of the last 4096 steps",
            Self::State => "How it ended",
        }
    }

    /// True for numbers, which are aligned to the right.
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Steps | Self::Loss | Self::HeldOut | Self::StepTime)
    }
}

/// A command for kept runs.
#[derive(Clone, Debug, PartialEq)]
pub enum RunsCommand {
    /// Selects only this run.
    Select(String),
    /// Adds this run to the comparison, or removes it.
    Toggle(String),
    /// Shows this run in the table, with its curves.
    Show(String),
    ClearSelection,
    SortBy(Column),
    Rename(String, String),
    Hide,
    Unhide,
    ShowHidden,
    /// Asks first.
    Delete,
    /// Restores the runs that were deleted last.
    Restore,
    /// Lists deleted runs, or the kept runs again.
    ShowTrash,
    RestoreRun(String),
    /// Deletes runs in the trash permanently; asks first.
    Remove(Vec<String>),
    Pin,
    PinRun(String),
    Unpin,
    OpenPreset,
    /// Continues from the run's checkpoint; asks first if another network is open.
    Continue,
    /// Continues this run, in its own network.
    ContinueRun(String),
    CopyFolder,
    Export(Format),
    MakeCapsule,
    ReplayCapsule,
    CancelCapsule,
    DismissReplay,
    ByTime(bool),
}

/// The effect of continuing.
const GOES_ON: &str = "Continues from the run's last checkpoint, with its optimizer, in the same curves";

impl RunsCommand {
    /// The commands in the palette.
    #[must_use]
    pub fn listed() -> Vec<Self> {
        let mut out = vec![Self::Continue, Self::Pin, Self::Unpin, Self::OpenPreset, Self::CopyFolder];
        out.extend([Self::Hide, Self::Unhide]);
        out.extend([Self::ShowHidden, Self::Delete, Self::Restore, Self::ShowTrash, Self::ClearSelection]);
        out.extend(Format::ALL.map(Self::Export));
        out.extend([Self::MakeCapsule, Self::ReplayCapsule, Self::CancelCapsule]);
        out
    }

    /// True if it applies to the selected runs.
    #[must_use]
    pub const fn needs_selection(&self) -> bool {
        matches!(
            self,
            Self::Hide
                | Self::Unhide
                | Self::Delete
                | Self::Pin
                | Self::OpenPreset
                | Self::Continue
                | Self::CopyFolder
                | Self::Export(_)
                | Self::ClearSelection
        )
    }

    /// The command's appearance.
    #[must_use]
    pub fn info(&self) -> Info {
        let of = |label, icon, about| Info { label, icon, shortcut: None, about };
        match self {
            Self::Select(_) => of("Select run", icons::FIT, "Shows the curves of this run alone"),
            Self::Show(_) => {
                of("Show in Runs", icons::RECENT, "Shows this run among those that are kept, with its curves")
            }
            Self::Toggle(_) => of("Compare run", icons::FIT, "Draws the curves of this run over the others"),
            Self::ClearSelection => of("Select no run", icons::CLOSE, "Removes every run from the comparison"),
            Self::SortBy(_) => of("Sort runs", icons::DOWN, "Sorts by this column; a second click reverses the order"),
            Self::Rename(..) => of("Rename run", icons::FILE, "Gives the run a name; an empty text removes the name"),
            Self::Hide => of("Hide run", icons::CLOSE, "Hides the selected runs in the list"),
            Self::Unhide => of("Unhide run", icons::CHECK, "Shows the selected runs in the list again"),
            Self::ShowHidden => of("Show hidden runs", icons::SEARCH, "Shows or hides the hidden runs in the list"),
            Self::Delete => of("Delete run…", icons::TRASH, "Moves the selected runs to the trash, after a question"),
            Self::Restore => {
                of("Bring back deleted runs", icons::UNDO, "Restores the runs that were deleted last from the trash")
            }
            Self::ShowTrash => of(
                "Show the trash of runs",
                icons::TRASH,
                "Lists the runs that were deleted, to restore them or delete them permanently",
            ),
            Self::RestoreRun(_) => of("Restore", icons::UNDO, "Restores this run from the trash"),
            Self::Remove(_) => of("Delete permanently…", icons::TRASH, "Removes it from the disk, after a question"),
            Self::Pin | Self::PinRun(_) => of(
                "Pin run as baseline",
                icons::TRAIN,
                "Draws its curves in a faint colour behind those of the current run",
            ),
            Self::Unpin => {
                of("Unpin the baseline", icons::CLOSE, "Removes the pinned run from the plots of the Train tab")
            }
            Self::OpenPreset => {
                of("Open the run's preset", icons::OPEN, "Opens the network of the selected run as a document")
            }
            Self::Continue => of("Continue the selected run", icons::PLAY, GOES_ON),
            Self::ContinueRun(_) => of("Continue", icons::PLAY, GOES_ON),
            Self::CopyFolder => {
                of("Copy the run's folder", icons::COPY, "Copies the path of the run's folder to the clipboard")
            }
            Self::Export(_) => of("Export run…", icons::SAVE, "Writes the selected run to a file of another format"),
            Self::MakeCapsule => of(
                "Make a capsule…",
                icons::FROZEN,
                "Trains the open network once more and keeps everything needed to repeat it to the bit",
            ),
            Self::ReplayCapsule => {
                of("Replay a capsule…", icons::FROZEN, "Repeats the training of a capsule and compares every bit")
            }
            Self::CancelCapsule => of("Cancel the capsule", icons::STOP, "Stops making or replaying a capsule"),
            Self::DismissReplay => of("Close report", icons::CLOSE, "Closes the report of the replay"),
            Self::ByTime(_) => of("By running time", icons::RECENT, "Draws curves over running time instead of steps"),
        }
    }
}
