//! Random values for fields.

use crate::model::activation::Activation;
use crate::model::choose::Choose;
use crate::model::rng::Rng;

/// The size of the networks of a generator, and the share of unusual ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// The largest number of elements of one sample in any value.
    pub sample: usize,
    /// The largest number of layers in the outermost list.
    pub layers: usize,
    /// The largest number of samples in a batch.
    pub batch: usize,
    /// The share of fields that take a value at a limit: a stride larger than the window, a rate near 1.
    pub extreme: f64,
    /// The share of networks with layers that choose, and the share of those with data that have short batches.
    pub choosing: f64,
}

impl Size {
    /// Networks whose plain-loop step in `f64` takes a fraction of a millisecond.
    pub const SMALL: Self = Self { sample: 400, layers: 6, batch: 6, extreme: 0.12, choosing: 0.0 };
    /// Networks whose operations are large enough for threads to share.
    pub const LARGE: Self = Self { sample: 6_000, layers: 5, batch: 48, extreme: 0.12, choosing: 0.0 };

    /// The same with layers that choose in a fifth of the networks.
    #[must_use]
    pub const fn choosing(self) -> Self {
        Self { choosing: 0.2, ..self }
    }

    /// The same with typical values of the fields.
    #[must_use]
    pub const fn usual(self) -> Self {
        Self { extreme: 0.0, ..self }
    }
}

/// The generator of one network: its random numbers, and the limits of its size.
#[derive(Clone, Debug)]
pub struct Draw {
    rng: Rng,
    size: Size,
}

impl Draw {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x4E45_5453), size }
    }

    /// Separate random numbers for the data of a network.
    pub(super) fn for_data(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x4441_5441), size }
    }

    /// Separate random numbers for losses on values and for the training recipe.
    pub(super) fn for_recipe(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x5245_4349), size }
    }

    /// Separate random numbers for inputs other than the first.
    pub(super) fn for_inputs(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x494E_5054), size }
    }

    /// Separate random numbers for the choices of layers.
    pub(super) fn for_choices(seed: u64, size: Size) -> Self {
        Self { rng: Rng::new(seed, 0x4348_4F49), size }
    }

    /// Separate random numbers for networks around one layer, whose sizes have other limits.
    #[must_use]
    pub fn for_layers(seed: u64) -> Self {
        Self { rng: Rng::new(seed, 0x4C41_5945), size: Size::SMALL }
    }

    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// A whole number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.rng.below(high.max(low) - low + 1)
    }

    /// True with this probability.
    pub fn coin(&mut self, share: f64) -> bool {
        self.rng.uniform() < share
    }

    /// One of a non-empty list.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.rng.below(list.len())]
    }

    /// One of the values at a limit, with the probability for the network's size; otherwise a usual one.
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
        // A number that was read from text is the same on every machine.
        format!("{digit}e{exponent}").parse().unwrap_or(1.0)
    }

    /// A choice among the values from 0 to `most`.
    pub fn choose(&mut self, most: usize) -> Choose {
        let values = |d: &mut Self, count: usize| (0..count).map(|_| d.between(0, most)).collect::<Vec<_>>();
        match self.between(0, 2) {
            0 => {
                let count = self.between(1, 4);
                Choose::Cycle(values(self, count))
            }
            1 => {
                let certain = self.between(0, most);
                let weight = |d: &mut Self, value| if value == certain { 0.5 } else { d.number(0.0, 1.0).max(0.0) };
                Choose::Random((0..=most).map(|value| weight(self, value)).collect())
            }
            _ => {
                let (count, every) = (self.between(1, 3), self.between(1, 3));
                let values = values(self, count);
                Choose::Schedule(values.into_iter().enumerate().map(|(i, value)| [1 + i * every, value]).collect())
            }
        }
    }

    pub fn function(&mut self) -> Activation {
        self.pick(&Activation::ALL)
    }

    /// The activation of a layer whose activation is optional.
    pub fn activation(&mut self) -> Option<Activation> {
        self.coin(0.6).then(|| self.function())
    }

    /// The number that a normalisation adds to a variance.
    pub fn eps(&mut self) -> f64 {
        self.extreme_or(&[1e-12, 1e-8, 0.1, 1.0], |d| if d.coin(0.7) { 1e-5 } else { d.magnitude(-6, -2) })
    }
}
