//! The presets that the user can start from.

use crate::model::optimizers::{AdamW, OptimizerType};
use crate::model::{
    BUNDLED, DataSource, DataSpec, InputSpec, LossSpec, OptimizerSpec, Precision, Preset, TrainSpec, UpdateSpec,
    read_preset,
};

/// The preset that the studio opens with: small, with real data, trained within seconds.
const FIRST: &str = "digits-mlp";

/// The number of bundled presets.
#[must_use]
pub const fn count() -> usize {
    BUNDLED.len()
}

/// The name of a bundled preset.
#[must_use]
pub fn name(index: usize) -> &'static str {
    BUNDLED.get(index).map_or("", |b| b.name)
}

/// The bundled preset with this name.
#[must_use]
pub fn index(name: &str) -> Option<usize> {
    BUNDLED.iter().position(|b| b.name == name)
}

/// A bundled preset.
#[must_use]
pub fn bundled(index: usize) -> Option<Preset> {
    read_preset(BUNDLED.get(index)?.text).ok()
}

/// The preset that the studio opens with.
#[must_use]
pub fn digits() -> Preset {
    index(FIRST).and_then(bundled).unwrap_or_else(empty)
}

/// The name of a network that has no name yet.
pub const UNTITLED: &str = "untitled";

/// An empty network without layers.
#[must_use]
pub fn empty() -> Preset {
    Preset {
        name: UNTITLED.into(),
        about: String::new(),
        input: InputSpec::one([64], 64),
        layers: Vec::new(),
        loss: LossSpec::SOFTMAX_CROSS_ENTROPY,
        optimizer: OptimizerSpec::AdamW(AdamW { lr: 0.001, weight_decay: 0.0001, ..AdamW::example() }),
        update: UpdateSpec::default(),
        precision: Precision::F32,
        data: Some(DataSpec::of(DataSource::Digits)),
        train: Some(TrainSpec { steps: 2000, ..TrainSpec::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_preset_opens() {
        for index in 0..count() {
            assert!(bundled(index).is_some(), "{}", name(index));
        }
        assert_eq!((digits().name.as_str(), digits().layers.len()), (FIRST, 3));
    }
}
