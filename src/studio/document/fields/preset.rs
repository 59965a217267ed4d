//! The fields outside the layers: input, loss, optimizer, data and run.

use crate::model::{
    ColumnRange, DataSource, DataSpec, Header, InputSpec, LossSpec, OptimizerSpec, Precision, Preset, SplitKind,
    TargetColumn, Tokens,
};
use crate::studio::document::fields::inputs::{put_inputs, set_unnamed};
use crate::studio::document::fields::value::{Field, FieldValue, List, Owner};
use std::path::{Path, PathBuf};

pub(super) const SOURCES: [&str; 21] = [
    "none",
    "digits",
    "iris",
    "spirals",
    "moons",
    "circles",
    "xor",
    "regression",
    "csv",
    "npz",
    "npy",
    "idx",
    "cifar10",
    "images",
    "text",
    "source",
    "sums",
    "waves",
    "series",
    "digit_sums",
    "joined",
];

/// The fields outside the layers, by section.
#[must_use]
pub fn preset_fields(preset: &Preset) -> Vec<(&'static str, Vec<Field>)> {
    vec![
        ("Input", input_fields(preset)),
        ("Loss", loss_fields(preset.loss)),
        ("Optimizer", optimizer_fields(preset)),
        ("Data", data_fields(preset.data.as_ref())),
        ("Run", run_fields(preset)),
    ]
}

fn list() -> List {
    List { owner: Owner::Preset, fields: Vec::new() }
}

fn input_fields(preset: &Preset) -> Vec<Field> {
    let mut l = list();
    put_inputs(&mut l, &preset.input);
    l.put("input.batch", "batch", FieldValue::Count(preset.input.batch), "Samples a step.");
    let index = Precision::ALL.iter().position(|p| *p == preset.precision).unwrap_or(0);
    l.choose(
        "precision",
        "precision",
        Precision::ALL.map(Precision::name).into(),
        index,
        "Precision of products and activations; the CPU computes f32.",
    );
    l.fields
}

fn loss_fields(loss: LossSpec) -> Vec<Field> {
    let mut l = list();
    let index = LossSpec::NAMES.iter().position(|name| *name == loss.name()).unwrap_or(0);
    let help = "What training makes small; the mean over the batch.";
    l.choose("loss.type", "loss", LossSpec::NAMES.into(), index, help);
    l.fields.extend(loss.fields().into_iter().map(|view| Field::of(&Owner::Preset, view)));
    l.fields
}

fn optimizer_fields(preset: &Preset) -> Vec<Field> {
    let (mut l, optimizer) = (list(), &preset.optimizer);
    let index = OptimizerSpec::NAMES.iter().position(|o| *o == optimizer.name()).unwrap_or(0);
    l.choose("optimizer.type", "optimizer", OptimizerSpec::NAMES.into(), index, "How gradients move the parameters.");
    let fields = optimizer.fields().into_iter().chain(preset.update.fields());
    l.fields.extend(fields.map(|view| Field::of(&Owner::Preset, view)));
    l.fields
}

fn data_fields(data: Option<&DataSpec>) -> Vec<Field> {
    use FieldValue::Number;
    let mut l = list();
    let index = data.and_then(|d| SOURCES.iter().position(|s| *s == d.source.name())).unwrap_or(0);
    l.choose("data.type", "data", SOURCES.into(), index, "Where samples come from.");
    let Some(data) = data else { return l.fields };
    put_source(&mut l, &data.source);
    l.put(
        "data.held_out",
        "held out",
        Number(data.held_out),
        "Kept for evaluation: a share below 1, or a number of samples.",
    );
    l.choose("data.split", "split", vec!["shuffled", "last"], data.split as usize, "Which samples are held out.");
    l.fields
}

