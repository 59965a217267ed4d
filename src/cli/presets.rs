//! Finding a preset by name or path, and the command that lists the bundled ones.

use super::args::PresetsArgs;
use super::error::wrong;
use super::output;
use crate::data::{self, Request};
use crate::model::{
    BUNDLED, Diagnostic, MAX_PRESET_BYTES, Model, NamedInput, Precision, Preset, Rejected, check, did_you_mean,
    inputs_text, read_partly, read_preset,
};
use crate::select::Target;
use crate::tensor::Shape;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A preset without mistakes, and where it came from.
pub struct Loaded {
    pub preset: Preset,
    pub model: Model,
    /// The folder that relative paths in it are relative to.
    pub base: PathBuf,
    /// Its file; `None` for a bundled one.
    pub file: Option<PathBuf>,
}

/// Which parts of a preset's data are checked if the network has mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLook {
    /// None; the command does not use the data.
    Ignore,
    /// The files: their mistakes are reported together with those of the network.
    Report,
}

/// The preset of this name or path.
///
/// # Errors
/// If there is no such preset, or it has mistakes: all of them, one on each line, including those of its data if `data`
/// asks for that.
pub fn load(given: &OsStr, data: DataLook) -> anyhow::Result<Loaded> {
    let shown = given.to_string_lossy();
    let Document { path, base, text } = open(given)?;
    let refused = |preset: Option<&Preset>, mut found: Vec<Diagnostic>| {
        if let Some(preset) = preset.filter(|_| data == DataLook::Report) {
            found.extend(data_mistakes(preset, &base, &found));
        }
        mistakes(&shown, &found)
    };
    let preset = match read_partly(&text) {
        Ok(preset) => preset,
        Err(rejected) => {
            let Rejected { mistakes, preset } = *rejected;
            return Err(refused(preset.as_ref(), mistakes));
        }
    };
    let checked = check(&preset);
    let Some(model) = checked.model else { return Err(refused(Some(&preset), checked.diagnostics)) };
    Ok(Loaded { preset, model, base, file: path })
}

/// The mistakes in the data of a preset in which `found` are already known mistakes.
fn data_mistakes(preset: &Preset, base: &Path, found: &[Diagnostic]) -> Vec<Diagnostic> {
    let has_no_mistake = |field: &str| {
        found.iter().all(|d| {
            d.path.strip_prefix(field).is_none_or(|rest| !matches!(rest.chars().next(), None | Some('.' | '[')))
        })
    };
    let Some(spec) = preset.data.as_ref().filter(|_| has_no_mistake("data")) else { return Vec::new() };
    let request = Request {
        inputs: preset.input.inputs.clone(),
        output: Shape::from([1]),
        loss: preset.loss,
        seed: preset.train.map_or(0, |t| t.seed),
    };
    // Samples are compared only with fields that the document contains.
    let request = Some(&request).filter(|_| has_no_mistake("input") && has_no_mistake("loss"));
    data::problems(spec, request, base).iter().map(|problem| problem.mistake(preset)).collect()
}

/// The presets of these names or paths.
///
/// # Errors
/// If one or more of them do not exist or have mistakes: all mistakes of all of them.
pub fn load_all<'a>(given: impl IntoIterator<Item = &'a OsStr>, data: DataLook) -> anyhow::Result<Vec<Loaded>> {
    let (mut loaded, mut failures) = (Vec::new(), Vec::new());
    for name in given {
        match load(name, data) {
            Ok(found) => loaded.push(found),
            Err(error) => failures.push(error.to_string()),
        }
    }
    if failures.is_empty() { Ok(loaded) } else { Err(wrong(failures.join("\n"))) }
}

/// Reports on standard error how the CPU computes a precision for which it has no arithmetic.
pub fn warn_of_precision(preset: &Preset, target: &Target) {
    if preset.precision != Precision::F32 && target.as_cpu().is_some() {
        let name = preset.precision.name();
        output::note(&format!(
            "note: {} asks for {name}; the CPU computes in f32, so figures are those of f32",
            preset.name
        ));
    }
}

/// The preset of this name or path, whose network may still have mistakes, the folder that relative paths in it are
/// relative to, and the preset's own file, if it has one.
///
/// # Errors
/// If there is none, or it is not a preset: all mistakes, one on each line.
#[cfg(feature = "studio")]
pub fn read(given: &OsStr) -> anyhow::Result<(Preset, PathBuf, Option<PathBuf>)> {
    let Document { path, base, text } = open(given)?;
    let preset = read_partly(&text).map_err(|rejected| mistakes(&given.to_string_lossy(), &rejected.mistakes))?;
    Ok((preset, base, path))
}

