//! Steps that fetch their own batches from a data set on the device, launched ahead of what they report.

use super::shuffle::ROUNDS;
use super::{ExecError, Shuffle, Step, cuda};
use crate::lower::LValueId;
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

/// Where a step finds the samples of its batch: they stand at `cursor` and behind it in the order that the keys give, or in the order in which they came.
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
    pub values: [f32; cuda::MAX_WATCHED],
}

impl Step {
    /// Keeps a data set on the device, so that steps fetch their batches themselves and several go in one launch. `samples` `[n, sample]` lie in the step's
    /// layout; `rows` are those that shuffles permute, where they do not come in order; `watched` are scalars to be read after every step. False where the device has no room, and on a CPU, which reads its batches where they lie.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn hold(
        &mut self,
        samples: &[f32],
        targets: BatchTargets<'_>,
        rows: Option<&[u32]>,
        watched: &[LValueId],
    ) -> Result<bool, ExecError> {
        match self {
            Self::Cpu(_) => Ok(false),
            Self::Cuda(step) => step.hold(samples, targets, rows, watched),
        }
    }

    /// The steps that the next launch makes where `left` are wanted; 0 where steps do not fetch their batches themselves.
    #[must_use]
    pub fn launch_size(&self, left: u64) -> usize {
        match self {
            Self::Cpu(_) => 0,
            Self::Cuda(step) => step.launch_size(left),
        }
    }

    /// Whether another launch may be sent before the records of the first are taken.
    #[must_use]
    pub fn has_berth(&self) -> bool {
        matches!(self, Self::Cuda(step) if step.has_berth())
    }

    /// Launches the steps whose batches stand at `places`, as many as [`Self::launch_size`] said; `counter` is the step counter before them.
    /// Returns at once.
    ///
    /// # Errors
    /// Where the ledger finds that memory, graph or a live constant is another than at capture (nothing was run then),
    /// or a call fails.
    pub fn launch(&mut self, counter: u64, places: &[BatchPlace]) -> Result<(), ExecError> {
        match self {
            Self::Cpu(_) => Err(ExecError::NoValue("a data set on a device".into())),
            Self::Cuda(step) => step.launch(counter, places),
        }
    }

    /// The records of the oldest launch under way, in order; waits for that launch alone.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn landed(&mut self) -> Result<&[StepRecord], ExecError> {
        match self {
            Self::Cpu(_) => Ok(&[]),
            Self::Cuda(step) => step.landed(),
        }
    }

    /// Waits for all launches and forgets their records.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn abandon_launches(&mut self) -> Result<(), ExecError> {
        match self {
            Self::Cpu(_) => Ok(()),
            Self::Cuda(step) => step.abandon_launches(),
        }
    }
}