/// The fields of data that is drawn; those of files follow.
fn put_source(l: &mut List, source: &DataSource) {
    use FieldValue::{Count, Number};
    match source {
        DataSource::Digits | DataSource::DigitSums | DataSource::Iris | DataSource::SourceCode => {}
        DataSource::Joined { inputs, target } => put_joined(l, inputs, target),
        DataSource::Sums { samples } => l.put("data.samples", "samples", Count(*samples), "Additions drawn."),
        DataSource::Spirals { samples, classes, noise } => {
            l.put("data.samples", "samples", Count(*samples), "Samples drawn.");
            l.put("data.classes", "classes", Count(*classes), "Arms of the spiral.");
            l.put("data.noise", "noise", Number(*noise), "Standard deviation of the noise.");
        }
        DataSource::Moons { samples, noise }
        | DataSource::Xor { samples, noise }
        | DataSource::Waves { samples, noise }
        | DataSource::Regression { samples, noise } => {
            l.put("data.samples", "samples", Count(*samples), "Samples drawn.");
            l.put("data.noise", "noise", Number(*noise), "Standard deviation of the noise.");
        }
        DataSource::Circles { samples, noise, factor } => {
            l.put("data.samples", "samples", Count(*samples), "Samples drawn.");
            l.put("data.noise", "noise", Number(*noise), "Standard deviation of the noise.");
            l.put("data.factor", "factor", Number(*factor), "Radius of the inner circle over the outer.");
        }
        files => put_files(l, files),
    }
}

/// The fields of the source of each input.
fn put_joined(l: &mut List, inputs: &[(String, DataSource)], target: &str) {
    let help = "The input whose source has the targets, by its name.";
    l.put("data.target", "target", FieldValue::Text(target.to_owned()), help);
    for (name, source) in inputs {
        let mut own = List { owner: Owner::Source(name.clone()), fields: Vec::new() };
        let index = SOURCES.iter().position(|known| *known == source.name()).unwrap_or(0);
        own.choose("data.type", "data", SOURCES.into(), index, "Where the samples of this input come from.");
        put_source(&mut own, source);
        l.fields.extend(own.fields);
    }
}

/// The fields of a text table.
fn put_table(l: &mut List, source: &DataSource) {
    use FieldValue::{Flag, Text};
    let DataSource::Csv { path, header, target, columns, standardize, delimiter } = source else { return };
    let (path, help) = (path.display().to_string(), "A text table, from the preset's folder.");
    l.put("data.path", "file", Text(path), help);
    let help = "Whether the first line holds names.";
    l.choose("data.header", "header", vec!["auto", "yes", "no"], *header as usize, help);
    let help = "The target's column: a name, a number from 0, or -1 for the last.";
    l.put("data.target", "target", Text(column_text(target)), help);
    let columns = columns.iter().map(range_text).collect::<Vec<_>>().join(", ");
    let help = "The features, by name or number from 0; 3..8 are six columns. Empty for all but the target.";
    l.put("data.columns", "columns", Text(columns), help);
    l.put("data.standardize", "standardize", Flag(*standardize), "Centres and scales each feature.");
    l.put("data.delimiter", "delimiter", Text(delimiter.to_string()), "The character between columns.");
}

/// The fields of data that is read from files.
fn put_files(l: &mut List, source: &DataSource) {
    use FieldValue::Text;
    let path = |p: &PathBuf| Text(p.display().to_string());
    match source {
        DataSource::Csv { .. } => put_table(l, source),
        DataSource::Npz { path: p, x, y } => {
            l.put("data.path", "file", path(p), "An .npz archive.");
            l.put("data.x", "x", Text(x.clone()), "The array of samples.");
            l.put("data.y", "y", Text(y.clone()), "The array of targets.");
        }
        DataSource::Npy { x, y } => {
            l.put("data.x", "x", path(x), "The .npy file of samples.");
            l.put("data.y", "y", path(y), "The .npy file of targets.");
        }
        DataSource::Idx { images, labels } => {
            l.put("data.images", "images", path(images), "The IDX file of images, plain or gzip.");
            l.put("data.labels", "labels", path(labels), "The IDX file of labels.");
        }
        DataSource::Cifar10 { paths } => {
            let joined = paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join("; ");
            l.put("data.paths", "files", Text(joined), "CIFAR-10 binary batches, separated by semicolons.");
        }
        DataSource::Images { path: p } => {
            l.put("data.path", "folder", path(p), "A folder with one subfolder of pictures a class.")
        }
        DataSource::Text { path: p, tokens } => {
            l.put("data.path", "file", path(p), "A text, from the preset's folder.");
            let (names, help) = (Tokens::ALL.map(Tokens::name).into(), "What the tokens of the text are.");
            l.choose("data.tokens", "tokens", names, *tokens as usize, help);
        }
        DataSource::Series { path, columns, window, horizon } => put_series(l, path, columns, [*window, *horizon]),
        _ => {}
    }
}

