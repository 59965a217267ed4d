//! How samples are prepared before a network sees them, and what its outputs mean.
//!
//! Both belong to the weights and not to a file: a network that was trained on features with one mean and on classes in
//! one order gives wrong answers for any other. A data set is loaded either to train on, which learns its
//! [`Preprocessing`] from the training part, or with one that weights were trained with.

use super::error::{Side, listed, quoted};
use super::{DataError, Loaded, Place, Scaling, Target};
use crate::tensor::plural;
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
}

impl Preprocessing {
    /// True where every number in it can have come from data.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let Some(Scaling { mean, scale }) = &self.scaling else { return true };
        let fits = |count: usize| self.features.is_empty() || self.features.len() == count;
        mean.len() == scale.len() && fits(mean.len()) && mean.iter().chain(scale).all(|v| v.is_finite())
    }

    /// True where data that are prepared by themselves may differ from data that are prepared with this.
    #[must_use]
    pub fn matters(&self) -> bool {
        self.scaling.is_some() || self.has_class_names()
    }

    /// True where both prepare samples in the same way. Classes that are numbers may be more on one side.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let classes = self.classes == other.classes || !(self.has_class_names() || other.has_class_names());
        self.scaling == other.scaling && self.features == other.features && classes
    }

    /// True where classes have names that are not simply their numbers.
    #[must_use]
    pub fn has_class_names(&self) -> bool {
        self.classes.iter().enumerate().any(|(number, name)| *name != number.to_string())
    }

    /// The samples of a source, prepared as the weights were trained.
    ///
    /// # Errors
    /// Where there are more or fewer features than the weights take, or a class that they do not know.
    pub(super) fn prepare(&self, mut loaded: Loaded) -> Result<Loaded, DataError> {
        self.check_features(&loaded)?;
        self.number_classes(&mut loaded)?;
        let data = &mut loaded.dataset;
        if let Some(scaling) = &self.scaling {
            scaling.apply(&mut data.x);
            data.notes
                .push("features are standardised with the mean and deviation that belong to the weights".to_owned());
        }
        if !self.features.is_empty() {
            data.feature_names.clone_from(&self.features);
        }
        data.preprocessing = self.clone();
        Ok(loaded)
    }

    fn check_features(&self, loaded: &Loaded) -> Result<(), DataError> {
        let found = loaded.dataset.sample.len();
        let expected = self.scaling.as_ref().map_or(self.features.len(), |s| s.mean.len());
        if expected == found || (expected == 0 && self.scaling.is_none()) {
            return Ok(());
        }
        let names = |names: &[String]| match names {
            [] => String::new(),
            names => format!(": {}", listed(names)),
        };
        Err(DataError::fit(
            Side::Input,
            &loaded.file,
            Place::Whole,
            format!("{found} {}{}", plural(found as u64, "feature"), names(&loaded.dataset.feature_names)),
            format!("the {expected} that the weights were trained with{}", names(&self.features)),
            "give data with these features in this order, or a table whose header names them",
        ))
    }

    /// Gives classes the numbers that the weights know them by. Classes without names are numbers already.
    fn number_classes(&self, loaded: &mut Loaded) -> Result<(), DataError> {
        let Target::Classes { labels, names } = &loaded.dataset.target else { return Ok(()) };
        if self.classes.is_empty() {
            return Ok(());
        }
        let numbers: Vec<Option<i32>> = names.iter().map(|name| self.number_of(name)).collect();
        let number = |label: i32| usize::try_from(label).ok().and_then(|label| numbers.get(label).copied()?);
        let unknown = labels.iter().position(|&label| !names.is_empty() && number(label).is_none());
        if let Some(sample) = unknown {
            let name = usize::try_from(labels[sample]).ok().and_then(|label| names.get(label));
            return Err(DataError::fit(
                Side::Output,
                &loaded.target_file,
                loaded.place(sample),
                format!("the class {}", quoted(name.map_or("", String::as_str))),
                format!("one that the weights were trained with: {}", listed(&self.classes)),
                "correct the class or remove these samples; to learn a new class, train the network again",
            ));
        }
        let numbered: Vec<i32> =
            labels.iter().map(|&label| if names.is_empty() { label } else { number(label).unwrap_or(label) }).collect();
        let highest = numbered.iter().copied().max().and_then(|most| usize::try_from(most).ok());
        let mut names = self.classes.clone();
        if !self.has_class_names() && highest.is_some_and(|most| most < MOST_NUMBERED) {
            // A number beyond those that were trained on is still the number of an output; the network's shape decides.
            names.extend((names.len()..=highest.unwrap_or(0)).map(|class| class.to_string()));
        }
        loaded.dataset.target = Target::Classes { labels: numbered, names };
        Ok(())
    }

    fn number_of(&self, name: &str) -> Option<i32> {
        let own = self.classes.iter().position(|class| class == name);
        let spelt = || if self.has_class_names() { None } else { name.parse().ok() };
        own.and_then(|number| i32::try_from(number).ok()).or_else(spelt)
    }
}

