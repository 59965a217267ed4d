//! The panels beside the tabs: shown where the window is wide enough, unless a person decides otherwise.

use super::commands::{CTRL, Info, keys};
use super::icons;
use super::settings::Settings;
use egui::Key;

/// A panel beside the tabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Network,
    Inspector,
}

impl Side {
    /// The width of the window, in points, from which the panel leaves enough room for the tabs.
    const fn least_width(self) -> f32 {
        match self {
            Self::Network => 700.0,
            Self::Inspector => 1000.0,
        }
    }

    /// True where the panel is shown in a window of this width.
    #[must_use]
    pub fn is_shown(self, settings: &Settings, width: f32) -> bool {
        let chosen = match self {
            Self::Network => settings.show_network,
            Self::Inspector => settings.show_inspector,
        };
        chosen.unwrap_or(width >= self.least_width())
    }

    /// Shows the panel, or hides it. What the width of the window would do by itself is no choice that is remembered.
    pub fn toggle(self, settings: &mut Settings, width: f32) {
        let show = !self.is_shown(settings, width);
        let choice = (show != (width >= self.least_width())).then_some(show);
        match self {
            Self::Network => settings.show_network = choice,
            Self::Inspector => settings.show_inspector = choice,
        }
    }

    /// How the command looks that shows and hides the panel.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_gives_way_to_the_tabs_unless_it_was_asked_for() {
        let mut settings = Settings::default();
        let shown = |s: &Settings, width| (Side::Network.is_shown(s, width), Side::Inspector.is_shown(s, width));
        assert_eq!([1280.0, 900.0, 600.0].map(|w| shown(&settings, w)), [(true, true), (true, false), (false, false)]);
        Side::Inspector.toggle(&mut settings, 900.0);
        assert_eq!(shown(&settings, 900.0), (true, true));
        Side::Inspector.toggle(&mut settings, 900.0);
        assert_eq!(settings, Settings::default());
    }
}
