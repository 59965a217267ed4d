//! The tabs in the middle of the window.

use serde::{Deserialize, Serialize};

/// A tab in the middle of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tab {
    Train,
    StepGraph,
    Arena,
    Capture,
    Data,
    Predictions,
    Runs,
    Verify,
    Recordings,
}

impl Tab {
    pub const ALL: [Self; 9] = [
        Self::Train,
        Self::StepGraph,
        Self::Arena,
        Self::Capture,
        Self::Data,
        Self::Predictions,
        Self::Runs,
        Self::Verify,
        Self::Recordings,
    ];

    /// The name on the tab.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Train => "Train",
            Self::StepGraph => "Step graph",
            Self::Arena => "Arena",
            Self::Capture => "Capture plan",
            Self::Data => "Data",
            Self::Predictions => "Predictions",
            Self::Verify => "Verify",
            Self::Runs => "Runs",
            Self::Recordings => "Recordings",
        }
    }
}
