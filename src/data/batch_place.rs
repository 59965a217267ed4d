//! Samples and targets as a device holds them: where it finds a batch among them.

use super::Shuffle;
use super::shuffle::ROUNDS;
use bytemuck::{Pod, Zeroable};

/// Targets of samples.
#[derive(Clone, Copy, Debug)]
pub enum BatchTargets<'a> {
    /// `[n]`, classes.
    Classes(&'a [i32]),
    /// `[n, output]`.
    Values(&'a [f32]),
}

impl BatchTargets<'_> {
    /// Elements in all.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Classes(labels) => labels.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// True where there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a step finds the samples of its batch: at `cursor` and after it in the order that the keys give, or in the
/// order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BatchPlace {
    keys: [u32; ROUNDS],
    cursor: u32,
    unused: [u32; 3],
}

impl BatchPlace {
    /// In a shuffle.
    #[must_use]
    pub const fn shuffled(shuffle: Shuffle, cursor: u32) -> Self {
        Self { keys: shuffle.keys(), cursor, unused: [0; 3] }
    }

    /// The number of the batch's sample `row` in a shuffle of `len`: what the device computes.
    #[must_use]
    pub fn sample(&self, len: u32, row: u32) -> u32 {
        Shuffle::of(len, self.keys).at(self.cursor + row)
    }

    /// In the order in which samples were given.
    #[must_use]
    pub const fn in_order(cursor: u32) -> Self {
        Self { keys: [0; ROUNDS], cursor, unused: [0; 3] }
    }
}
