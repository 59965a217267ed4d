//! `dense`: `y = x W + b` over the last axis; weight `[in, units]`.

use super::super::check::{Infer, ParamKind};
use super::super::mistakes::FieldChecks;
use super::super::random::Draw;
use super::super::{Activation, Fields};
use super::{read_activation, write_activation};
use crate::tensor::Shape;
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dense {
    pub units: usize,
    pub activation: Option<Activation>,
    pub bias: bool,
}

impl Dense {
    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        Self { units: f.count("units", None), activation: read_activation(f), bias: f.flag("bias", true) }
    }

    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        map.insert("units".into(), self.units.into());
        write_activation(map, self.activation);
        if !self.bias {
            map.insert("bias".into(), false.into());
        }
    }

    pub(super) fn check_fields(&self, fields: &mut FieldChecks<'_>) {
        if self.units == 0 {
            fields.fail("units", "found 0", "a dense layer needs at least 1 unit");
        }
    }

    pub(super) fn drawn(draw: &mut Draw, input: &Shape) -> Self {
        let most = if input.rank() == 3 { 9 } else { draw.size().sample / 12 };
        let units = draw.extreme_or(&[1], |d| d.between(1, most));
        Self { units, activation: draw.activation(), bias: draw.coin(0.7) }
    }

    pub(super) fn infer(&self, cx: &mut Infer<'_>) -> Option<Shape> {
        if !cx.fields.is_sound() {
            return None;
        }
        let mut output = cx.input.clone();
        let inputs = std::mem::replace(output.0.last_mut()?, self.units);
        cx.weight(ParamKind::Weight, [inputs, self.units], inputs, self.units);
        if self.bias {
            cx.constant(ParamKind::Bias, self.units, 0.0);
        }
        Some(output)
    }
}