/// The fields of a series; `counts` are the lines that the network sees, and those that it learns.
fn put_series(l: &mut List, path: &Path, columns: &[TargetColumn], counts: [usize; 2]) {
    use FieldValue::{Count, Text};
    let help = "A table with a line for each point in time, from the preset's folder.";
    l.put("data.path", "file", Text(path.display().to_string()), help);
    let columns = columns.iter().map(column_text).collect::<Vec<_>>().join(", ");
    let help = "The columns, by name or number from 0, with commas between.";
    l.put("data.columns", "columns", Text(columns), help);
    l.put("data.window", "window", Count(counts[0]), "Lines that the network sees.");
    l.put("data.horizon", "horizon", Count(counts[1]), "Lines after them that it learns.");
}

fn run_fields(preset: &Preset) -> Vec<Field> {
    let mut l = list();
    let train = preset.train.unwrap_or_default();
    l.put("train.steps", "steps", FieldValue::Count(train.steps), "Length of the run.");
    l.put("train.seed", "seed", FieldValue::Seed(train.seed), "Initial weights, shuffles and dropout follow from it.");
    let help = "Batches whose mean gradient makes one step; 1 makes a step of each.";
    l.put("train.accumulate", "accumulate", FieldValue::Count(train.accumulate), help);
    l.put("name", "name", FieldValue::Text(preset.name.clone()), "The preset's name.");
    l.put("about", "about", FieldValue::Text(preset.about.clone()), "What a newcomer reads before pressing Train.");
    l.fields
}

/// Sets a field outside the layers; false where there is none of that name or the value is of another type.
pub fn set_preset_field(preset: &mut Preset, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Seed, Text};
    match (name, value) {
        ("name", Text(t)) => preset.name.clone_from(t),
        ("about", Text(t)) => preset.about.clone_from(t),
        ("input.batch", Count(n)) => preset.input.batch = *n,
        ("precision", Choice(i)) => preset.precision = Precision::ALL.get(*i).copied().unwrap_or_default(),
        ("loss.type", Choice(i)) => {
            let chosen = LossSpec::NAMES.get(*i).and_then(|name| LossSpec::example(name));
            let Some(chosen) = chosen else { return false };
            preset.loss = chosen;
        }
        ("train.steps", Count(n)) => preset.train.get_or_insert_default().steps = *n,
        ("train.accumulate", Count(n)) => preset.train.get_or_insert_default().accumulate = *n,
        ("train.seed", Seed(n)) => preset.train.get_or_insert_default().seed = *n,
        _ => {
            if name.starts_with("loss.") {
                return preset.loss.set(name, value);
            }
            if name.starts_with("optimizer.") {
                return set_optimizer_field(&mut preset.optimizer, name, value) || preset.update.set(name, value);
            }
            if let Some(field) = name.strip_prefix("input.") {
                return set_unnamed(&mut preset.input, field, value);
            }
            let Some(field) = name.strip_prefix("data.") else { return false };
            let is_joined = matches!((field, value), ("type", Choice(i)) if SOURCES.get(*i) == Some(&"joined"));
            if is_joined {
                preset.data = Some(join(preset.data.take(), &preset.input));
                return true;
            }
            return set_data_field(&mut preset.data, field, value);
        }
    }
    true
}

/// Another optimizer keeps the rates.
fn set_optimizer_field(optimizer: &mut OptimizerSpec, name: &str, value: &FieldValue) -> bool {
    let ("optimizer.type", FieldValue::Choice(index)) = (name, value) else { return optimizer.set(name, value) };
    let chosen = OptimizerSpec::NAMES.get(*index).and_then(|name| OptimizerSpec::example(name));
    let Some(chosen) = chosen else { return false };
    *optimizer = chosen.at_rates(optimizer.lr(), optimizer.weight_decay());
    true
}

