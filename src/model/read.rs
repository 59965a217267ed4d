//! Reads a preset's JSON and reports every mistake with its path, all at once.

use super::check::check_after;
use super::layers::Flatten;
use super::preset::{DataSource, DataSpec, LastBatch, SplitKind};
use super::spec::describe;
use super::{
    Content, Diagnostic, Fields, InputSpec, LayerKind, LayerPath, LayerSpec, ListId, LossSpec, NamedInput,
    OptimizerSpec, Precision, Preset, TrainSpec, UpdateSpec, json, other_formats,
};
use crate::tensor::Shape;
use serde_json::{Map, Value};

/// Nested blocks deeper than this are refused before they are read.
const MAX_DEPTH: usize = 32;

/// An example of a preset, for messages.
const FIELD_HELP: &str = "a preset is a JSON object with version, name, input, layers, loss and optimizer";

/// Larger files are not presets; a caller need not read more than one byte beyond this limit.
pub const MAX_PRESET_BYTES: u64 = 64 << 20;

/// A document that is not a valid preset.
#[derive(Clone, Debug)]
pub struct Rejected {
    pub mistakes: Vec<Diagnostic>,
    /// What could be read of it; fields with a mistake have a placeholder value. `None` if the document is not a JSON
    /// object.
    pub preset: Option<Preset>,
}

impl From<Vec<Diagnostic>> for Box<Rejected> {
    fn from(mistakes: Vec<Diagnostic>) -> Self {
        Self::new(Rejected { mistakes, preset: None })
    }
}

/// Reads a preset from the bytes of a file.
///
/// # Errors
/// As for [`read_preset`], and if the bytes are another kind of file, too many, or not text.
pub fn read_preset_file(bytes: &[u8]) -> Result<Preset, Vec<Diagnostic>> {
    read_partly(bytes).map_err(|rejected| rejected.mistakes)
}

/// Like [`read_preset_file`], for callers that also use what could be read.
///
/// # Errors
/// As [`read_preset_file`].
pub fn read_partly(bytes: &[u8]) -> Result<Preset, Box<Rejected>> {
    if let Some(other) = other_formats::of(bytes) {
        return Err(whole(format!("this is not a preset, it is {}", other.name), other.help).into());
    }
    if bytes.len() as u64 > MAX_PRESET_BYTES {
        return Err(whole("this is larger than 64 MiB", "a preset is a short JSON file").into());
    }
    match json::decode(bytes) {
        Ok(text) => read_text(&text),
        Err(at) => {
            let message = format!("this is not text: byte {at} is not UTF-8");
            Err(whole(message, "save it as UTF-8; a preset is a JSON file").into())
        }
    }
}

/// A mistake that concerns the whole document.
fn whole(message: impl Into<String>, help: &str) -> Vec<Diagnostic> {
    vec![Diagnostic { layer: None, path: String::new(), message: message.into(), help: help.into() }]
}

/// Reads a preset from text.
///
/// # Errors
/// Every mistake of syntax or type, and, if there is one, also every mistake of shape and range in what could be read.
/// If there are only mistakes of shape and range, they are found by [`super::check`].
pub fn read_preset(text: &str) -> Result<Preset, Vec<Diagnostic>> {
    read_text(text).map_err(|rejected| rejected.mistakes)
}

