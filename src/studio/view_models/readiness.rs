//! Whether the network can be used, and which commands are possible now.

use crate::studio::commands::UiCommand;

/// Whether the network can be trained and checked, otherwise the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// It has no layers yet.
    Empty,
    HasProblems,
    /// Its step is being planned.
    Compiling,
    /// The chosen device does not exist here.
    DeviceAbsent,
}

/// The commands that are possible now.
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

    /// True if a command is possible now.
    #[must_use]
    pub fn has(&self, command: &UiCommand) -> bool {
        !self.disabled.contains(command)
    }
}
