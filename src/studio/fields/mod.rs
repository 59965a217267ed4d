//! The fields of a preset as data: what a person edits, one by one.
//!
//! Every field has a typed value that prints as text and reads back from it, so that one editor serves them all, and a
//! wrong text never reaches the document.

mod layer;
mod preset;

pub use crate::model::FieldValue;
pub use layer::{layer_fields, set_layer_field};
pub use preset::{preset_fields, set_preset_field};

use crate::model::LayerPath;
use crate::tensor::plural;

/// Whose field it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The document itself; names are whole paths such as `optimizer.lr`.
    Preset,
    Layer(LayerPath),
}

impl Owner {
    /// The field's place as diagnostics name it: `layers[1].rate`.
    #[must_use]
    pub fn path_of(&self, name: &str) -> String {
        match self {
            Self::Preset => name.to_owned(),
            Self::Layer(path) => format!("{path}.{name}"),
        }
    }
}

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub owner: Owner,
    pub name: &'static str,
    /// The name on screen.
    pub label: &'static str,
    pub value: FieldValue,
    pub options: Vec<&'static str>,
    pub help: &'static str,
}

struct List {
    owner: Owner,
    fields: Vec<Field>,
}

impl List {
    fn put(&mut self, name: &'static str, label: &'static str, value: FieldValue, help: &'static str) {
        self.fields.push(Field { owner: self.owner.clone(), name, label, value, options: Vec::new(), help });
    }

    fn choose(
        &mut self,
        name: &'static str,
        label: &'static str,
        options: Vec<&'static str>,
        chosen: usize,
        help: &'static str,
    ) {
        self.fields.push(Field {
            owner: self.owner.clone(),
            name,
            label,
            value: FieldValue::Choice(chosen),
            options,
            help,
        });
    }
}

/// A count with its noun: `3 layers`.
#[must_use]
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {}", plural(n as u64, noun))
}

#[cfg(test)]
mod tests {
    use super::preset::SOURCES;
    use super::*;
    use crate::model::random::{Size, random_preset};
    use crate::model::{LayerKind, LayerSpec};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_field_of_every_layer_reads_back_what_it_prints() {
        for kind in LayerKind::ALL {
            let mut layer = kind.example();
            for field in layer_fields(&LayerPath(vec![0]), &layer.clone()) {
                assert_eq!(
                    field.value.parse(&field.value.text()),
                    Ok(field.value.clone()),
                    "{} {}",
                    kind.class,
                    field.name
                );
                let before = layer.clone();
                assert!(set_layer_field(&mut layer, field.name, &field.value), "{} {}", kind.class, field.name);
                assert_eq!(layer, before);
            }
        }
    }

    #[test]
    fn random_networks_draw_every_field_of_every_layer() {
        fn gather(layers: &[LayerSpec], drawn: &mut BTreeMap<(&'static str, &'static str), BTreeSet<String>>) {
            for layer in layers {
                for field in layer_fields(&LayerPath(vec![0]), layer) {
                    drawn.entry((layer.kind().class, field.name)).or_default().insert(field.value.text());
                }
                gather(layer.children(), drawn);
            }
        }
        let mut drawn = BTreeMap::new();
        (0..400).for_each(|seed| gather(&random_preset(seed, Size::SMALL).layers, &mut drawn));
        for kind in LayerKind::ALL {
            for field in layer_fields(&LayerPath(vec![0]), &kind.example()) {
                let values = drawn.get(&(kind.class, field.name)).map_or(0, BTreeSet::len);
                assert!(values > 1, "{} {}: {values} values", kind.class, field.name);
            }
        }
    }

    #[test]
    fn every_data_source_can_be_chosen_and_edited() {
        let mut preset = crate::studio::presets::digits();
        for (index, source) in SOURCES.iter().enumerate() {
            assert!(set_preset_field(&mut preset, "data.type", &FieldValue::Choice(index)));
            assert_eq!(preset.data.as_ref().map_or("none", |d| d.source.name()), *source);
            for (_, fields) in preset_fields(&preset.clone()) {
                for field in fields {
                    assert!(set_preset_field(&mut preset, field.name, &field.value), "{}", field.name);
                }
            }
        }
    }
}
