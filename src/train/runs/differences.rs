//! The differences between the presets of runs, field by field, and the names that follow from them.

use super::RunEntry;
use crate::model::BUNDLED;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// A field in which presets differ, with its value in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDifference {
    /// `layers[0].units`.
    pub field: String,
    /// One for each preset; a dash if it has no such field.
    pub values: Vec<String>,
}

fn flatten(path: &str, value: &Value, out: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, value, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, value) in items.iter().enumerate() {
                flatten(&format!("{path}[{index}]"), value, out);
            }
        }
        Value::String(text) => out.push((path.to_owned(), text.clone())),
        other => out.push((path.to_owned(), other.to_string())),
    }
}

/// The fields in which these presets differ, in the order in which they first appear; the description is left out.
#[must_use]
pub fn preset_differences(presets: &[&str]) -> Vec<FieldDifference> {
    let flat: Vec<Vec<(String, String)>> = presets
        .iter()
        .map(|text| {
            let mut fields = Vec::new();
            flatten("", &serde_json::from_str(text).unwrap_or_default(), &mut fields);
            fields
        })
        .collect();
    let maps: Vec<HashMap<&str, &str>> =
        flat.iter().map(|f| f.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()).collect();
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for (field, _) in flat.iter().flatten() {
        if field == "about" || !seen.insert(field.as_str()) {
            continue;
        }
        let values: Vec<String> = maps.iter().map(|m| (*m.get(field.as_str()).unwrap_or(&"–")).to_owned()).collect();
        if values.windows(2).any(|w| w[0] != w[1]) {
            out.push(FieldDifference { field: field.clone(), values });
        }
    }
    out
}

/// The number of changes in a name; if there are more, their number is given.
const NAMED: usize = 2;

/// The changes of a preset as short text: `layers[0].units 32`. The name and the number of steps do not distinguish
/// networks; `None` if nothing else was changed.
#[must_use]
pub fn change(from: &str, to: &str) -> Option<String> {
    let mut all = preset_differences(&[from, to]);
    all.retain(|d| !matches!(d.field.as_str(), "name" | "version" | "train.steps"));
    let mut parts: Vec<String> = all
        .iter()
        .take(NAMED)
        .map(|d| format!("{} {}", d.field.trim_start_matches("train."), d.values.last().map_or("", String::as_str)))
        .collect();
    if all.len() > NAMED {
        parts.push(format!("{} more", all.len() - NAMED));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Adds the changes of their presets to the names of runs, compared with the bundled preset of that name, or with the
/// oldest run of that name in the list. The list has the newest first; names that the user gave are not changed.
pub(super) fn add_changes(entries: &mut [RunEntry]) {
    let mut first: HashMap<String, String> = HashMap::new();
    let mut known: HashMap<(String, String), Option<String>> = HashMap::new();
    for entry in entries.iter_mut().rev() {
        let record = &entry.record;
        let bundled = || BUNDLED.iter().find(|b| b.name == record.preset_name).map(|b| written(b.text));
        let base = first.entry(record.preset_name.clone());
        let base = base.or_insert_with(|| bundled().unwrap_or_else(|| record.preset.clone()));
        if entry.label.name.is_some() || record.preset.is_empty() {
            continue;
        }
        // Hundreds of runs of a few networks need only a few comparisons.
        let key = (record.preset_name.clone(), record.preset.clone());
        let changed = known.entry(key).or_insert_with(|| change(base, &record.preset));
        if let Some(change) = changed {
            entry.title = format!("{} ({change})", record.preset_name);
        }
    }
}

/// A bundled document in the form in which runs store presets: with every field that has a default.
fn written(text: &str) -> String {
    crate::model::read_preset(text).map_or_else(|_| text.to_owned(), |p| crate::model::write_preset(&p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_compared_field_by_field() {
        let a = r#"{"name": "a", "about": "x", "layers": [{"type": "dense", "units": 8}], "optimizer": {"lr": 0.1}}"#;
        let b = r#"{"name": "a", "about": "y", "layers": [{"type": "dense", "units": 9}, {"type": "flatten"}],
            "optimizer": {"lr": 0.1}}"#;
        let found = preset_differences(&[a, b]);
        let text: Vec<String> = found.iter().map(|d| format!("{}: {}", d.field, d.values.join(" | "))).collect();
        assert_eq!(text, ["layers[0].units: 8 | 9", "layers[1].type: – | flatten"]);
        assert_eq!(preset_differences(&[a, a]), []);
    }

    #[test]
    fn a_change_is_described_in_short() {
        let a =
            r#"{"name": "a", "layers": [{"units": 8}], "optimizer": {"lr": 0.1}, "train": {"steps": 5, "seed": 0}}"#;
        let b = a.replace("\"units\": 8", "\"units\": 9").replace("\"steps\": 5", "\"steps\": 7");
        assert_eq!((change(a, a), change(a, &b).as_deref()), (None, Some("layers[0].units 9")));
        let c = b.replace("0.1", "0.2").replace("\"seed\": 0", "\"seed\": 3");
        assert_eq!(change(a, &c).as_deref(), Some("layers[0].units 9, optimizer.lr 0.2, 1 more"));
    }
}
