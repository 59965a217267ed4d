//! The studio: one window in which a person builds a network, sees how its training step is compiled, and watches it learn.
//!
//! The thread that draws only draws. Compiling, training, and reading files happen on threads of their own, behind bounded channels; an answer
//! to an older revision of the document is dropped. Panels read plain view models and ask for [`commands::Command`]s; the document changes by
//! [`document::Edit`]s alone.
//!
//! | file | what it holds |
//! |---|---|
//! | `app`, `actions` | the window, and what each command does |
//! | `commands`, `shortcuts` | everything a person can do, with name, icon, shortcut and tooltip; which of it was asked for by key |
//! | `state`, `selection`, `carry` | what the window shows, and what is selected in all views at once, from plan to plan |
//! | `notice` | messages, with what can be done about them at once |
//! | `devices` | what a network is planned for and trained on |
//! | `document`, `fields`, `folds` | the preset with undo and redo, its fields as data, and what of it is folded to a line |
//! | `last` | the network that was open last, which the next start opens |
//! | `compiler`, `training`, `ending`, `earlier`, `transport`, `files`, `background` | the other threads |
//! | `curves`, `rates`, `samples`, `predictions`, `proofs`, `prices` | what the rooms for the run, its data and its proofs remember |
//! | `runs` | kept runs: the list, exports, capsules, and the run that is being kept |
//! | `lab`, `inquiry`, `subject` | what is found out on request: times, planners, precisions, values |
//! | `sides`, `window` | which panels are beside the tabs; the window's size |
//! | `jobs` | what runs in the background, with its progress and its end |
//! | `tour` | the three steps of the first start |
//! | `view_models` | what the panels show, as plain data |
//! | `panels`, `widgets` | how it is drawn |
//! | `theme`, `icons`, `motion` | how it looks, and whether it may move |

pub mod actions;
pub mod app;
pub mod background;
pub mod carry;
pub mod commands;
pub mod compiler;
pub mod curves;
pub mod devices;
pub mod document;
mod earlier;
pub mod ending;
pub mod fields;
pub mod files;
pub mod folds;
pub mod icons;
pub mod inquiry;
pub mod jobs;
pub mod lab;
pub mod last;
pub mod motion;
pub mod notice;
pub mod panels;
pub mod predictions;
pub mod presets;
pub mod prices;
pub mod proofs;
pub mod rates;
pub mod runs;
pub mod samples;
pub mod saving;
pub mod selection;
pub mod settings;
mod shortcuts;
pub mod sides;
pub mod state;
mod subject;
pub mod tabs;
pub mod theme;
pub mod tour;
pub mod training;
pub mod transport;
pub mod view_models;
pub mod widgets;
mod window;

pub use app::{Startup, StudioApp};

use std::path::PathBuf;

/// The name under which the system knows the window.
const APP_ID: &str = "stepgraph";

/// Opens the studio with this preset, or with the network that was open last, and returns when its window is closed.
///
/// # Errors
/// Where no window can be opened: the message says which commands need none.
pub fn run(preset: Option<PathBuf>) -> anyhow::Result<()> {
    let recovery = directories::ProjectDirs::from("", "", APP_ID).map(|d| d.data_local_dir().join("unsaved"));
    let target = crate::exec::cpu::host_target(crate::exec::cpu::default_threads());
    let tuning = crate::train::remembered_times(&target).unwrap_or_else(|why| {
        log::warn!("{why}");
        None
    });
    let runs = crate::train::runs::RunStore::of_user().ok();
    let startup = Startup { preset, recovery, tuning, runs, tour: true, asks_system: true };
    let options = eframe::NativeOptions { viewport: window::viewport(APP_ID), ..Default::default() };
    let opened = eframe::run_native(APP_ID, options, Box::new(move |cc| Ok(Box::new(StudioApp::new(cc, &startup)?))));
    opened.map_err(|cause| {
        let told = cause.to_string();
        let reason = reason(&told);
        anyhow::anyhow!(
            "the studio's window cannot be opened: {reason}\n\
             Without a display, use the commands: stepgraph train, plan, verify, bench, arena and doctor need none.\n\
             On Linux, a display is named by WAYLAND_DISPLAY or DISPLAY; over ssh, ssh -X forwards one."
        )
    })
}

/// The system's own words. The library that opens windows puts the place in its source before them, which means nothing
/// to a user.
fn reason(told: &str) -> &str {
    told.split_once("os error at ").and_then(|(_, rest)| rest.split_once(": ")).map_or(told, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn a_reason_names_no_source_file() {
        let told = "winit EventLoopError: os error at /a/winit/src/linux/mod.rs:765: neither WAYLAND_DISPLAY nor DISPLAY is set.";
        assert_eq!(reason(told), "neither WAYLAND_DISPLAY nor DISPLAY is set.");
        assert_eq!(reason("no OpenGL: too old"), "no OpenGL: too old");
    }
}
