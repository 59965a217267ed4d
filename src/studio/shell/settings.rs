//! What the window remembers between starts.

use crate::ir::Metrics;
use crate::studio::commands::choices::{DeviceChoice, FirstKernels};
use crate::studio::commands::side::Side;
use crate::studio::document::last_opened::LastOpened;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What is remembered between starts.
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
    pub first_kernels: FirstKernels,
    /// Plots whose axis the user has chosen, by name: logarithmic or linear.
    pub plot_log: BTreeMap<String, bool>,
    /// Plots that are hidden, by name.
    pub hidden_plots: BTreeSet<String>,
    /// Replays of the endurance check; `None` uses as many as a few seconds allow.
    pub replays: Option<u64>,
    /// Metrics that the next run leaves out of its step.
    pub without_accuracy: bool,
    pub without_updates: bool,
    /// Whether the tour was finished or dismissed.
    pub tour_done: bool,
    /// The run whose curves are drawn behind those of the Train tab.
    pub baseline: Option<String>,
    /// The interrupted run about which the user does not want to be notified again.
    pub passed_over: Option<String>,
    /// Panels beside the tabs; `None` shows them if there is space.
    pub show_network: Option<bool>,
    pub show_inspector: Option<bool>,
    /// Whether animations are off; `None` follows the system.
    pub still: Option<bool>,
}

impl Settings {
    /// True if animations are off; `system` is the system's setting.
    #[must_use]
    pub fn is_still(&self, system: bool) -> bool {
        self.still.unwrap_or(system)
    }

    /// The metrics that the next run computes inside its step.
    #[must_use]
    pub const fn metrics(&self) -> Metrics {
        Metrics { accuracy: !self.without_accuracy, updates: !self.without_updates }
    }
}

/// The number of recent files.
const RECENT: usize = 10;

impl Settings {
    /// Puts a file first among the recent ones. A path that is not Unicode is not stored, because the settings' file
    /// contains only text.
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
    /// True if the panel is shown in a window of this width: if it is wide enough, unless the user decided otherwise.
    #[must_use]
    pub fn shows(&self, side: Side, width: f32) -> bool {
        let chosen = match side {
            Side::Network => self.show_network,
            Side::Inspector => self.show_inspector,
        };
        chosen.unwrap_or(width >= side.least_width())
    }

    /// Shows or hides the panel. A choice that equals the default for the window's width is not stored.
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
    fn a_panel_is_hidden_in_a_narrow_window_unless_the_user_shows_it() {
        let mut settings = Settings::default();
        let shown = |s: &Settings, width| (s.shows(Side::Network, width), s.shows(Side::Inspector, width));
        assert_eq!([1280.0, 900.0, 600.0].map(|w| shown(&settings, w)), [(true, true), (true, false), (false, false)]);
        settings.toggle(Side::Inspector, 900.0);
        assert_eq!(shown(&settings, 900.0), (true, true));
        settings.toggle(Side::Inspector, 900.0);
        assert_eq!(settings, Settings::default());
    }
}
