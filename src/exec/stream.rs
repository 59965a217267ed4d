//! Steps that fetch their own batches from a data set on the device, launched ahead of what they report.

use super::{ExecError, Step, cuda};
use crate::data::{BatchPlace, BatchTargets};
use crate::lower::LValueId;

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
    /// Keeps a data set on the device, so that steps fetch their batches themselves and several go in one launch.
    /// `samples` `[n, sample]` lie in the step's layout; `rows` are those that shuffles permute, where they do not come
    /// in order; `watched` are scalars to be read after every step. False where the device has no room, and on a CPU,
    /// which reads its batches where they lie.
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

    /// The steps that the next launch makes where `left` are wanted; 0 where steps do not fetch their batches
    /// themselves.
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

    /// Launches the steps whose batches stand at `places`, as many as [`Self::launch_size`] said; `counter` is the step
    /// counter before them. Returns at once.
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
