//! `dropout`: zeroes a random share of elements while training and scales the rest up.

use super::super::Fields;
use super::super::mistakes::FieldChecks;
use super::super::random::Draw;
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// The share that is zeroed, in `[0, 1)`.
    pub rate: f64,
}

impl Dropout {
    pub(super) fn read(f: &mut Fields<'_>) -> Self {
        Self { rate: f.number("rate", None) }
    }

    pub(super) fn write(self, map: &mut Map<String, Value>) {
        map.insert("rate".into(), self.rate.into());
    }

    pub(super) fn drawn(draw: &mut Draw) -> Self {
        Self { rate: draw.extreme_or(&[0.0, 0.95, 0.999], |d| d.number(0.01, 0.6)) }
    }

    pub(super) fn check_fields(self, fields: &mut FieldChecks<'_>) {
        if !(0.0..1.0).contains(&self.rate) {
            fields.fail("rate", format!("found {}", self.rate), "expected a number from 0 up to, but not including, 1");
        }
    }
}
