//! What a loss declares about itself, and functions for any loss.

use super::point_fn::PointFn;
use crate::model::draw::Draw;
use crate::model::schema::FieldSpec;
use crate::model::spec::Fields;
use crate::tensor::Shape;
use serde_json::{Map, Value};
use std::fmt::Debug;

/// What a loss compares outputs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Targets {
    /// A class for each sample, from 0.
    Classes,
    /// Any value for each output.
    Values,
    /// 0 or 1 for each output.
    Binary,
}

/// How a loss is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossRule {
    SoftmaxCrossEntropy {
        smoothing: f64,
    },
    SquaredError,
    /// The mean of a function of each output and its target.
    Pointwise {
        func: PointFn,
        delta: f64,
    },
}

/// The properties of a loss that do not depend on a step.
pub trait LossType: Copy + Debug + PartialEq + 'static {
    /// The name in presets.
    const NAME: &'static str;
    /// The name in sentences.
    const TITLE: &'static str;
    /// One line that says what it is for.
    const ABOUT: &'static str;
    /// The fields in the order in which they are written and shown.
    const FIELDS: &'static [FieldSpec<Self>] = &[];
    const TARGETS: Targets;

    /// The loss with sensible fields.
    fn example() -> Self;

    /// Draws the fields for a random network.
    fn drawn(draw: &mut Draw) -> Self {
        let _ = draw;
        Self::example()
    }

    /// The distance from the simplest loss, for reducing networks.
    fn cost(&self) -> usize {
        1
    }

    fn rule(&self) -> LossRule;

    /// The required output, as help if the loss does not accept an output.
    fn refusal(_output: &Shape) -> Option<&'static str> {
        None
    }

    /// The expression in Python, of `output` and `y`; `is_plain` omits what belongs only to training.
    fn pytorch(&self, is_plain: bool) -> String;
}

/// Declares a loss without fields.
macro_rules! plain_loss {
    ($Name:ident {
        name: $name:literal, title: $title:literal, about: $about:literal, targets: $targets:ident,
        rule: $rule:expr, pytorch: $pytorch:literal $(, cost: $cost:literal)? $(,)?
    }) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $Name {}

        impl LossType for $Name {
            const NAME: &'static str = $name;
            const TITLE: &'static str = $title;
            const ABOUT: &'static str = $about;
            const TARGETS: Targets = Targets::$targets;

            fn example() -> Self {
                Self {}
            }

            $(fn cost(&self) -> usize {
                $cost
            })?

            fn rule(&self) -> LossRule {
                $rule
            }

            fn pytorch(&self, _is_plain: bool) -> String {
                $pytorch.into()
            }
        }
    };
}
pub(super) use plain_loss;

pub(super) fn findings<T: LossType>(loss: &T) -> Vec<(&'static str, String, String)> {
    let of =
        |field: &'static FieldSpec<T>| field.findings(loss).into_iter().map(|(found, help)| (field.name, found, help));
    T::FIELDS.iter().flat_map(of).collect()
}

pub(super) fn read_into<T: LossType>(loss: &mut T, f: &mut Fields<'_>) {
    T::FIELDS.iter().for_each(|field| field.read(loss, f));
}

pub(super) fn write_into<T: LossType>(loss: &T, map: &mut Map<String, Value>) {
    T::FIELDS.iter().for_each(|field| field.write(loss, map));
}

pub(super) const fn fields_of<T: LossType>(_loss: &T) -> &'static [FieldSpec<T>] {
    T::FIELDS
}

pub(super) fn name_of<T: LossType>(_loss: &T) -> &'static str {
    T::NAME
}

pub(super) fn title_of<T: LossType>(_loss: &T) -> &'static str {
    T::TITLE
}

pub(super) fn about_of<T: LossType>(_loss: &T) -> &'static str {
    T::ABOUT
}

pub(super) fn targets_of<T: LossType>(_loss: &T) -> Targets {
    T::TARGETS
}

pub(super) fn refusal_of<T: LossType>(_loss: &T, output: &Shape) -> Option<&'static str> {
    T::refusal(output)
}

pub(super) fn redrawn<T: LossType>(loss: &mut T, draw: &mut Draw) {
    *loss = T::drawn(draw);
}
