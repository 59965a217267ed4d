//! Steps that fetch their own batches, launched ahead of what they report.

use crate::data::{BatchPlace, BatchTargets};
use crate::exec::error::ExecError;
use crate::exec::step::Step;
use crate::exec::stream::{DataSet, StepRecord};
use crate::lower::LValueId;

impl Step {
    /// Keeps a data set on the device, so that steps fetch their batches themselves and several go in one launch.
    /// `samples` `[n, sample]` are in the step's layout; `rows` are those that shuffles permute, where they do not come
    /// in order; `watched` are scalars to be read after every step. False where the device has no room, and on a CPU,
    /// which reads its batches where they are.
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
        self.backend.hold(&DataSet { samples, targets, rows, watched })
    }

    /// The steps that the next launch makes where `left` are wanted; 0 where steps do not fetch their batches
    /// themselves.
    #[must_use]
    pub fn launch_size(&self, left: u64) -> usize {
        self.backend.launch_size(left)
    }

    /// Whether another launch may be sent before the records of the first are taken.
    #[must_use]
    pub fn has_free_slot(&self) -> bool {
        self.backend.has_free_slot()
    }

    /// Launches the steps whose batches are at `places`, as many as [`Self::launch_size`] said; `counter` is the step
    /// counter before them. Returns at once.
    ///
    /// # Errors
    /// Where the ledger finds that memory, graph or a live constant is another than at capture (nothing was run then),
    /// or a call fails.
    pub fn launch(&mut self, counter: u64, places: &[BatchPlace]) -> Result<(), ExecError> {
        self.store().revise();
        self.backend.launch(counter, places)
    }

    /// The records of the oldest launch in flight, in order; waits for that launch alone.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn completed(&mut self) -> Result<&[StepRecord], ExecError> {
        self.backend.completed()
    }

    /// Waits for all launches and forgets their records.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn abandon_launches(&mut self) -> Result<(), ExecError> {
        self.backend.abandon_launches()
    }
}
