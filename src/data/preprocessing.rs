//! How samples are prepared before a network sees them, and what its outputs mean.
//!
//! Both belong to the weights and not to a file: a network that was trained on features with one mean and on classes in
//! one order gives wrong answers for any other. A data set is loaded either to train on, which learns its
//! [`Preprocessing`] from the training part, or with one that weights were trained with.

use super::Scaling;
use serde::{Deserialize, Serialize};

/// What weights expect of the samples that they are given, and what their outputs mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preprocessing {
    /// A name for each feature in the network's order; empty where features have none, as for images.
    pub features: Vec<String>,
    /// Whether the names of features and targets are those of a header, by which columns are found. Otherwise columns
    /// are found by position.
    pub is_named: bool,
    /// The names of the target's columns; empty where the source has none.
    pub targets: Vec<String>,
    /// A name for each class in the order of the outputs; empty where the source has values.
    pub classes: Vec<String>,
    /// How features are standardised; `None` where they are taken as the source gives them.
    pub scaling: Option<Scaling>,
    /// Where a source for each input is joined: the preparation of each, by the input's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<(String, Self)>,
}

impl Preprocessing {
    /// True where every number in it can have come from data.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        if !self.inputs.iter().all(|(_, own)| own.inputs.is_empty() && own.is_sound()) {
            return false;
        }
        let Some(Scaling { mean, scale }) = &self.scaling else { return true };
        let fits = |count: usize| self.features.is_empty() || self.features.len() == count;
        mean.len() == scale.len() && fits(mean.len()) && mean.iter().chain(scale).all(|v| v.is_finite())
    }

    /// True where data that are prepared by themselves may differ from data that are prepared with this.
    #[must_use]
    pub fn matters(&self) -> bool {
        self.scaling.is_some() || self.has_class_names() || self.inputs.iter().any(|(_, own)| own.matters())
    }

    /// The preparation of one of several inputs.
    pub(super) fn of_input(&self, name: &str) -> Option<&Self> {
        self.inputs.iter().find(|(input, _)| input == name).map(|(_, own)| own)
    }

    /// True where both prepare samples in the same way. Classes that are numbers may be more on one side.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let classes = self.classes == other.classes || !(self.has_class_names() || other.has_class_names());
        let same = |(a, b): (&(String, Self), &(String, Self))| a.0 == b.0 && a.1.is_as(&b.1);
        let inputs = self.inputs.len() == other.inputs.len() && self.inputs.iter().zip(&other.inputs).all(same);
        self.scaling == other.scaling && self.features == other.features && classes && inputs
    }

    /// True where classes have names that are not simply their numbers.
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
    fn it_is_the_same_after_a_file() {
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
