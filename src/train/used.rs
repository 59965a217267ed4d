//! What the batches of a step used, if the steps of a run differ in that.

use super::StepReport;
use super::batch_shape::BatchShape;
use super::dispatch::Dispatch;

/// What the batches of a step used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    rows: usize,
    length: usize,
    /// The numbers of its path, of the reason why it ran op by op, and of its last recording.
    noted: [u32; 3],
}

impl Used {
    /// Adds a batch that ran.
    pub(super) fn add(&mut self, shape: Option<BatchShape>, dispatch: Option<&Dispatch>) {
        let (Some(BatchShape { rows, length }), Some(dispatch)) = (shape, dispatch) else { return };
        self.rows += if dispatch.varies_in_rows() { rows } else { 0 };
        self.length = self.length.max(length.unwrap_or(0));
        let [path, eager, kind] = dispatch.noted();
        self.noted = [path, self.noted[1].max(eager), kind];
    }

    /// Sets these fields of a report.
    pub(super) fn report(self) -> StepReport {
        let Self { rows, length, noted: [path, eager, kind] } = self;
        StepReport { rows: rows as u32, length: length as u32, path, eager, kind, ..StepReport::default() }
    }
}
