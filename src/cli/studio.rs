//! `stepgraph studio`: opens the window, or says why there is none.

#[cfg(feature = "studio")]
use super::error::wrong;
use std::ffi::OsStr;

/// Opens the studio, with a preset where one is given.
///
/// # Errors
/// Where the preset does not exist or cannot be read, or no window can be opened.
#[cfg(feature = "studio")]
pub fn run(preset: Option<&OsStr>) -> anyhow::Result<()> {
    let Some(given) = preset else { return crate::studio::run(None) };
    let path = std::path::Path::new(given);
    if path.is_file() {
        // A network with mistakes is mended in the window; a file that is no preset has nothing to show there.
        super::presets::read(given)?;
        return crate::studio::run(Some(path.to_owned()));
    }
    if !crate::model::BUNDLED.iter().any(|b| given == b.name) {
        let help = "give the path of a preset or the name of a bundled one; `stepgraph presets` lists them, `stepgraph --help` the commands";
        return Err(wrong(format!("{}: no such preset, and no command of that name; {help}", path.display())));
    }
    // The studio knows the bundled ones by name. They are no files: saving one asks for a place, and none is listed as a recent file.
    crate::studio::run(Some(path.to_owned()))
}

/// Says that this build has no window.
///
/// # Errors
/// Always.
#[cfg(not(feature = "studio"))]
pub fn run(preset: Option<&OsStr>) -> anyhow::Result<()> {
    let known =
        preset.is_none_or(|p| std::path::Path::new(p).is_file() || crate::model::BUNDLED.iter().any(|b| p == b.name));
    if let (false, Some(given)) = (known, preset) {
        return Err(super::error::wrong(format!(
            "{}: no such preset, and no command of that name; see stepgraph --help",
            given.to_string_lossy()
        )));
    }
    anyhow::bail!(
        "this build has no window: it was made without the feature \"studio\"; build with `cargo build --release`, or use the commands, which \
         need none (stepgraph --help)"
    )
}