/// The bytes of a preset.
struct Document {
    /// `None` for a bundled one.
    path: Option<PathBuf>,
    /// The folder that relative paths in it are relative to.
    base: PathBuf,
    text: Cow<'static, [u8]>,
}

fn open(given: &OsStr) -> anyhow::Result<Document> {
    let path = Path::new(given);
    if let Some(bundled) = BUNDLED.iter().find(|b| given == b.name && !path.is_file()) {
        return Ok(Document { path: None, base: PathBuf::from("."), text: bundled.text.as_bytes().into() });
    }
    let text = read_bytes(&given.to_string_lossy(), path)?.into();
    let base = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    Ok(Document { path: Some(path.to_owned()), base: base.to_owned(), text })
}

fn read_bytes(given: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    if path.is_dir() {
        return Err(wrong(format!("{given} is a folder; name a preset file in it")));
    }
    let cannot = |e: std::io::Error| {
        if e.kind() != std::io::ErrorKind::NotFound {
            return wrong(format!("{given} cannot be read: {e}; check the path and its permissions"));
        }
        let near = near_bundled(given);
        wrong(format!(
            "{given}: no such file, and no bundled preset of that name; {near}bundled are {}",
            bundled_names()
        ))
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(MAX_PRESET_BYTES + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    Ok(bytes)
}

/// The names of all bundled presets.
fn bundled_names() -> String {
    BUNDLED.iter().map(|b| b.name).collect::<Vec<_>>().join(", ")
}

/// The question whether a bundled preset of a similar name is meant; empty if there is no similar name.
fn near_bundled(given: &str) -> String {
    did_you_mean(given.strip_suffix(".json").unwrap_or(given), BUNDLED.iter().map(|b| b.name))
}

/// The mistakes in the given preset, one on each line.
fn mistakes(given: &str, diagnostics: &[Diagnostic]) -> anyhow::Error {
    let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    // A problem with the whole file is not a mistake in the preset.
    if let ([line], true) = (lines.as_slice(), diagnostics.iter().all(|d| d.path.is_empty() && d.layer.is_none())) {
        return wrong(format!("{given}: {line}"));
    }
    let count = if lines.len() == 1 { "a mistake".to_owned() } else { format!("{} mistakes", lines.len()) };
    wrong(format!("{given} has {count}:\n{}", lines.join("\n")))
}

/// Lists the bundled presets, or prints the document of one.
///
/// # Errors
/// If there is none of the name, or standard output fails.
pub fn run(args: &PresetsArgs) -> anyhow::Result<()> {
    if let Some(name) = &args.name {
        let found = BUNDLED.iter().find(|b| b.name == name);
        let unknown = || {
            let near = near_bundled(name);
            wrong(format!("no bundled preset is called {name}; {near}the bundled presets are {}", bundled_names()))
        };
        return output::print(found.ok_or_else(unknown)?.text);
    }
    let mut list = Vec::new();
    let mut text = String::new();
    for bundled in BUNDLED {
        let Loaded { preset, model, .. } = load_bundled(bundled.name)?;
        let params = model.trained_len();
        list.push(serde_json::json!({
            "name": preset.name,
            "about": preset.about,
            "input": preset.input.single().map(|input| &input.shape),
            "inputs": preset.input.inputs.iter().map(input).collect::<Vec<_>>(),
            "layers": model.layers.len(),
            "params": params,
            "data": preset.data.as_ref().map(|d| d.source.name()),
            "steps": preset.train.map(|t| t.steps),
        }));
        let inputs = match &preset.input.inputs[..] {
            [_] => String::new(),
            inputs => format!("inputs {}, ", inputs_text(inputs)),
        };
        text.push_str(&format!(
            "{}  ({inputs}{}, {})\n",
            preset.name,
            output::counted(model.layers.len() as u64, "layer"),
            output::counted(params as u64, "parameter")
        ));
        text.push_str(&output::wrapped(&preset.about, 76, "    "));
    }
    if args.json { output::print_json(&list) } else { output::print(&text) }
}

/// The text for an input in the list.
fn input(input: &NamedInput) -> serde_json::Value {
    let (content, vocab) = (input.content.name(), input.content.vocab());
    serde_json::json!({ "name": input.name, "type": content, "shape": input.shape, "vocab": vocab })
}

/// A bundled preset, even if the current folder has a file of the same name.
fn load_bundled(name: &str) -> anyhow::Result<Loaded> {
    let text = BUNDLED.iter().find(|b| b.name == name).map_or("", |b| b.text);
    let preset = read_preset(text).map_err(|e| mistakes(name, &e))?;
    let checked = check(&preset);
    let Some(model) = checked.model else { return Err(mistakes(name, &checked.diagnostics)) };
    Ok(Loaded { preset, model, base: PathBuf::from("."), file: None })
}
