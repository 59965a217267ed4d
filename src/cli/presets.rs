//! Finding a preset by name or path, and the command that lists the bundled ones.

use super::args::PresetsArgs;
use super::error::wrong;
use super::output;
use crate::model::{
    BUNDLED, Diagnostic, MAX_PRESET_BYTES, Model, Precision, Preset, check, read_preset, read_preset_file,
};
use crate::select::Target;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A preset without mistakes, and where it came from.
pub struct Loaded {
    pub preset: Preset,
    pub model: Model,
    /// The folder that relative paths in it are taken from.
    pub base: PathBuf,
    /// Its file; `None` for a bundled one.
    pub file: Option<PathBuf>,
}

/// The preset of this name or path.
///
/// # Errors
/// Where there is none, or it has mistakes: all of them, one a line.
pub fn load(given: &OsStr) -> anyhow::Result<Loaded> {
    let (preset, base, file) = read(given)?;
    let checked = check(&preset);
    let shown = given.to_string_lossy();
    let Some(model) = checked.model else { return Err(mistakes(&shown, &checked.diagnostics)) };
    Ok(Loaded { preset, model, base, file })
}

/// The presets of these names or paths.
///
/// # Errors
/// Where one or more of them are not there or have mistakes: all mistakes of all of them.
pub fn load_all<'a>(given: impl IntoIterator<Item = &'a OsStr>) -> anyhow::Result<Vec<Loaded>> {
    let (mut loaded, mut failures) = (Vec::new(), Vec::new());
    for name in given {
        match load(name) {
            Ok(found) => loaded.push(found),
            Err(error) => failures.push(error.to_string()),
        }
    }
    if failures.is_empty() { Ok(loaded) } else { Err(wrong(failures.join("\n"))) }
}

/// Tells on standard error what the CPU does with a precision that it has no arithmetic for.
pub fn warn_of_precision(preset: &Preset, target: &Target) {
    if preset.precision != Precision::F32 && target.as_cpu().is_some() {
        let name = preset.precision.name();
        output::note(&format!(
            "note: {} asks for {name}; the CPU computes in f32, so figures are those of f32",
            preset.name
        ));
    }
}

/// The preset of this name or path, whose network may still have mistakes, the folder that relative paths in it are taken from, and the preset's
/// own file, where it is one.
///
/// # Errors
/// Where there is none, or it cannot be read as a preset: all mistakes, one a line.
pub fn read(given: &OsStr) -> anyhow::Result<(Preset, PathBuf, Option<PathBuf>)> {
    let (path, shown) = (Path::new(given), given.to_string_lossy());
    let given = &*shown;
    if let Some(bundled) = BUNDLED.iter().find(|b| path.as_os_str() == b.name && !path.is_file()) {
        let preset = read_preset(bundled.text).map_err(|e| mistakes(given, &e))?;
        return Ok((preset, PathBuf::from("."), None));
    }
    let bytes = read_bytes(given, path)?;
    let preset = read_preset_file(&bytes).map_err(|e| mistakes(given, &e))?;
    let base = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    Ok((preset, base.to_owned(), Some(path.to_owned())))
}

fn read_bytes(given: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.is_dir() {
        return Err(wrong(format!("{given} is a folder; name a preset file in it")));
    }
    let cannot = |e: std::io::Error| {
        if e.kind() != std::io::ErrorKind::NotFound {
            return wrong(format!("{given} cannot be read: {e}; check the path and its permissions"));
        }
        let names: Vec<&str> = BUNDLED.iter().map(|b| b.name).collect();
        wrong(format!("{given}: no such file, and no bundled preset of that name; bundled are {}", names.join(", ")))
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(MAX_PRESET_BYTES + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    Ok(bytes)
}

fn mistakes(given: &str, diagnostics: &[Diagnostic]) -> anyhow::Error {
    let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    // What is wrong with the whole file is no mistake in it.
    if let ([line], true) = (lines.as_slice(), diagnostics.iter().all(|d| d.path.is_empty() && d.layer.is_none())) {
        return wrong(format!("{given}: {line}"));
    }
    let count = if lines.len() == 1 { "a mistake".to_owned() } else { format!("{} mistakes", lines.len()) };
    wrong(format!("{given} has {count}:\n{}", lines.join("\n")))
}

/// Lists the bundled presets, or prints the document of one.
///
/// # Errors
/// Where there is none of the name, or standard output fails.
pub fn run(args: &PresetsArgs) -> anyhow::Result<()> {
    if let Some(name) = &args.name {
        let found = BUNDLED.iter().find(|b| b.name == name);
        let names = || BUNDLED.iter().map(|b| b.name).collect::<Vec<_>>().join(", ");
        let found = found.ok_or_else(|| wrong(format!("no bundled preset is called {name}; there are {}", names())))?;
        return output::print(found.text);
    }
    let mut list = Vec::new();
    let mut text = String::new();
    for bundled in BUNDLED {
        let Loaded { preset, model, .. } = load_bundled(bundled.name)?;
        let params = model.trained_len();
        list.push(serde_json::json!({
            "name": preset.name,
            "about": preset.about,
            "input": preset.input.shape,
            "layers": model.layers.len(),
            "params": params,
            "data": preset.data.as_ref().map(|d| d.source.name()),
            "steps": preset.train.map(|t| t.steps),
        }));
        text.push_str(&format!(
            "{}  ({} layers, {} parameters)\n",
            preset.name,
            model.layers.len(),
            output::count(params as u64)
        ));
        text.push_str(&output::wrapped(&preset.about, 76, "    "));
    }
    if args.json { output::print_json(&list) } else { output::print(&text) }
}

/// A bundled preset, whatever files lie in the current folder.
fn load_bundled(name: &str) -> anyhow::Result<Loaded> {
    let text = BUNDLED.iter().find(|b| b.name == name).map_or("", |b| b.text);
    let preset = read_preset(text).map_err(|e| mistakes(name, &e))?;
    let checked = check(&preset);
    let Some(model) = checked.model else { return Err(mistakes(name, &checked.diagnostics)) };
    Ok(Loaded { preset, model, base: PathBuf::from("."), file: None })
}
