//! What a buffer holds after so many operations of a step.

use crate::plan::BufferId;
use crate::train::Summary;

/// Where the user looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub buffer: BufferId,
    /// The part of a flat vector that is meant; 0 of other buffers.
    pub part: usize,
    /// Operations of the step that are done.
    pub ops: usize,
}

/// What is shown of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownValues {
    /// Of the plan.
    pub revision: u64,
    /// The buffer, which part of a flat vector it is, and the operations of the step that were done.
    pub place: Place,
    /// Steps that the run had made before.
    pub step: u64,
    /// What is stored there in words: the value's name, or why there is none.
    pub holds: String,
    /// The operation that wrote it last.
    pub writer: Option<usize>,
    pub summary: Option<Summary>,
    /// Counts answers, so that a picture is made once.
    pub number: u64,
}
