//! Steps that fetch their own batches from a data set on the device, launched ahead of what they report.

use super::Shuffle;
use super::shuffle::ROUNDS;
use crate::lower::LValueId;
use bytemuck::{Pod, Zeroable};

/// Values that a record holds at most.
pub(super) const MAX_WATCHED: usize = 8;

/// A data set that steps are to fetch their batches from.
#[derive(Clone, Copy, Debug)]
pub struct DataSet<'a> {
    /// `[n, sample]`, in the step's layout.
    pub samples: &'a [f32],
    pub targets: BatchTargets<'a>,
    /// The rows that shuffles permute, where samples do not come in order.
    pub rows: Option<&'a [u32]>,
    /// Scalars to be read after every step.
    pub watched: &'a [LValueId],
}

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

/// Where a step finds the samples of its batch: they are at `cursor` and behind it in the order that the keys give, or
/// in the order in which they came.
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

/// What a step that fetched its own batch reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepRecord {
    /// The step counter before it.
    pub counter: u64,
    /// From the gathering of its batch to its end, by the device's clock, in microseconds.
    pub step_us: f32,
    /// The watched values, in the order in which they were asked for.
    pub values: [f32; MAX_WATCHED],
}