/// A source for each input: the one that there was for the first, and examples for the others.
fn join(old: Option<DataSpec>, inputs: &InputSpec) -> DataSpec {
    let mut spec = old.unwrap_or_else(|| DataSpec::of(DataSource::Digits));
    if matches!(spec.source, DataSource::Joined { .. }) {
        return spec;
    }
    let mut first = Some(spec.source);
    let example = || example_source("csv").unwrap_or(DataSource::Digits);
    let of_each = |name: &String| (name.clone(), first.take().unwrap_or_else(example));
    let names: Vec<String> = inputs.inputs.iter().map(|input| input.name.clone()).collect();
    let target = names.first().cloned().unwrap_or_default();
    spec.source = DataSource::Joined { inputs: names.iter().map(of_each).collect(), target };
    spec
}

/// Sets a field of the source of one of several inputs; false where there is none of that name, or the source cannot
/// be joined.
pub fn set_source_field(preset: &mut Preset, input: &str, name: &str, value: &FieldValue) -> bool {
    let Some(DataSpec { source: DataSource::Joined { inputs, .. }, .. }) = &mut preset.data else { return false };
    let own = inputs.iter_mut().find(|(own, _)| own == input);
    let (Some((_, source)), Some(field)) = (own, name.strip_prefix("data.")) else { return false };
    let mut alone = Some(DataSpec::of(source.clone()));
    let is_set = set_data_field(&mut alone, field, value);
    match alone.map(|spec| spec.source) {
        Some(changed) if is_set => *source = changed,
        _ => return false,
    }
    true
}

fn set_data_field(data: &mut Option<DataSpec>, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Number};
    if let ("type", Choice(index)) = (name, value) {
        *data = example_source(SOURCES.get(*index).copied().unwrap_or_default()).map(|source| match data.take() {
            Some(old) if source.is_ordered() => DataSpec { source, split: SplitKind::Last, ..old },
            Some(old) => DataSpec { source, ..old },
            None => DataSpec::of(source),
        });
        return true;
    }
    let Some(spec) = data else { return false };
    match (name, value, &mut spec.source) {
        ("held_out", Number(n), _) => spec.held_out = n.max(0.0),
        ("split", Choice(i), _) => spec.split = if *i == 0 { SplitKind::Shuffled } else { SplitKind::Last },
        (
            "samples",
            Count(n),
            DataSource::Spirals { samples, .. }
            | DataSource::Moons { samples, .. }
            | DataSource::Circles { samples, .. }
            | DataSource::Xor { samples, .. }
            | DataSource::Regression { samples, .. }
            | DataSource::Sums { samples }
            | DataSource::Waves { samples, .. },
        ) => *samples = *n,
        (
            "noise",
            Number(n),
            DataSource::Spirals { noise, .. }
            | DataSource::Moons { noise, .. }
            | DataSource::Circles { noise, .. }
            | DataSource::Xor { noise, .. }
            | DataSource::Regression { noise, .. }
            | DataSource::Waves { noise, .. },
        ) => *noise = *n,
        ("classes", Count(n), DataSource::Spirals { classes, .. }) => *classes = *n,
        ("factor", Number(n), DataSource::Circles { factor, .. }) => *factor = *n,
        (name, value, source) => return set_files_field(source, name, value),
    }
    true
}

/// Sets a field of data that is read from files.
fn set_files_field(source: &mut DataSource, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Count, Text};
    match (name, value, source) {
        (
            "path",
            Text(t),
            DataSource::Csv { path, .. }
            | DataSource::Npz { path, .. }
            | DataSource::Images { path }
            | DataSource::Text { path, .. }
            | DataSource::Series { path, .. },
        ) => *path = t.into(),
        ("tokens", Choice(i), DataSource::Text { tokens, .. }) => *tokens = Tokens::ALL[(*i).min(1)],
        ("columns", Text(t), DataSource::Series { columns, .. }) => {
            *columns = t.split(',').map(|column| target_column(column.trim())).collect();
        }
        ("window", Count(n), DataSource::Series { window, .. }) => *window = *n,
        ("horizon", Count(n), DataSource::Series { horizon, .. }) => *horizon = *n,
        ("target", Text(t), DataSource::Joined { target, .. }) => target.clone_from(t),
        (_, _, table @ DataSource::Csv { .. }) => return set_table_field(table, name, value),
        ("x", Text(t), DataSource::Npz { x, .. }) => x.clone_from(t),
        ("y", Text(t), DataSource::Npz { y, .. }) => y.clone_from(t),
        ("x", Text(t), DataSource::Npy { x, .. }) => *x = t.into(),
        ("y", Text(t), DataSource::Npy { y, .. }) => *y = t.into(),
        ("images", Text(t), DataSource::Idx { images, .. }) => *images = t.into(),
        ("labels", Text(t), DataSource::Idx { labels, .. }) => *labels = t.into(),
        ("paths", Text(t), DataSource::Cifar10 { paths }) => *paths = t.split(';').map(|p| p.trim().into()).collect(),
        _ => return false,
    }
    true
}

