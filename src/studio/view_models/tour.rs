//! The steps of the tour: their titles, texts and commands.

use crate::studio::commands::UiCommand;
use crate::studio::commands::tab::Tab;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TourStep {
    Train,
    Memory,
    Edit,
}

impl TourStep {
    pub const ALL: [Self; 3] = [Self::Train, Self::Memory, Self::Edit];

    /// From 1.
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize + 1
    }

    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Train => "Train it",
            Self::Memory => "See where the memory went",
            Self::Edit => "Change it and watch the plan",
        }
    }

    /// What to do and what it shows.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Train => {
                "Train records this network's training step once and replays it, over and over; the curves \
                 follow while it learns."
            }
            Self::Memory => {
                "Every buffer of the step is a rectangle: operations run to the right, bytes stack \
                 upwards. Open the map, click the largest buffer, and the inspector names the layer that owns it."
            }
            Self::Edit => {
                "Change a number on a layer's card, its units for example. The step is planned again at \
                 once, and the status line at the bottom shows the difference. Click it to see every change."
            }
        }
    }

    /// The text after the step is done.
    #[must_use]
    pub const fn praise(self) -> &'static str {
        match self {
            Self::Train => {
                "The network is learning. The curves are on the Train tab; you can open other tabs while it trains."
            }
            Self::Memory => "That is the buffer, and its layer is in the inspector. Alt and arrow left goes back.",
            Self::Edit => "Planned again. Undo (Ctrl+Z) reverts the edit; nothing is ever lost.",
        }
    }

    /// A command that performs the step, or starts it, with the name of its button.
    #[must_use]
    pub const fn offer(self) -> Option<(&'static str, UiCommand)> {
        match self {
            Self::Train => Some(("Train now", UiCommand::Train)),
            Self::Memory => Some(("Open the arena", UiCommand::ShowTab(Tab::Arena))),
            Self::Edit => None,
        }
    }
}
