//! Prepares samples for a network: standardised by their training part, or prepared as for given weights.

use super::dataset::Loaded;
use super::error::{Side, listed, quoted};
use super::{DataError, Dataset, Place, Preprocessing, Samples, Scaling, Target};
use crate::tensor::plural;

/// Scales every feature to mean 0 and standard deviation 1 over the samples `train`; a feature that is constant there
/// becomes 0.
///
/// Mean and deviation come from the training part only, so that the network learns nothing about the held-out part.
/// Without training samples nothing is changed.
pub(super) fn standardize(data: &mut Dataset, train: &[u32]) {
    let width = data.sample().len();
    if train.is_empty() || width == 0 {
        return;
    }
    let count = train.len() as f64;
    let mut scaling = Scaling::default();
    for feature in 0..width {
        let column = || train.iter().map(|&i| f64::from(data.x()[i as usize * width + feature]));
        let mean = column().sum::<f64>() / count;
        let variance = column().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        // Equal values can leave a rounding error, which must not be scaled up to 1.
        let constant = column().all(|v| v == f64::from(data.x()[train[0] as usize * width + feature]));
        let scale = if constant || variance <= 0.0 { 0.0 } else { 1.0 / variance.sqrt() };
        scaling.mean.push(mean);
        scaling.scale.push(scale);
    }
    scaling.apply(data.x_mut());
    data.preprocessing.scaling = Some(scaling);
    data.notes.push("features are standardised with the training part's mean and deviation".to_owned());
}

/// Classes that are named by their number: a label beyond them is an error when it is compared with a network.
const MOST_NUMBERED: usize = 1 << 20;

impl Preprocessing {
    /// The samples of a source, prepared as for the weights.
    ///
    /// # Errors
    /// If there are more or fewer features than the weights take, or a class that they do not know.
    pub(super) fn prepare(&self, mut loaded: Loaded) -> Result<Loaded, DataError> {
        self.check_features(&loaded)?;
        self.number_classes(&mut loaded)?;
        let data = &mut loaded.dataset;
        if let Some(scaling) = &self.scaling {
            scaling.apply(data.x_mut());
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
        // A text has one column, which was found by its name.
        if loaded.dataset.inputs.iter().any(|input| !matches!(input.values, Samples::Real(_))) {
            return Ok(());
        }
        let found = loaded.dataset.sample().len();
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

    /// Numbers classes as the weights do. Classes without names are numbers already.
    fn number_classes(&self, loaded: &mut Loaded) -> Result<(), DataError> {
        let Target::Classes { labels, names, .. } = &loaded.dataset.target else { return Ok(()) };
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
            // A number beyond the classes of the training may still be the number of an output; the network's shape
            // decides.
            names.extend((names.len()..=highest.unwrap_or(0)).map(|class| class.to_string()));
        }
        loaded.dataset.target = Target::classes(numbered, names);
        Ok(())
    }

    fn number_of(&self, name: &str) -> Option<i32> {
        let own = self.classes.iter().position(|class| class == name);
        let spelt = || if self.has_class_names() { None } else { name.parse().ok() };
        own.and_then(|number| i32::try_from(number).ok()).or_else(spelt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::InputSamples;

    fn named(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn loaded(x: &[f32], labels: &[i32], names: &[&str]) -> Loaded {
        let dataset = Dataset {
            name: "t".into(),
            inputs: InputSamples::only([x.len() / labels.len()], x.to_vec()),
            target: Target::classes(labels.to_vec(), named(names)),
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        };
        Loaded { lines: Some((2..).take(labels.len()).collect()), ..Loaded::new("t.csv".into(), dataset) }
    }

    fn labels(loaded: &Loaded) -> &[i32] {
        match &loaded.dataset.target {
            Target::Classes { labels, .. } => labels,
            Target::Values { .. } | Target::Windows(_) => panic!("classes"),
        }
    }

    #[test]
    fn classes_keep_the_numbers_of_the_weights() {
        let known = Preprocessing { classes: named(&["ant", "bee", "cat"]), ..Preprocessing::default() };
        let set = known.prepare(loaded(&[0.0; 3], &[0, 1, 0], &["bee", "cat"])).unwrap();
        assert_eq!(labels(&set), [1, 2, 1]);
        let error = known.prepare(loaded(&[0.0; 2], &[0, 1], &["bee", "dog"])).err().unwrap().to_string();
        assert!(error.contains("line 3") && error.contains("the class \"dog\"") && error.contains("\"ant\", \"bee\""));
        // Numbers are not changed, even beyond the classes of the training.
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
        assert_eq!((set.dataset.x(), &set.dataset.preprocessing), (&[1.0, 6.0][..], &known));
        let error = known.prepare(loaded(&[1.0], &[0], &[])).err().unwrap().to_string();
        assert!(error.contains("found 1 feature, expected the 2") && error.contains("\"a\", \"b\""), "{error}");
    }

    #[test]
    fn features_get_mean_0_and_deviation_1_and_constants_0() {
        let n = 40usize;
        let x: Vec<f32> =
            (0..n).flat_map(|i| [0.1, i as f32 * 3.0 + 100.0, if i < 30 { 7.7 } else { 9.0 }, f32::MAX]).collect();
        let target = Target::classes(vec![0; n], vec![]);
        let mut data = Dataset {
            name: String::new(),
            inputs: InputSamples::only([4], x),
            target,
            feature_names: vec![],
            notes: vec![],
            preprocessing: Preprocessing::default(),
        };
        let train: Vec<u32> = (0..30).collect();
        standardize(&mut data, &train);
        let column = |f: usize| (0..30).map(|i| f64::from(data.x()[i * 4 + f])).collect::<Vec<_>>();
        assert!(data.x().iter().skip(2).step_by(4).all(|&v| v == 0.0), "constant in the training part");
        assert!(column(0).iter().chain(&column(3)).all(|&v| v == 0.0));
        let (mean, squares) =
            (column(1).iter().sum::<f64>() / 30.0, column(1).iter().map(|v| v * v).sum::<f64>() / 30.0);
        assert!(mean.abs() < 1e-6 && (squares - 1.0).abs() < 1e-6, "{mean} {squares}");
    }
}
