//! The fields of a preset as data: what the user edits, one by one.
//!
//! Every field has a typed value that can be printed as text and parsed again, so that one editor serves all of them,
//! and an invalid text never reaches the document.

pub mod inputs;
pub mod layer;
pub mod preset;
pub mod value;

#[cfg(test)]
mod tests {
    use super::layer::{layer_fields, set_layer_field};
    use super::preset::{preset_fields, set_preset_field, set_source_field, source_names};
    use super::value::{FieldValue, Owner};
    use crate::model::LayerPath;
    use crate::model::Padding;
    use crate::model::random::{Size, random_preset};
    use crate::model::{LayerKind, LayerSpec};
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_field_of_every_layer_parses_what_it_prints() {
        for kind in LayerKind::ALL {
            let mut layer = kind.example();
            for field in layer_fields(&LayerPath::from([0]), &layer.clone()) {
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
                for field in layer_fields(&LayerPath::from([0]), layer) {
                    drawn.entry((layer.kind().class, field.name)).or_default().insert(field.value.text());
                }
                layer.lists().into_iter().for_each(|(_, inside)| gather(inside, drawn));
            }
        }
        let mut drawn = BTreeMap::new();
        (0..400).for_each(|seed| gather(&random_preset(seed, Size::SMALL.choosing()).layers, &mut drawn));
        for kind in LayerKind::ALL {
            for field in layer_fields(&LayerPath::from([0]), &kind.example()) {
                let values = drawn.get(&(kind.class, field.name)).map_or(0, BTreeSet::len);
                assert!(values > 1, "{} {}: {values} values", kind.class, field.name);
            }
        }
    }

    #[test]
    fn every_data_source_can_be_chosen_and_edited() {
        let mut preset = crate::studio::document::presets::digits();
        for (index, source) in source_names().iter().enumerate() {
            assert!(set_preset_field(&mut preset, "data.type", &FieldValue::Choice(index)));
            assert_eq!(preset.data.as_ref().map_or("none", |d| d.source.name()), *source);
            for (_, fields) in preset_fields(&preset.clone()) {
                for field in fields {
                    let is_set = match &field.owner {
                        Owner::Source(input) => set_source_field(&mut preset, input, field.name, &field.value),
                        _ => set_preset_field(&mut preset, field.name, &field.value),
                    };
                    assert!(is_set, "{}", field.owner.path_of(field.name));
                }
            }
        }
    }

    #[test]
    fn errors_of_invalid_texts_say_what_is_allowed() {
        assert_eq!(FieldValue::Count(1).parse("ten"), Err("expected a whole number, at least 1"));
        assert_eq!(FieldValue::Pair([1, 1]).parse("3x5"), Ok(FieldValue::Pair([3, 5])));
        assert!(FieldValue::Padding(Padding::Same).parse("most").is_err());
        assert!(FieldValue::Number(0.0).parse("NaN").is_err());
    }
}
