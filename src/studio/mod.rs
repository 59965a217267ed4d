//! The studio: one window in which the user builds a network, sees how its training step is compiled, and watches it
//! learn.
//!
//! The thread that draws does nothing else. Compiling, training, and reading files happen on other threads, behind
//! bounded channels; an answer to an older revision of the document is dropped. The document changes only by
//! [`document::edit::Edit`]s.
//!
//! The folders, in the order of their imports: each imports only from those before it, and there are no circular
//! imports inside a folder.
//!
//! | room | what it holds |
//! |---|---|
//! | `theme` | type, colours, spaces and icons |
//! | `document` | the preset with its fields and history; bundled presets; files; edits kept through a crash |
//! | `commands` | what the user can choose, and what the program asks of itself |
//! | `view_models` | what the panels show, as plain data |
//! | `jobs` | work in the background: compiling, devices, measurements, what metrics cost, checks |
//! | `run` | the run that is trained with its rates, data and predictions, and the runs that are kept |
//! | `widgets` | pieces that several panels are made of |
//! | `panels` | the parts of the window: each draws a view model and pushes commands to a queue |
//! | `shell` | the window: its state, what each command and request does, settings, notices, the tour |
//!
//! A panel receives its view model, its own state and a queue of commands. It imports neither `document`, `jobs`, `run`
//! nor `shell`. Commands and requests are performed in one place, `shell::actions`.

pub mod commands;
pub mod document;
pub mod jobs;
pub mod panels;
pub mod run;
pub mod shell;
pub mod theme;
pub mod view_models;
pub mod widgets;

pub use shell::app::{Startup, StudioApp};

use shell::window;
use std::path::PathBuf;

/// The name of the window in the system.
const APP_ID: &str = "stepgraph";

/// Opens the studio with this preset, or with the network that was open last, and returns when its window is closed.
///
/// # Errors
/// If no window can be opened: the message says which commands work without one.
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
    crate::train::wait_for_libraries();
    opened.map_err(|cause| {
        let text = cause.to_string();
        let reason = reason(&text);
        anyhow::anyhow!(
            "the studio's window cannot be opened: {reason}\n\
             Without a display, use the commands: stepgraph train, plan, verify, bench, arena and doctor need none.\n\
             On Linux, a display is named by WAYLAND_DISPLAY or DISPLAY; over ssh, ssh -X forwards one."
        )
    })
}

/// The message of the system. The library that opens windows puts a location in its source before it, which is of no
/// use to the user.
fn reason(text: &str) -> &str {
    text.split_once("os error at ").and_then(|(_, rest)| rest.split_once(": ")).map_or(text, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn a_reason_names_no_source_file() {
        let text = "winit EventLoopError: os error at /a/winit/src/linux/mod.rs:765: neither WAYLAND_DISPLAY nor \
            DISPLAY is \
                    set.";
        assert_eq!(reason(text), "neither WAYLAND_DISPLAY nor DISPLAY is set.");
        assert_eq!(reason("no OpenGL: too old"), "no OpenGL: too old");
    }
}
