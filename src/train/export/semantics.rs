//! What the samples and outputs of a network mean, for programs that know nothing of its data.

use crate::data::{Dataset, Preprocessing, Scaling};
use crate::model::Model;

/// Names and scales; all empty where the preset names no data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meaning {
    /// A name for each output, where outputs are classes.
    pub classes: Vec<String>,
    /// A name for each feature, where there are any.
    pub features: Vec<String>,
    /// How features were standardised.
    pub scaling: Option<Scaling>,
    /// What the reader of the data did with them.
    pub notes: Vec<String>,
}

impl Meaning {
    /// The meaning that a data set gives.
    #[must_use]
    pub fn of(set: &Dataset) -> Self {
        let classes = set.target.names().to_vec();
        let (features, scaling) = (set.feature_names.clone(), set.preprocessing.scaling.clone());
        Self { classes, features, scaling, notes: set.notes.clone() }
    }

    /// What weights say of their samples where these are not there.
    #[must_use]
    pub fn known(known: &Preprocessing, model: &Model) -> Self {
        let outputs_are_classes = model.loss.wants_classes();
        let classes = if outputs_are_classes { known.classes.clone() } else { Vec::new() };
        Self { classes, features: known.features.clone(), scaling: known.scaling.clone(), notes: Vec::new() }
    }
}
