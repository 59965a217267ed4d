//! `residual` and `repeat`: blocks of layers.

use super::super::random::Draw;
use super::LayerSpec;
use serde_json::{Map, Value};

/// `x + f(x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    pub layers: Vec<LayerSpec>,
}

/// `f` applied `times` times with the same weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub times: usize,
    pub layers: Vec<LayerSpec>,
}

fn write_layers(map: &mut Map<String, Value>, layers: &[LayerSpec]) {
    map.insert("layers".into(), layers.iter().map(|l| Value::Object(l.write())).collect());
}

impl Residual {
    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        write_layers(map, &self.layers);
    }
}

impl Repeat {
    /// Without the layers inside.
    pub(super) fn drawn(draw: &mut Draw) -> Self {
        Self { times: draw.extreme_or(&[1, 5], |d| d.between(2, 3)), layers: Vec::new() }
    }

    pub(super) fn write(&self, map: &mut Map<String, Value>) {
        map.insert("times".into(), self.times.into());
        write_layers(map, &self.layers);
    }
}
