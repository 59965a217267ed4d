//! `activation`: a nonlinear function of each element.

use super::super::random::Draw;
use super::super::{Activation, Fields};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationLayer {
    pub function: Activation,
}

impl ActivationLayer {
    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        let options = Activation::ALL.map(|a| (a.name(), a));
        Self { function: f.choice("function", &options, true).unwrap_or(Activation::Relu) }
    }

    pub(super) fn write(self, map: &mut Map<String, Value>) {
        map.insert("function".into(), self.function.name().into());
    }

    pub(super) fn drawn(draw: &mut Draw) -> Self {
        Self { function: draw.function() }
    }
}
