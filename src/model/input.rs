//! The inputs of a network: their names, the kind of their elements, and the shape of a sample.

use crate::tensor::Shape;

/// The kind of an input's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// Finite numbers.
    #[default]
    Real,
    /// Whole numbers from 0 to `vocab - 1`, which an `embedding` turns into numbers.
    Tokens { vocab: usize },
}

impl Content {
    /// The names used in presets.
    pub const NAMES: [&'static str; 2] = ["real", "tokens"];

    /// The name used in presets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Real => Self::NAMES[0],
            Self::Tokens { .. } => Self::NAMES[1],
        }
    }

    #[must_use]
    pub const fn is_tokens(self) -> bool {
        matches!(self, Self::Tokens { .. })
    }

    /// The number of different tokens, for tokens.
    #[must_use]
    pub const fn vocab(self) -> Option<usize> {
        match self {
            Self::Real => None,
            Self::Tokens { vocab } => Some(vocab),
        }
    }
}

/// What is known about a sample between two layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Without the batch.
    pub shape: Shape,
    /// Tokens only if it is an input of the network.
    pub content: Content,
}

impl Flow {
    /// Numbers of this shape, which every layer returns.
    #[must_use]
    pub const fn real(shape: Shape) -> Self {
        Self { shape, content: Content::Real }
    }
}

/// One input of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedInput {
    pub name: String,
    pub content: Content,
    /// One sample: `[features]`, `[T, D]` or `[C, H, W]`; of tokens `[T]`.
    pub shape: Shape,
}

impl NamedInput {
    /// The only input of a network: `x`, of numbers.
    #[must_use]
    pub fn only(shape: Shape) -> Self {
        Self { name: InputSpec::ONLY.into(), content: Content::Real, shape }
    }

    /// What is known about a sample of it.
    #[must_use]
    pub fn flow(&self) -> Flow {
        Flow { shape: self.shape.clone(), content: self.content }
    }

    /// Its name in a step of the network with these inputs, and, after `batch.`, in files of batches: `x` if the
    /// document names no input, otherwise `x.NAME`.
    #[must_use]
    pub fn value_name(&self, among: &[Self]) -> String {
        value_name(&self.name, among.len())
    }
}

/// The network's inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputSpec {
    /// The number of samples in a batch.
    pub batch: usize,
    /// At least one. The only one of a document with `input` is called [`Self::ONLY`].
    pub inputs: Vec<NamedInput>,
}

impl InputSpec {
    /// The name of the input if a document names none.
    pub const ONLY: &'static str = "x";

    /// One input of numbers.
    #[must_use]
    pub fn one(shape: impl Into<Shape>, batch: usize) -> Self {
        Self { batch, inputs: vec![NamedInput::only(shape.into())] }
    }

    /// Whether the document gives the input without a name, as part of `input`.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        is_unnamed(&self.inputs)
    }

    /// The only input of the network.
    #[must_use]
    pub fn single(&self) -> Option<&NamedInput> {
        single(&self.inputs)
    }

    /// The path of an input in the document: `input`, or `inputs.NAME`.
    #[must_use]
    pub fn place(&self, input: &NamedInput) -> String {
        if self.is_unnamed() { "input".into() } else { format!("inputs.{}", input.name) }
    }
}

/// The name of an input's value in the step of a network with this number of inputs: `x`, or `x.NAME`.
#[must_use]
pub fn value_name(name: &str, count: usize) -> String {
    if count == 1 && name == InputSpec::ONLY { name.to_owned() } else { format!("{}.{name}", InputSpec::ONLY) }
}

/// Whether these are the inputs of a document with a single unnamed input.
#[must_use]
pub fn is_unnamed(inputs: &[NamedInput]) -> bool {
    matches!(inputs, [input] if input.name == InputSpec::ONLY)
}

/// The only one of these inputs, if there is exactly one.
#[must_use]
pub fn single(inputs: &[NamedInput]) -> Option<&NamedInput> {
    match inputs {
        [input] => Some(input),
        _ => None,
    }
}

/// Inputs as text: `[1, 8, 8]`; `[12] tokens below 500`; `image [1, 28, 28], words [12] tokens below 500`.
#[must_use]
pub fn inputs_text(inputs: &[NamedInput]) -> String {
    let one = |input: &NamedInput| {
        let name = if is_unnamed(inputs) { String::new() } else { format!("{} ", input.name) };
        let content = input.content.vocab().map_or_else(String::new, |vocab| format!(" tokens below {vocab}"));
        format!("{name}{}{content}", input.shape)
    };
    inputs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The values of one sample over all inputs.
#[must_use]
pub fn sample_len(inputs: &[NamedInput]) -> usize {
    inputs.iter().fold(0, |sum, input| sum.saturating_add(input.shape.checked_len().unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{check, read_preset, write_preset};

    fn text(inputs: &str) -> String {
        format!(
            r#"{{"version": 1, "name": "n", {inputs}, "layers": [{{"type": "dense", "units": 2}}],
            "loss": {{"type": "mse"}}, "optimizer": {{"type": "sgd", "lr": 0.1}}}}"#
        )
    }

    #[test]
    fn inputs_are_written_as_they_are_read() {
        for inputs in [
            r#""input": {"shape": [4], "batch": 2}"#,
            r#""input": {"shape": [4, 3], "batch": 2}"#,
            r#""input": {"type": "tokens", "shape": [4], "vocab": 9, "batch": 2}"#,
            r#""inputs": {"words": {"type": "tokens", "shape": [4], "vocab": 9}}, "input": {"batch": 2}"#,
            r#""inputs": {"words": {"shape": [4]}, "image": {"shape": [1, 2, 2]}}, "input": {"batch": 2}"#,
        ] {
            let preset = read_preset(&text(inputs)).unwrap();
            assert_eq!(read_preset(&write_preset(&preset)).as_ref(), Ok(&preset), "{inputs}");
        }
        let preset = read_preset(&text(r#""input": {"shape": [4], "batch": 2}"#)).unwrap();
        assert_eq!(preset.input, InputSpec::one([4], 2));
        assert!(
            write_preset(&preset).contains("\"input\": {\n    \"shape\": [\n      4\n    ],\n    \"batch\": 2\n  }")
        );
    }

    #[test]
    fn inputs_keep_their_order_and_their_names_in_a_step() {
        let inputs = r#""inputs": {"words": {"shape": [4]}, "x": {"shape": [3]}}, "input": {"batch": 2}"#;
        let spec = read_preset(&text(inputs)).unwrap().input;
        let names: Vec<String> = spec.inputs.iter().map(|input| input.value_name(&spec.inputs)).collect();
        assert_eq!((names, spec.single()), (vec!["x.words".to_owned(), "x.x".to_owned()], None));
        assert_eq!(inputs_text(&spec.inputs), "words [4], x [3]");
        assert_eq!(spec.place(&spec.inputs[0]), "inputs.words");
        let only = InputSpec::one([4], 2);
        assert_eq!(
            (only.inputs[0].value_name(&only.inputs), only.place(&only.inputs[0])),
            ("x".into(), "input".into())
        );
    }

    #[test]
    fn layers_over_positions_accept_a_sequence() {
        let model = check(&read_preset(&text(r#""input": {"shape": [4, 3], "batch": 2}"#)).unwrap()).model.unwrap();
        assert_eq!((model.output.0.as_slice(), model.sample_len()), (&[4, 2][..], 12));
        assert_eq!((model.labels().0.as_slice(), model.classes()), (&[4][..], 2));
    }
}
