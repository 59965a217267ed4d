//! The layout of samples and targets on a device, and how it finds a batch among them.

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

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a step finds the samples of its batch: from `cursor` on, in the order given by the keys or in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct BatchPlace {
    keys: [u32; ROUNDS],
    cursor: u32,
    unused: [u32; 3],
}

impl BatchPlace {
    /// A shuffled order.
    #[must_use]
    pub const fn shuffled(shuffle: Shuffle, cursor: u32) -> Self {
        Self { keys: shuffle.keys(), cursor, unused: [0; 3] }
    }

    /// The sample in row `row` of the batch, in a shuffle of `len` samples. The device computes the same.
    #[must_use]
    pub fn sample(&self, len: u32, row: u32) -> u32 {
        Shuffle::of(len, self.keys).at(self.cursor + row)
    }

    /// The order in which samples were given.
    #[must_use]
    pub const fn in_order(cursor: u32) -> Self {
        Self { keys: [0; ROUNDS], cursor, unused: [0; 3] }
    }
}
