//! The sizes of a network that users change most often: units, filters and the batch, by their paths in its document.

use super::check::check;
use super::preset::Preset;
use super::read::read_value;
use super::write::write_preset;
use serde_json::Value;

/// A size of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizePlace {
    /// Its path in the document, as a JSON pointer.
    pub pointer: String,
    pub value: u64,
}

/// A network as a document, with its sizes.
#[derive(Clone, Debug)]
pub struct Sizes {
    document: Value,
    /// The units and filters of all layers except the last one with such a number, which is determined by the targets;
    /// then the batch. A size that the checker does not allow to grow by one is left out.
    pub places: Vec<SizePlace>,
}

impl Sizes {
    /// The sizes of a network.
    #[must_use]
    pub fn of(preset: &Preset) -> Self {
        let document: Value = serde_json::from_str(&write_preset(preset)).unwrap_or_default();
        let mut places = Vec::new();
        collect(&document["layers"], "/layers", &mut places);
        places.pop();
        collect(&document["input"], "/input", &mut places);
        let mut sizes = Self { document, places: Vec::new() };
        places.retain(|place| sizes.changed(place, place.value + 1).is_some());
        sizes.places = places;
        sizes
    }

    /// The network with another size at a path; `None` if that is a mistake.
    #[must_use]
    pub fn changed(&self, place: &SizePlace, value: u64) -> Option<Preset> {
        let mut document = self.document.clone();
        *document.pointer_mut(&place.pointer)? = value.into();
        read_value(&document).ok().filter(|preset| check(preset).model.is_some())
    }
}

/// The sizes in a part of a document.
fn collect(part: &Value, pointer: &str, places: &mut Vec<SizePlace>) {
    match part {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_u64().filter(|_| matches!(&name[..], "units" | "filters" | "batch")) {
                    Some(value) => places.push(SizePlace { pointer: format!("{pointer}/{name}"), value }),
                    None => collect(field, &format!("{pointer}/{name}"), places),
                }
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| collect(item, &format!("{pointer}/{index}"), places));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read_preset;

    #[test]
    fn sizes_that_do_not_depend_on_the_targets_can_be_changed() {
        let text = r#"{"version": 1, "name": "t", "input": {"shape": [4, 8, 8], "batch": 32}, "layers": [
            {"type": "residual", "layers": [{"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same"}]},
            {"type": "flatten"}, {"type": "dense", "units": 100}, {"type": "dense", "units": 10}],
            "loss": {"type": "softmax_cross_entropy"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let sizes = Sizes::of(&read_preset(text).unwrap());
        let found: Vec<(&str, u64)> = sizes.places.iter().map(|place| (&place.pointer[..], place.value)).collect();
        // The block must return the shape that it receives.
        assert_eq!(found, [("/layers/2/units", 100), ("/input/batch", 32)]);
        let wider = sizes.changed(&sizes.places[0], 101).unwrap();
        assert!(write_preset(&wider).contains("\"units\": 101"));
        assert!(sizes.changed(&sizes.places[0], 0).is_none());
    }
}
