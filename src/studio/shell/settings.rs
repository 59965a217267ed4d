//! What the window remembers from one start to the next.

use crate::ir::Metrics;
use crate::studio::commands::choices::DeviceChoice;
use crate::studio::commands::side::Side;
use crate::studio::document::last_opened::LastOpened;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What is remembered from one start to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub recent: Vec<PathBuf>,
    /// What was open last; `None` before the first start.
    pub last: Option<LastOpened>,
    pub log_axis: bool,
    /// `None` follows the system.
    pub dark: Option<bool>,
    pub device: DeviceChoice,
    /// Plots whose axis the user chose, by name: logarithmic or linear.
    pub plot_log: BTreeMap<String, bool>,
    /// Plots that are hidden, by name.
    pub hidden_plots: BTreeSet<String>,
    /// Replays of a stress; `None` takes what a few seconds allow.
    pub replays: Option<u64>,
    /// Metrics that the next run leaves out of its step.
    pub without_accuracy: bool,
    pub without_updates: bool,
    /// The tour was ended or gone through.
    pub tour_done: bool,
    /// The run whose curves are behind those of the Train tab.
    pub baseline: Option<String>,
    /// The interrupted run that the user does not want to be reminded of again.
    pub passed_over: Option<String>,
    /// Panels beside the tabs; `None` shows them where there is room.
    pub show_network: Option<bool>,
    pub show_inspector: Option<bool>,
    /// Nothing fades; `None` follows the system.
    pub still: Option<bool>,
}

impl Settings {
    /// True where nothing is to fade; `system` is what the system asks for.
    #[must_use]
    pub fn is_still(&self, system: bool) -> bool {
        self.still.unwrap_or(system)
    }

    /// What the next run measures inside its step.
    #[must_use]
    pub const fn metrics(&self) -> Metrics {
        Metrics { accuracy: !self.without_accuracy, updates: !self.without_updates }
    }
}

/// Files remembered as recent.
const RECENT: usize = 10;

impl Settings {
    /// Puts a file first among the recent ones. A path that is not Unicode is not remembered: the settings' file holds
    /// text alone.
    pub fn remember(&mut self, path: PathBuf) {
        if path.to_str().is_none() {
            return;
        }
        self.recent.retain(|p| *p != path);
        self.recent.insert(0, path);
        self.recent.truncate(RECENT);
    }
}

impl Settings {
    /// True where the panel is shown in a window of this width: where that is wide enough, unless the user decided
    /// otherwise.
    #[must_use]
    pub fn shows(&self, side: Side, width: f32) -> bool {
        let chosen = match side {
            Side::Network => self.show_network,
            Side::Inspector => self.show_inspector,
        };
        chosen.unwrap_or(width >= side.least_width())
    }

    /// Shows the panel, or hides it. What the width of the window would do by itself is no choice that is remembered.
    pub fn toggle(&mut self, side: Side, width: f32) {
        let show = !self.shows(side, width);
        let choice = (show != (width >= side.least_width())).then_some(show);
        match side {
            Side::Network => self.show_network = choice,
            Side::Inspector => self.show_inspector = choice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_is_hidden_for_the_tabs_unless_it_was_asked_for() {
        let mut settings = Settings::default();
        let shown = |s: &Settings, width| (s.shows(Side::Network, width), s.shows(Side::Inspector, width));
        assert_eq!([1280.0, 900.0, 600.0].map(|w| shown(&settings, w)), [(true, true), (true, false), (false, false)]);
        settings.toggle(Side::Inspector, 900.0);
        assert_eq!(shown(&settings, 900.0), (true, true));
        settings.toggle(Side::Inspector, 900.0);
        assert_eq!(settings, Settings::default());
    }
}