fn read_text(text: &str) -> Result<Preset, Box<Rejected>> {
    if text.trim().is_empty() {
        return Err(whole("the file is empty", FIELD_HELP).into());
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (value, repeated) =
        json::parse(text).map_err(|e| whole(format!("this is not JSON: {}", json::explained(&e)), FIELD_HELP))?;
    let twice = |path| Diagnostic {
        layer: None,
        path,
        message: "is given more than once".into(),
        help: "keep one of them".into(),
    };
    read_after(&value, repeated.into_iter().map(twice).collect())
}

/// Reads a preset from a JSON value.
///
/// # Errors
/// As [`read_preset`].
pub fn read_value(value: &Value) -> Result<Preset, Vec<Diagnostic>> {
    read_after(value, Vec::new()).map_err(|rejected| rejected.mistakes)
}

/// Like [`read_value`], given mistakes that were found before.
fn read_after(value: &Value, mut out: Vec<Diagnostic>) -> Result<Preset, Box<Rejected>> {
    let Value::Object(map) = value else {
        return Err(whole("the document is not an object", FIELD_HELP).into());
    };
    let preset = read_fields(Fields::new(map, "", None, &mut out));
    if out.is_empty() {
        return Ok(preset);
    }
    let mut all = check_after(&preset, out).diagnostics;
    // The mistakes of one layer are listed together, in the order of the layers.
    all.sort_by(|a, b| a.layer.cmp(&b.layer));
    Err(Box::new(Rejected { mistakes: all, preset: Some(preset) }))
}

/// The document's fields; a field that could not be read has a value that causes no further mistake.
fn read_fields(mut f: Fields<'_>) -> Preset {
    let version = f.count("version", Some(1));
    if version != 1 {
        f.fail("version", format!("found {version}"), "this program reads version 1");
    }
    let name = f.text("name", None);
    if name.contains(char::is_control) {
        f.fail("name", format!("{name:?} must not contain control characters"), "give a name of one line");
    }
    let about = f.text("about", Some(""));
    let input = read_inputs(&mut f);
    let layers = read_layers(&mut f, ListId::default());
    let loss = f
        .object("loss", Some("{\"type\": \"softmax_cross_entropy\"}"))
        .and_then(|m| LossSpec::read(&mut Fields::new(m, "loss", None, f.sink())));
    let optimizer = f
        .object("optimizer", Some("{\"type\": \"adam\", \"lr\": 0.001}"))
        .map(|m| read_optimizer(Fields::new(m, "optimizer", None, f.sink())));
    let precision = f.choice("precision", &Precision::ALL.map(|p| (p.name(), p)), false).unwrap_or_default();
    let data = f.object("data", None).and_then(|m| read_data(Fields::new(m, "data", None, f.sink())));
    let train = f.object("train", None).map(|m| {
        let mut g = Fields::new(m, "train", None, f.sink());
        let (steps, seed) = (g.count("steps", Some(1000)), g.seed("seed", 0));
        let train = TrainSpec { steps, seed, accumulate: g.count("accumulate", Some(1)) };
        g.finish();
        train
    });
    f.finish();
    Preset {
        name,
        about,
        input,
        layers,
        loss: loss.unwrap_or(LossSpec::MSE),
        optimizer: optimizer.map_or(OptimizerSpec::sgd(0.0), |(optimizer, _)| optimizer),
        update: optimizer.map(|(_, update)| update).unwrap_or_default(),
        precision,
        data,
        train,
    }
}

/// The optimizer, and the other settings of the update in its object.
fn read_optimizer(mut f: Fields<'_>) -> (OptimizerSpec, UpdateSpec) {
    let optimizer = OptimizerSpec::read(&mut f);
    let update = UpdateSpec::read(&mut f);
    match optimizer {
        Ok(optimizer) => {
            f.finish();
            (optimizer, update)
        }
        // Unknown fields can be reported only if the optimizer is known.
        Err(plain) => (plain, update),
    }
}

/// The inputs: those under `inputs`, or the single one in `input` beside the batch.
fn read_inputs(f: &mut Fields<'_>) -> InputSpec {
    let is_named = f.has("inputs");
    let example = if is_named { "{\"batch\": 64}" } else { "{\"shape\": [64], \"batch\": 64}" };
    let found = f.object("input", Some(example)).map(|m| {
        let mut g = Fields::new(m, "input", None, f.sink());
        let only = (!is_named).then(|| read_input(InputSpec::ONLY, &mut g));
        let batch = g.count("batch", None);
        g.finish();
        InputSpec { batch, inputs: only.into_iter().collect() }
    });
    // The placeholder of an input that could not be read has no shape.
    let unread = || vec![NamedInput::only(Shape::default())];
    let inputs = found.unwrap_or_else(|| InputSpec { batch: 1, inputs: unread() });
    if !is_named {
        return inputs;
    }
    let map = f.object("inputs", Some("{\"image\": {\"shape\": [1, 28, 28]}}"));
    let named = map.map_or_else(unread, |map| map.iter().map(|(name, item)| read_named(name, item, f)).collect());
    InputSpec { inputs: named, ..inputs }
}

/// One of the named inputs.
fn read_named(name: &str, item: &Value, f: &mut Fields<'_>) -> NamedInput {
    let mut fail = |message: String, help: &str| {
        let (path, help) = (format!("inputs.{name}"), help.to_owned());
        f.sink().push(Diagnostic { layer: None, path, message, help });
    };
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    if !name.starts_with(is_letter) || !name.chars().all(|c| is_letter(c) || c.is_ascii_digit()) {
        fail(format!("{name:?} is not the name of an input"), "use letters, digits and _, and begin with a letter");
    }
    let Value::Object(map) = item else {
        fail(format!("found {}", describe(item)), "expected an object such as {\"shape\": [64]}");
        return NamedInput { name: name.to_owned(), ..NamedInput::only(Shape::default()) };
    };
    let mut g = Fields::new(map, format!("inputs.{name}"), None, f.sink());
    let input = read_input(name, &mut g);
    g.finish();
    input
}

/// The fields of one input.
fn read_input(name: &str, g: &mut Fields<'_>) -> NamedInput {
    let shape = Shape(g.counts("shape"));
    let [real, tokens] = Content::NAMES;
    let content = match g.choice("type", &[(real, false), (tokens, true)], false) {
        Some(true) => Content::Tokens { vocab: g.count("vocab", None) },
        _ => Content::Real,
    };
    NamedInput { name: name.to_owned(), content, shape }
}

/// A list of the block that `f` belongs to: one of `paths`, otherwise `layers` of the object that `f` reads.
fn read_layers(f: &mut Fields<'_>, list: ListId) -> Vec<LayerSpec> {
    let parent = f.layer().cloned().unwrap_or_default().list(list);
    let is_bare = list.field.item().is_some() && !list.field.has_objects();
    let name = if is_bare { format!("{}[{}]", list.field.name(), list.number) } else { "layers".to_owned() };
    let at = f.at(&name);
    let value =
        if is_bare { f.raw(list.field.name()).and_then(|lists| lists.get(list.number)) } else { f.raw("layers") };
    let items = match value {
        Some(Value::Array(items)) => items,
        Some(other) => {
            f.wrong(&name, other, "a list of layers [ ... ]");
            return Vec::new();
        }
        None => {
            f.fail(&name, "is missing", "add \"layers\": [{\"type\": \"dense\", \"units\": 10}]");
            return Vec::new();
        }
    };
    if parent.block.depth() >= MAX_DEPTH {
        f.fail(&name, "blocks are nested too deep", "at most 16 levels");
        return Vec::new();
    }
    let mut layers = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let here = format!("{at}[{index}]");
        let path = parent.child(index);
        let Value::Object(map) = item else {
            let help = "expected a layer such as {\"type\": \"dense\", \"units\": 10}".into();
            f.sink().push(Diagnostic {
                layer: Some(path),
                path: here,
                message: format!("found {}", describe(item)),
                help,
            });
            layers.push(UNREAD);
            continue;
        };
        layers.push(read_layer(map, here, path, f.sink()).unwrap_or(UNREAD));
    }
    layers
}