/// Classes that get their number as name: a label beyond it is an error wherever it is compared with a network.
const MOST_NUMBERED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn loaded(x: &[f32], labels: &[i32], names: &[&str]) -> Loaded {
        let dataset = Dataset {
            name: "t".into(),
            sample: [x.len() / labels.len()].into(),
            x: x.to_vec(),
            target: Target::Classes { labels: labels.to_vec(), names: named(names) },
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        };
        Loaded { lines: Some((2..).take(labels.len()).collect()), ..Loaded::new("t.csv".into(), dataset) }
    }

    fn labels(loaded: &Loaded) -> &[i32] {
        match &loaded.dataset.target {
            Target::Classes { labels, .. } => labels,
            Target::Values { .. } => panic!("classes"),
        }
    }

    #[test]
    fn classes_keep_the_numbers_of_the_weights() {
        let known = Preprocessing { classes: named(&["ant", "bee", "cat"]), ..Preprocessing::default() };
        let set = known.prepare(loaded(&[0.0; 3], &[0, 1, 0], &["bee", "cat"])).unwrap();
        assert_eq!(labels(&set), [1, 2, 1]);
        let error = known.prepare(loaded(&[0.0; 2], &[0, 1], &["bee", "dog"])).err().unwrap().to_string();
        assert!(error.contains("line 3") && error.contains("the class \"dog\"") && error.contains("\"ant\", \"bee\""));
        // Numbers stay what they are, even beyond those that were trained on.
        let numbers = Preprocessing { classes: named(&["0", "1"]), ..Preprocessing::default() };
        let set = numbers.prepare(loaded(&[0.0; 2], &[1, 3], &[])).unwrap();
        assert_eq!(labels(&set), [1, 3]);
        assert!(matches!(&set.dataset.target, Target::Classes { names, .. } if names.len() == 4));
        assert!(known.matters() && !numbers.matters());
    }

    #[test]
    fn features_are_scaled_as_in_training_and_counted() {
        let scaling = Scaling { mean: vec![10.0, 0.0], scale: vec![0.5, 2.0] };
        let known = Preprocessing { features: named(&["a", "b"]), scaling: Some(scaling), ..Preprocessing::default() };
        let set = known.prepare(loaded(&[12.0, 3.0], &[0], &[])).unwrap();
        assert_eq!((set.dataset.x, set.dataset.preprocessing), (vec![1.0, 6.0], known.clone()));
        let error = known.prepare(loaded(&[1.0], &[0], &[])).err().unwrap().to_string();
        assert!(error.contains("found 1 feature, expected the 2") && error.contains("\"a\", \"b\""), "{error}");
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
        };
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<Preprocessing>(&text).unwrap(), known);
        assert!(known.is_sound());
        let short = Scaling { mean: vec![0.0], scale: vec![] };
        assert!(!Preprocessing { scaling: Some(short), ..Preprocessing::default() }.is_sound());
    }
}
