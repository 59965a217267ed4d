//! `stepgraph studio`: opens the window, or reports why it cannot.

use super::args::Cli;
use super::error::wrong;
use crate::model::{BUNDLED, did_you_mean};
use clap::CommandFactory;
use std::ffi::OsStr;

/// The error of a name that is neither that of a preset nor that of a command.
fn unknown(given: &str) -> anyhow::Error {
    let cli = Cli::command();
    let commands = cli.get_subcommands().map(clap::Command::get_name);
    let near = did_you_mean(given, BUNDLED.iter().map(|b| b.name).chain(commands));
    wrong(format!(
        "{given}: no such preset, and no command of that name; {near}give the path of a preset or the name of a \
         bundled one; `stepgraph presets` lists them, `stepgraph --help` the commands"
    ))
}

/// Opens the studio, with a preset if one is given.
///
/// # Errors
/// If the preset does not exist or cannot be read, or no window can be opened.
#[cfg(feature = "studio")]
pub fn run(preset: Option<&OsStr>) -> anyhow::Result<()> {
    let Some(given) = preset else { return crate::studio::run(None) };
    let path = std::path::Path::new(given);
    if path.is_file() {
        // The user can fix a network with mistakes in the window; a file that is no preset cannot be shown there.
        super::presets::read(given)?;
        return crate::studio::run(Some(path.to_owned()));
    }
    if !BUNDLED.iter().any(|b| given == b.name) {
        return Err(unknown(&given.to_string_lossy()));
    }
    // The studio opens bundled presets by name. They are no files: saving one asks for a path, and they are not listed
    // as recent files.
    crate::studio::run(Some(path.to_owned()))
}

/// Reports that this build has no window.
///
/// # Errors
/// Always.
#[cfg(not(feature = "studio"))]
pub fn run(preset: Option<&OsStr>) -> anyhow::Result<()> {
    let known = preset.is_none_or(|p| std::path::Path::new(p).is_file() || BUNDLED.iter().any(|b| p == b.name));
    if let (false, Some(given)) = (known, preset) {
        return Err(unknown(&given.to_string_lossy()));
    }
    anyhow::bail!(
        "this build has no window: it was made without the feature \"studio\"; build with `cargo build --release`, or \
         use the commands, which \
         need none (stepgraph --help)"
    )
}
