//! The meaning of a network's samples and outputs, for programs that do not know its data.

use crate::data::{Dataset, Preprocessing, Scaling};
use crate::model::Model;

/// Names and scales; all empty if the preset names no data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meaning {
    /// A name for each output, if outputs are classes.
    pub classes: Vec<String>,
    /// A name for each feature, where there are any.
    pub features: Vec<String>,
    /// How features were standardised.
    pub scaling: Option<Scaling>,
    /// Features and scales of each input by its name, if several sources are joined.
    pub inputs: Vec<(String, Self)>,
    /// Notes of the reader of the data.
    pub notes: Vec<String>,
}

impl Meaning {
    /// The meaning that a data set defines.
    #[must_use]
    pub fn of(set: &Dataset) -> Self {
        let classes = set.target.names().to_vec();
        let own = Self::of_samples(&set.preprocessing);
        Self { classes, features: set.feature_names.clone(), notes: set.notes.clone(), ..own }
    }

    /// The meaning that weights contain, if their samples are not available.
    #[must_use]
    pub fn known(known: &Preprocessing, model: &Model) -> Self {
        let outputs_are_classes = model.loss.wants_classes();
        let classes = if outputs_are_classes { known.classes.clone() } else { Vec::new() };
        Self { classes, ..Self::of_samples(known) }
    }

    fn of_samples(known: &Preprocessing) -> Self {
        let inputs = known.inputs.iter().map(|(name, own)| (name.clone(), Self::of_samples(own))).collect();
        let (features, scaling) = (known.features.clone(), known.scaling.clone());
        Self { features, scaling, inputs, ..Self::default() }
    }

    /// What is known of an input's samples.
    #[must_use]
    pub fn of_input(&self, name: &str) -> &Self {
        self.inputs.iter().find(|(input, _)| input == name).map_or(self, |(_, own)| own)
    }
}
