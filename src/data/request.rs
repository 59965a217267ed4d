//! What a network requires of its data.

use super::DataError;
use crate::model::{DataSource, InputSpec, LossSpec, Model, NamedInput, inputs_text};
use crate::tensor::Shape;

/// What the network requires of its data.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The network's inputs.
    pub inputs: Vec<NamedInput>,
    /// The network's output for one sample.
    pub output: Shape,
    /// Determines whether targets are classes or values, and which values.
    pub loss: LossSpec,
    /// The run's seed, which determines synthetic data and the split.
    pub seed: u64,
}

impl Request {
    /// What a network requires of its data in a run with this seed.
    #[must_use]
    pub fn of(model: &Model, seed: u64) -> Self {
        Self { inputs: model.inputs.clone(), output: model.output.clone(), loss: model.loss, seed }
    }

    /// What one of several inputs requires of its own source.
    pub(super) fn of_input(&self, input: &NamedInput) -> Self {
        Self { inputs: vec![input.clone()], ..self.clone() }
    }

    /// The shape of the only input, if it is one of numbers.
    ///
    /// # Errors
    /// If the network requires more than that: several inputs, tokens, or a class for each position of a sample.
    pub(super) fn only(&self, source: &DataSource) -> Result<&Shape, DataError> {
        match &self.inputs[..] {
            [_] if self.loss.wants_classes() && self.output.rank() > 1 => {
                let expected = format!("a source with a class for each of the {} positions", self.output.0[0]);
                let help = "this source has one class for each sample: add take or global_avg_pool before the last \
                            layer, or train on a file of batches with --batches";
                Err(DataError::field("type", source.name(), expected, help))
            }
            [input] if !input.content.is_tokens() || gives_both(source) => Ok(&input.shape),
            inputs => {
                let expected = format!("a source that gives {}", inputs_text(inputs));
                let help = match inputs.len() {
                    1 => "this source has one input of numbers; train on a file of batches with --batches",
                    _ => "use the type \"joined\", which has a source for each input, or train with --batches",
                };
                Err(DataError::field("type", source.name(), expected, help))
            }
        }
    }
}

/// Whether a source provides numbers or tokens, as the network requires: the bytes of a column, or whole numbers.
const fn gives_both(source: &DataSource) -> bool {
    matches!(source, DataSource::Csv { .. } | DataSource::Npz { .. } | DataSource::Npy { .. })
}

/// The path, in the document, of the shape of an input.
pub(super) fn shape_place(input: &NamedInput) -> String {
    if input.name == InputSpec::ONLY { "input.shape".into() } else { format!("inputs.{}.shape", input.name) }
}