/// Replaces a layer that could not be read, so that the later ones keep their numbers.
const UNREAD: LayerSpec = LayerSpec::Flatten(Flatten);

fn read_layer(map: &Map<String, Value>, here: String, path: LayerPath, out: &mut Vec<Diagnostic>) -> Option<LayerSpec> {
    let mut f = Fields::new(map, here, Some(path), out);
    let kind = f.choice("type", &LayerKind::ALL.map(|k| (k.type_name, k)), true)?;
    let layer = LayerSpec::read(kind, &mut f, read_layers);
    f.finish();
    Some(layer)
}

fn read_data(mut f: Fields<'_>) -> Option<DataSpec> {
    let source = DataSource::read(&mut f);
    let held_out = f.number("held_out", Some(0.2));
    // It is not possible to hold out all samples, and one sample is written as the whole number 1.
    let is_all = held_out == 1.0 && f.raw("held_out").is_some_and(serde_json::Value::is_f64);
    if is_all {
        f.fail("held_out", "found 1.0", "expected a fraction below 1, or 1 without a decimal point for one sample");
    } else if held_out < 0.0 || (held_out >= 1.0 && held_out.fract() != 0.0) {
        f.fail("held_out", format!("found {held_out}"), "expected a fraction below 1, or a whole number of samples");
    }
    let split = f.choice("split", &[("shuffled", SplitKind::Shuffled), ("last", SplitKind::Last)], false);
    let last_batch = f.choice("last_batch", &LastBatch::ALL.map(|kind| (kind.name(), kind)), false).unwrap_or_default();
    let buckets = if f.has("buckets") { f.counts("buckets") } else { Vec::new() };
    if !buckets.windows(2).all(|pair| pair[0] < pair[1]) {
        f.fail("buckets", format!("found {buckets:?}"), "expected different lengths, the shortest first");
    }
    let source = source?;
    if split == Some(SplitKind::Shuffled) && source.is_ordered() {
        f.fail("split", "found \"shuffled\"", "expected \"last\": of a text or series the last part is held out");
    }
    let split = split.unwrap_or(SplitKind::usual(&source));
    f.finish();
    Some(DataSpec { source, held_out, split, last_batch, buckets })
}
