//! What an optimizer declares about itself, fields that several optimizers have, and functions for any optimizer.

use crate::model::draw::Draw;
use crate::model::field_value::FieldValue;
use crate::model::schema::{FieldSpec, Lens, Range};
use crate::model::spec::Fields;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Debug;
use std::ops::Bound;

/// The update of the parameters, with the hyper-parameters that are frozen into the step. Learning rate and weight
/// decay are live: they can change from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "rule")]
pub enum UpdateRule {
    Sgd { momentum: f64, nesterov: bool },
    Adam { betas: [f64; 2], eps: f64, decoupled: bool },
    Lion { betas: [f64; 2] },
}

impl UpdateRule {
    /// The name in listings.
    #[must_use]
    pub const fn node_name(&self) -> &'static str {
        match self {
            Self::Adam { .. } => "AdamStep",
            Self::Lion { .. } => "LionStep",
            Self::Sgd { .. } => "SgdStep",
        }
    }

    /// The state for each element of a parameter, by name; zero before the first step.
    #[must_use]
    pub const fn states(&self) -> &'static [&'static str] {
        match *self {
            Self::Adam { .. } => &["m", "v"],
            Self::Lion { .. } => &["m"],
            Self::Sgd { momentum, .. } => {
                if momentum > 0.0 {
                    &["momentum"]
                } else {
                    &[]
                }
            }
        }
    }
}

/// The properties of an optimizer that do not depend on a step.
pub trait OptimizerType: Copy + Debug + PartialEq + 'static {
    /// The name in presets.
    const NAME: &'static str;
    /// The name for the user, which is that of PyTorch's class.
    const TITLE: &'static str;
    /// The text of that class in Python, if PyTorch has none: a subclass of `torch.optim.Optimizer`, named
    /// [`Self::TITLE`], that takes the fields as arguments.
    const PYTORCH_CLASS: Option<&'static str> = None;
    /// The fields in the order in which they are written and shown.
    const FIELDS: &'static [FieldSpec<Self>];
    /// The number of ways in which random networks draw it.
    const WAYS: usize = 1;

    /// The optimizer with sensible fields, and with all the state that it can have.
    fn example() -> Self;

    /// Draws the fields that are frozen into the step; learning rate and weight decay are those of [`Self::example`].
    /// `way` counts from 0.
    fn drawn(draw: &mut Draw, way: usize) -> Self;

    /// What the ranges of the fields cannot express: the field with what was found and what is allowed.
    fn check(&self) -> Option<(&'static str, String, &'static str)> {
        None
    }

    /// The distance from the simplest optimizer, for reducing networks.
    fn cost(&self) -> usize;

    /// The update rule.
    fn rule(&self) -> UpdateRule;

    /// The decay rates for which the step computes bias corrections.
    fn corrected(&self) -> Option<[f64; 2]> {
        None
    }

    /// Whether weight decay is decoupled from the gradient.
    fn is_decoupled(&self) -> bool {
        false
    }

    /// The state that is proportional to the gradient after the first step, with the factor; it includes weight decay
    /// unless that is decoupled.
    fn first_gradient(&self) -> Option<(&'static str, f64)> {
        None
    }
}

/// The range of the learning rate and of weight decay, which every optimizer has.
const RATE: (Bound<f64>, Bound<f64>) = (Bound::Included(0.0), Bound::Included(1e6));
const LR: Range = Range::Real { from: RATE.0, to: RATE.1, help: "from 0 to 1e6, such as 0.001" };
const DECAY: Range = Range::Real { from: RATE.0, to: RATE.1, help: "from 0 to 1e6" };

/// The learning rate, which must be given unless a default is added.
pub(super) const fn lr<T>(lens: Lens<T, f64>) -> FieldSpec<T> {
    let help = "Can change while the recorded step is replayed.";
    FieldSpec::real("optimizer.lr", lens).within(LR).label("learning rate").help(help).live()
}

/// The weight decay. A preset contains all its settings, so that the default of every optimizer is zero, also if
/// PyTorch's is another.
pub(super) const fn weight_decay<T>(lens: Lens<T, f64>) -> FieldSpec<T> {
    let field = FieldSpec::real("optimizer.weight_decay", lens).default(|_| FieldValue::Number(0.0)).within(DECAY);
    field.label("weight decay").help("Pulls parameters towards zero.").live()
}

/// The decay rates of two running means.
pub(super) const fn betas<T>(lens: Lens<T, [f64; 2]>, default: fn(&T) -> FieldValue) -> FieldSpec<T> {
    FieldSpec::reals("optimizer.betas", lens).default(default).within(Range::SHARE).label("betas")
}

/// The fields in the order in which they are read and checked: live ones first.
fn live_first<T: OptimizerType>() -> impl Iterator<Item = &'static FieldSpec<T>> {
    T::FIELDS.iter().filter(|field| field.is_live).chain(T::FIELDS.iter().filter(|field| !field.is_live))
}

/// The names and values of the live fields, in the order of [`OptimizerType::FIELDS`].
pub(super) fn live_fields<T: OptimizerType>(optimizer: &T) -> Vec<(&'static str, f64)> {
    let number = |field: &'static FieldSpec<T>| match field.get(optimizer) {
        FieldValue::Number(value) => Some((field.name, value)),
        _ => None,
    };
    T::FIELDS.iter().filter(|field| field.is_live).filter_map(number).collect()
}

pub(super) fn read_into<T: OptimizerType>(optimizer: &mut T, f: &mut Fields<'_>) {
    live_first::<T>().for_each(|field| field.read(optimizer, f));
}

pub(super) fn findings<T: OptimizerType>(optimizer: &T) -> Vec<(&'static str, String, String)> {
    let of = |field: &'static FieldSpec<T>| {
        field.findings(optimizer).into_iter().map(|(found, help)| (field.name, found, help))
    };
    let more = optimizer.check().map(|(name, found, help)| (name, found, help.to_owned()));
    live_first::<T>().flat_map(of).chain(more).collect()
}

pub(super) fn write_into<T: OptimizerType>(optimizer: &T, map: &mut Map<String, Value>) {
    T::FIELDS.iter().for_each(|field| field.write_always(optimizer, map));
}

pub(super) const fn fields_of<T: OptimizerType>(_optimizer: &T) -> &'static [FieldSpec<T>] {
    T::FIELDS
}

pub(super) fn number<T: OptimizerType>(optimizer: &T, name: &str) -> f64 {
    match T::FIELDS.iter().find(|field| field.name == name).map(|field| field.get(optimizer)) {
        Some(FieldValue::Number(n)) => n,
        _ => unreachable!("every optimizer has a {name}"),
    }
}

pub(super) fn name_of<T: OptimizerType>(_optimizer: &T) -> &'static str {
    T::NAME
}

pub(super) fn title_of<T: OptimizerType>(_optimizer: &T) -> &'static str {
    T::TITLE
}

pub(super) fn pytorch_class_of<T: OptimizerType>(_optimizer: &T) -> Option<&'static str> {
    T::PYTORCH_CLASS
}

pub(super) fn redrawn<T: OptimizerType>(optimizer: &mut T, draw: &mut Draw, way: usize) {
    *optimizer = T::drawn(draw, way);
}
