//! The same network for steps of another size: fewer samples, or sequences of fewer positions.

use super::check::check;
use super::checked::{Model, PathOf};
use super::input::{InputSpec, NamedInput};
use super::layers::{LayerSpec, Position};
use super::param::Param;
use super::preset::Preset;
use crate::tensor::Shape;
use thiserror::Error;

/// Why a network cannot be made for sequences of another length.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("sequences of {length} positions do not suit the network: {why}")]
pub struct UnsuitedLength {
    pub length: usize,
    pub why: String,
}

impl NamedInput {
    /// The positions of a sequence; `None` if a sample is not a sequence.
    #[must_use]
    pub fn positions(&self) -> Option<usize> {
        match (self.content.is_tokens(), &self.shape.0[..]) {
            (true, [positions]) | (false, [positions, _]) => Some(*positions),
            _ => None,
        }
    }
}

impl Model {
    /// The same model for another batch size.
    #[must_use]
    pub fn with_batch(&self, batch: usize) -> Self {
        Self { batch, ..self.clone() }
    }

    /// The positions of its sequences; `None` if no input is a sequence, or if they differ.
    #[must_use]
    pub fn length(&self) -> Option<usize> {
        let mut all = self.inputs.iter().filter_map(NamedInput::positions);
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }

    /// The same network for sequences of their first `length` positions. It has the same parameters: if a table has a
    /// row for each position, its first rows are used.
    ///
    /// # Errors
    /// If the network has no sequences, a layer cannot process so few positions, or a parameter's size depends on their
    /// number.
    pub fn with_length(&self, length: usize) -> Result<Self, UnsuitedLength> {
        let refused = |why: String| UnsuitedLength { length, why };
        if let Some(PathOf { path, whole }) = &self.of_path {
            return Ok(whole.with_batch(self.batch).with_length(length)?.along(path));
        }
        let whole = self.length().ok_or_else(|| refused("its inputs are not sequences of one length".into()))?;
        if length == whole {
            return Ok(self.clone());
        }
        if !(1..=whole).contains(&length) {
            return Err(refused(format!("it takes 1 to {whole}")));
        }
        let checked = check(&self.shortened(length));
        let Some(mut model) = checked.model else {
            let all: Vec<String> = checked.diagnostics.iter().map(ToString::to_string).collect();
            return Err(refused(all.join("; ")));
        };
        if model.params.len() != self.params.len() {
            return Err(refused("it has other parameters".into()));
        }
        for (short, whole) in model.params.iter_mut().zip(&self.params) {
            if short.shape != whole.shape {
                let layer = &self.layers[whole.layer.0 as usize].spec;
                let has_rows = matches!(layer, LayerSpec::Position(Position { .. })) && is_prefix(short, whole);
                if !has_rows {
                    let (name, of, is) = (&whole.name, &whole.shape, &short.shape);
                    return Err(refused(format!("{name} is {of} for {} positions, and would be {is}", self.whole())));
                }
                short.shape.clone_from(&whole.shape);
            }
            short.init = whole.init;
        }
        model.accumulate = self.accumulate;
        Ok(model)
    }

    fn whole(&self) -> usize {
        self.length().unwrap_or_default()
    }

    /// The document of the network with shorter sequences.
    fn shortened(&self, length: usize) -> Preset {
        let shorter = |input: &NamedInput| {
            let mut input = input.clone();
            if input.positions().is_some() {
                input.shape.0[0] = length;
            }
            input
        };
        Preset {
            name: self.name.clone(),
            about: String::new(),
            input: InputSpec { batch: self.batch, inputs: self.inputs.iter().map(shorter).collect() },
            layers: self.roots.iter().map(|id| self.layer(*id).spec.clone()).collect(),
            loss: self.loss,
            optimizer: self.optimizer,
            update: self.update,
            precision: self.precision,
            data: None,
            train: None,
        }
    }
}

/// Whether one table consists of the first rows of another one.
fn is_prefix(short: &Param, whole: &Param) -> bool {
    let rows = |shape: &Shape| shape.0.first().copied().unwrap_or_default();
    rows(&short.shape) <= rows(&whole.shape) && short.shape.0[1..] == whole.shape.0[1..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checked_network;

    fn model(input: &str, layers: &str) -> Model {
        let checked = checked_network(&format!("{input}, \"batch\": 4"), layers, "softmax_cross_entropy");
        assert_eq!(checked.diagnostics, []);
        checked.model.unwrap()
    }

    const TOKENS: &str = r#""type": "tokens", "shape": [6], "vocab": 9"#;

    #[test]
    fn a_shorter_network_has_the_same_parameters() {
        let layers = r#"{"type": "embedding", "units": 4}, {"type": "position"},
            {"type": "residual", "layers": [{"type": "attention", "heads": 2}]}, {"type": "dense", "units": 9}"#;
        let whole = model(TOKENS, layers);
        let short = whole.with_length(2).unwrap();
        assert_eq!((whole.length(), short.length()), (Some(6), Some(2)));
        assert_eq!((&short.output.0[..], &short.labels().0[..]), (&[2, 9][..], &[2][..]));
        assert_eq!(short.params, whole.params);
        assert_eq!(short.layers.len(), whole.layers.len());
        assert_eq!(whole.with_length(6).unwrap(), whole);
        assert_eq!(whole.with_batch(2).with_length(3).unwrap().batch, 2);
    }

    #[test]
    fn unsuitable_lengths_are_refused_with_the_reason() {
        let why = |model: &Model, length| model.with_length(length).unwrap_err().to_string();
        let flat = r#"{"type": "embedding", "units": 4}, {"type": "flatten"}, {"type": "dense", "units": 3}"#;
        let text = why(&model(TOKENS, flat), 5);
        assert!(text.contains("layers.2.weight is [24, 3] for 6 positions, and would be [20, 3]"), "{text}");
        let taken = r#"{"type": "embedding", "units": 4}, {"type": "take", "at": 4}, {"type": "dense", "units": 3}"#;
        let taken = model(TOKENS, taken);
        assert!(taken.with_length(5).is_ok());
        assert!(why(&taken, 4).contains("position 4 of 4"), "{}", why(&taken, 4));
        assert!(why(&taken, 0).contains("1 to 6") && why(&taken, 7).contains("1 to 6"));
        let values = model(r#""shape": [6]"#, r#"{"type": "dense", "units": 3}"#);
        assert!(why(&values, 3).contains("not sequences"));
    }
}