/// Sets a field of a text table, besides its file.
fn set_table_field(source: &mut DataSource, name: &str, value: &FieldValue) -> bool {
    use FieldValue::{Choice, Flag, Text};
    let DataSource::Csv { header, target, columns, standardize, delimiter, .. } = source else { return false };
    match (name, value) {
        ("columns", Text(t)) => *columns = ranges(t),
        ("header", Choice(i)) => *header = [Header::Auto, Header::Yes, Header::No][(*i).min(2)],
        ("target", Text(t)) => *target = target_column(t),
        ("standardize", Flag(b)) => *standardize = *b,
        ("delimiter", Text(t)) => *delimiter = t.chars().next().unwrap_or(','),
        _ => return false,
    }
    true
}

/// A column of a table as text: its name, its number from 0, or -1 for the last.
fn column_text(column: &TargetColumn) -> String {
    match column {
        TargetColumn::Last => "-1".into(),
        TargetColumn::Index(i) => i.to_string(),
        TargetColumn::Name(n) => n.clone(),
    }
}

/// Columns that follow one another as text: the only one, or the first and the last with two points between.
fn range_text(range: &ColumnRange) -> String {
    let [first, last] = [&range.first, &range.last].map(column_text);
    if first == last { first } else { format!("{first}..{last}") }
}

/// The columns that a text names, with commas between.
fn ranges(text: &str) -> Vec<ColumnRange> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let range = |part: &str| {
        let (first, last) = part.split_once("..").unwrap_or((part, part));
        ColumnRange { first: target_column(first.trim()), last: target_column(last.trim()) }
    };
    parts.map(range).collect()
}

/// The column of a table that a text names: by its name, by its number from 0, or -1 for the last.
fn target_column(text: &str) -> TargetColumn {
    match text.parse::<usize>() {
        _ if text.is_empty() || text == "-1" => TargetColumn::Last,
        Ok(index) => TargetColumn::Index(index),
        Err(_) => TargetColumn::Name(text.to_owned()),
    }
}

/// A source of this name with sensible fields; `None` for no data.
fn example_source(name: &str) -> Option<DataSource> {
    let (samples, noise) = (2000, 0.1);
    Some(match name {
        "digits" => DataSource::Digits,
        "digit_sums" => DataSource::DigitSums,
        "iris" => DataSource::Iris,
        "spirals" => DataSource::Spirals { samples, classes: 3, noise },
        "moons" => DataSource::Moons { samples, noise },
        "circles" => DataSource::Circles { samples, noise: 0.05, factor: 0.5 },
        "xor" => DataSource::Xor { samples, noise: 0.2 },
        "regression" => DataSource::Regression { samples, noise: 0.05 },
        "csv" => DataSource::Csv {
            path: "data.csv".into(),
            header: Header::Auto,
            target: TargetColumn::Last,
            columns: Vec::new(),
            standardize: true,
            delimiter: ',',
        },
        "npz" => DataSource::Npz { path: "data.npz".into(), x: "x".into(), y: "y".into() },
        "npy" => DataSource::Npy { x: "x.npy".into(), y: "y.npy".into() },
        "idx" => {
            DataSource::Idx { images: "train-images-idx3-ubyte.gz".into(), labels: "train-labels-idx1-ubyte.gz".into() }
        }
        "cifar10" => DataSource::Cifar10 { paths: vec!["data_batch_1.bin".into()] },
        "images" => DataSource::Images { path: "images".into() },
        "text" => DataSource::Text { path: "text.txt".into(), tokens: Tokens::Bytes },
        "source" => DataSource::SourceCode,
        "sums" => DataSource::Sums { samples: 20_000 },
        "waves" => DataSource::Waves { samples, noise },
        "series" => {
            let columns = vec![TargetColumn::Index(0)];
            DataSource::Series { path: "series.csv".into(), columns, window: 48, horizon: 12 }
        }
        _ => return None,
    })
}
