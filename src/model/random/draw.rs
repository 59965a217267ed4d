//! What fields are drawn with.

use super::Size;
use crate::model::{Activation, Rng};

/// The generator of one network: its random numbers, and what it may grow to.
#[derive(Clone, Debug)]
pub struct Draw {
    rng: Rng,
    size: Size,
}

impl Draw {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x4E45_5453), size }
    }

    /// Numbers of their own for the data of a network.
    pub(super) fn for_data(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x4441_5441), size }
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// A whole number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.rng.below(high.max(low) - low + 1)
    }

    /// True in this share of cases.
    pub fn coin(&mut self, share: f64) -> bool {
        self.rng.uniform() < share
    }

    /// One of a list that is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.below(list.len())]
    }

    /// One of the values at an end of what is allowed, as often as the network's size says; otherwise a usual one.
    pub fn extreme_or<T: Copy>(&mut self, extremes: &[T], usual: impl FnOnce(&mut Self) -> T) -> T {
        if self.coin(self.size.extreme) { self.pick(extremes) } else { usual(self) }
    }

    /// A number in `[low, high)` with three decimals.
    pub fn number(&mut self, low: f64, high: f64) -> f64 {
        (self.rng.range(low, high) * 1e3).floor() / 1e3
    }

    /// One to nine times a power of ten, between 10 to the `low` and 10 to the `high`.
    pub fn magnitude(&mut self, low: i32, high: i32) -> f64 {
        let exponent = low + self.rng.below((high - low).max(1) as usize) as i32;
        let digit = self.between(1, 9);
        // What a reader makes of the text is the same number on every machine.
        format!("{digit}e{exponent}").parse().unwrap_or(1.0)
    }

    pub fn function(&mut self) -> Activation {
        self.pick(&Activation::ALL)
    }

    /// The activation of a layer that need not have one.
    pub fn activation(&mut self) -> Option<Activation> {
        self.coin(0.6).then(|| self.function())
    }
}
