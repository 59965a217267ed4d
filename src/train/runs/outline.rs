//! The part of a run's curves that remains if their values are stored elsewhere: when its steps were made, and how far
//! its layers moved.

use super::LayerCurves;

/// The steps made by some running time; between two such points they are assumed to be evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    /// Index of the first value, from 0, and the number of values.
    pub start: usize,
    pub count: usize,
    pub from_ms: f64,
    pub to_ms: f64,
}

/// The running time at which the value at `index` was made, in milliseconds.
pub(super) fn ms_of(stretches: &[Stretch], index: usize) -> f64 {
    let after = stretches.partition_point(|s| s.start <= index);
    let Some(s) = after.checked_sub(1).and_then(|i| stretches.get(i)) else { return 0.0 };
    let share = if s.count > 1 { (index - s.start) as f64 / (s.count - 1) as f64 } else { 1.0 };
    s.from_ms + (s.to_ms - s.from_ms) * share.min(1.0)
}

/// The curves of a run without their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outline {
    /// Steps before the first value.
    pub before: u64,
    pub last_step: u64,
    /// True if the file ends with an incomplete chunk.
    pub is_torn: bool,
    /// How far each layer moved.
    pub layers: LayerCurves,
    pub(super) stretches: Vec<Stretch>,
}

impl Outline {
    /// The running time at which the value at `index` was made, in milliseconds.
    #[must_use]
    pub fn ms(&self, index: usize) -> f64 {
        ms_of(&self.stretches, index)
    }
}
