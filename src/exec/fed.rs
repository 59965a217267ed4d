//! Steps that fetch their own batches; they are launched before the reports of earlier ones are read.

use crate::data::{BatchPlace, BatchTargets};
use crate::exec::error::ExecError;
use crate::exec::step::Step;
use crate::exec::stream::{DataSet, HeldData, StepRecord};
use crate::lower::LValueId;

impl Step {
    /// Stores a data set on the device, so that steps fetch their batches themselves and one launch makes several
    /// steps. `samples` `[n, sample]` are in the step's layout; `rows` are the rows that shuffles permute, if samples
    /// do not come in order; `watched` are scalars to be read after every step. Returns false if the device has no
    /// room, and on a CPU, which reads its batches from the host's memory.
    ///
    /// # Errors
    /// If the device fails.
    pub fn hold(
        &mut self,
        samples: &[f32],
        targets: BatchTargets<'_>,
        rows: Option<&[u32]>,
        watched: &[LValueId],
    ) -> Result<bool, ExecError> {
        self.backend.hold(&DataSet { samples, targets, rows, watched })
    }

    /// The data set that the step holds.
    #[must_use]
    pub fn held(&self) -> Option<HeldData> {
        self.backend.held()
    }

    /// Like [`Self::hold`], for a data set that another step holds on the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn share(&mut self, held: &HeldData, watched: &[LValueId]) -> Result<bool, ExecError> {
        self.backend.share(held, watched)
    }

    /// Prepares the launches of several steps, which otherwise happens during the first steps.
    ///
    /// # Errors
    /// If the device fails, or a launch is not the planned one.
    pub fn prepare_launches(&mut self) -> Result<(), ExecError> {
        self.backend.prepare_launches()
    }

    /// The number of steps that the next launch makes if `left` are requested; 0 if steps do not fetch their batches
    /// themselves.
    #[must_use]
    pub fn launch_size(&self, left: u64) -> usize {
        self.backend.launch_size(left)
    }

    /// Whether another launch may be started before the records of the first one are taken.
    #[must_use]
    pub fn has_free_slot(&self) -> bool {
        self.backend.has_free_slot()
    }

    /// Launches the steps whose batches are at `places`, as many as [`Self::launch_size`] returned; `counter` is the
    /// step counter before them. Returns immediately.
    ///
    /// # Errors
    /// If the ledger finds that memory, graph or a live constant has changed since capture (then nothing was run), or a
    /// call fails.
    pub fn launch(&mut self, counter: u64, places: &[BatchPlace]) -> Result<(), ExecError> {
        self.store().revise();
        self.backend.launch(counter, places)
    }

    /// The records of the oldest launch in flight, in order; waits only for that launch.
    ///
    /// # Errors
    /// If the device fails.
    pub fn completed(&mut self) -> Result<&[StepRecord], ExecError> {
        self.backend.completed()
    }

    /// Waits for all launches and discards their records.
    ///
    /// # Errors
    /// If the device fails.
    pub fn abandon_launches(&mut self) -> Result<(), ExecError> {
        self.backend.abandon_launches()
    }
}
