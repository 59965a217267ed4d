//! The fields of the network's inputs: the kind of elements, the number of tokens, and the shape of a sample.

use crate::model::{Content, InputSpec, NamedInput};
use crate::studio::document::fields::value::{FieldValue, List, Owner};

/// The initial size of a vocabulary.
const VOCAB: usize = 256;

/// The names of an input's fields, in order; for an unnamed input they are whole paths.
struct Names {
    content: &'static str,
    vocab: &'static str,
    shape: &'static str,
}

const UNNAMED: Names = Names { content: "input.type", vocab: "input.vocab", shape: "input.shape" };
const NAMED: Names = Names { content: "type", vocab: "vocab", shape: "shape" };

/// Adds the fields of every input.
pub(super) fn put_inputs(l: &mut List, spec: &InputSpec) {
    for input in &spec.inputs {
        let (owner, names) =
            if spec.is_unnamed() { (Owner::Preset, UNNAMED) } else { (Owner::Input(input.name.clone()), NAMED) };
        let mut own = List { owner, fields: Vec::new() };
        let shape = "One sample: features; positions and features; or channels, height, width. Of tokens their number.";
        let label = if spec.is_unnamed() { "sample shape" } else { "shape" };
        own.put(names.shape, label, FieldValue::Shape(input.shape.0.clone()), shape);
        let index = usize::from(input.content.is_tokens());
        let help = "Numbers, or tokens: whole numbers that represent characters or words, which an embedding reads.";
        own.choose(names.content, "type", Content::NAMES.into(), index, help);
        if let Some(vocab) = input.content.vocab() {
            let help = "The number of different tokens; every token is a number below it.";
            own.put(names.vocab, "vocab", FieldValue::Count(vocab), help);
        }
        l.fields.extend(own.fields);
    }
}

/// Sets a field of the unnamed input; returns false if there is none with this name or the value is of another type.
pub(super) fn set_unnamed(spec: &mut InputSpec, field: &str, value: &FieldValue) -> bool {
    if !spec.is_unnamed() {
        return false;
    }
    spec.inputs.first_mut().is_some_and(|input| set(input, field, value))
}

/// Like `set_unnamed`, for the input with this name.
pub fn set_input_field(spec: &mut InputSpec, name: &str, field: &str, value: &FieldValue) -> bool {
    spec.inputs.iter_mut().find(|input| input.name == name).is_some_and(|input| set(input, field, value))
}

fn set(input: &mut NamedInput, field: &str, value: &FieldValue) -> bool {
    match (field, value) {
        ("shape", FieldValue::Shape(dims)) => input.shape = dims.clone().into(),
        ("type", FieldValue::Choice(0)) => input.content = Content::Real,
        ("type", FieldValue::Choice(_)) => {
            input.content = Content::Tokens { vocab: input.content.vocab().unwrap_or(VOCAB) };
        }
        ("vocab", FieldValue::Count(vocab)) if input.content.is_tokens() => {
            input.content = Content::Tokens { vocab: *vocab };
        }
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read_preset;
    use crate::studio::document::fields::preset::preset_fields;

    #[test]
    fn every_input_has_its_fields_and_keeps_the_others() {
        let text = r#"{"version": 1, "name": "n", "input": {"batch": 2}, "layers": [{"type": "dense", "units": 2}],
            "inputs": {"image": {"shape": [1, 4, 4]}, "words": {"type": "tokens", "shape": [5], "vocab": 9}},
            "loss": {"type": "mse"}, "optimizer": {"type": "sgd", "lr": 0.1}}"#;
        let mut preset = read_preset(text).unwrap();
        let shown = |preset: &crate::model::Preset| {
            let (_, fields) = preset_fields(preset).remove(0);
            fields.iter().map(|f| (f.title().into_owned(), f.value.text())).collect::<Vec<_>>()
        };
        let titles = ["image shape", "image type", "words shape", "words type", "words vocab", "batch"];
        assert_eq!(shown(&preset).iter().map(|(title, _)| title.as_str()).take(6).collect::<Vec<_>>(), titles);
        assert!(set_input_field(&mut preset.input, "image", "type", &FieldValue::Choice(1)));
        assert!(set_input_field(&mut preset.input, "image", "vocab", &FieldValue::Count(7)));
        assert!(set_input_field(&mut preset.input, "words", "shape", &FieldValue::Shape(vec![6])));
        assert!(!set_input_field(&mut preset.input, "sound", "shape", &FieldValue::Shape(vec![6])));
        assert!(!set_unnamed(&mut preset.input, "shape", &FieldValue::Shape(vec![6])));
        assert_eq!(preset.input.inputs[0].content, Content::Tokens { vocab: 7 });
        assert_eq!(preset.input.inputs[1].shape.0, [6]);
    }

    #[test]
    fn an_input_without_a_name_becomes_tokens_and_numbers_again() {
        let mut spec = InputSpec::one([8], 4);
        assert!(!set_unnamed(&mut spec, "vocab", &FieldValue::Count(3)), "numbers have no vocabulary");
        assert!(set_unnamed(&mut spec, "type", &FieldValue::Choice(1)));
        assert_eq!(spec.inputs[0].content, Content::Tokens { vocab: VOCAB });
        assert!(set_unnamed(&mut spec, "vocab", &FieldValue::Count(3)));
        assert!(set_unnamed(&mut spec, "type", &FieldValue::Choice(1)));
        assert_eq!(spec.inputs[0].content, Content::Tokens { vocab: 3 });
        assert!(set_unnamed(&mut spec, "type", &FieldValue::Choice(0)));
        assert_eq!(spec, InputSpec::one([8], 4));
    }
}
