//! The panels beside the tabs.

use crate::studio::commands::info::{CTRL, Info, keys};
use crate::studio::theme::icons;
use egui::Key;

/// A panel beside the tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Network,
    Inspector,
}

impl Side {
    /// The smallest width of the window, in points, for which enough space is left for the tabs.
    #[must_use]
    pub const fn least_width(self) -> f32 {
        match self {
            Self::Network => 700.0,
            Self::Inspector => 1000.0,
        }
    }

    /// The appearance of the command that shows and hides the panel.
    #[must_use]
    pub const fn info(self) -> Info {
        let (label, icon, shortcut, about) = match self {
            Self::Network => {
                ("Network panel", icons::STEPS, keys(CTRL, Key::B), "Shows or hides the network at the left")
            }
            Self::Inspector => {
                ("Inspector", icons::INFO, keys(CTRL, Key::I), "Shows or hides the inspector at the right")
            }
        };
        Info { label, icon, shortcut, about }
    }
}
