//! Writing a preset as JSON.

use super::preset::{DataSpec, LastBatch};
use super::{Content, InputSpec, NamedInput, Preset};
use serde_json::{Map, Value, json};

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

fn write_data(data: &DataSpec) -> Map<String, Value> {
    let mut map = data.source.write();
    map.insert(
        "held_out".into(),
        if data.held_out >= 1.0 { json!(data.held_out as u64) } else { json!(data.held_out) },
    );
    map.insert("split".into(), data.split.name().into());
    if data.last_batch != LastBatch::default() {
        map.insert("last_batch".into(), data.last_batch.name().into());
    }
    if !data.buckets.is_empty() {
        map.insert("buckets".into(), json!(data.buckets));
    }
    map
}
