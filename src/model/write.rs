//! Writing a preset as JSON.

use super::preset::{ColumnRange, DataSource, DataSpec, Header, TargetColumn};
use super::{Content, InputSpec, NamedInput, Preset};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The document of a preset, pretty-printed, with a final line break. Reading it back gives the same preset.
#[must_use]
pub fn write_preset(preset: &Preset) -> String {
    let mut doc = Map::new();
    doc.insert("version".into(), 1.into());
    doc.insert("name".into(), preset.name.clone().into());
    doc.insert("about".into(), preset.about.clone().into());
    write_inputs(&preset.input, &mut doc);
    doc.insert("layers".into(), preset.layers.iter().map(|l| Value::Object(l.write())).collect());
    doc.insert("loss".into(), preset.loss.write());
    let mut optimizer = preset.optimizer.write();
    preset.update.write(&mut optimizer);
    doc.insert("optimizer".into(), Value::Object(optimizer));
    doc.insert("precision".into(), preset.precision.name().into());
    if let Some(data) = &preset.data {
        doc.insert("data".into(), Value::Object(write_data(data)));
    }
    if let Some(train) = preset.train {
        let mut fields = json!({ "steps": train.steps, "seed": train.seed });
        if train.accumulate != 1 {
            fields["accumulate"] = train.accumulate.into();
        }
        doc.insert("train".into(), fields);
    }
    // A map of plain values always serialises.
    let mut text = serde_json::to_string_pretty(&Value::Object(doc)).unwrap_or_default();
    text.push('\n');
    text
}

/// The inputs: as `input`, or by name as `inputs` with the batch as `input`.
fn write_inputs(spec: &InputSpec, doc: &mut Map<String, Value>) {
    let write = |input: &NamedInput| match input.content {
        Content::Real => json!({ "shape": input.shape.0 }),
        Content::Tokens { vocab } => json!({ "type": input.content.name(), "shape": input.shape.0, "vocab": vocab }),
    };
    let mut input = Map::new();
    if spec.is_unnamed() {
        if let Some(Value::Object(fields)) = spec.single().map(write) {
            input.extend(fields);
        }
    } else {
        doc.insert("inputs".into(), spec.inputs.iter().map(|i| (i.name.clone(), write(i))).collect());
    }
    input.insert("batch".into(), spec.batch.into());
    doc.insert("input".into(), Value::Object(input));
}

/// A column of a table: its name, its number from 0, or -1 for the last.
fn column(column: &TargetColumn) -> Value {
    match column {
        TargetColumn::Last => json!(-1),
        TargetColumn::Index(i) => json!(i),
        TargetColumn::Name(n) => json!(n),
    }
}

/// Columns that follow one another: the only one, or the first and the last.
fn columns(range: &ColumnRange) -> Value {
    if range.first == range.last { column(&range.first) } else { json!([column(&range.first), column(&range.last)]) }
}

fn write_data(data: &DataSpec) -> Map<String, Value> {
    let mut map = write_source(&data.source);
    map.insert(
        "held_out".into(),
        if data.held_out >= 1.0 { json!(data.held_out as u64) } else { json!(data.held_out) },
    );
    map.insert("split".into(), data.split.name().into());
    map
}

fn write_source(source: &DataSource) -> Map<String, Value> {
    // JSON holds Unicode alone; a name that is none is written as it is shown.
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let fields = match source {
        DataSource::Digits | DataSource::DigitSums | DataSource::Iris | DataSource::SourceCode => json!({}),
        DataSource::Sums { samples } => json!({ "samples": samples }),
        DataSource::Text { path, tokens } => json!({ "path": text(path), "tokens": tokens.name() }),
        DataSource::Series { path, columns, window, horizon } => {
            let columns: Vec<Value> = columns.iter().map(column).collect();
            json!({ "path": text(path), "columns": columns, "window": window, "horizon": horizon })
        }
        DataSource::Spirals { samples, classes, noise } => {
            json!({ "samples": samples, "classes": classes, "noise": noise })
        }
        DataSource::Moons { samples, noise }
        | DataSource::Xor { samples, noise }
        | DataSource::Waves { samples, noise }
        | DataSource::Regression { samples, noise } => {
            json!({ "samples": samples, "noise": noise })
        }
        DataSource::Circles { samples, noise, factor } => {
            json!({ "samples": samples, "noise": noise, "factor": factor })
        }
        DataSource::Joined { inputs, target } => {
            let inputs: Map<String, Value> =
                inputs.iter().map(|(name, source)| (name.clone(), Value::Object(write_source(source)))).collect();
            json!({ "inputs": inputs, "target": target })
        }
        DataSource::Csv { path, header, target, columns: chosen, standardize, delimiter } => {
            let header = match header {
                Header::Auto => json!("auto"),
                Header::Yes => json!(true),
                Header::No => json!(false),
            };
            let mut fields = json!({ "path": text(path), "header": header, "target": column(target) });
            if !chosen.is_empty() {
                fields["columns"] = chosen.iter().map(columns).collect();
            }
            fields["standardize"] = json!(standardize);
            fields["delimiter"] = json!(delimiter);
            fields
        }
        DataSource::Npz { path, x, y } => json!({ "path": text(path), "x": x, "y": y }),
        DataSource::Npy { x, y } => json!({ "x": text(x), "y": text(y) }),
        DataSource::Idx { images, labels } => json!({ "images": text(images), "labels": text(labels) }),
        DataSource::Cifar10 { paths } => json!({ "paths": paths.iter().map(|p| text(p)).collect::<Vec<_>>() }),
        DataSource::Images { path } => json!({ "path": text(path) }),
    };
    let mut map = Map::new();
    map.insert("type".into(), source.name().into());
    if let Value::Object(fields) = fields {
        map.extend(fields);
    }
    map
}
