//! Whether the network can be used, and which commands would do something now.

use crate::studio::commands::UiCommand;

/// Whether the network can be trained and proved, and what is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// It has no layers yet.
    Empty,
    HasProblems,
    /// Its step is being planned.
    Compiling,
    /// The chosen device is not here.
    DeviceAbsent,
}

/// The commands that would do something now.
#[derive(Clone, Debug, Default)]
pub struct EnabledCommands {
    disabled: Vec<UiCommand>,
}

impl EnabledCommands {
    /// Every command but these.
    #[must_use]
    pub const fn all_but(disabled: Vec<UiCommand>) -> Self {
        Self { disabled }
    }

    /// True where a command would do something now.
    #[must_use]
    pub fn has(&self, command: &UiCommand) -> bool {
        !self.disabled.contains(command)
    }
}
