//! The contents of a buffer after a number of operations of a step.

use crate::plan::BufferId;
use crate::train::Summary;

/// The place of shown values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub buffer: BufferId,
    /// The index of the part of a flat vector; 0 for other buffers.
    pub part: usize,
    /// The number of operations of the step that are done.
    pub ops: usize,
}

/// The shown values of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownValues {
    /// The revision of the plan.
    pub revision: u64,
    /// The buffer, the part of a flat vector, and the number of operations of the step that were done.
    pub place: Place,
    /// The number of steps that the run had made before.
    pub step: u64,
    /// The name of the stored value, or why there is none.
    pub holds: String,
    /// The operation that wrote it last.
    pub writer: Option<usize>,
    pub summary: Option<Summary>,
    /// The number of the answer, so that a picture is made once.
    pub number: u64,
}
