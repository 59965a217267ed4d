//! How samples are prepared before they are passed to a network, and what its outputs mean.
//!
//! Both belong to the weights and not to a file: a network that was trained on features with one mean and on classes in
//! one order gives wrong results for any other. A data set is loaded either for training, which derives its
//! [`Preprocessing`] from the training part, or with one that weights were trained with.

use super::Scaling;
use serde::{Deserialize, Serialize};

/// The preparation of samples that weights require, and the meaning of their outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preprocessing {
    /// A name for each feature in the network's order; empty if features have no names, as for images.
    pub features: Vec<String>,
    /// Whether the names of features and targets come from a header, so that columns are found by name. Otherwise
    /// columns are found by position.
    pub is_named: bool,
    /// The names of the target's columns; empty if the source has none.
    pub targets: Vec<String>,
    /// A name for each class in the order of the outputs; empty if the source has values.
    pub classes: Vec<String>,
    /// How features are standardised; `None` if they are used as they are in the source.
    pub scaling: Option<Scaling>,
    /// If each input has its own source: the preparation of each, by the input's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<(String, Self)>,
}

impl Preprocessing {
    /// True if every number in it can have come from data.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        if !self.inputs.iter().all(|(_, own)| own.inputs.is_empty() && own.is_sound()) {
            return false;
        }
        let Some(Scaling { mean, scale }) = &self.scaling else { return true };
        let fits = |count: usize| self.features.is_empty() || self.features.len() == count;
        mean.len() == scale.len() && fits(mean.len()) && mean.iter().chain(scale).all(|v| v.is_finite())
    }

    /// True if data prepared with this may differ from data prepared by their own statistics.
    #[must_use]
    pub fn matters(&self) -> bool {
        self.scaling.is_some() || self.has_class_names() || self.inputs.iter().any(|(_, own)| own.matters())
    }

    /// The preparation of one of several inputs.
    pub(super) fn of_input(&self, name: &str) -> Option<&Self> {
        self.inputs.iter().find(|(input, _)| input == name).map(|(_, own)| own)
    }

    /// True if both prepare samples in the same way. If classes are numbers, one side may have more of them.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let classes = self.classes == other.classes || !(self.has_class_names() || other.has_class_names());
        let same = |(a, b): (&(String, Self), &(String, Self))| a.0 == b.0 && a.1.is_as(&b.1);
        let inputs = self.inputs.len() == other.inputs.len() && self.inputs.iter().zip(&other.inputs).all(same);
        self.scaling == other.scaling && self.features == other.features && classes && inputs
    }

    /// True if classes have names that are not just their numbers.
    #[must_use]
    pub fn has_class_names(&self) -> bool {
        self.classes.iter().enumerate().any(|(number, name)| *name != number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_preparation_is_unchanged_after_writing_and_reading() {
        let scaling = Scaling { mean: vec![0.1, 1e300], scale: vec![1.0 / 3.0, f64::MIN_POSITIVE] };
        let known = Preprocessing {
            features: named(&["a \"b\"", "c"]),
            is_named: true,
            targets: named(&["y"]),
            classes: named(&["no", "yes"]),
            scaling: Some(scaling),
            inputs: vec![("words".into(), Preprocessing { features: named(&["d"]), ..Preprocessing::default() })],
        };
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<Preprocessing>(&text).unwrap(), known);
        assert!(known.is_sound());
        let short = Scaling { mean: vec![0.0], scale: vec![] };
        assert!(!Preprocessing { scaling: Some(short), ..Preprocessing::default() }.is_sound());
    }
}
